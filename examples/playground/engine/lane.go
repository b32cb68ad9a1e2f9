package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A lane is one client in its own copy of the world.
type lane struct {
	*Scenario
	client   client
	clock    *clock
	upstream *upstream
	call     func(ctx context.Context, c *caller) error
	ctx      context.Context // done when the time is up
	during   sync.WaitGroup
	record   record

	inFlight, open int // calls under way; callers neither served nor gone
	since          time.Duration
	flown, opened  float64 // since the bar began: inFlight and open times seconds
}

// A caller makes one call, in one or more attempts.
type caller struct {
	number  int
	random  *rand.Rand
	arrived time.Duration
	first   time.Duration // when its first attempt started; negative: not yet
	gaveUp  bool
	served  bool
	patient bool // came after others had given up
}

// A record is what has happened in a lane.
type record struct {
	callers  []*caller
	attempts []attempt
	most     int       // in flight at the same time
	inFlight []float64 // the mean of each bar
	waiting  []float64 // likewise
	paces    []float64 // at the end of each bar, or none
}

// An attempt is a call that started, once.
type attempt struct {
	left    time.Duration
	outcome outcome
}

// play runs a client in a scenario. It must be called in a bubble.
func (s *Scenario) play(c client) *record {
	ctx, end := context.WithCancel(context.Background())
	k := newClock()
	l := &lane{Scenario: s, client: c, clock: k, upstream: newUpstream(s.Server, k), ctx: ctx}
	call, pace := c.make(l)
	l.call = call
	l.demand()
	until, width := seconds(s.Seconds), seconds(s.binWidth())
	for at := width; at < until; at += width {
		k.at(at, func() { l.bar(pace) })
	}
	k.run(until)
	l.bar(pace)
	end()
	l.during.Wait()
	return &l.record
}

// demand lets the callers come.
func (l *lane) demand() {
	d := l.Demand
	for range d.Workers {
		l.begin(0, l.work)
	}
	for range d.Crowd {
		l.begin(d.CrowdAt, l.impatient)
	}
	for i := range d.Patient {
		l.begin(d.CrowdAt+d.GiveUp+1e-3+float64(i)*d.Apart, func() {
			c := l.caller()
			c.patient = true
			l.call(l.ctx, c)
		})
	}
}

// begin starts a goroutine at t.
func (l *lane) begin(t float64, f func()) {
	l.clock.at(seconds(t), func() {
		l.during.Go(f)
		l.clock.woke = true
	})
}

// impatient makes one call, unless it has not left when the caller gives up. A call that
// has left is not canceled: its answer is still wanted.
func (l *lane) impatient() {
	c := l.caller()
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	giveUp := func() {
		if c.first < 0 && !c.gaveUp {
			c.gaveUp = true
			l.change(0, -1)
			cancel()
			l.clock.woke = true
		}
	}
	l.clock.after(seconds(l.Demand.GiveUp), giveUp)
	if l.client.deadline {
		ctx = announced{ctx, time.Now().Add(seconds(l.Demand.GiveUp))}
	}
	if l.call(ctx, c) != nil { // perhaps earlier: it cannot start in time
		l.clock.after(0, giveUp)
	}
}

// announced is a context.WithTimeout that is canceled by the clock of its lane: its own timer would
// fire at the time of the others in no certain order.
type announced struct {
	context.Context
	deadline time.Time
}

func (a announced) Deadline() (time.Time, bool) { return a.deadline, true }

// work makes one call after the other until the time is up.
func (l *lane) work() {
	for l.ctx.Err() == nil {
		c := l.caller()
		l.call(l.ctx, c)
	}
}

// caller returns the next caller. Only one goroutine runs when it is called: each was woken
// by its own event.
func (l *lane) caller() *caller {
	n := len(l.record.callers)
	c := &caller{number: n, random: rand.New(rand.NewPCG(2, uint64(n))), arrived: l.clock.now(), first: -1}
	l.record.callers = append(l.record.callers, c)
	l.change(0, 1)
	return c
}

// send sends a call and waits for the reply.
func (l *lane) send(ctx context.Context, c *caller) (reply, error) {
	back := make(chan reply, 1)
	l.clock.depart(c.number, func() {
		now := l.clock.now()
		if c.first < 0 {
			c.first = now
		}
		i := len(l.record.attempts)
		l.record.attempts = append(l.record.attempts, attempt{left: now})
		l.change(1, 0)
		l.upstream.call(func(r reply) {
			l.change(-1, 0)
			if l.record.attempts[i].outcome = r.outcome; r.outcome == served {
				c.served = true
				l.change(0, -1)
			}
			back <- r
			l.clock.woke = true
		})
	})
	select {
	case r := <-back:
		return r, nil
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// sleep waits for d.
func (l *lane) sleep(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	l.clock.after(d, func() {
		close(over)
		l.clock.woke = true
	})
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change adds to the calls under way and to the callers that want something.
func (l *lane) change(inFlight, open int) {
	d := (l.clock.now() - l.since).Seconds()
	l.flown += d * float64(l.inFlight)
	l.opened += d * float64(l.open)
	l.since = l.clock.now()
	l.inFlight += inFlight
	l.open += open
	l.record.most = max(l.record.most, l.inFlight)
}

// bar ends a bar.
func (l *lane) bar(pace func() float64) {
	l.change(0, 0)
	r, width := &l.record, l.binWidth()
	r.inFlight = append(r.inFlight, l.flown/width)
	r.waiting = append(r.waiting, (l.opened-l.flown)/width)
	l.flown, l.opened = 0, 0
	if pace != nil {
		r.paces = append(r.paces, pace())
	}
}
