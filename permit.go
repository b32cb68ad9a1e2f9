package sluice

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/limits"
)

// A Permit is the right of one call to be in flight. It is safe for use by
// multiple goroutines.
type Permit struct {
	gate  *Gate        // nil if n was 0
	up    *Permit      // of the gate's parent, if it has one
	lease limits.Lease // nil if there is none
	n     int64
	since time.Duration // when it was granted

	held int64 // cost in flight for it; guarded by the lock of the gate's queue
	done atomic.Uint32
}

// What happens to a permit only once: bits of Permit.done. As three fields they make
// it longer than 64 bytes, and an Acquire takes a quarter more.
const (
	released uint32 = 1 << iota
	settled
	answered // the ramp counts the answer; set with the gate's queue locked
)

// first marks what as done and reports whether that was the first time.
func (p *Permit) first(what uint32) bool { return p.done.Or(what)&what == 0 }

// fill makes p the permit of a call of cost n that was let through at now.
func (p *Permit) fill(g *Gate, n int64, now time.Duration, lease limits.Lease) {
	p.gate, p.lease, p.n, p.since, p.held = g, lease, n, now, n
	if g.parent != nil {
		p.up = new(Permit)
		p.up.fill(g.parent, n, g.parent.queue.Now(), nil)
	}
}

// Release ends the call and lets the next one in. Only the first Release of a
// permit counts. The nil that comes beside an error has nothing to release, and
// Release of it does nothing.
func (p *Permit) Release() {
	if p != nil && p.gate != nil && p.first(released) {
		p.end()
	}
}

// end is the first Release.
func (p *Permit) end() {
	if p.gate.watched {
		p.endTold()
		return
	}
	p.giveBack()
}

// giveBack gives back what p holds. It takes the lock only if a caller waits for the
// room or for the gate to drain, if concurrency counts cost, or in a slow start.
func (p *Permit) giveBack() {
	g := p.gate
	p.answer(true)
	if g.concurrencyUnit == Cost {
		g.queue.Lock() // for Settle may change what is held
		g.cost.Add(-p.held)
		p.held = 0
		g.queue.Unlock()
	}
	g.leave(p.since)
	if p.up != nil {
		p.up.first(released)
		p.up.giveBack()
	}
	if p.lease != nil {
		p.lease.Release()
	}
}

// Settle replaces the n that the call was let through with by its actual cost; if n was
// 0 it does nothing. It changes only the limits that count cost: if n was too much the
// rest is given back, if it was too little the rest becomes debt, even beyond the
// limit, and is never an error. It may come before or after
// Release; only the first Settle of a permit counts. It panics if actual < 0.
func (p *Permit) Settle(actual int64) {
	mustNotBeNegative(actual)
	if p.gate == nil || !p.first(settled) {
		return
	}
	delta := actual - p.n
	if delta == 0 {
		return
	}
	age := p.gate.queue.Now() - p.since
	for i := range p.gate.questions {
		p.gate.questions[i].settle(context.Background(), delta, age)
	}
	for ; p != nil; p = p.up {
		p.settle(delta)
	}
}

// settle changes by delta what p takes of the cost limits of its gate beside quotas.
func (p *Permit) settle(delta int64) {
	g := p.gate
	if g.rateUnit == Cost {
		g.queue.Adjust(func(time.Duration) (later bool) {
			before := g.schedule.Slot()
			g.schedule.Adjust(delta)
			return g.schedule.Slot() > before
		})
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	if g.concurrencyUnit == Cost && p.done.Load()&released == 0 {
		delta := min(delta, math.MaxInt64-g.cost.Load())
		g.cost.Add(delta)
		p.held += delta
	}
	if delta < 0 && g.queue.Len() > 0 { // something came back
		g.queue.Advance(g.queue.Now())
		g.queue.Kick()
	}
}

// Lost returns a channel that is closed if the permit was lent by another
// machine and lost before it was released, or nil if that cannot happen.
func (p *Permit) Lost() <-chan struct{} {
	if p.lease == nil {
		return nil
	}
	return p.lease.Lost()
}

// honor pauses the gate if the server asks for a wait. err is what the call ended with,
// throttled its mark or nil, since when the call left, and p its permit, nil if it has
// none. It returns the wait, 0 if there is none. The wait is 1 ms at least, like a
// backoff: it does not use up an attempt, so at a server that asks for 1 ns the retries
// would not end. The permit must still be held: if it were released first, the next
// call would leave before the pause.
func (g *Gate) honor(err error, throttled *throttledError, since time.Duration, p *Permit) (wait time.Duration) {
	if throttled == nil {
		return 0
	}
	at := throttled.at
	if wait = throttled.wait(); wait <= 0 {
		g.queue.Lock()
		defer g.queue.Unlock()
		if p != nil {
			p.first(answered) // by this error, and not by the release
		}
		g.slowStart(g.queue.Now(), since, 0)
		return 0
	}
	if wait < minBackoff {
		wait, at = minBackoff, time.Now().Add(minBackoff)
	}
	g.pauseUntil(at, err.Error(), since)
	return wait
}

// slowStart records, with the queue locked, that the server refused a call that left at
// since and asked for a wait of told, 0 if it set no time. A gate with a rate needs no
// slow start.
func (g *Gate) slowStart(now, since, told time.Duration) {
	if g.rate.Count == 0 {
		g.ramp = g.ramp.refuse(now, since, told)
		g.ramping.Store(true)
	}
}

// answer counts the answer to the call in the ramps of the gate and its parents, once.
// taken is false if the answer does not show that the server is well.
func (p *Permit) answer(taken bool) {
	for ; p != nil; p = p.up {
		if g := p.gate; g != nil && g.ramping.Load() {
			g.answer(p, taken)
		}
	}
}

// answer is Permit.answer for one gate.
func (g *Gate) answer(p *Permit, taken bool) {
	g.queue.Lock()
	defer g.queue.Unlock()
	if !p.first(answered) {
		return
	}
	g.ramp = g.ramp.answer(p.since, taken, (*rule)(g).places())
	g.ramping.Store(g.ramp != nil)
	if g.queue.Len() > 0 {
		g.queue.Advance(g.queue.Now())
		g.queue.Kick()
	}
}

// watch returns a context for the call that ends when the permit is lost.
func (p *Permit) watch(ctx context.Context) (context.Context, func()) {
	lost := p.Lost()
	if lost == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(errs.Honest(ctx))
	go func() {
		select {
		case <-lost:
			cancel(ErrLeaseLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
