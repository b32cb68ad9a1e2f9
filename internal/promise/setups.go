package promise

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// withParent has both limits in the gate and in its parent.
func withParent(tb testing.TB, l Limits) *Subject {
	parent := mustGate(tb, l.Config())
	cfg := l.Config()
	cfg.Parent = parent
	g := mustGate(tb, cfg)
	s := OfGate(l, g, NewLevel("gate", g), NewLevel("parent", parent))
	s.Beside = Beside(tb, l, parent, 1)
	return s
}

// withGrandparent has another limit on each level.
func withGrandparent(tb testing.TB, l Limits) *Subject {
	top := mustGate(tb, sluice.Config{Name: "top", Rate: Every(l.Interval)})
	bucket, quota := newBucket(1)
	middle := mustGate(tb, sluice.Config{Name: "middle", Parent: top, Concurrency: l.Room, Limits: []sluice.Limit{bucket}})
	g := mustGate(tb, sluice.Config{Name: "gate", Parent: middle, Rate: Every(l.Interval)})
	s := OfGate(l, g, NewLevel("gate", g), NewLevel("middle", middle, quota), NewLevel("top", top))
	s.Beside = Beside(tb, l, top, 1)
	return s
}

// plenty is more than the calls of a scene take.
const plenty = 10_000

// newBucket returns a bucket that calls of a cost hardly empty.
func newBucket(cost int64) (sluice.Limit, Quota) {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: 100 * time.Hour, Burst: plenty}))
	return sluice.Limit{Name: "bucket", Limiter: b}, Quota{
		Name:  "bucket",
		Cost:  cost,
		Rings: true,
		Left:  func() int64 { return b.Take(0).Remaining },
		Take: func(n int64) {
			if n < 0 {
				b.Adjust(context.Background(), n, 0)
			} else {
				b.Take(n)
			}
		},
	}
}

// newLog is newBucket with a sliding window of 100 hours.
func newLog(cost int64) (sluice.Limit, Quota) {
	log := limits.Must(window.NewSliding(window.Quota{Limit: plenty, Window: 100 * time.Hour}))
	return sluice.Limit{Name: "log", Limiter: log}, Quota{
		Name:  "log",
		Cost:  cost,
		Rings: true,
		Left:  func() int64 { return log.Take(0).Remaining },
		Take: func(n int64) {
			if n < 0 {
				_ = log.Adjust(context.Background(), n, 0)
			} else {
				log.Take(n)
			}
		},
	}
}

func withQuotas(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	bucket, quota := newBucket(1)
	log, quota2 := newLog(1)
	cfg.Limits = []sluice.Limit{bucket, log}
	g := mustGate(tb, cfg)
	return OfGate(l, g, NewLevel("gate", g, quota, quota2))
}

// A far is a limiter that takes a while to answer.
type far struct {
	limits.Limiter
	trip time.Duration
}

func (f far) Admit(ctx context.Context, n int64) (time.Duration, error) {
	select {
	case <-time.After(f.trip):
		return f.Limiter.Admit(ctx, n)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// withFarQuota has a quota that is far away and one that is not, in that order.
func withFarQuota(tb testing.TB, l Limits) *Subject { return farQuota(tb, l.Config()).subject(l) }

// withFarQuotaAndParent also has a parent, whose limits may change while the quota is
// asked.
func withFarQuotaAndParent(tb testing.TB, l Limits) *Subject {
	parent := mustGate(tb, l.Config())
	cfg := l.Config()
	cfg.Parent = parent
	f := farQuota(tb, cfg)
	f.levels = append(f.levels, NewLevel("parent", parent))
	s := f.subject(l)
	s.Beside = Beside(tb, l, parent, 1)
	return s
}

// A farGate is a gate with a quota that is far away, and its path.
type farGate struct {
	gate   *sluice.Gate
	levels []*Level
}

func (f farGate) subject(l Limits) *Subject {
	s := OfGate(l, f.gate, f.levels...)
	s.Late = trip
	return s
}

// trip is the time an answer takes. That is less than the delay that a gate catches up on.
const trip = 500 * time.Microsecond

func farQuota(tb testing.TB, cfg sluice.Config) farGate {
	bucket, quota := newBucket(1)
	log, quota2 := newLog(1)
	bucket.Limiter, quota.Rings = far{bucket.Limiter, trip}, false
	cfg.Limits = []sluice.Limit{bucket, log}
	g := mustGate(tb, cfg)
	return farGate{g, []*Level{NewLevel("gate", g, quota, quota2)}}
}

// A costly is a gate whose limits count twice as much as they do for calls.
type costly struct{ *sluice.Gate }

func (c costly) SetRate(rate sluice.Rate) error {
	rate.Count *= 2
	return c.Gate.SetRate(rate)
}

func (c costly) SetConcurrency(limit int64) error { return c.Gate.SetConcurrency(2 * limit) }

// withCost has calls that cost 2, and limits that count cost.
func withCost(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.Rate.Count *= 2
	cfg.Concurrency *= 2
	cfg.RateUnit, cfg.ConcurrencyUnit = sluice.Cost, sluice.Cost
	bucket, quota := newBucket(2)
	cfg.Limits = []sluice.Limit{bucket}
	g := mustGate(tb, cfg)
	level := NewLevel("gate", g, quota)
	level.Control = costly{g}
	v := verbs{cost: 2}
	s := v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, []*Level{level})
	s.Weighs = true
	return s
}

// paused is paused when the first calls come.
func paused(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	s.Origin = 300 * time.Millisecond
	if l.Real {
		s.Origin = 30 * time.Millisecond
	}
	s.Levels[0].PauseUntil(time.Now().Add(s.Origin), "a setup")
	return s
}

func withoutRate(tb testing.TB, l Limits) *Subject {
	l.Interval = 0
	return plain(tb, l)
}

// spent has an empty retry budget, and keeps calls apart by no more than the usual interval.
func spent(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.RetryBudget = 5
	g := mustGate(tb, cfg)
	s := OfGate(l, g, NewLevel("gate", g))
	s.Spend = func(d time.Duration) { Spend(g, d) }
	spacing := 10 * time.Millisecond
	if l.Real {
		spacing = time.Millisecond
	}
	s.Spend(spacing)
	time.Sleep(spacing)
	return s
}

// Spend empties the retry budget of g, so that calls are spaced by d.
func Spend(g *sluice.Gate, d time.Duration) {
	for range 100 {
		if g.Stats().Spacing >= d {
			return
		}
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{Backoff: sluice.Constant(d)})
		a.ChargeRetry()
	}
}

