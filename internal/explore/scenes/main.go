// Command scenes explores the interleavings of the core. It must be built with rewritten packages:
// go run ./internal/explore does that, and runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/explore/sched"
)

func main() {
	var names, seeds string
	var more, most int
	var budget time.Duration
	flag.StringVar(&names, "scenes", "", "only these")
	flag.StringVar(&seeds, "seeds", "", "switch on one bug after the other, each given as name:scene, and find it there")
	flag.IntVar(&more, "more", 0, "by how many preemptions to raise the bound of each scene")
	flag.IntVar(&most, "most", 0, "most executions of a scene, 0: all")
	flag.DurationVar(&budget, "budget", 0, "fail if it takes longer; 0: it may")
	flag.Parse()
	if !sched.Rewritten {
		fmt.Fprintln(os.Stderr, "scenes: the packages were not rewritten; use go run ./internal/explore")
		os.Exit(2)
	}
	var only []string
	if names != "" {
		only = strings.Split(names, ",")
	}
	chosen, err := find(only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scenes:", err)
		os.Exit(2)
	}
	search := sched.Search{Preemptions: more, Most: most}
	if budget > 0 {
		search.Until = time.Now().Add(budget)
	}
	ok := true
	if seeds == "" {
		ok = exploreAll(chosen, search)
	} else {
		ok = findSeeds(strings.Split(seeds, ","), search)
	}
	if !ok {
		os.Exit(1)
	}
}

// of returns the search of sc; that of search is how many preemptions more.
func (sc scene) of(search sched.Search) sched.Search {
	if search.Preemptions += sc.bound; sc.reduced {
		search.Preemptions = reduced
	}
	return search
}

// exploreAll explores the scenes and prints a line of each.
func exploreAll(chosen []scene, search sched.Search) (ok bool) {
	ok = true
	var executions, steps int
	for _, sc := range chosen {
		began := time.Now()
		r := sched.Explore(sc.of(search), sc.play)
		executions, steps = executions+r.Executions, steps+r.Steps
		how := "any"
		if !sc.reduced {
			how = fmt.Sprint(sc.of(search).Preemptions)
		}
		state := "all"
		if !r.Complete {
			state = "part"
			ok = ok && search.Most > 0
		}
		if r.Failure != "" {
			ok, state = false, "FAIL"
		}
		fmt.Printf("| `%s` | %s | %s | %s | %d | %d | %d |\n", sc.name, sc.about, how, state, r.Executions, r.Steps, r.Longest)
		if r.Failure != "" {
			fmt.Printf("\n%s: %s\n    %s\n\n", sc.name, r.Failure, strings.Join(r.Trace, "\n    "))
		}
		if testing := os.Getenv("EXPLORE_TIMES"); testing != "" {
			fmt.Fprintln(os.Stderr, sc.name, time.Since(began).Round(time.Millisecond))
		}
	}
	fmt.Printf("| all | | | | %d | %d | |\n", executions, steps)
	return ok
}

// findSeeds switches on one bug after the other and reports whether each is found.
func findSeeds(seeds []string, search sched.Search) (ok bool) {
	ok = true
	for _, s := range seeds {
		seed, name, _ := strings.Cut(s, ":")
		chosen, err := find([]string{name})
		if err != nil {
			fmt.Fprintln(os.Stderr, "scenes:", err)
			return false
		}
		sched.Seed = seed
		if !found(seed, chosen[0], search) {
			fmt.Printf("| `%s` | `%s` | NOT FOUND | | |\n", seed, name)
			ok = false
		}
	}
	sched.Seed = ""
	return ok
}

// found looks for a bug, with fewer preemptions first: most bugs need one.
func found(seed string, sc scene, search sched.Search) bool {
	tried := 0
	for bound := range sc.bound + 1 {
		own := search
		if own.Preemptions = bound; sc.reduced {
			own.Preemptions = reduced
		}
		r := sched.Explore(own, sc.play)
		if tried += r.Executions; r.Failure != "" {
			why, _, _ := strings.Cut(r.Failure, "\n")
			how := fmt.Sprint(bound)
			if sc.reduced {
				how = "any"
			}
			fmt.Printf("| `%s` | `%s` | %s | %d | %s |\n", seed, sc.name, how, tried, why)
			return true
		}
	}
	return false
}
