// Command shared measures a limit that several processes share: four
// processes of 64 goroutines each call an HTTP server, through one limit in one
// Redis, for a minute.
//
//	go run ./sluiceredis/internal/shared
//
// It starts a redis-server of its own, unless -redis names one, and measures a
// pacer and a leaky bucket, each at 1,000 calls per second. It prints
//
//   - how much of the rate was delivered. Both limits make up 50 ms in which a
//     process did not get to run: the bucket holds as much, and calls of the pacer
//     may be as late;
//   - whether the limit was kept: in all windows of the admitted units, by the clock of the
//     Redis, exactly; and by how much the calls came closer together where they
//     arrived, which is for the scheduler to answer for;
//   - whether a model, which knows nothing of Redis, repeats every answer of every
//     script;
//   - its cost: round trips and processor time.
//
// It exits with 1 if a limit was not kept or an answer differs from the model.
// The speed and punctuality of a machine is printed and not judged.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// options is the configuration of a measurement.
type options struct {
	Redis      string // empty: one of our own
	Processes  int
	Goroutines int
	Rate       int64 // per second
	For        time.Duration
	Late       time.Duration // of the pacer: see sluiceredis.PacerConfig
	Tolerance  time.Duration // the time by which calls may arrive closer together
}

func main() {
	if isWorker() {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	var o options
	flag.StringVar(&o.Redis, "redis", "", "use the Redis at this `address` instead of one that is started for the run")
	flag.IntVar(&o.Processes, "processes", 4, "how many `processes` share the limit")
	flag.IntVar(&o.Goroutines, "goroutines", 64, "how many `goroutines` each of them has")
	flag.Int64Var(&o.Rate, "rate", 1000, "how many `calls` per second the limit lets through")
	flag.DurationVar(&o.For, "for", time.Minute, "how long each limit is measured")
	flag.DurationVar(&o.Late, "late", 50*time.Millisecond, "the `time` after its slot at which a call of the pacer may still leave; 0 means the 5ms of PacerConfig")
	flag.DurationVar(&o.Tolerance, "tolerance", 25*time.Millisecond, "by how much calls may arrive closer together than they left")
	flag.Parse()
	if flag.NArg() > 0 || o.Processes < 1 || o.Goroutines < 1 || o.Rate < 1 || o.Rate > 1_000_000 || o.For < time.Second || o.Late < 0 {
		fmt.Fprintln(os.Stderr, "shared: -processes and -goroutines must be above 0, -rate from 1 to 1,000,000, -for at least 1s, -late not negative, and nothing more")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := program(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "shared:", err)
		os.Exit(1)
	}
}

// program measures both limits and prints the results.
func program(ctx context.Context, o options) (err error) {
	if o.Redis == "" {
		dir, err := os.MkdirTemp("", "shared")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		server, err := redistest.Launch(dir)
		if err != nil {
			return fmt.Errorf("%w (install one, or name another with -redis)", err)
		}
		defer server.Kill()
		o.Redis = server.Addr
	}
	kept := true
	for _, kind := range []string{"pacer", "leaky"} {
		fmt.Printf("%s: %d processes of %d goroutines, %d calls per second, for %v\n", kind, o.Processes, o.Goroutines, o.Rate, o.For)
		f, err := measure(ctx, kind, o)
		if err != nil {
			return err
		}
		fmt.Print(f.text(o))
		kept = kept && f.kept()
	}
	if !kept {
		return fmt.Errorf("a limit was not kept")
	}
	return nil
}
