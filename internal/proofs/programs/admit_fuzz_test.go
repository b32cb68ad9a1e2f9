package programs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// FuzzAdmission runs a random history against random gates, made of the real
// limits, in a bubble: rates, semaphores, buckets, sliding and fixed windows, with
// or without a parent. A model of each limit sees the calls that were let through,
// and nothing else. After each step:
//
//   - every limit is exactly as if calls that were refused, cancelled or timed out
//     had never come;
//   - each call that was let through fitted into all limits at that instant, and no
//     call that would have fitted was left waiting, then or in between;
//   - no call left before one that came earlier;
//   - a wait was refused only if it could not have ended in time.
//
// Each history has two features for certain, see pairs.
//
// Over the whole history no window holds more than a limit allows. The checkers of
// that are independent of the models.
func FuzzAdmission(f *testing.F) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 20+r.IntN(180))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { newComposite(t, data).run() })
	})
}

// A composite is the gates under test and what is known of them.
type composite struct {
	*testing.T
	data  []byte
	start time.Time

	nodes   []*node // a gate; then perhaps its parent; then perhaps a sibling
	uniform int64   // what all calls weigh, or 0 if each weighs something else
	settles int     // calls cost: 0 what they said, 1 no more than that, 2 no less
	pair    [2]feature

	now     time.Duration // up to which everything is checked
	inside  []*call
	settled bool // something was

	mu    sync.Mutex
	ended []*call // since they were looked at
}

// A node is a gate and the models of its limits.
type node struct {
	gate   *sluice.Gate
	parent *node

	room, inFlight     int64 // room 0: no limit
	roomUnit, rateUnit sluice.Unit
	pace               paceModel
	left               []departure
	ramp               rampModel
	keyed              *sluice.Keyed[string] // or nil
	closed             bool
	quotas             []*quota

	waiting []*call
	granted uint64
}

// A quota is a limit of a gate, and its model.
type quota struct {
	name    string
	limiter limits.Limiter
	peek    func() limits.Result
	limit   int64
	unit    sluice.Unit
	model   limitModel
	past    []taking
}

// A call is one attempt to be let through.
type call struct {
	id      int
	from    *node
	n, held int64
	arrived time.Duration
	longest time.Duration // Never: as long as it takes
	until   time.Duration // the deadline of its context, or Never
	cancel  context.CancelFunc
	given   time.Duration // when it was cancelled, or Never

	// What became of it.
	at       time.Duration
	permit   *sluice.Permit
	err      error
	settled  bool
	released bool
}

var errNotNow = errors.New("TryAcquire: false")

