// Ablate measures what the parts of the rule are worth that learns a server's limit: it builds the league,
// and with -zoo the zoo, without a part or a group of parts, and plays the same worlds.
//
//	go run ./bench/ablate                             # each part alone, named worlds: two hours
//	go run ./bench/ablate trial silent+usual          # one part, and two together
//	go run ./bench/ablate -random 200 -seeds 3 trial  # random worlds, too
//	go run ./bench/ablate -zoo 25 -seeds 3 trial      # and servers that other people wrote
//	go run ./bench/ablate -list
//
// A part is made inert by a change of its source that only the compiler sees (go build -overlay), so nothing in the
// rule knows of this. The table has the mean score with all parts, and by how much it changes without some: a part that is
// worth less than .3 everywhere, with several seeds, and without which no world loses 5 points, is not worth its
// lines. Two runs of one binary differ by .15 in the zoo.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ablate:", err)
		os.Exit(1)
	}
}

// An ablation is what is played, and with which sources.
type ablation struct {
	root   string // of the repository
	temp   string
	random int
	rseed  int
	seeds  int
	zoo    int // seconds; 0: the zoo is not played
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ablate", flag.ContinueOnError)
	a := ablation{}
	list := flags.Bool("list", false, "list the parts, with the file of internal/adaptive that each is in")
	flags.IntVar(&a.random, "random", 0, "also play so many random `worlds`")
	flags.IntVar(&a.rseed, "rseed", 4, "the `seed` of the random worlds")
	flags.IntVar(&a.seeds, "seeds", 1, "`runs` in each world")
	flags.IntVar(&a.zoo, "zoo", 0, "also play the zoo, for so many `seconds` at each server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, p := range parts {
			fmt.Fprintf(out, "%-14s %s\n", p.name, p.file)
		}
		return nil
	}
	groups := flags.Args()
	if len(groups) == 0 {
		for _, p := range parts {
			groups = append(groups, p.name)
		}
	}
	for _, g := range groups {
		if _, err := partsOf(g); err != nil {
			return err
		}
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/sluice-go/sluice").Output()
	if err != nil {
		return fmt.Errorf("where is the module? %w", err)
	}
	if a.temp, err = os.MkdirTemp("", "ablate"); err != nil {
		return err
	}
	defer os.RemoveAll(a.temp)
	a.root = strings.TrimSpace(string(root))
	whole, err := a.play("")
	if err != nil {
		return err
	}
	fmt.Fprint(out, "| without |")
	for _, k := range whole.kinds() {
		fmt.Fprintf(out, " %s %.2f | most lost by |", k, whole.mean(k))
	}
	fmt.Fprintln(out, "\n|---|"+strings.Repeat("--:|---|", len(whole.kinds())))
	for _, g := range groups {
		without, err := a.play(g)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %s |", g)
		for _, k := range whole.kinds() {
			world, lost := whole.mostLost(without, k)
			fmt.Fprintf(out, " %+.2f | %s %.0f |", without.mean(k)-whole.mean(k), world, lost)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// partsOf returns the parts of a group such as a+b.
func partsOf(group string) ([]part, error) {
	var all []part
	for name := range strings.SplitSeq(group, "+") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no part %q; -list lists them", name)
		}
		all = append(all, parts[i])
	}
	return all, nil
}

// overlay writes the sources without the parts of group, and returns the file for go build -overlay.
func (a *ablation) overlay(group string) (string, error) {
	replace := make(map[string]string)
	all, err := partsOf(group)
	if err != nil {
		return "", err
	}
	for _, p := range all {
		file := filepath.Join(a.root, "internal", "adaptive", p.file)
		text, err := os.ReadFile(cmp.Or(replace[file], file))
		if err != nil {
			return "", err
		}
		without, err := p.remove(string(text))
		if err != nil {
			return "", err
		}
		replace[file] = filepath.Join(a.temp, p.file)
		if err := os.WriteFile(replace[file], []byte(without), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(a.temp, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// remove returns text without p.
func (p *part) remove(text string) (string, error) {
	if n := strings.Count(text, p.old); n != 1 {
		return "", fmt.Errorf("%s is %d times in %s: %q", p.name, n, p.file, p.old)
	}
	return strings.Replace(text, p.old, p.new, 1), nil
}

// Scores are those of all runs, by kind and world.
type scores map[string]map[string][]float64

// play returns the scores without the parts of group, "" for the whole rule.
func (a *ablation) play(group string) (scores, error) {
	build := []string{"build"}
	if group != "" {
		name, err := a.overlay(group)
		if err != nil {
			return nil, err
		}
		build = append(build, "-overlay", name)
	}
	all := make(scores)
	league := filepath.Join(a.temp, "league")
	if err := a.do("bench", nil, "go", append(build, "-o", league, "./league")...); err != nil {
		return nil, err
	}
	runs := []string{"-json", "-strategies", "rule-adaptive,rule-zero", "-seeds", strconv.Itoa(a.seeds)}
	if err := a.add(all, "named", league, runs...); err != nil {
		return nil, err
	}
	if a.random > 0 {
		runs = append(runs, "-random", strconv.Itoa(a.random), "-rseed", strconv.Itoa(a.rseed))
		if err := a.add(all, "random", league, runs...); err != nil {
			return nil, err
		}
	}
	if a.zoo > 0 {
		zoo, file := filepath.Join(a.temp, "zoo"), filepath.Join(a.temp, "zoo.json")
		if err := a.do("bench/zoo", []string{"GOWORK=off"}, "go", append(build, "-o", zoo, ".")...); err != nil {
			return nil, err
		}
		if err := a.do("bench/zoo", nil, zoo, "-clients", "search,sluice", "-for", strconv.Itoa(a.zoo), "-n", strconv.Itoa(a.seeds), "-o", file); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return all, all.add("zoo", text)
	}
	return all, nil
}

// do runs a command in a folder of the repository.
func (a *ablation) do(folder string, env []string, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env = filepath.Join(a.root, folder), append(os.Environ(), env...)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, text)
	}
	return nil
}

// add runs the league and adds what it prints.
func (a *ablation) add(all scores, kind, name string, args ...string) error {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return all.add(kind, text)
}

// add adds the runs of text, which is JSON of the league or the zoo.
func (s scores) add(kind string, text []byte) error {
	var runs []struct {
		World, Strategy string // league
		Server, Client  string // zoo
		Score           float64
	}
	if err := json.Unmarshal(text, &runs); err != nil {
		return err
	}
	for _, r := range runs {
		k := kind + " search"
		if r.Strategy == "rule-zero" || r.Client == "sluice" {
			k = kind + " none"
		}
		if s[k] == nil {
			s[k] = make(map[string][]float64)
		}
		world := cmp.Or(r.World, r.Server)
		s[k][world] = append(s[k][world], r.Score)
	}
	return nil
}

func (s scores) kinds() (all []string) {
	for k := range s {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// mean returns the mean score of all worlds of a kind.
func (s scores) mean(kind string) float64 {
	sum := 0.
	for _, runs := range s[kind] {
		sum += mean(runs)
	}
	return sum / float64(len(s[kind]))
}

// mostLost returns the world of a kind that loses most without some parts.
func (s scores) mostLost(without scores, kind string) (world string, lost float64) {
	lost = math.Inf(-1)
	for w, runs := range s[kind] {
		if d := mean(runs) - mean(without[kind][w]); d > lost || d == lost && w < world {
			world, lost = w, d
		}
	}
	return world, lost
}

func mean(runs []float64) float64 {
	sum := 0.
	for _, x := range runs {
		sum += x
	}
	return sum / float64(len(runs))
}
