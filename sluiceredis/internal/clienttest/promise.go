package clienttest

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// A Shared is a store for one subject of the table of promises.
type Shared struct {
	Store *sluiceredis.Store

	// Apart keeps the two quotas of the subject from being decided in one step.
	Apart bool

	// MaxLateness is the duration of a question.
	Late time.Duration

	// Break makes the server unreachable, and returns the function that restores it. nil if that
	// cannot be, or is so already.
	Break func() (mend func())

	// Away says that the server is unavailable and lets everything through.
	Away bool
}

// Promise returns a setup whose subjects are gates with two quotas in a store that
// open makes.
func Promise(open func(tb testing.TB, l promise.Limits) Shared) promise.Setup {
	return func(tb testing.TB, l promise.Limits) *promise.Subject {
		tb.Helper()
		shared := open(tb, l)
		names := [2]string{"promise/bucket", "promise/log"}
		if shared.Apart {
			names = [2]string{"bucket", "log"}
		}
		const plenty = 2000
		buckets, err := shared.Store.Bucket(names[0], limits.Rate{Burst: plenty, Count: 1, Per: time.Hour})
		if err != nil {
			tb.Fatal(err)
		}
		logs, err := shared.Store.Sliding(names[1], plenty, 1000*time.Hour)
		if err != nil {
			tb.Fatal(err)
		}
		cfg := l.Config()
		cfg.Limits = []sluice.Limit{{Name: "bucket", Limiter: buckets.On("k")}, {Name: "log", Limiter: logs.On("k")}}
		gate, err := sluice.New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		level := promise.NewLevel("gate", gate)
		if !shared.Away {
			left := func(r limits.Result, err error) int64 {
				if err != nil {
					return -1 // while the server is unavailable
				}
				return r.Remaining
			}
			level.Quotas = []promise.Quota{
				{
					Name: "bucket",
					Left: func() int64 { return left(buckets.Take(bg, "k", 0)) },
					Take: func(n int64) { take(tb, buckets.On("k"), n) },
				},
				{
					Name: "log",
					Left: func() int64 { return left(logs.Take(bg, "k", 0)) },
					Take: func(n int64) { take(tb, logs.On("k"), n) },
				},
			}
		}
		if shared.Break != nil {
			level.Blocks = map[string]func() func(){"a server that is away": shared.Break}
		}
		s := promise.OfGate(l, gate, level)
		s.Late = shared.Late
		s.Unsure = l.Real
		return s
	}
}

// take takes n from m or, if n is negative, returns it.
func take(tb testing.TB, m limits.Limiter, n int64) {
	tb.Helper()
	var wait time.Duration
	var err error
	if n < 0 {
		err = m.Adjust(bg, n, 0)
	} else {
		wait, err = m.Admit(bg, n)
	}
	if wait != 0 || err != nil {
		tb.Errorf("taking %d: %v, %v", n, wait, err)
	}
}
