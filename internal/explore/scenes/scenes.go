package main

import (
	stdcontext "context"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/explore/sched"
	"github.com/sluice-go/sluice/internal/explore/sched/context"
	"github.com/sluice-go/sluice/semaphore"
)

// A scene is a few callers and gates whose interleavings are explored.
type scene struct {
	name, about string
	set         func(s *stage)
	bubble      bool // time is as in a testing/synctest bubble: what is late, and entries that are used again, are left out
	bound       int  // most preemptions of an execution
	reduced     bool // small enough for all interleavings, with partial-order reduction, instead
}

const reduced = -1

func one(limit int64) sluice.Config { return sluice.Config{Concurrency: limit} }

var scenes = []scene{
	{name: "do-2", about: "two Do, one place", reduced: true, set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.do("b", g)
	}},
	{name: "do-3", bound: 2, about: "three Do, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.do("b", g)
		s.do("c", g)
	}},
	{name: "weigh-2", about: "a Do and an Acquire of cost 2, which takes the lock, one place", reduced: true, set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.acquire("b", g, 2)
	}},
	{name: "mixed-3", bound: 2, about: "Do, Wait and Acquire, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.wait("b", g)
		s.acquire("c", g, 1)
	}},
	{name: "cancel-3", bound: 1, about: "three Acquire, one of them canceled, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.acquire("a", g, 1)
		s.canceled("b", g, 1)
		s.acquire("c", g, 1)
	}},
	{name: "try-3", bound: 2, about: "TryAcquire during two Acquire, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.acquire("a", g, 1)
		s.acquire("b", g, 1)
		s.try("c", g)
	}},
	{name: "within-3", bound: 2, about: "AcquireWithin during two Do, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.do("b", g)
		s.within("c", g, time.Millisecond)
	}},
	{name: "raise-3", bound: 1, about: "SetConcurrency from 1 to 2 during three Do", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.do("b", g)
		s.do("c", g)
		s.setConcurrency(g, 2)
	}},
	{name: "raise-held", bound: 2, about: "SetConcurrency from 1 to 2 while the place is held for good", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		held, _ := g.TryAcquire(1)
		s.do("a", g)
		s.acquire("b", g, 1)
		s.setConcurrency(g, 2)
		s.After(func() { held.Release() })
	}},
	{name: "lower-3", bound: 1, about: "SetConcurrency from 2 to 1 during three Acquire", set: func(s *stage) {
		g := s.makeGate("gate", one(2), nil)
		s.acquire("a", g, 1)
		s.acquire("b", g, 1)
		s.setConcurrency(g, 1)
		s.Go("later", func() {
			c := s.begin("later", g, 1)
			s.take(c, stdcontext.Background())
		})
	}},
	{name: "cost-3", bound: 1, about: "concurrency 2 counts cost: 2, 1 and 1, one canceled", set: func(s *stage) {
		g := s.makeGate("gate", sluice.Config{Concurrency: 2, ConcurrencyUnit: sluice.Cost}, nil)
		s.acquire("a", g, 1)
		s.canceled("b", g, 2)
		s.acquire("c", g, 1)
	}},
	{name: "cost-held", bound: 2, about: "the same while one permit is held for good: the one of cost 2 is canceled", set: func(s *stage) {
		g := s.makeGate("gate", sluice.Config{Concurrency: 2, ConcurrencyUnit: sluice.Cost}, nil)
		held, _ := g.TryAcquire(1)
		s.canceled("a", g, 2)
		s.acquire("b", g, 1)
		s.After(func() { held.Release() })
	}},
	{name: "pause-3", bound: 1, about: "PauseUntil during three Do, two places", bubble: true, set: func(s *stage) {
		g := s.makeGate("gate", one(2), nil)
		s.do("a", g)
		s.do("b", g)
		s.acquire("c", g, 1)
		s.pauseNow(g)
	}},
	{name: "resume-2", bound: 2, about: "PauseUntil, and then Resume, during two callers", bubble: true, set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		s.do("a", g)
		s.acquire("b", g, 1)
		s.Go("pause", func() {
			g.PauseUntil(s.Now().Add(time.Hour), "test")
			g.Resume()
		})
	}},
	{name: "rate-3", bound: 2, about: "three Wait, one every 10 ms", bubble: true, set: func(s *stage) {
		g := s.makeGate("gate", sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Millisecond}}, nil)
		s.wait("a", g)
		s.wait("b", g)
		s.wait("c", g)
	}},
	{name: "rate-cancel-3", bound: 1, about: "three Acquire, one every 10 ms, one canceled, one place", bubble: true, set: func(s *stage) {
		g := s.makeGate("gate", sluice.Config{Concurrency: 1, Rate: sluice.Rate{Count: 1, Per: 10 * time.Millisecond}}, nil)
		s.acquire("a", g, 1)
		s.canceled("b", g, 1)
		s.acquire("c", g, 1)
	}},
	{name: "set-rate-3", bound: 1, about: "SetRate from one an hour to one every 10 ms during three Wait", bubble: true, set: func(s *stage) {
		g := s.makeGate("gate", sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}}, nil)
		g.apart = 10 * time.Millisecond
		s.wait("a", g)
		s.wait("b", g)
		s.wait("c", g)
		s.Go("rate", func() {
			if err := g.SetRate(sluice.Rate{Count: 1, Per: 10 * time.Millisecond}); err != nil {
				s.Fail("%v", err)
			}
		})
	}},
	{name: "close-3", bound: 1, about: "Shutdown during three callers, one place", set: func(s *stage) {
		g := s.makeGate("gate", one(1), nil)
		for _, name := range []string{"a", "b", "c"} {
			s.Go(name, func() {
				c := s.begin(name, g, 1)
				c.mayFail = true
				s.take(c, stdcontext.Background())
			})
		}
		s.Go("shutdown", func() {
			if err := g.Shutdown(stdcontext.Background()); err != nil {
				s.Fail("%v", err)
			}
			if g.out != 0 {
				s.Fail("Shutdown returned while %d were in flight", g.out)
			}
		})
	}},
	{name: "parent-1", bound: 2, about: "two Do of two gates, one place in the parent", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		s.do("a", s.makeGate("x", one(1), p))
		s.do("b", s.makeGate("y", one(1), p))
	}},
	{name: "parent-3", bound: 2, about: "three callers of one gate, one place in it and in the parent", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		g := s.makeGate("gate", one(2), p)
		s.do("a", g)
		s.acquire("b", g, 1)
		s.do("c", g)
	}},
	{name: "parent-two-3", bound: 2, about: "three callers of two gates, one place in the parent", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		s.do("a", x)
		s.acquire("b", x, 1)
		s.wait("c", y)
	}},
	{name: "parent-cancel-3", bound: 1, about: "three callers of two gates, one canceled, one place in the parent", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		s.acquire("a", x, 1)
		s.canceled("b", y, 1)
		s.acquire("c", y, 1)
	}},
	{name: "parent-cost-3", bound: 2, about: "a parent whose concurrency counts cost, one caller of it and two of a gate", set: func(s *stage) {
		p := s.makeGate("parent", sluice.Config{Concurrency: 2, ConcurrencyUnit: sluice.Cost}, nil)
		g := s.makeGate("gate", one(2), p)
		s.acquire("a", g, 1)
		s.acquire("b", g, 2)
		s.acquire("c", p, 1)
	}},
	{name: "parent-raise-3", bound: 1, about: "SetConcurrency of the parent during calls of two gates", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		held, _ := x.TryAcquire(1)
		s.do("a", y)
		s.acquire("b", y, 1)
		s.setConcurrency(p, 2)
		s.After(func() { held.Release() })
	}},
	{name: "parent-pause-3", bound: 1, about: "PauseUntil of the parent during calls of two gates", bubble: true, set: func(s *stage) {
		p := s.makeGate("parent", one(2), nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		s.do("a", x)
		s.do("b", y)
		s.acquire("c", y, 1)
		s.pauseNow(p)
	}},
	{name: "parent-rate-3", bound: 2, about: "three callers of two gates, one every 10 ms in the parent", bubble: true, set: func(s *stage) {
		p := s.makeGate("parent", sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Millisecond}}, nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		s.do("a", x)
		s.wait("b", y)
		s.acquire("c", y, 1)
	}},
	{name: "parent-close-3", bound: 1, about: "Close of the parent during calls of two gates", set: func(s *stage) {
		p := s.makeGate("parent", one(1), nil)
		x, y := s.makeGate("x", one(1), p), s.makeGate("y", one(1), p)
		for i, g := range []*gate{x, y, y} {
			name := string(rune('a' + i))
			s.Go(name, func() {
				c := s.begin(name, g, 1)
				c.mayFail = true
				s.take(c, stdcontext.Background())
			})
		}
		s.Go("close", p.Close)
	}},
	{name: "semaphore-2", about: "two Acquire of a semaphore of 1", reduced: true, set: func(s *stage) {
		weighted(s, 1, 1, 1)
	}},
	{name: "semaphore-3", bound: 2, about: "three Acquire of a semaphore of 2, of 1, 2 and 1, the second canceled", set: func(s *stage) {
		sem := weighted(s, 2, 1, 0, 1)
		ctx, cancel := context.WithCancel(stdcontext.Background())
		s.Go("canceled", func() {
			if sem.Acquire(ctx, 2) == nil {
				sem.Release(2)
			}
		})
		s.Go("cancel", cancel)
	}},
	{name: "crowd-3", bound: 2, about: "three Acquire of a semaphore of 1 that cannot be canceled, and SetLimit", set: func(s *stage) {
		sem := weighted(s, 1, 1, 1, 1)
		s.Go("limit", func() { _ = sem.SetLimit(2) })
	}},
}

// weighted adds a semaphore of limit, and a caller for each n that is not 0.
func weighted(s *stage, limit int64, ns ...int64) *semaphore.Weighted {
	sem := semaphore.NewWeighted(limit)
	var out int64
	var seen sched.Object
	for i, n := range ns {
		if n == 0 {
			continue
		}
		s.Go(string(rune('a'+i)), func() {
			if err := sem.Acquire(stdcontext.Background(), n); err != nil {
				s.Fail("%v", err)
				return
			}
			sched.Write("start", &seen)
			if out += n; out > 2 || out > limit && sem.Limit() == limit {
				s.Fail("%d of %d permits are out", out, limit)
			}
			sched.Write("end", &seen)
			out -= n
			sem.Release(n)
		})
	}
	s.After(func() {
		if sem.InFlight() != 0 || sem.Waiting() != 0 {
			s.Fail("afterwards %d permits are out and %d wait", sem.InFlight(), sem.Waiting())
		}
		if !sem.TryAcquire(sem.Limit()) {
			s.Fail("afterwards not all permits are free")
		}
	})
	return sem
}
