// Command soak runs gates, the transport, Peers, batches, the proxy and limits in a Redis for a long
// time against servers that fail, checks from outside what the README guarantees, and prints one
// table. The same seed makes the same decisions; the order in which goroutines run is the machine's.
//
//	go run ./bench/soak -for 1h
//	go run ./bench/soak -simulated 24h            # in a testing/synctest bubble; without proxy and Redis
//	go run ./bench/soak -for 1m -only gates,batch -seed 7
//
// A part without its server (redis-server) is left out, with a line that says so. The exit status is
// 1 if a guarantee was broken, or if memory, goroutines or files did not end where they began.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type options struct {
	real, simulated time.Duration
	only            string
	seed            uint64
}

func main() {
	var o options
	flag.DurationVar(&o.real, "for", time.Minute, "how long to run on the real clock")
	flag.DurationVar(&o.simulated, "simulated", 0, "how long to run in a bubble, in simulated time, instead")
	flag.StringVar(&o.only, "only", "", "only the parts with these `names`, separated by commas")
	flag.Uint64Var(&o.seed, "seed", 1, "of all decisions")
	flag.Parse()
	inTest(func(t *testing.T) int {
		ok, err := run(t, o, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 2
		}
		if !ok {
			return 1
		}
		return 0
	})
}

// inTest calls f in a test, which may have bubbles, and ends the program with the status that f
// returns. See asTest of the league.
func inTest(f func(t *testing.T) int) {
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "soak",
		F:    func(t *testing.T) { os.Exit(f(t)) },
	}}, nil, nil)
}

// run soaks and prints the table.
func run(t *testing.T, o options, out *os.File) (ok bool, err error) {
	chosen, err := choose(o.only)
	if err != nil {
		return false, err
	}
	s := &soak{seed: o.seed, lasts: o.real, bubble: o.simulated > 0}
	if err := s.prepare(chosen); err != nil {
		return false, err
	}
	defer os.RemoveAll(s.dir)
	before := measure()
	if o.simulated > 0 {
		s.lasts = o.simulated
		synctest.Test(t, func(*testing.T) { s.run(chosen) })
	} else {
		s.run(chosen)
	}
	after := settle(before)
	return s.print(out, before, after), nil
}

// prepare does what is to be done before the clock runs: it builds the proxy, and opens what the runtime
// keeps open once there was a connection.
func (s *soak) prepare(chosen []part) (err error) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
	}
	if s.dir, err = os.MkdirTemp("", "soak"); err != nil {
		return err
	}
	if s.bubble || !slices.ContainsFunc(chosen, func(p part) bool { return p.name == "proxy" }) {
		return nil
	}
	s.proxy = filepath.Join(s.dir, "sluice")
	out, err := exec.Command("go", "build", "-o", s.proxy, "github.com/sluice-go/sluice/cmd/sluice").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// choose returns the parts of these names, all if there are none.
func choose(names string) (some []part, err error) {
	if names == "" {
		return parts, nil
	}
	for _, name := range strings.Split(names, ",") {
		n := len(some)
		for _, p := range parts {
			if p.name == name {
				some = append(some, p)
			}
		}
		if len(some) == n {
			return nil, fmt.Errorf("no part is called %s", name)
		}
	}
	return some, nil
}
