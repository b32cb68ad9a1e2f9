package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// options is the command line of any of the processes.
type options struct {
	n, workers int
	kill       time.Duration
	restart    time.Duration
	throttle   time.Duration
	json       bool

	// What the workers need as well.
	nats, redis, url string
	name             string
	goroutines       int
	rate             sluice.Rate
	catchUp          time.Duration
	lease            time.Duration
	keys             bool

	// What only the queue needs.
	dir  string
	port int
}

// newFlags returns the flags of a role: "" for the program itself.
func newFlags(role string) (*flag.FlagSet, *options) {
	o := new(options)
	set := flag.NewFlagSet("fleet", flag.ContinueOnError)
	set.SetOutput(io.Discard) // main prints what went wrong, once
	set.Usage = func() {}
	if role == "queue" {
		set.StringVar(&o.dir, "dir", "", "the `folder` of the queue")
		set.IntVar(&o.port, "port", 4222, "the `port` on 127.0.0.1")
		return set, o
	}
	if role == "" {
		set.IntVar(&o.n, "n", 10_000, "how many `items` there are")
		set.IntVar(&o.workers, "workers", 4, "how many worker `processes` to start")
		set.DurationVar(&o.kill, "kill", 5*time.Second, "kill -9 a worker this often; another one is started 3 s later; 0 kills none")
		set.DurationVar(&o.restart, "restart", 2*time.Second, "after this `time` kill -9 the queue, and the Redis, and start them again; 0 does not; those given by -nats and -redis are left alone")
		set.DurationVar(&o.throttle, "throttle", 8*time.Second, "after this `time` the API answers one call with 429 and Retry-After: 1; 0 does not")
		set.BoolVar(&o.json, "json", false, "print one JSON object on stdout instead of the table; everything else goes to stderr")
	} else {
		set.StringVar(&o.url, "url", "", "the `address` of the API")
		set.StringVar(&o.name, "name", "fleet", "the `name` of the queue and of the shared limit")
	}
	set.StringVar(&o.nats, "nats", "", "the `address` of a NATS server with JetStream, such as nats://127.0.0.1:4222 (default: one of our own)")
	set.StringVar(&o.redis, "redis", "", "the `address` of a Redis, such as 127.0.0.1:6379 (default: redis-server from the PATH, or one in this process)")
	set.IntVar(&o.goroutines, "goroutines", 64, "how many `items` a worker works on at once")
	o.rate = sluice.Rate{Count: 1000, Per: time.Second}
	set.TextVar(&o.rate, "rate", o.rate, "the `rate` that all workers share, such as 1000/s or 300/20s")
	set.DurationVar(&o.catchUp, "catch-up", catchUp, "how much of the rate workers may catch up on: the calls of this `time` may be sent together after a stall, and as many after an idle time")
	set.DurationVar(&o.lease, "lease", 5*time.Second, "how long after its last sign of life the items of a worker go to others")
	set.BoolVar(&o.keys, "keys", true, "send an idempotency key with each call; -keys=false shows what that prevents")
	return set, o
}

// parseOptions returns flag.ErrHelp for -h and -help.
func parseOptions(role string, args []string) (options, error) {
	set, o := newFlags(role)
	if err := set.Parse(args); err != nil {
		return options{}, err
	}
	if set.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return *o, o.check(role)
}

// check returns an error for values that make no sense.
func (o options) check(role string) error {
	if role == "queue" {
		if o.dir == "" {
			return errors.New("-dir is missing: the queue keeps its items there")
		}
		return nil
	}
	switch {
	case role == "" && o.n <= 0:
		return fmt.Errorf("-n %d: must be above 0", o.n)
	case role == "" && o.workers <= 0:
		return fmt.Errorf("-workers %d: must be above 0", o.workers)
	case o.kill < 0 || o.restart < 0 || o.throttle < 0:
		return errors.New("-kill, -restart and -throttle must not be negative")
	case o.goroutines <= 0:
		return fmt.Errorf("-goroutines %d: must be above 0", o.goroutines)
	case o.catchUp < 0 || o.catchUp > time.Second:
		return fmt.Errorf("-catch-up %v: must be 0s to 1s", o.catchUp)
	case o.lease < 100*time.Millisecond:
		return fmt.Errorf("-lease %v: must be at least 100ms", o.lease)
	case o.rate == sluice.Rate{}:
		return errors.New("-rate: must not be unlimited")
	case role == "worker" && (o.nats == "" || o.redis == "" || o.url == ""):
		return errors.New("a worker needs -nats, -redis and -url")
	}
	if err := o.rate.Check(); err != nil {
		return fmt.Errorf("-rate: %w", err)
	}
	return nil
}

// slots returns the number of calls the rate allows in that time, at least 1.
func slots(r limits.Rate, in time.Duration) int64 {
	return max(1, int64(float64(r.Count)*in.Seconds()/r.Per.Seconds()))
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `fleet shares the work of a long batch between processes: workers take items from a queue
(NATS JetStream) and call an API under one limit, which is in a Redis. It starts all of
them, kills some, and prints what that cost.

	go run ./examples/fleet [flags]
	go run ./examples/fleet -kill 0 -restart 0 -throttle 0 -json

Exit status: 0 if no item was lost and none was processed twice; 1 otherwise, or if
something could not begin; 2 if the flags are invalid; 130 if it was interrupted. At
Ctrl-C workers finish their calls and give their other items back to the queue; the
second Ctrl-C kills them.

`)
	set, _ := newFlags("")
	set.SetOutput(w)
	set.PrintDefaults()
	fmt.Fprint(w, `
Work of your own, on machines of your own, needs no program: sluice batch -queue does it.
`)
}
