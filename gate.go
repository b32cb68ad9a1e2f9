package sluice

import (
	"container/list"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// A Gate decides when a call may start: when there is room in flight, its turn at the rate has
// come, every further limit has enough left, and the gate is not paused. It takes all of that at
// the same time, or nothing: a call that waits, is rejected or is canceled takes nothing from any
// limit.
//
// Most programs need only [Gate.Do], or [RetryValue] to retry failures.
//
// Calls start in the order in which they came, whatever their cost. Changes of the rate and the
// concurrency, and pauses, reach waiting callers immediately.
//
// A Gate is safe for use by multiple goroutines, must be made by [New] and must not be copied.
// Without [Adaptive].Peers it starts no goroutine and need not be closed.
type Gate struct {
	queue queue.Queue

	// Read by calls that start without the lock, see admitter.go. After the queue: the fields of it
	// that are read are at its end.
	lane     schedule.Lane
	plain    bool // no further limits, semaphore, parent or observer
	observed bool // it or a parent has an observer
	memory
	ways

	name       string
	observer   Observer // or nil
	semaphore  limits.Semaphore
	maxWaiting int
	refusedBy  func(error) (bool, time.Duration) // Config.IsThrottle

	behind queue.Behind
	flow   queue.Flow // its share of the parent
	lifetime

	// Guarded by the queue's lock, as what the types say from here on.
	schedule  schedule.Schedule
	why       string // of the pause
	held      held
	kin       kinship   // guarded by the lock of account
	borrowers list.List // when each caller came that waits for Config.Semaphore, in this order

	room room

	counters
}

// ways are how a call gets through a gate, its limits and its parents.
type ways struct {
	direct direct        // without a queue, or nil
	open   direct        // the same for Do and Wait, which take nothing else; or nil
	ask    queue.AskFunc // at the head of the queue; nil unless there are limits or a parent
	steps  []step        // for its limits and those of its parents

	parent    *Gate
	ahead     time.Duration                   // by how much the clock of the parent's queue is ahead
	tie       *tie                            // to the parent, or nil
	claimants atomic.Pointer[Keyed[Claimant]] // nil until one comes

	children atomic.Int64 // gates that have it as their parent
	lent     atomic.Int64 // how many Keyeds have it

	account      *Gate         // above, which is adaptive in its place; or nil
	accountAhead time.Duration // by how much the clock of its queue is ahead
}

// A lifetime is the lifetime of a gate.
type lifetime struct {
	life    context.Context // ended by Close
	end     context.CancelFunc
	drained chan struct{} // closed when closed and nothing is in flight
}

// held is the cause that delays the head of a queue, unless that is the gate itself.
type held struct {
	by    limits.Cause  // or ""
	until time.Duration // as by has said; 0 if it has not
}

// Acquire blocks until a call of cost n may start, behind the callers that came
// before, and returns its permit, which must be released when the call is done.
// Without an n the cost is 1; n = 0 takes nothing and is admitted immediately.
//
// If ctx is done, it returns ctx.Err(). If the call cannot start before the deadline of ctx, it
// returns a [*limits.WaitError], immediately or as soon as that is known: after a change, or when
// the first caller, which alone consults further limits and the parent, finds out. It returns
// [limits.ErrTooLarge], [limits.ErrQueueFull] or [limits.ErrClosed], or the error of a limit or of
// Config.Semaphore that could not decide. It panics if n < 0, and with more than one n.
func (g *Gate) Acquire(ctx context.Context, n ...int64) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: oneUnless(n), Max: queue.Forever})
}

// AcquireWithin is Acquire, but waits no longer than longest. If it is known that the call cannot
// start by then, it returns a [*limits.WaitError] with the least wait immediately; otherwise, after
// longest, [limits.ErrTimeout]. longest ≤ 0 does not block.
func (g *Gate) AcquireWithin(ctx context.Context, n int64, longest time.Duration) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: n, Max: longest})
}

// TryAcquire returns a permit and true if a call of that cost, 1 without one, may start
// now and no caller waits. Otherwise it changes nothing. It does not wait for a limit, but
// consults Config.Limits and Config.Semaphore, which may take a round trip. It panics if the
// cost is negative, and with more than one.
func (g *Gate) TryAcquire(cost ...int64) (*Permit, bool) {
	n := oneUnless(cost)
	mustNotBeNegative(n)
	if g.semaphore != nil || n == 0 {
		p, err := g.AcquireWithin(context.Background(), n, 0)
		return p, err == nil
	}
	left, later, ok := g.try(n)
	if !ok {
		g.refused[reasonBusy].Add(1)
		later.report()
		g.report(Event{Kind: EventRejected, Context: context.Background(), N: n, Reason: reasons[reasonBusy]})
		return nil, false
	}
	p := new(Permit)
	p.fill(g, n, left, nil)
	if g.observed {
		p.reportGranted(context.Background(), later, 0)
	}
	return p, true
}