// next returns the next number of the history, below n.
func (c *composite) next(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

func newComposite(t *testing.T, data []byte) *composite {
	c := &composite{T: t, data: data, start: time.Now()}
	c.drawPair()
	family := c.family()
	var parent *node
	if family > 3 {
		parent = c.newNode(nil)
		c.nodes = append(c.nodes, parent)
	}
	if family > 1 {
		parent = c.newNode(parent)
	}
	c.nodes = slices.Insert(c.nodes, 0, c.newNode(parent))
	if family > 1 {
		c.nodes = append(c.nodes, parent)
	}
	if family > 2 {
		c.nodes = append(c.nodes, c.newNode(parent))
	}
	if family > 1 {
		// Which call is first in the queue of the parent cannot be seen from
		// outside. If all weigh the same, it does not matter.
		c.uniform = int64(1 + c.next(3))
	}
	return c
}

// newNode makes a gate of random limits.
func (c *composite) newNode(parent *node) *node {
	g := &node{parent: parent, pace: paceModel{burst: 1}, roomUnit: sluice.Calls, rateUnit: sluice.Calls}
	which := c.limitsOfPair(c.next(256))
	if which&1 != 0 {
		g.room = int64(1 + c.next(4))
		if c.next(2) == 0 {
			g.room, g.roomUnit = 3*g.room, sluice.Cost
		}
	}
	if which&2 != 0 {
		g.pace.rate = []sluice.Rate{{Count: 7, Per: time.Second}, {Count: 10, Per: time.Second}, {Count: 3, Per: 10 * time.Second}, {Count: 1000, Per: time.Second}}[c.next(4)]
		g.pace.burst = int64(1 + c.next(3))
		if c.settles == 0 && c.next(4) == 0 {
			g.rateUnit = sluice.Cost
		}
	}
	c.unitsOfPair(g)
	some := c.quotasOfPair([...]int{0, 1 << c.next(6), 63}[c.next(3)]) // none, one or none, any
	b, keyed := limits.Must(leaky.New(limits.Rate{Count: 10, Per: 3 * time.Second, Burst: 10})), must(leaky.NewKeyed[string](limits.Rate{Count: 1, Per: time.Second, Burst: 6}))
	log, counter := limits.Must(window.NewSliding(window.Quota{Limit: 5, Window: 700 * ms})), limits.Must(window.NewFixed(window.Quota{Limit: 8, Window: time.Second}))
	logs := must(window.NewKeyedSliding[int](window.Quota{Limit: 4, Window: 2 * time.Second}))
	counters := must(window.NewKeyedFixed[int](window.Quota{Limit: 12, Window: 5 * time.Second}))
	for i, q := range []*quota{
		{"bucket", b, func() limits.Result { return b.Take(0) }, 10, sluice.Cost, leakModel{10, 300 * ms}, nil},
		{"log", log, func() limits.Result { return log.Take(0) }, 5, sluice.Cost, slidingModel{5, 700 * ms}, nil},
		{"counter", counter, func() limits.Result { return counter.Take(0) }, 8, sluice.Cost, fixedModel{8, time.Second}, nil},
		{"keyed bucket", keyed.On("k"), func() limits.Result { return keyed.Take("k", 0) }, 6, sluice.Cost, leakModel{6, time.Second}, nil},
		{"keyed log", logs.On(1), func() limits.Result { return logs.Take(1, 0) }, 4, sluice.Calls, slidingModel{4, 2 * time.Second}, nil},
		{"keyed counter", counters.On(1), func() limits.Result { return counters.Take(1, 0) }, 12, sluice.Cost, fixedModel{12, 5 * time.Second}, nil},
	} {
		if which>>2&some&(1<<i) != 0 {
			g.quotas = append(g.quotas, q)
		}
	}
	cfg := sluice.Config{
		Name: "c", Concurrency: g.room, ConcurrencyUnit: g.roomUnit,
		Rate: withBurst(g.pace.rate, g.pace.burst), RateUnit: g.rateUnit,
	}
	if parent != nil {
		cfg.Parent = parent.gate
	}
	if len(g.quotas) > 1 { // the order in which they are asked
		by := c.next(len(g.quotas))
		g.quotas = append(g.quotas[by:len(g.quotas):len(g.quotas)], g.quotas[:by]...)
	}
	for _, q := range g.quotas {
		cfg.Limits = append(cfg.Limits, sluice.Limit{Name: q.name, Limiter: q.limiter, Unit: q.unit})
	}
	// The model knows nothing of the first burst, which a gate without a limit starts in steps.
	cfg.Adaptive.Disabled = g.room == 0 && cfg.Rate.Count == 0 && len(cfg.Limits) == 0 && parent == nil
	c.makeGate(g, cfg)
	return g
}

func unitOf(u sluice.Unit, n int64) int64 {
	if u == sluice.Cost {
		return n
	}
	return 1
}

// run plays the history.
func (c *composite) run() {
	var all []*call
	defer func() { // a failure must not leave a goroutine in the bubble
		for _, k := range all {
			k.cancel()
		}
	}()
	for len(c.data) > 0 {
		g := c.nodes[c.next(len(c.nodes))]
		k := &call{id: len(all), from: g, n: c.uniform, arrived: c.now, longest: limits.Never, until: limits.Never, given: limits.Never}
		switch op := c.operation(); op {
		case 0, 1, 2, 3, 4, 5:
			if k.n == 0 {
				k.n = int64(1 + c.next(3+8*(op%2)))
			}
			ctx, cancel := context.WithCancel(bg)
			var f func() (*sluice.Permit, error)
			switch op {
			case 0, 1:
				f = func() (*sluice.Permit, error) { return g.gate.Acquire(ctx, k.n) }
			case 2, 3:
				k.longest = waits[c.next(len(waits))]
				f = func() (*sluice.Permit, error) { return g.gate.AcquireWithin(ctx, k.n, k.longest) }
			case 4:
				d := waits[c.next(len(waits))]
				ctx, cancel = context.WithTimeout(bg, d)
				k.until = c.now + max(0, d)
				f = func() (*sluice.Permit, error) { return g.gate.Acquire(ctx, k.n) }
			case 5:
				k.longest = 0
				f = func() (*sluice.Permit, error) {
					if p, ok := g.gate.TryAcquire(k.n); ok {
						return p, nil
					}
					return nil, errNotNow
				}
			}
			k.cancel = cancel
			all = append(all, k)
			g.waiting = append(g.waiting, k)
			go func() {
				p, err := g.through(f)
				c.mu.Lock()
				defer c.mu.Unlock()
				k.permit, k.err, k.at = p, err, time.Since(c.start)
				c.ended = append(c.ended, k)
			}()
		case 6:
			if len(all) > 0 {
				all[len(all)-1-c.next(min(8, len(all)))].giveUp(c.now)
			}
		case 7, 8:
			if len(c.inside) > 0 {
				c.inside[c.next(len(c.inside))].release(c)
			}
		case 9, 10, 11:
			time.Sleep(sleeps[c.next(len(sleeps))])
		case 12: // to the last instant before something
			next := []time.Duration{time.Until(g.gate.Stats().NextSlot)}
			for _, q := range g.quotas {
				next = append(next, q.peek().ResetAfter)
			}
			time.Sleep(next[c.next(len(next))] - 1)
		case 13:
			until := time.Duration(c.next(60)) * 40 * ms
			if until > 0 && c.now+until > g.pausedUntil() {
				g.ramp = append(g.ramp, rampEvent{kind: rampPaused, at: c.now, left: until})
			}
			g.left = append(g.left, departure{at: c.now, until: c.now + until})
			g.gate.PauseUntil(time.Now().Add(until), "")
		case 14:
			g.left = append(g.left, departure{at: c.now, resume: true})
			g.gate.Resume()
		case 15:
			if c.next(3) > 0 {
				c.settle(all)
			} else if g.room > 0 {
				g.room = int64(1 + c.next(12))
				g.gate.SetConcurrency(g.room)
			}
		case changeRate:
			c.changeRate(g)
		case shutDown:
			c.shutDown(g)
		}
		c.check()
	}
	for _, k := range all {
		k.giveUp(c.now)
		c.check()
	}
	for len(c.inside) > 0 {
		c.inside[0].release(c)
	}
	time.Sleep(time.Hour)
	c.check()
	for _, g := range c.nodes {
		if s := g.gate.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
			c.Fatalf("at the end: %+v", s)
		}
		for _, q := range g.quotas {
			if r := q.peek(); !c.settled && r.Remaining != q.limit {
				c.Fatalf("at the end %s has %+v", q.name, r)
			}
		}
	}
	c.windows()
}

