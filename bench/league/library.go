package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
)

// withBackoff repeats attempts, each of them after enter, with the backoff of the
// strategy of that name.
func (p *process) withBackoff(enter func(ctx context.Context, w *wish) error) caller {
	return func(ctx context.Context, w *wish) error {
		for {
			if err := enter(ctx, w); err != nil {
				return err
			}
			r, err := p.attempt(ctx, w)
			if err != nil || r.outcome == granted {
				return err
			}
			if err := p.backOff(ctx, w, r); err != nil {
				return err
			}
		}
	}
}

// backOff waits before a call is repeated as the strategy backoff does, or until the
// world ends.
func (p *process) backOff(ctx context.Context, w *wish, r reply) error {
	return p.sleep(ctx, max(fullJitter(w.tries, p.float64()), r.retryAfter))
}

// xtime is golang.org/x/time/rate v0.16.0: one Limiter for all workers, Limiter.WaitN
// before each attempt. Its package comment recommends no burst; this one is 1, or the
// largest cost of the world, for WaitN fails for more than the burst. The package has
// no retries, so they are those of backoff.
func xtime(factor float64) func(p *process) caller {
	return func(p *process) caller {
		burst := 1
		if c := p.world.Cost; c != nil {
			burst = int(c.Max)
		}
		limit := rate.Inf
		if p.world.Told > 0 {
			limit = rate.Limit(p.world.Told * factor)
		}
		l := rate.NewLimiter(limit, burst)
		return p.withBackoff(func(ctx context.Context, w *wish) error {
			return l.WaitN(ctx, int(w.cost))
		})
	}
}

// A callError is what a caller of the upstream sees.
type callError string

func (e callError) Error() string { return string(e) }

const (
	errRefused = callError("429 Too Many Requests")
	errFailed  = callError("500 Internal Server Error")
)

// toldSluice configures a gate with the rate that x/time/rate gets. Sluice's retries, of
// sluice.Retry and of sluicehttp, have their defaults, except that they go on for ever
// and need no budget.
func toldSluice(w *World) sluice.Config {
	cfg := sluice.Config{Rate: perSecond(w.Told)}
	if c := w.Cost; c != nil && w.Told > 0 {
		cfg.RateUnit, cfg.Rate.Burst = sluice.Cost, int64(c.Max)
	}
	return cfg
}

// perSecond returns the rate of n per second; of 0 it returns no limit.
func perSecond(n float64) sluice.Rate {
	if n == 0 {
		return sluice.Rate{}
	}
	for _, count := range []int64{1, 10, 100, 1000, 1e4, 1e5} {
		// The period is in whole nanoseconds; with a longer one the error is smaller.
		if per := float64(count) / n; per >= 1 {
			return sluice.Rate{Count: count, Per: seconds(per)}
		}
	}
	return sluice.Rate{Count: int64(math.Round(n)), Per: seconds(1)}
}

// throughGate sends calls through a gate. sluice.Retry is for calls of cost 1; this is
// its loop with the cost of the call.
func (p *process) throughGate(cfg sluice.Config) caller {
	cfg.RetryBudget = -1
	if tracing {
		begin := time.Now()
		cfg.Observer = func(e sluice.Event) {
			if e.Kind == sluice.EventLearned {
				fmt.Fprintf(os.Stderr, "%9.3f %d %s\n", time.Since(begin).Seconds(), p.number, e.Why)
			}
		}
	}
	gate, err := sluice.New(cfg)
	if err != nil {
		panic(err)
	}
	return p.through(gate)
}

// through sends calls through a gate.
func (p *process) through(gate *sluice.Gate) caller {
	policy := p.forever()
	return func(ctx context.Context, w *wish) error {
		a := sluice.NewRetryLoop(gate, policy)
		for {
			permit, err := a.Next(ctx, int64(w.cost))
			if err != nil {
				return err
			}
			again, err := a.Try(ctx, permit, func(ctx context.Context) error { return p.attemptError(ctx, w) })
			permit.Release()
			if !again {
				return err
			}
		}
	}
}

// forever returns the default policy, but for calls that go on until they succeed.
func (p *process) forever() sluice.RetryPolicy {
	return sluice.RetryPolicy{
		Attempts: -1, MaxElapsed: -1, MaxServerWait: -1,
		Backoff:         p.seeded(sluice.FullJitter(500*time.Millisecond, 30*time.Second)), // the default
		ThrottleBackoff: p.seeded(sluice.FullJitter(time.Second, 30*time.Second)),          // the default
	}
}

// seeded returns b with random numbers that a seed repeats. The largest possible one is
// that with which sluice asks for the worst case.
func (p *process) seeded(b sluice.Backoff) sluice.Backoff {
	return func(retry int, prev time.Duration, u float64) time.Duration {
		if u < math.Nextafter(1, 0) {
			u = p.float64()
		}
		return b(retry, prev, u)
	}
}

// attemptError is attempt for a library that looks at errors.
func (p *process) attemptError(ctx context.Context, w *wish) error {
	r, err := p.attempt(ctx, w)
	switch {
	case err != nil:
		return err
	case r.outcome == refused:
		return sluice.ThrottledFor(errRefused, r.retryAfter)
	case r.outcome == failed:
		return errFailed
	}
	return nil
}
