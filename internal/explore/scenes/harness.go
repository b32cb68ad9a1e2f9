package main

import (
	stdcontext "context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/explore/sched"
	"github.com/sluice-go/sluice/internal/explore/sched/context"
	"github.com/sluice-go/sluice/limits"
)

// A stage is one execution of a scene, with the observations of its callers. One goroutine runs at a
// time, so its fields need no lock.
type stage struct {
	*sched.World
	gates []*gate
	calls []*call
}

// A gate is a sluice.Gate with the calls that are in flight, counted from outside.
type gate struct {
	*sluice.Gate
	name   string
	parent *gate
	seen   sched.Object // the counting is an operation, so that its order is explored, too

	unit   sluice.Unit
	limit  int64 // most in flight, 0: no limit
	limits []change
	out    int64
	paused time.Time // before this instant none of the calls starts that
	from   int       // came later than so many,
	slept  []*call   // or slept when the pause began
	apart  time.Duration
	last   time.Time // when the last call started
}

// A change is a limit that holds from an instant on, by the number of calls begun before.
type change struct {
	began int
	limit int64
}

// A call is one of a gate.
type call struct {
	name    string
	gate    *gate
	n       int64
	number  int
	ahead   []*call // those that slept in the gate when it came
	passes  bool    // Wait: it is never in flight
	started bool
	over    bool
	cancel  bool // its context may have ended
	mayFail bool
}

// makeGate adds a gate.
func (s *stage) makeGate(name string, cfg sluice.Config, parent *gate) *gate {
	if parent != nil {
		cfg.Parent = parent.Gate
	}
	cfg.Name = name
	g := &gate{Gate: limits.Must(sluice.New(cfg)), name: name, parent: parent, limit: cfg.Concurrency, unit: cfg.ConcurrencyUnit}
	g.limits = []change{{0, cfg.Concurrency}}
	if cfg.Rate.Count > 0 {
		g.apart = cfg.Rate.Per / time.Duration(cfg.Rate.Count)
	}
	s.gates = append(s.gates, g)
	return g
}

// begin records that a caller comes.
func (s *stage) begin(name string, g *gate, n int64) *call {
	c := &call{name: name, gate: g, n: n, number: len(s.calls)}
	for _, o := range s.calls {
		if o.gate == g && !o.started && !o.over && !o.cancel && s.Asleep(o.name) {
			c.ahead = append(c.ahead, o)
		}
	}
	s.calls = append(s.calls, c)
	return c
}

// start records that c is in flight in its gate and the parents, and checks that it may be.
func (s *stage) start(c *call) {
	for g := c.gate; g != nil; g = g.parent {
		sched.Write("start in "+g.name, &g.seen)
	}
	c.started = true
	now := s.Now()
	for _, o := range c.ahead {
		if !o.started && !o.over && !o.cancel && s.Asleep(o.name) {
			s.Fail("%s started before %s, which slept in the gate when it came", c.name, o.name)
		}
	}
	for g := c.gate; g != nil; g = g.parent {
		g.out += c.in(g)
		if most := s.most(g); most > 0 && g.out > most {
			s.Fail("%s: %d in flight in %s, and %d may be", c.name, g.out, g.name, most)
		}
		if now.Before(g.paused) && (c.number >= g.from || slices.Contains(g.slept, c)) {
			s.Fail("%s started during the pause of %s", c.name, g.name)
		}
		if !g.last.IsZero() && now.Sub(g.last) < g.apart {
			s.Fail("%s started %v after the call before in %s", c.name, now.Sub(g.last), g.name)
		}
		g.last = now
	}
}

// most returns the largest limit that may have held when a call of g started that is in flight.
func (s *stage) most(g *gate) (most int64) {
	first := len(s.calls)
	for _, c := range s.calls {
		if c.started && !c.over && c.in(g) > 0 {
			first = min(first, c.number)
		}
	}
	for i, l := range g.limits {
		if i+1 < len(g.limits) && g.limits[i+1].began <= first {
			continue // a later one held before the first of them came
		}
		if l.limit == 0 {
			return 0
		}
		most = max(most, l.limit)
	}
	return most
}

// in returns the amount that c has in flight in g while it runs.
func (c *call) in(g *gate) int64 {
	at := c.gate
	for at != nil && at != g {
		at = at.parent
	}
	switch {
	case at == nil || c.passes:
		return 0
	case g.unit == sluice.Cost:
		return c.n
	}
	return 1
}

// end records that c is not in flight any more. It comes before the gate knows.
func (s *stage) end(c *call) {
	for g := c.gate; g != nil; g = g.parent {
		sched.Write("end in "+g.name, &g.seen)
	}
	for g := c.gate; g != nil; g = g.parent {
		g.out -= c.in(g)
	}
	c.over = true
}