// day is longer than any check waits.
const day = 24 * time.Hour

func withDeadline(tb testing.TB, l Limits) *Subject {
	g := mustGate(tb, l.Config())
	v := verbs{cost: 1, deadline: 100 * day}
	return v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, []*Level{NewLevel("gate", g)})
}

func withAcquireWithin(tb testing.TB, l Limits) *Subject {
	g := mustGate(tb, l.Config())
	v := verbs{cost: 1, within: 100 * day}
	return v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, []*Level{NewLevel("gate", g)})
}

func inKeyed(tb testing.TB, l Limits) *Subject {
	all := mustGate(tb, sluice.Config{Name: "all", Concurrency: l.Room})
	cfg := l.Config()
	cfg.Parent = all
	gates, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(cfg) })
	if err != nil {
		tb.Fatal(err)
	}
	use := func(f func(*sluice.Gate) error) error { return gates.Use("a", f) }
	var levels []*Level
	if err := use(func(g *sluice.Gate) error {
		levels = []*Level{NewLevel("gate", g), NewLevel("all", all)}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	return verbs{cost: 1}.subject(l, use, levels)
}

// besideShutdown has a sibling that was shut down while callers waited in it.
func besideShutdown(tb testing.TB, l Limits) *Subject {
	parent := mustGate(tb, l.Config())
	gone := mustGate(tb, sluice.Config{Name: "gone", Parent: parent})
	g := mustGate(tb, sluice.Config{Name: "gate", Parent: parent})
	parent.PauseUntil(time.Now().Add(100*day), "a setup")
	results := make(chan error)
	for range 5 {
		go func() {
			_, err := gone.Acquire(context.Background(), 1)
			results <- err
		}()
	}
	for s := gone.Stats(); s.Pacing+s.Waiting < 5; s = gone.Stats() {
		time.Sleep(time.Millisecond)
	}
	if err := gone.Shutdown(context.Background()); err != nil {
		tb.Fatal(err)
	}
	for range 5 {
		if err := <-results; !errors.Is(err, limits.ErrClosed) {
			tb.Fatalf("a caller of a gate that was shut down: %v", err)
		}
	}
	parent.Resume()
	s := OfGate(l, g, NewLevel("gate", g), NewLevel("parent", parent))
	s.Beside = Beside(tb, l, parent, 1)
	return s
}

// changed has had other rates and another limit before, and a call that started.
func changed(tb testing.TB, l Limits) *Subject {
	g := mustGate(tb, sluice.Config{Name: "gate", Rate: Every(time.Microsecond), Concurrency: 100, Limits: l.more})
	before := l.Interval <= time.Second // else the first call would have to wait for an hour
	if before {
		if p, ok := g.TryAcquire(1); ok {
			p.Release()
		}
	}
	if err := g.SetRate(sluice.Rate{Count: 1, Per: 7 * time.Hour}); err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(g.SetRate(sluice.Rate{Count: Every(l.Interval).Count, Per: l.Interval}), g.SetConcurrency(l.Room)); err != nil {
		tb.Fatal(err)
	}
	s := OfGate(l, g, NewLevel("gate", g))
	if before {
		s.Origin = l.Interval
	}
	return s
}
