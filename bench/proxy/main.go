// Command proxy measures sluice proxy: what a call costs beside a bare httputil.ReverseProxy and nginx,
// in one run, and how SDKs as they come fare at a limit that nobody states.
//
//	go run ./bench/proxy              # both
//	go run ./bench/proxy -only cost   # needs nginx; without it that column is left out
//	go run ./bench/proxy -only sdks   # needs node and npm, which installs the SDKs
//	go run ./bench/proxy -only hour   # an hour of calls: does it grow?
//
// Each front is a process of its own; the clients and the server behind are in this one. It is run in
// the root of the repository and takes about a quarter of an hour.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
)

type options struct {
	only          string
	calls, rounds int
	paced         time.Duration
	waiting       int
	rates         string
	processes     int
	sdk, node     string
	long          time.Duration
}

func main() {
	if target := os.Getenv(bareVariable); target != "" {
		serveBare(target)
		return
	}
	var o options
	flag.StringVar(&o.only, "only", "", "`cost` or sdks, instead of both; or hour")
	flag.IntVar(&o.calls, "calls", 2000, "calls for the p50, and in each round of the throughput")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of the throughput; the median counts")
	flag.DurationVar(&o.paced, "paced", 10*time.Second, "how long to call 150 times a second")
	flag.IntVar(&o.waiting, "waiting", 10_000, "calls that wait")
	flag.StringVar(&o.rates, "rates", "10,40", "limits of the server for SDKs, in calls per second, separated by commas")
	flag.IntVar(&o.processes, "processes", 4, "processes with one account at the same time, after one alone")
	flag.StringVar(&o.sdk, "sdk", "", "only this one: openai, anthropic, octokit or curl")
	flag.StringVar(&o.node, "node", "", "a `folder` with node_modules that has the SDKs, instead of installing them")
	flag.DurationVar(&o.long, "long", time.Hour, "how long to call with -only hour")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	if !slices.Contains([]string{"", "cost", "sdks", "hour"}, o.only) {
		return fmt.Errorf("-only %s: want cost, sdks or hour", o.only)
	}
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/sluice-go/sluice/cmd/sluice").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	fmt.Println(machine.Describe())
	if o.only == "hour" {
		return o.hour(binary)
	}
	if o.only != "sdks" {
		if err := o.cost(dir, binary); err != nil {
			return err
		}
	}
	if o.only != "cost" {
		return o.sdks(dir, binary)
	}
	return nil
}

// lateness begins to measure how late a sleeping goroutine is woken, and returns a function that ends
// that and returns the 99th percentile: a machine that is busy otherwise shows here.
func lateness() (p99 func() time.Duration) {
	const beat = 10 * time.Millisecond
	stop, done := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for {
			select {
			case <-stop:
				done <- all
				return
			default:
			}
			began := time.Now()
			time.Sleep(beat)
			all = append(all, time.Since(began)-beat)
		}
	}()
	return func() time.Duration {
		close(stop)
		return quantile(<-done, .99)
	}
}

// quantile returns the q-th quantile of all, which it sorts.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}