// result checks how a call ended that has not started.
func (s *stage) result(c *call, err error) {
	c.over = true
	switch {
	case err == nil && !c.started:
		s.Fail("%s was admitted and did not start", c.name)
	case err == nil || c.mayFail:
	case c.cancel && errors.Is(err, stdcontext.Canceled):
	default:
		s.Fail("%s: %v", c.name, err)
	}
}

// do calls Gate.Do in a goroutine.
func (s *stage) do(name string, g *gate) {
	s.Go(name, func() {
		c := s.begin(name, g, 1)
		s.result(c, g.Do(stdcontext.Background(), func(stdcontext.Context) error {
			s.start(c)
			s.end(c)
			return nil
		}))
	})
}

// wait calls Gate.Wait. Such a call is not counted as in flight.
func (s *stage) wait(name string, g *gate) {
	s.Go(name, func() {
		c := s.begin(name, g, 1)
		c.passes = true
		err := g.Wait(stdcontext.Background())
		if err == nil {
			s.start(c)
			s.end(c)
		}
		s.result(c, err)
	})
}

// acquire calls Acquire of n and Release.
func (s *stage) acquire(name string, g *gate, n int64) {
	s.Go(name, func() { s.take(s.begin(name, g, n), stdcontext.Background()) })
}

func (s *stage) take(c *call, ctx stdcontext.Context) {
	p, err := c.gate.Acquire(ctx, c.n)
	if err == nil {
		s.start(c)
		s.end(c)
		p.Release()
	}
	s.result(c, err)
}

// canceled is acquire, and a goroutine that ends the context at any time.
func (s *stage) canceled(name string, g *gate, n int64) {
	ctx, cancel := context.WithCancel(stdcontext.Background())
	s.Go(name, func() {
		c := s.begin(name, g, n)
		c.cancel = true
		s.take(c, ctx)
	})
	s.Go("cancel "+name, cancel)
}

// try calls TryAcquire and Release.
func (s *stage) try(name string, g *gate) {
	s.Go(name, func() {
		c := s.begin(name, g, 1)
		p, ok := g.TryAcquire(1)
		if ok {
			s.start(c)
			s.end(c)
			p.Release()
		}
		c.over = true
	})
}

// within calls AcquireWithin, which may give up.
func (s *stage) within(name string, g *gate, longest time.Duration) {
	s.Go(name, func() {
		c := s.begin(name, g, 1)
		c.mayFail = true
		p, err := g.AcquireWithin(stdcontext.Background(), 1, longest)
		if err == nil {
			s.start(c)
			s.end(c)
			p.Release()
		}
		s.result(c, err)
	})
}

// setConcurrency changes the limit of g.
func (s *stage) setConcurrency(g *gate, to int64) {
	s.Go("limit", func() {
		g.limits = append(g.limits, change{1 << 30, to}) // from now on it may hold
		if err := g.SetConcurrency(to); err != nil {
			s.Fail("%v", err)
		}
		g.limits[len(g.limits)-1].began = len(s.calls) // and now it does
	})
}

// pauseNow pauses g.
func (s *stage) pauseNow(g *gate) {
	s.Go("pause", func() {
		until := s.Now().Add(50 * time.Millisecond)
		g.PauseUntil(until, "test")
		g.paused, g.from = until, len(s.calls)
		for _, c := range s.calls {
			if !c.started && !c.over && s.Asleep(c.name) {
				g.slept = append(g.slept, c)
			}
		}
	})
}

// idle checks, when all is over, that each gate has all that was taken from it.
func (s *stage) idle() {
	for _, g := range s.gates {
		stats := g.Stats()
		if stats.InFlight != 0 || stats.Waiting != 0 {
			s.Fail("afterwards %d are in flight in %s and %d wait", stats.InFlight, g.name, stats.Waiting)
		}
		if g.out != 0 {
			s.Fail("the scene is wrong: %d are out of %s", g.out, g.name)
		}
	}
}

// play runs the scene once.
func (sc scene) play(w *sched.World) {
	s := &stage{World: w}
	if sc.bubble {
		w.InBubble()
	}
	sc.set(s)
	w.After(s.idle)
}

// find returns the scenes of these names, all if there are none.
func find(names []string) (some []scene, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(scenes, func(s scene) bool { return s.name == name }) {
			return nil, fmt.Errorf("no scene is called %s", name)
		}
	}
	for _, s := range scenes {
		if len(names) == 0 || slices.Contains(names, s.name) {
			some = append(some, s)
		}
	}
	return some, nil
}
