package sluice_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/badinput"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

// A subject is something that n can be taken from; its limit is 3, its rate one
// per hour, and it is new.
type subject struct {
	column string
	ask    []ask
	try    func(n int64) bool // without a context
	other  []func(n int64)    // what else takes an n
	owe    func()             // makes it owe more than can be paid back
	zero   func() error       // uses one that was not made by New
}

type ask func(ctx context.Context, n int64) error

// asking takes from a limiter.
func asking(a limits.Limiter) []ask {
	return []ask{func(ctx context.Context, n int64) error {
		wait, err := a.Admit(ctx, n)
		if wait > 0 {
			err = &limits.WaitError{Need: wait}
		}
		return err
	}}
}

// blocking are the verbs that block.
func blocking(acquire ask, within func(context.Context, int64, time.Duration) error) []ask {
	return []ask{acquire, func(ctx context.Context, n int64) error { return within(ctx, n, time.Minute) }}
}

func entered(g *sluice.Gate) []ask {
	return blocking(
		func(ctx context.Context, n int64) error { return released(g.Acquire(ctx, n)) },
		func(ctx context.Context, n int64, d time.Duration) error { return released(g.AcquireWithin(ctx, n, d)) },
	)
}

func tried(g *sluice.Gate) func(n int64) bool {
	return func(n int64) bool {
		p, ok := g.TryAcquire(n)
		return released(p, nil) == nil && ok
	}
}

// released releases p if there is one.
func released(p *sluice.Permit, err error) error {
	if p != nil {
		p.Release()
	}
	return err
}

var (
	hourly   = limits.Rate{Count: 1, Per: time.Hour, Burst: 3}
	windowed = window.Quota{Limit: 3, Window: time.Hour}
	room     = sluice.Config{Concurrency: 3, ConcurrencyUnit: sluice.Cost}
)

// subjects returns new ones, always in the same order.
func subjects(t *testing.T) []subject {
	s, p := semaphore.NewWeighted(3), limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}, pacer.Config{}))
	b, kb := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3})), must(leaky.NewKeyed[int](hourly, limits.KeyedConfig{}))
	l, kl := limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour})), must(window.NewKeyedSliding[int](windowed, limits.KeyedConfig{}))
	c, kc := limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: time.Hour})), must(window.NewKeyedFixed[int](windowed, limits.KeyedConfig{}))
	hosts := must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return sluice.New(room) }, sluice.KeyedConfig{}))
	use := func(ctx context.Context, n int64) (err error) {
		return hosts.Use(1, func(g *sluice.Gate) error { return released(g.Acquire(ctx, n)) })
	}
	all := []subject{{
		column: "semaphore", ask: blocking(s.Acquire, s.AcquireWithin), try: s.TryAcquire, other: []func(int64){s.Release},
		zero: func() error { return new(semaphore.Weighted).Acquire(bg, 1) },
	}, {
		column: "pacer", ask: blocking(p.Acquire, p.AcquireWithin), try: p.TryAcquire, other: []func(int64){func(n int64) { p.Reserve(n) }},
		owe:  func() { p.TryAcquire(math.MaxInt64) },
		zero: func() error { return new(pacer.Pacer).Acquire(bg, 1) },
	}, {
		column: "leaky", ask: asking(b), try: func(n int64) bool { return b.Take(n).Allowed() },
		owe:  func() { b.Adjust(bg, math.MaxInt64, 0) },
		zero: func() error { return new(leaky.Bucket).Take(1).Err() },
	}, {
		column: "window", ask: asking(l), try: func(n int64) bool { return l.Take(n).Allowed() },
		zero: func() error { return badinput.If(!new(window.Sliding).Take(1).Allowed(), "refuses") },
	}, {
		column: "window", ask: asking(c), try: func(n int64) bool { return c.Take(n).Allowed() },
		zero: func() error { return badinput.If(!new(window.Fixed).Take(1).Allowed(), "refuses") },
	}, {
		column: "Keyed", ask: asking(kb.On(1)), try: func(n int64) bool { return kb.Take(1, n).Allowed() },
		other: []func(int64){func(n int64) { kb.TakeRate(1, hourly, n) }},
		owe:   func() { kb.On(1).Adjust(bg, math.MaxInt64, 0) },
		zero:  func() error { return new(leaky.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: asking(kl.On(1)), try: func(n int64) bool { return kl.Take(1, n).Allowed() },
		zero: func() error { return new(window.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: asking(kc.On(1)), try: func(n int64) bool { return kc.Take(1, n).Allowed() },
		zero: func() error { return new(window.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: []ask{use}, try: func(n int64) bool { return use(bg, n) == nil },
		zero: func() error { return new(sluice.Keyed[int]).Do(bg, 1, nothing) },
	}}
	for _, limiter := range []limits.Limiter{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3})), limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: time.Hour}))} {
		b := sluice.NewQueue(limiter)
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "q", Limiter: limiter}}})
		var owe func()
		if _, ok := limiter.(*leaky.Bucket); ok {
			owe = func() { limiter.Adjust(bg, math.MaxInt64, 0) }
		}
		all = append(all, subject{
			column: "Queue", ask: blocking(b.Acquire, b.AcquireWithin), try: b.TryAcquire, owe: owe,
			zero: func() error { return new(sluice.Queue).Acquire(bg, 1) },
		}, subject{
			column: "Gate", ask: entered(g), try: tried(g), owe: owe, other: []func(int64){
				func(n int64) { g.Estimate(n) },
				func(n int64) { new(sluice.Permit).Settle(n) },
			},
			zero: func() error { return released(new(sluice.Gate).Acquire(bg, 1)) },
		})
	}
	g, child := mustGate(t, room), mustGate(t, sluice.Config{Parent: mustGate(t, room)})
	return append(all,
		subject{column: "Gate", ask: entered(g), try: tried(g)},
		subject{column: "Gate", ask: entered(child), try: tried(child)})
}

// verbs returns all that can be done to s with an n, each by itself.
func (s subject) verbs() []ask {
	all := append(slices.Clone(s.ask), func(_ context.Context, n int64) error {
		if !s.try(n) {
			return limits.ErrTooLarge // is why, if nothing is taken
		}
		return nil
	})
	for _, f := range s.other {
		all = append(all, func(_ context.Context, n int64) error { f(n); return nil })
	}
	return all
}

// eachVerb makes a try of f for each verb of each subject, which is new, and checks
// that nothing was taken unless f returns nil.
func eachVerb(t *testing.T, verbs func(s subject) []ask, f func(s subject, ask ask) error) map[string][]func() error {
	cells := make(map[string][]func() error)
	for i, s := range subjects(t) {
		for verb := range verbs(s) {
			cells[s.column] = append(cells[s.column], func() error {
				s := subjects(t)[i]
				all, refused := int64(3), true
				if s.column == "pacer" {
					all = 1
				}
				defer func() {
					if refused && !s.try(all) {
						t.Errorf("%s, subject %d, verb %d: something was taken", s.column, i, verb)
					}
				}()
				err := f(s, verbs(s)[verb])
				refused = err != nil
				return err
			})
		}
	}
	return cells
}