// try is TryAcquire for a positive n of a gate without a semaphore. later are the events of its
// parents.
func (g *Gate) try(n int64) (left queue.Grant, later *events, ok bool) {
	if n == 1 && g.ask == nil {
		if now, v := g.admitUnlocked(); v != schedule.Ask {
			return queue.Grant{At: now}, nil, v == schedule.Leave
		}
	}
	if g.direct != nil {
		switch left, v := g.direct.passAll(context.Background(), n); {
		case v == schedule.Leave:
			return left, g.parentsAdmitted(context.Background(), n), true
		case v == schedule.Early && !g.parentObserved():
			return left, nil, false
		}
	}
	ask, later := g.asking()
	left, ok = g.queue.Try(queue.Request{N: n, Ask: ask})
	return left, later, ok
}

// Wait blocks until a call of cost 1 may start, and treats it as ended immediately. It is for
// callers that need only the pace: Concurrency does not limit their calls. Its errors are those of
// Acquire.
func (g *Gate) Wait(ctx context.Context) error {
	if g.plain && ctx.Err() == nil {
		if now, v := g.admitUnlocked(); v == schedule.Leave {
			g.finish(now)
			return nil
		}
	}
	if g.open != nil && ctx.Err() == nil {
		if now, v := g.open.passOpen(ctx); v == schedule.Leave {
			g.open.finish(now)
			return nil
		}
	}
	var p Permit
	if err := p.acquire(ctx, g, &queue.Request{N: 1, Max: queue.Forever}); err != nil {
		return err
	}
	p.end(adaptive.Granted)
	return nil
}

// Do calls f when a call of cost 1 may start, and releases the permit when f returns. It returns
// the error of Acquire or of f, and does not retry.
//
// If f returns nil, the call counts as a success for the retry budget; if the error is marked with
// Permanent, as a definite answer: see [Permanent]. If it is marked with [ThrottledFor] or
// [ThrottledUntil], the gate is paused before any other call starts. If f panics, Do releases the
// permit and the panic propagates; the call counts neither as a success nor as a failure.
func (g *Gate) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if g.plain && ctx.Err() == nil {
		if now, v := g.admitUnlocked(); v == schedule.Leave {
			defer g.finish(now)
			return g.ended(f(ctx), now, nil)
		}
	}
	if g.open != nil && ctx.Err() == nil {
		if now, v := g.open.passOpen(ctx); v == schedule.Leave {
			return g.open.do(ctx, f, now)
		}
	}
	var p Permit
	if err := p.acquire(ctx, g, &queue.Request{N: 1, Max: queue.Forever}); err != nil {
		return err
	}
	defer p.end(adaptive.Unknown) // unless f returns: see ended
	if p.extra != nil {
		var stop func()
		ctx, stop = p.watch(ctx)
		defer stop()
	}
	return g.ended(f(ctx), p.since, &p)
}

func (g *Gate) acquire(ctx context.Context, r queue.Request) (*Permit, error) {
	p := new(Permit)
	if err := p.acquire(ctx, g, &r); err != nil {
		return nil, err
	}
	return p, nil
}

// finish ends a call that left at since.
func (g *Gate) finish(since time.Duration) {
	g.vacate()
	if g.hold.Wanted(since) {
		g.queue.Lock()
		now := g.queue.Now()
		g.hold.Add(now - since)
		g.recently.note(since, g.sofar(now))
		g.queue.Unlock()
	}
}

// vacate returns a place in flight. It takes the lock only if a caller waits for
// it, or Shutdown does.
func (g *Gate) vacate() {
	g.room.calls.End()
	if g.queue.Busy() {
		g.queue.Lock()
		g.queue.Advance(g.queue.Now())
		g.queue.Kick()
		g.checkDrained()
		g.queue.Unlock()
	}
}

// SetRate changes the rate and its burst; the zero Rate means no limit. If New would return an
// error for rate, SetRate does, and changes nothing. The new rate also applies to the debt: after a
// call of cost n the next one starts n new intervals later (one unless the rate counts cost), or
// now if that has passed. The saved burst stays that many calls, at most the new burst; a larger
// burst fills from now on.
func (g *Gate) SetRate(rate Rate) error {
	var err error
	g.queue.Change(func(now time.Duration) {
		if err = g.schedule.SetRate(now, rate); err == nil {
			g.memory.setRate(now, rate)
		}
	})
	if err != nil {
		return fmt.Errorf("sluice: %w", err)
	}
	return nil
}

