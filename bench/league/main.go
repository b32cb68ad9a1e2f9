// Command league measures what a client gains from a limiter: the share of the
// upstream's allowance that it uses, the share of its calls that are refused, and how
// long a call waits. It runs in virtual time. README.md has the worlds and the scores.
//
//	go run ./bench/league -quick
//	go run ./bench/league -strategies xtime-told,aws-adaptive -only steps,penalty
//	go run ./bench/league -random 100 -rseed 4 -quick
//	go run ./bench/league -recovery 20 -quick -strategies rule-zero,backoff
//	go run ./bench/league -worlds FILE -json
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/bench/internal/results"
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

type options struct {
	file, only, strategies  string
	random, recovery, seeds int
	rseed                   uint64
	quick, json, worlds     bool
	strangers               bool
	out, into, learned      string
}

// parse reads the arguments. With -h it prints how to use the command and returns
// flag.ErrHelp.
func parse(args []string, out io.Writer) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("league", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.file, "worlds", "", "the worlds of this `file`, instead of the 22 named ones")
	flags.IntVar(&o.random, "random", 0, "`n` worlds drawn at random, instead of the named ones")
	flags.IntVar(&o.recovery, "recovery", 0, "worlds with steps and incidents, each with `n` random instants of them")
	flags.BoolVar(&o.strangers, "strangers", false, "worlds with a stranger who takes the whole limit")
	flags.Uint64Var(&o.rseed, "rseed", 1, "the `seed` to draw them with")
	flags.StringVar(&o.only, "only", "", "only the worlds with these `names`, separated by commas")
	flags.StringVar(&o.strategies, "strategies", "", "only the strategies with these `names`")
	flags.IntVar(&o.seeds, "seeds", 5, "runs of each strategy in each world")
	flags.BoolVar(&o.quick, "quick", false, "the same as -seeds 1")
	flags.BoolVar(&o.json, "json", false, "print the figures of each run as JSON, instead of tables")
	flags.BoolVar(&o.worlds, "print-worlds", false, "print the worlds as JSON, and run nothing")
	flags.BoolVar(&tracing, "trace", false, "print each change of what sluice-adaptive and sluice-zero believe")
	flags.StringVar(&o.learned, "learned", "", "draw into this `file` what is learned over time in four worlds, and run nothing else")
	flags.StringVar(&o.out, "o", "", "also write the JSON to this `file`")
	flags.StringVar(&o.into, "into", "", "also put the tables into this Markdown `file`, between its marks for league")
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		for _, e := range entries {
			fmt.Fprintf(out, "  %-18s %s\n", e.name, e.about)
		}
		fmt.Fprint(out, "\nFlags:\n\n")
		flags.PrintDefaults()
	}
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.quick {
		o.seeds = 1
	}
	return o, err
}

const usage = `League measures what a client gains from a limiter, in virtual time: the share of the
upstream's allowance that it uses, the share of its calls that are refused, and how long
a call waits. README.md in its directory describes the worlds and the scores.

  go run ./bench/league -quick                                       # two minutes
  go run ./bench/league -strategies xtime-told,sluice-told -only steps,penalty
  go run ./bench/league -random 100 -rseed 4 -quick
  go run ./bench/league -recovery 20 -quick -strategies rule-zero,backoff
  go run ./bench/league -worlds FILE -json

Strategies:

`

// chosen returns the worlds and the strategies that the options ask for.
func (o *options) chosen() (worlds []*World, strategies []entry, err error) {
	switch {
	case o.file != "":
		if worlds, err = readWorlds(o.file); err != nil {
			return nil, nil, err
		}
	case o.random > 0:
		worlds = drawWorlds(o.random, o.rseed)
	case o.recovery > 0:
		worlds = recoveryWorlds(o.recovery, o.rseed)
	case o.strangers:
		worlds = besidesWorlds()
	default:
		worlds = namedWorlds()
	}
	if o.only != "" {
		all := worlds
		worlds = nil
		for _, name := range strings.Split(o.only, ",") {
			n := len(worlds)
			for _, w := range all { // -recovery has several of one name
				if w.Name == name {
					worlds = append(worlds, w)
				}
			}
			if len(worlds) == n {
				return nil, nil, fmt.Errorf("no world is called %s", name)
			}
		}
	}
	if o.strategies == "" {
		return worlds, choose(nil), nil
	}
	for _, name := range strings.Split(o.strategies, ",") {
		e := choose([]string{name})
		if len(e) == 0 {
			return nil, nil, fmt.Errorf("no strategy is called %s", name)
		}
		strategies = append(strategies, e...)
	}
	return worlds, strategies, nil
}

func run(args []string, out io.Writer, in bubbler) error {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.learned != "" {
		return saveLearned(o.learned)
	}
	worlds, strategies, err := o.chosen()
	if err != nil {
		return err
	}
	if o.worlds {
		return printWorlds(out, worlds)
	}
	scores := playAll(worlds, strategies, o.seeds, in)
	if o.out != "" {
		if err := writeFile(o.out, scores); err != nil {
			return err
		}
	}
	var tables strings.Builder
	switch {
	case o.recovery > 0:
		printRecovery(&tables, scores)
		if !o.json {
			printLooks(&tables, worlds)
		}
	case o.strangers && !o.json:
		printBesides(&tables, worlds, scores, o.seeds)
	default:
		newTable(scores).print(&tables)
	}
	if o.into != "" {
		about := fmt.Sprintf("%d worlds, %s of each strategy. `go run ./bench/league`", len(worlds), count(o.seeds, "run"))
		if err := results.Splice(o.into, "league", about+"\n"+tables.String()); err != nil {
			return err
		}
	}
	if o.json {
		return printJSON(out, scores)
	}
	_, err = io.WriteString(out, tables.String())
	return err
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

func writeFile(name string, scores []Score) error {
	var b bytes.Buffer
	if err := printJSON(&b, scores); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
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