var (
	waits  = []time.Duration{-1, 0, 1, 50 * ms, 100 * ms, 142_857_142, 300 * ms, 700 * ms, time.Second, 3 * time.Second, 20 * time.Second}
	sleeps = []time.Duration{1, ms / 2, 3 * ms, 50 * ms, 100 * ms, 142 * ms, 300 * ms, time.Second, 7 * time.Second}
)

// pausedUntil returns the end of the last pause.
func (g *node) pausedUntil() (end time.Duration) {
	for _, d := range g.left {
		switch {
		case d.resume:
			end = min(end, d.at)
		case d.n == 0:
			end = max(end, d.until)
		}
	}
	return end
}

func (k *call) giveUp(now time.Duration) {
	if k.cancel(); k.given == limits.Never {
		k.given = now
	}
}

func (k *call) release(c *composite) {
	c.inside = slices.DeleteFunc(c.inside, func(other *call) bool { return other == k })
	k.released = true
	for g := k.from; g != nil; g = g.parent {
		g.inFlight -= unitOf(g.roomUnit, k.held)
		g.ramp = append(g.ramp, rampEvent{rampAnswered, c.now, k.at, g.room})
	}
	k.permit.Release()
}

// settle settles a call that was let through.
func (c *composite) settle(all []*call) {
	all = slices.DeleteFunc(slices.Clone(all), func(k *call) bool { return k.permit == nil || k.settled })
	if len(all) == 0 || c.settles == 0 {
		return
	}
	k := all[c.next(len(all))]
	delta := int64(c.next(6))
	if c.settles == 1 {
		delta = -min(delta, k.n)
		// What is given back lets the next caller through, at the parent
		// before it is given back here: which of the two comes first would be
		// a matter of luck.
		for _, g := range c.nodes {
			if len(c.nodes) > 1 && len(g.waiting) > 0 {
				return
			}
		}
	}
	k.settled, c.settled = true, c.settled || delta != 0
	for g := k.from; g != nil; g = g.parent {
		for _, q := range g.quotas {
			if q.unit == sluice.Cost && delta != 0 {
				q.past = append(q.past, taking{c.now, delta, k.at})
			}
		}
		if g.roomUnit == sluice.Cost && !k.released {
			g.inFlight += delta
		}
	}
	k.held += delta
	k.permit.Settle(k.n + delta)
}