// SetConcurrency changes the most calls in flight; 0 means no limit. If more are in flight they
// finish, and none start until there is room. It returns an error and changes nothing if limit < 0.
func (g *Gate) SetConcurrency(limit int64) error {
	if limit < 0 {
		return fmt.Errorf("sluice: negative concurrency %d", limit)
	}
	g.queue.Change(func(now time.Duration) {
		g.room.limit = limit
		g.bound(now)
		g.queue.Recheck()
	})
	return nil
}

// PauseUntil lets no call start before t, including those that wait. Then calls start in order, one
// interval apart, the first at t. Without a rate, one call starts at t; then each response lets two
// more start, so the number doubles with each round trip (slow start). A t before the end of the
// current pause changes nothing. why is shown in Stats. t is converted to monotonic time: setting
// the clock later does not move the end.
func (g *Gate) PauseUntil(t time.Time, why string) { g.pauseUntil(t, why, queue.Forever, false) }

// pauseUntil is PauseUntil because of a call that left at since, Forever if there is none. window says
// that a published window has throttled it.
func (g *Gate) pauseUntil(t time.Time, why string, since time.Duration, window bool) {
	g.queue.Lock()
	until := g.queue.Instant(g.queue.Now(), t)
	longer := until > g.schedule.Paused()
	g.queue.Unlock()
	if !longer { // each of the calls in flight may bring such a pause
		return
	}
	var left time.Duration
	g.queue.Change(func(now time.Duration) {
		if until > g.schedule.Paused() {
			g.schedule.PauseUntil(until)
			g.why = why
			if left = until - now; left > 0 {
				g.memory.slowStart(now, since, left, false)
				if window {
					g.memory.ramp.published(true)
				}
			}
		}
	})
	if left > 0 {
		g.report(Event{Kind: EventPaused, Wait: left, Why: why})
	}
}

// Resume ends a pause now. Waiting callers start as at the end of any pause.
func (g *Gate) Resume() {
	paused := false
	g.queue.Adjust(func(now time.Duration) (later bool) {
		paused = g.schedule.Paused() > now
		g.schedule.Resume(now)
		g.learner.resume(now)
		return false
	})
	if paused {
		g.report(Event{Kind: EventResumed})
	}
}

// Close closes the gate: waiting and later callers get [limits.ErrClosed]. Calls in flight stay
// valid and release their permits as usual. Closing twice has no effect. Close does not wait
// until a gate with Adaptive.Peers has returned its share: a program that then exits should
// call Shutdown.
func (g *Gate) Close() {
	g.queue.Close(limits.ErrClosed)
	g.end()
	g.tie.end()
	g.queue.Lock()
	defer g.queue.Unlock()
	g.checkDrained()
}

// Shutdown closes the gate and blocks until nothing is in flight. If ctx is done first, it
// returns ctx.Err(), and the gate stays closed. With Adaptive.Peers it also waits, for at most
// a second, until the share is returned; whether that worked does not affect the result.
func (g *Gate) Shutdown(ctx context.Context) error {
	g.Close()
	select {
	case <-g.drained:
		g.peering.left(ctx)
		return nil
	default:
	}
	select {
	case <-g.drained:
		g.peering.left(ctx)
		return nil
	case <-ctx.Done():
		return errs.Done(ctx)
	}
}

// checkDrained is called with the queue locked when the gate was closed or a call
// ended.
func (g *Gate) checkDrained() {
	if g.room.calls.Calls() > 0 || g.queue.Closed() == nil {
		return
	}
	select {
	case <-g.drained:
	default:
		close(g.drained)
	}
}

// refuse counts and reports the refusal of a call of cost n with err, and returns err
// with the gate's name.
func (g *Gate) refuse(ctx context.Context, n int64, err error) error {
	e := g.refusal(ctx, n, err)
	g.report(e)
	return e.Err
}

// turnedAway reports that a call of cost n was turned away, and returns err.
func (g *Gate) turnedAway(ctx context.Context, n int64, err error) error {
	g.report(Event{Kind: EventRejected, Context: ctx, N: n, Reason: reasonMoved, Err: errs.Named(g.name, ErrTurnedAway)})
	return err
}

// refusal counts a refusal and returns its event.
func (g *Gate) refusal(ctx context.Context, n int64, err error) Event {
	reason := g.counters.refuse(g.queue.Now(), err)
	return Event{Kind: EventRejected, Context: ctx, N: n, Reason: reasons[reason], Err: errs.Named(g.name, err)}
}

// report passes e to the observer of g, if there is one.
func (g *Gate) report(e Event) {
	if g.observer != nil {
		e.Gate = g.name
		g.observer(e)
	}
}

// oneUnless returns the cost that a caller has given, and otherwise 1.
func oneUnless(n []int64) int64 {
	switch len(n) {
	case 0:
		return 1
	case 1:
		return n[0]
	}
	panic("sluice: more than one n")
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluice: n < 0: %d", n))
	}
}
