package engine

import (
	"context"
	"errors"
	"math"
	"time"

	xsemaphore "golang.org/x/sync/semaphore"
	xrate "golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

// A client is one way to send calls. make returns a function that makes one call and
// repeats it until the server has served it or ctx is done, and one that returns the
// current pace, or nil.
type client struct {
	name     string
	deadline bool // callers that give up have said so before: context.WithTimeout
	make     func(l *lane) (call func(ctx context.Context, c *caller) error, pace func() float64)
}

// usual is what most programs have: the two packages of the Go project, and retries that
// wait for the Retry-After or, without one, a random time that doubles.
var usual = client{name: "x/time/rate + x/sync/semaphore", make: func(l *lane) (func(context.Context, *caller) error, func() float64) {
	limit, burst := xrate.Inf, 1
	if l.Rate > 0 {
		limit, burst = xrate.Limit(l.Rate), l.Burst
	}
	limiter := xrate.NewLimiter(limit, burst)
	room := xsemaphore.NewWeighted(math.MaxInt64)
	if l.Concurrency > 0 {
		room = xsemaphore.NewWeighted(int64(l.Concurrency))
	}
	return l.repeat(func(ctx context.Context) (func(), error) {
		if err := room.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		if err := limiter.Wait(ctx); err != nil {
			room.Release(1)
			return nil, err
		}
		return func() { room.Release(1) }, nil
	}), nil
}}

// usualDeadline is the same with callers that say when they give up. Then x/time/rate rejects
// them immediately, if they cannot start in time, and promises them nothing.
var usualDeadline = client{name: "the same with context.WithTimeout", deadline: true, make: usual.make}

// usualRate is the same in stories without a concurrency.
var usualRate = client{name: "x/time/rate", make: usual.make}

// onlySemaphore limits the number of calls in flight, and nothing else.
var onlySemaphore = client{name: "semaphore alone", make: func(l *lane) (func(context.Context, *caller) error, func() float64) {
	room := semaphore.NewWeighted(int64(max(1, l.Concurrency)))
	return l.repeat(func(ctx context.Context) (func(), error) {
		return func() { room.Release(1) }, room.Acquire(ctx, 1)
	}), nil
}}

// onlyPacer limits the rate at which calls start, and nothing else.
var onlyPacer = client{name: "pacer alone", make: func(l *lane) (func(context.Context, *caller) error, func() float64) {
	p := limits.Must(pacer.New(l.rate()))
	return l.repeat(func(ctx context.Context) (func(), error) {
		return func() {}, p.Acquire(ctx, 1)
	}), nil
}}

// gate is a sluice.Gate with all that is configured.
var gate = client{name: "sluice.Gate", make: func(l *lane) (func(context.Context, *caller) error, func() float64) {
	return throughGate(l, sluice.Config{Concurrency: int64(l.Concurrency), Rate: l.rate()})
}}

// gateWithoutRate is a sluice.Gate that has to find the rate.
var gateWithoutRate = client{name: "sluice.Gate without a rate", make: func(l *lane) (func(context.Context, *caller) error, func() float64) {
	return throughGate(l, sluice.Config{Concurrency: int64(l.Concurrency)})
}}

// gateUnconfigured is the same in stories without a concurrency.
var gateUnconfigured = client{name: "sluice.Gate without configuration", make: gateWithoutRate.make}

// rate returns the rate of a lane for Sluice.
func (l *lane) rate() sluice.Rate {
	if l.Rate == 0 {
		return sluice.Rate{}
	}
	// Rates of sliders are whole numbers, those of the league less or more than 1.
	if l.Rate < 1 {
		return sluice.Rate{Count: 1, Per: seconds(1 / l.Rate), Burst: int64(l.Burst)}
	}
	return sluice.Rate{Count: int64(l.Rate), Per: time.Second, Burst: int64(l.Burst)}
}

var errRefused = errors.New("429 Too Many Requests")

// throughGate makes calls as sluice.Retry does, which has no place for the caller's own
// random numbers. As in the other lanes, a call is repeated until it succeeds.
func throughGate(l *lane, cfg sluice.Config) (func(context.Context, *caller) error, func() float64) {
	cfg.RetryBudget = -1
	g := limits.Must(sluice.New(cfg))
	call := func(ctx context.Context, c *caller) error {
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{
			Attempts: -1, MaxElapsed: -1, MaxServerWait: -1,
			ThrottleBackoff: c.seeded(sluice.FullJitter(time.Second, 30*time.Second)), // the default
		})
		for {
			permit, err := a.Next(ctx, 1)
			if err != nil {
				return err
			}
			again, err := a.Try(ctx, permit, func(ctx context.Context) error {
				r, err := l.send(ctx, c)
				if err == nil && r.outcome == refused {
					err = sluice.ThrottledFor(errRefused, r.retryAfter)
				}
				return err
			})
			permit.Release()
			if !again {
				return err
			}
		}
	}
	pace := func() float64 {
		if learned := g.Stats().Learned; learned != nil {
			return learned.Pace
		}
		return 0
	}
	return call, pace
}

// repeat sends calls after enter until the server has served them.
func (l *lane) repeat(enter func(ctx context.Context) (leave func(), err error)) func(ctx context.Context, c *caller) error {
	return func(ctx context.Context, c *caller) error {
		for retry := 1; ; retry++ {
			leave, err := enter(ctx)
			if err != nil {
				return err
			}
			r, err := l.send(ctx, c)
			leave()
			if err != nil || r.outcome == served {
				return err
			}
			wait := r.retryAfter
			if wait < 0 {
				wait = time.Duration(c.random.Float64() * math.Min(30, math.Pow(2, float64(retry-1))) * 1e9)
			}
			if err := l.sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// seeded returns b with random numbers of the caller. The largest possible one is that
// with which sluice asks for the worst case.
func (c *caller) seeded(b sluice.Backoff) sluice.Backoff {
	return func(retry int, prev time.Duration, u float64) time.Duration {
		if u < math.Nextafter(1, 0) {
			u = c.random.Float64()
		}
		return b(retry, prev, u)
	}
}
