// Command league measures what a client gains from a limiter: the share of the
// upstream's allowance that it uses, the share of its calls that are refused, and how
// long a call waits. It runs in virtual time. README.md has the worlds and the scores.
//
//	go run ./bench/league -quick
//	go run ./bench/league -strategies pacer-told,aws-adaptive -only steps,penalty
//	go run ./bench/league -random 100 -rseed 4 -quick
//	go run ./bench/league -worlds FILE -json
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

func main() {
	args := os.Args[1:]
	asTest(func(in bubbler) int {
		if err := run(args, os.Stdout, in); err != nil {
			fmt.Fprintln(os.Stderr, "league:", err)
			return 1
		}
		return 0
	})
}

func run(args []string, out io.Writer, in bubbler) error {
	flags := flag.NewFlagSet("league", flag.ContinueOnError)
	file := flags.String("worlds", "", "a `file` of worlds, instead of the named ones")
	draw := flags.Int("random", 0, "draw so many worlds at random, instead of the named ones")
	rseed := flags.Uint64("rseed", 1, "the seed to draw them with")
	only := flags.String("only", "", "only the worlds with these `names`, separated by commas")
	names := flags.String("strategies", "", "only the strategies with these `names`")
	seeds := flags.Int("seeds", 5, "runs of each world")
	quick := flags.Bool("quick", false, "one run of each world")
	asJSON := flags.Bool("json", false, "print the figures of each run as JSON")
	asWorlds := flags.Bool("print-worlds", false, "print the worlds as JSON, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	worlds := namedWorlds()
	switch {
	case *file != "":
		var err error
		if worlds, err = readWorlds(*file); err != nil {
			return err
		}
	case *draw > 0:
		worlds = drawWorlds(*draw, *rseed)
	}
	if *only != "" {
		wanted := strings.Split(*only, ",")
		worlds = slices.DeleteFunc(worlds, func(w *World) bool { return !slices.Contains(wanted, w.Name) })
	}
	var chosen []entry
	if *names == "" {
		chosen = choose(nil)
	} else {
		chosen = choose(strings.Split(*names, ","))
	}
	switch {
	case len(worlds) == 0:
		return fmt.Errorf("no world is called %s", *only)
	case len(chosen) == 0:
		return fmt.Errorf("no strategy is called %s", *names)
	case *asWorlds:
		return printWorlds(out, worlds)
	}
	if *quick {
		*seeds = 1
	}
	scores := playAll(worlds, chosen, *seeds, in)
	if *asJSON {
		return printJSON(out, scores)
	}
	newTable(scores).print(out)
	return nil
}

// playAll plays all games, as many at a time as there are processors. The order of the
// scores does not depend on that.
func playAll(worlds []*World, chosen []entry, seeds int, in bubbler) []Score {
	scores := make([]Score, len(worlds)*len(chosen)*seeds)
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	i := 0
	for _, e := range chosen {
		for _, w := range worlds {
			for seed := range seeds {
				free <- struct{}{}
				into := &scores[i]
				i++
				wg.Go(func() {
					*into = e.play(w, uint64(seed+1), in).score(e.name, uint64(seed+1))
					<-free
				})
			}
		}
	}
	wg.Wait()
	return scores
}
