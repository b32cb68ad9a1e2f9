// Command zoo runs clients against rate limiters that other people wrote: in virtual time,
// or with -real on loopback. README.md has the servers, the clients and the figures.
//
//	go run .
//	go run . -servers go -clients sluice,told,xtime -for 300 -n 3
//	go run . -real -servers nginx*,express-20in1 -clients sluice,xtime -for 20
//	go run . -list
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

func main() {
	if text := os.Getenv(gameVariable); text != "" {
		playHere(text)
		return
	}
	if dir := os.Getenv(keepVariable); dir != "" {
		keepHere(dir)
		return
	}
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "zoo:", err)
		os.Exit(1)
	}
}

type options struct {
	servers, clients   string
	game               game
	runs, parallel     int
	real, list, matrix bool
	node, out, read    string
}

// parse reads the arguments. With -h it prints how to use the command and returns
// flag.ErrHelp.
func parse(args []string, out io.Writer) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("zoo", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.servers, "servers", "", "comma-separated `names`, groups and patterns such as nginx*; empty: all that run in virtual time, or with -real all others")
	flags.StringVar(&o.clients, "clients", "", "comma-separated `names`; a+b are two that share the limit; empty: the seven that are compared")
	flags.Float64Var(&o.game.Lasts, "for", 25, "`seconds` that the items last at the limit")
	flags.Float64Var(&o.game.Most, "most", 3, "cut a run off after so many `times` the ideal, and 15 s")
	flags.IntVar(&o.game.Workers, "workers", defaultWorkers, "goroutines of a client")
	flags.Float64Var(&o.game.Jitter, "jitter", defaultJitter, "`ms` of jitter each way, in virtual time")
	flags.Uint64Var(&o.game.Seed, "seed", 1, "the first `seed`: of network, service times and chance")
	flags.IntVar(&o.runs, "n", 1, "`runs` of each client at each server, each with the next seed")
	flags.IntVar(&o.runs, "runs", 1, "the same")
	flags.IntVar(&o.parallel, "parallel", 0, "`runs` at the same time; 0: one for each processor, with -real 1")
	flags.BoolVar(&o.real, "real", false, "in real time, on loopback")
	flags.BoolVar(&o.list, "list", false, "list servers and clients, and run nothing")
	flags.BoolVar(&o.matrix, "matrix", false, "a line for each server and a column for each client")
	flags.BoolVar(&o.game.Trace, "trace", false, "print each change of what a gate believes")
	flags.StringVar(&o.node, "node", "npm", "the `folder` with node_modules")
	flags.StringVar(&o.out, "o", "", "also write the runs to this `file`, as JSON")
	flags.StringVar(&o.read, "read", "", "run nothing: print the tables of these `files`, separated by commas, that -o wrote")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	g := &o.game
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !(g.Lasts > 0 && g.Lasts <= 24*3600):
		return nil, fmt.Errorf("-for %v: must be more than 0 and at most 86400 seconds", g.Lasts)
	case !(g.Most >= 1 && g.Most <= 1000):
		return nil, fmt.Errorf("-most %v: must be from 1 to 1000", g.Most)
	case g.Workers < 1 || g.Workers > 10_000:
		return nil, fmt.Errorf("-workers %d: must be from 1 to 10000", g.Workers)
	case !(g.Jitter >= 0 && g.Jitter <= 1000):
		return nil, fmt.Errorf("-jitter %v: must be from 0 to 1000", g.Jitter)
	case o.runs < 1:
		return nil, fmt.Errorf("-n %d: must be positive", o.runs)
	case o.parallel < 0:
		return nil, fmt.Errorf("-parallel %d: must not be negative", o.parallel)
	}
	if o.parallel == 0 {
		o.parallel = runtime.GOMAXPROCS(0)
		if o.real {
			o.parallel = 1
		}
	}
	return o, nil
}

