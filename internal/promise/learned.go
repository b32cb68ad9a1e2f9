package promise

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// brisk is the interval of a gate that learns. Its estimate then is far above the rate that it has
// afterwards, so that its calls start at exact times.
const brisk = 100 * time.Microsecond

// learned returns setup with a gate that has learned from throttled calls. It had another rate
// then, and room for one call.
func learned(setup Setup) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		if l.Real && l.Interval > time.Second {
			return setup(tb, l) // it would have to wait until its new rate lets a call start
		}
		was := l
		if l.Interval > 0 {
			was.Interval = brisk
		}
		if l.Room > 0 {
			was.Room = 1
		}
		s := setup(tb, was)
		s.teach(tb)
		s.change(tb, l)
		s.Pace = 2 * time.Millisecond
		return s
	}
}

// searching returns setup with a gate that searches from the start, at a pace that delays none of
// the calls here.
func searching(setup Setup) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		l.search = sluice.Rate{Count: 1000, Per: time.Second}
		return setup(tb, l)
	}
}

// teach lets a server throttle enough calls of s for its gate to learn. On the real clock of a busy
// machine the throttles may be so far from each other that it takes more of them.
func (s *Subject) teach(tb testing.TB) {
	tb.Helper()
	for range 5 {
		for i := range 12 {
			time.Sleep(brisk)
			_ = s.Do(context.Background(), Ask{}, func() error {
				if i == 3 || i == 9 {
					return &ServerWait{After: time.Millisecond}
				}
				return nil
			})
		}
		if slices.ContainsFunc(s.Levels, func(l *Level) bool { return l.Stats().Learned != nil }) {
			return
		}
	}
	tb.Fatal("no gate has learned")
}

// change gives the levels of s the rate and the limit of l. A call may start immediately then.
func (s *Subject) change(tb testing.TB, l Limits) {
	tb.Helper()
	time.Sleep(max(l.Interval, 10*brisk))
	for _, level := range s.Levels {
		if level.Paced {
			if err := level.SetRate(Every(l.Interval)); err != nil {
				tb.Fatal(err)
			}
		}
		if level.Roomy {
			if err := level.SetConcurrency(l.Room); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// inAccount has the limits in a parent with Adaptive.Children.
func inAccount(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.Adaptive.Children = true
	parent := mustGate(tb, cfg)
	g := mustGate(tb, sluice.Config{Name: "tenant", Parent: parent})
	s := OfGate(l, g, NewLevel("tenant", g), NewLevel("account", parent))
	s.Beside = Beside(tb, l, parent, 1)
	return s
}

// learnedInAccount is learned(inAccount): no gate below the parent has a Learned.
func learnedInAccount(tb testing.TB, l Limits) *Subject {
	s := learned(inAccount)(tb, l)
	if s.Levels[0].Stats().Learned != nil {
		tb.Fatal("the tenant has learned by itself")
	}
	return s
}

// settled has calls that are settled by ten times the cost with which they were admitted, which nothing
// counts.
func settled(tb testing.TB, l Limits) *Subject { return settledIn(tb, l, l.Config()) }

func settledIn(tb testing.TB, l Limits, cfg sluice.Config) *Subject {
	g := mustGate(tb, cfg)
	v := verbs{cost: 1, took: 10}
	return v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, []*Level{NewLevel("gate", g)})
}

// settledWithoutRate is settled without a rate: the first unit that such a gate learns is not that
// of a rate.
func settledWithoutRate(tb testing.TB, l Limits) *Subject {
	l.Interval = 0
	return settledIn(tb, l, l.Config())
}

// settledByCost is settledWithoutRate with a rate of cost that is above the need of its calls: the
// first unit that such a gate learns is Cost.
func settledByCost(tb testing.TB, l Limits) *Subject {
	l.Interval = 0
	cfg := l.Config()
	cfg.Rate, cfg.RateUnit = sluice.Rate{Count: 1e9, Per: time.Second}, sluice.Cost
	cfg.Adaptive.Start.Count *= 10 // as many calls
	s := settledIn(tb, l, cfg)
	s.Levels[0].Paced = false // no other rate is set
	return s
}

// toldElsewhere has a gate that has heard of a pause: the server has told another process to wait.
func toldElsewhere(tb testing.TB, l Limits) *Subject {
	was := l
	was.peers = &company{began: time.Now()}
	if l.Interval > 0 {
		was.Interval = brisk
	}
	other, g := mustGate(tb, was.Config()), mustGate(tb, was.Config())
	s := OfGate(l, g, NewLevel("gate", g))
	s.Close = func() { _ = g.Shutdown(context.Background()) }
	OfGate(was, other, NewLevel("other", other)).teach(tb)
	end := time.Now().Add(l.Interval + 3*time.Second)
	_ = other.Do(context.Background(), func(context.Context) error {
		return sluice.ThrottledFor(ErrDown, time.Until(end))
	})
	for g.Stats().PausedUntil.IsZero() { // until it has heard
		s.Try()
		time.Sleep(10 * time.Millisecond)
	}
	_ = other.Shutdown(context.Background())
	s.change(tb, l)
	s.Pace, s.Origin = 2*time.Millisecond, time.Until(g.Stats().PausedUntil)
	return s
}

// withRoomOfCost counts the cost of calls in flight in the gate and in its parent. Calls cost
// 1, so that they need no Permit.
func withRoomOfCost(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.ConcurrencyUnit = sluice.Cost
	parent := mustGate(tb, cfg)
	cfg.Parent = parent
	g := mustGate(tb, cfg)
	return OfGate(l, g, NewLevel("gate", g), NewLevel("parent", parent))
}

// withCostAndParent is withCost with the same limits in a parent.
func withCostAndParent(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.Rate.Count *= 2
	cfg.Concurrency *= 2
	cfg.RateUnit, cfg.ConcurrencyUnit = sluice.Cost, sluice.Cost
	parent := mustGate(tb, cfg)
	cfg.Parent = parent
	g := mustGate(tb, cfg)
	levels := []*Level{NewLevel("gate", g), NewLevel("parent", parent)}
	levels[0].Control, levels[1].Control = costly{g}, costly{parent}
	s := verbs{cost: 2}.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, levels)
	s.Weighs = true
	return s
}

// withoutRateIn returns setup without a rate.
func withoutRateIn(setup Setup) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		l.Interval = 0
		return setup(tb, l)
	}
}

// withParentAndNoRate has a limit in the gate and in its parent.
func withParentAndNoRate(tb testing.TB, l Limits) *Subject {
	l.Interval = 0
	return withParent(tb, l)
}
