package observe_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A pause rejects a hundred calls, which makes two lines. Times are removed from the
// output.
func ExampleNewLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "until" || a.Key == "wait" || a.Key == "err" {
				return slog.Attr{}
			}
			return a
		},
	}))
	log := observe.NewLogger(logger)
	gate, _ := sluice.New(sluice.Config{Name: "api", Observer: log})
	gate.PauseUntil(time.Now().Add(time.Hour), "429 Too Many Requests")
	for range 100 {
		gate.AcquireWithin(context.Background(), 1, time.Second)
	}
	gate.Resume()
	// Output:
	// level=WARN msg="gate paused" gate=api why="429 Too Many Requests"
	// level=WARN msg="call rejected" gate=api n=1 reason=deadline
	// level=INFO msg="gate resumed" gate=api left_out=99
}

// The state of a gate at /debug/vars.
func ExampleVars() {
	gate, _ := sluice.New(sluice.Config{
		Name:        "api",
		Concurrency: 8,
		Rate:        sluice.Rate{Count: 5000, Per: time.Hour},
	})
	expvar.Publish("gates", observe.Vars(observe.Gates(gate)))

	gate.Do(context.Background(), func(context.Context) error { return nil })
	fmt.Println(expvar.Get("gates"))
	// Output:
	// [{"name":"api","in_flight":0,"pacing":0,"waiting":0,"limited_by":"","concurrency":8,"rate":"5000/h","retry_tokens":100,"admitted":1,"rejected":{"busy":0,"deadline":0,"canceled":0,"too_large":0,"queue_full":0,"closed":0,"other":0},"retried":0,"unreturned":0,"wait":{"p50":0,"p90":0,"p99":0}}]
}

// The gates of a Transport.
func ExampleVars_transport() {
	transport, err := sluicehttp.New(nil)
	if err != nil {
		panic(err)
	}
	hosts := func(yield func(sluice.Stats) bool) {
		transport.Stats(func(_ string, s sluicehttp.Stats) bool { return yield(s.Stats) })
	}
	expvar.Publish("hosts", observe.Vars(hosts))

	fmt.Println(expvar.Get("hosts")) // one object for each host, once requests are made
	// Output:
	// []
}

// A Logger and a function.
func ExampleMulti() {
	log := observe.NewLogger(slog.New(slog.DiscardHandler))
	failed := func(e sluice.Event) {
		if e.Kind == sluice.EventRetried {
			fmt.Println("attempt", e.Attempt, "failed:", e.Err)
		}
	}
	gate, _ := sluice.New(sluice.Config{Name: "api", Observer: observe.Multi(log, failed)})

	answers := []error{errors.New("500 Internal Server Error"), nil}
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}
	err := sluice.Retry(context.Background(), gate, func(context.Context) error {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}, policy)
	fmt.Println(err)
	// Output:
	// attempt 1 failed: 500 Internal Server Error
	// <nil>
}