// refusals reports why a call of n may not leave at an instant by the limits of
// g and its parent: it would never fit, there is no room in flight, or it is too
// early.
func (g *node) refusals(at time.Duration, n int64) (never, full, early bool) {
	for ; g != nil; g = g.parent {
		if u := unitOf(g.roomUnit, n); g.room > 0 && u > g.room {
			never = true
		} else if g.room > 0 && u > g.room-g.inFlight {
			full = true
		}
		if g.pace.rate.Count == 0 && g.ramp.slot() > at {
			full = true // until others are answered, at an unknown time
		}
		if g.pace.slot(g.left) > at {
			early = true
		}
		for _, q := range g.quotas {
			if u := unitOf(q.unit, n); u > q.limit {
				never = true
			} else if !q.model.fits(q.past, at, u) {
				early = true
			}
		}
	}
	return never, full, early
}

func (g *node) fits(at time.Duration, n int64) bool {
	never, full, early := g.refusals(at, n)
	return !never && !full && !early
}

// fitsInTime is fits if all that are in flight come back.
func (g *node) fitsInTime(at time.Duration, n int64) bool {
	never, _, early := g.refusals(at, n)
	return !never && !early
}

// take records in the models of g and its parent that a call was let through.
func (g *node) take(at time.Duration, n int64) {
	for ; g != nil; g = g.parent {
		g.left = append(g.left, departure{at: at, n: unitOf(g.rateUnit, n)})
		g.ramp = append(g.ramp, rampEvent{kind: rampLeft, at: at})
		for _, q := range g.quotas {
			q.past = append(q.past, taking{at: at, n: unitOf(q.unit, n)})
		}
	}
}

// couldLeave reports whether k would leave by an instant if those before it
// left as soon as they could, and what is in flight came back.
func (c *composite) couldLeave(k *call, by time.Duration) bool {
	for g := k.from; g != nil; g = g.parent {
		left, ramp := g.left, g.ramp
		defer func() { g.left, g.ramp = left, ramp }()
		for _, q := range g.quotas {
			past := q.past
			defer func() { q.past = past }()
		}
	}
	at := c.now
	for _, w := range k.from.waiting {
		if at = earliest(at, max(at, by), func(at time.Duration) bool { return k.from.fitsInTime(at, w.n) }); at > by {
			return false
		}
		if w == k {
			return true
		}
		k.from.take(at, w.n)
	}
	panic("it does not wait")
}

// # Where two features meet

// A feature is one that a history of FuzzAdmission has for certain. Where two features
// meet is where most defects were, and a history that draws each of them at random
// rarely has both. Whatever else a history can have, it may have as well.
//
// Reservations are those of package pacer, which has a model of its own. A quota far
// away takes time to answer, and in these models a call takes none: it has a column
// in package internal/promise, like everything outside the core.
type feature int

const (
	noPair         feature = iota // whatever comes
	hasParent                     // of which the gate is not the only child
	hasGrandparent                //
	hasQuota                      // some
	hasCost                       // the limits count it
	noRate                        //
	pause                         // and its end
	rateChange                    //
	emptyBudget                   // retries are refused, calls are spaced by less than the interval
	deadline                      // of contexts
	within                        // AcquireWithin
	settle                        // calls cost something other than they said
	inKeyed                       // gates of a Keyed
	shutdown                      // of gates that are not parents
	features
)

// Operations that only a pair brings, beside those of composite.run.
const (
	changeRate = 16 + iota
	shutDown
)

// drawPair reads what calls cost, and a pair if the first byte is 128 or more. Inputs
// that are older than pairs mean what they did.
func (c *composite) drawPair() {
	first := c.next(256)
	c.settles = first % 3
	if first < 128 {
		return
	}
	c.pair = [2]feature{feature(1 + c.next(int(features)-1)), feature(1 + c.next(int(features)-1))}
	switch {
	case c.has(settle):
		c.settles = 1 + c.settles%2
	case c.has(hasCost):
		c.settles = 0 // so that the rate can count cost, see newNode
	}
}

func (c *composite) has(f feature) bool { return c.pair[0] == f || c.pair[1] == f }

// family returns how many gates there are: 4 has three generations.
func (c *composite) family() int {
	n := c.next(4)
	switch {
	case c.has(hasGrandparent):
		return 4
	case c.has(hasParent):
		return 3
	}
	return n
}