func run(args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.list {
		printList(out)
		return nil
	}
	var results []result
	if o.read != "" {
		results, err = readFiles(strings.Split(o.read, ","))
	} else {
		results, err = o.play(progress)
	}
	if len(results) == 0 {
		return err
	}
	if o.out != "" {
		err = errors.Join(err, writeFile(o.out, results))
	}
	t := newTable(results)
	if o.matrix {
		t.means(out)
		t.matrix(out)
	} else {
		t.rows(out)
		t.means(out)
	}
	t.notes(out)
	return err
}

// games returns all games, by server, client and seed, and says what cannot be run.
func (o *options) games(progress io.Writer) ([]*game, error) {
	chosen, err := choose(o.servers, o.real)
	if err != nil {
		return nil, err
	}
	clients, err := chooseClients(o.clients)
	if err != nil {
		return nil, err
	}
	if o.node, err = filepath.Abs(o.node); err != nil {
		return nil, err
	}
	var games []*game
	for _, s := range chosen {
		if what := s.missing(o.node); what != "" {
			fmt.Fprintln(progress, "skipped", what)
			continue
		}
		for _, together := range clients {
			if s.limiter == grpcLimiter && slices.ContainsFunc(together, func(c *client) bool { return c.grpc == nil }) {
				continue
			}
			for i := range o.runs {
				g := o.game
				g.Server, g.Clients, g.Seed = s.name, namesOf(together), g.Seed+uint64(i)
				games = append(games, &g)
			}
		}
	}
	return games, nil
}

// play plays all games, some at a time. The order of the results does not depend on that. A
// game that fails is named and left out; the error says so at the end.
func (o *options) play(progress io.Writer) ([]result, error) {
	games, err := o.games(progress)
	if err != nil {
		return nil, err
	}
	results := make([]*result, len(games))
	var mu sync.Mutex
	var failed error
	var group sync.WaitGroup
	free := make(chan struct{}, o.parallel)
	for i, g := range games {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			var r *result
			var err error
			if o.real {
				r, err = g.playReal(o.node)
			} else {
				r, err = playVirtual(g)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(progress, "%s, %s: %v\n", g.Server, g.Clients, err)
				failed = errors.Join(failed, fmt.Errorf("%s, %s failed", g.Server, g.Clients))
				return
			}
			if results[i] = r; o.real {
				fmt.Fprintf(progress, "%-24s %-14s score %5.1f, %d of %d in %.1f s of %.1f, %.0f ms late\n", r.Server, r.Client, r.Score, r.Done, r.Items, r.Seconds, r.Ideal, r.Late)
			}
		})
	}
	group.Wait()
	var all []result
	for _, r := range results {
		if r != nil {
			all = append(all, *r)
		}
	}
	if failed == nil && len(all) == 0 {
		failed = errors.New("nothing to run")
	}
	return all, failed
}

func printList(w io.Writer) {
	order := slices.Clone(servers)
	slices.SortStableFunc(order, func(a, b *server) int {
		return cmp.Compare(slices.Index(groups, a.group), slices.Index(groups, b.group))
	})
	for _, s := range order {
		where := "virtual"
		if s.start != nil {
			where = "real"
		}
		fmt.Fprintf(w, "%-8s %-8s %-26s %-48s %s\n", s.group, where, s.name, s.limiter, s.says)
	}
	fmt.Fprintln(w)
	for _, c := range clients {
		mark := ""
		if c.listed {
			mark = "*"
		}
		fmt.Fprintf(w, "%-1s %-18s %s\n", mark, c.name, c.about)
	}
}

// writeFile writes a list, one run a line.
func writeFile(name string, results []result) error {
	text, err := json.Marshal(results)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(strings.ReplaceAll(string(text), "},{\"server\"", "},\n{\"server\"")+"\n"), 0o644)
}

func readFiles(names []string) ([]result, error) {
	var all []result
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var some []result
		if err := json.Unmarshal(text, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}