// limitsOfPair changes which limits a gate has, as newNode reads them.
func (c *composite) limitsOfPair(which int) int {
	if c.has(rateChange) || c.has(emptyBudget) {
		which |= 2
	} else if c.has(noRate) {
		which &^= 2
	}
	if c.has(hasQuota) {
		which |= 63 << 2
	}
	return which
}

func (c *composite) quotasOfPair(some int) int {
	if c.has(hasQuota) {
		some |= 1 << c.next(6)
	}
	return some
}

// unitsOfPair changes what the limits of a gate count.
func (c *composite) unitsOfPair(g *node) {
	if c.has(hasCost) {
		if g.roomUnit != sluice.Cost {
			g.room, g.roomUnit = 3*g.room, sluice.Cost
		}
		if c.settles == 0 {
			g.rateUnit = sluice.Cost
		}
	}
	if c.has(rateChange) || c.has(emptyBudget) {
		g.pace.rate, g.pace.burst = wholeRates[c.next(len(wholeRates))], 1
	}
}

// wholeRates have intervals of whole nanoseconds: what becomes of a fraction when the
// rate changes is not promised. None is shorter than the spacing of makeGate.
var wholeRates = []sluice.Rate{{Count: 1000, Per: time.Second}, {Count: 10, Per: time.Second}, {Count: 2, Per: 3 * time.Second}, {Count: 4, Per: time.Second}}

// makeGate makes the gate of a node.
func (c *composite) makeGate(g *node, cfg sluice.Config) {
	if c.has(emptyBudget) {
		cfg.RetryBudget = 5
	}
	if !c.has(inKeyed) {
		g.gate = mustGate(c.T, cfg)
	} else {
		g.keyed = must(sluice.NewKeyed(func(string) (*sluice.Gate, error) {
			gate, err := sluice.New(cfg)
			g.gate = gate
			return gate, err
		}, sluice.KeyedConfig{Idle: 1000 * time.Hour}))
		_ = g.keyed.Use("k", func(*sluice.Gate) error { return nil })
	}
	if c.has(rateChange) {
		g.left = append(g.left, departure{rate: g.pace.rate})
	}
	if c.has(emptyBudget) {
		for range 2 { // the first takes all there is
			a := sluice.NewRetryLoop(g.gate, sluice.RetryPolicy{Backoff: sluice.Constant(ms)})
			a.ChargeRetry()
		}
		time.Sleep(ms) // it counts from the last call, or from the beginning
		c.now = time.Since(c.start)
	}
}

// through calls f as a user of the gate.
func (g *node) through(f func() (*sluice.Permit, error)) (p *sluice.Permit, err error) {
	if g.keyed == nil {
		return f()
	}
	_ = g.keyed.Use("k", func(*sluice.Gate) error {
		p, err = f()
		return nil
	})
	return p, err
}

// operation returns what happens next: one in four times what the pair is about.
func (c *composite) operation() int {
	op := c.next(16)
	if c.has(noPair) || c.next(4) > 0 {
		return op
	}
	switch c.pair[op%2] {
	case pause:
		return 13 + c.next(2)
	case rateChange:
		return changeRate
	case deadline:
		return 4
	case within:
		return 2
	case settle:
		return 15
	case hasCost:
		return 1
	case shutdown:
		return shutDown
	}
	return op
}

func (c *composite) changeRate(g *node) {
	g.pace.rate = wholeRates[c.next(len(wholeRates))]
	g.left = append(g.left, departure{at: c.now, rate: g.pace.rate})
	if err := g.gate.SetRate(withBurst(g.pace.rate, g.pace.burst)); err != nil {
		c.Fatal(err)
	}
}

func (c *composite) shutDown(g *node) {
	if g.isNoParent(c) && c.next(3) == 0 {
		g.closed = true
		g.gate.Close()
	}
}

// slotOfRates is paceModel.slot if the rate changes, without a burst: the last call
// is followed by its weight in intervals of the rate that holds now.
func slotOfRates(past []departure) time.Duration {
	var last departure
	var interval, pause time.Duration
	for _, d := range past {
		switch {
		case d.n > 0:
			last = d
		case d.rate.Count > 0:
			interval = d.rate.Per / time.Duration(d.rate.Count)
		case d.resume:
			pause = min(pause, d.at)
		default:
			pause = max(pause, d.until)
		}
	}
	return max(last.at+time.Duration(last.n)*interval, pause)
}
