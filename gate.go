package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// A Gate decides when a call may start: when there is room in flight, its turn at the rate has
// come, every further limit has enough left, and the gate is not paused. It takes all of that at
// the same time: a call that waits, is rejected or is canceled takes nothing.
//
// Calls start in order, whatever their cost. Changes of the rate and the concurrency, and pauses,
// reach waiting callers immediately.
//
// A Gate is safe for use by multiple goroutines, must be made by [New] and must not be copied.
// Without [Adaptive].Peers it starts no goroutine and need not be closed.
type Gate struct {
	listener // at its end is what calls read that start without the lock, as they do of the next fields

	plain bool // no further limits, semaphore, parent or observer
	ways

	lending
	refusedBy func(error) (bool, time.Duration) // Config.IsThrottle

	lifetime
}

// A lifetime is the lifetime of a gate.
type lifetime struct {
	life    context.Context // ended by Close
	end     context.CancelFunc
	peering *peering // which goes on for a moment; or nil
}

// Acquire blocks until a call of cost n may start, behind the callers that came
// before, and returns its permit, which must be released when the call is done.
// Without an n the cost is 1; n = 0 takes nothing and is admitted immediately.
//
// If ctx is done, it returns ctx.Err(). If the call cannot start before the deadline of ctx, it
// returns a [*limits.WaitError], immediately or as soon as that is known: only the first caller
// consults further limits and the parent. It returns [limits.ErrTooLarge], [limits.ErrQueueFull] or
// [limits.ErrClosed], or the error of a limit or of Config.Semaphore that could not decide. It
// panics if n < 0, and with more than one n.
func (g *Gate) Acquire(ctx context.Context, n ...int64) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: oneUnless(n), Max: queue.Forever})
}

// AcquireWithin is Acquire, but waits no longer than longest. If it is known that the call cannot
// start by then, it returns a [*limits.WaitError] with the least wait immediately; otherwise, after
// longest, [limits.ErrTimeout]. longest ≤ 0 does not block.
func (g *Gate) AcquireWithin(ctx context.Context, n int64, longest time.Duration) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: n, Max: longest})
}

// TryAcquire returns a permit and true if a call of that cost, 1 without one, may start now and no
// caller waits. Otherwise it changes nothing. Consulting [Config].Limits and Semaphore may take a
// round trip. It panics if the cost is negative, and with more than one.
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

// Wait blocks until a call of cost 1 may start, and treats it as ended immediately. Concurrency
// does not limit such calls. Its errors are those of Acquire.
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
// If the error of f is marked with [ThrottledFor], the gate is paused before
// any other call starts. For the retry budget nil is a success, and a panic neither that nor a
// failure: Do releases the permit, and the panic propagates.
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

// admitNothing is acquire for n = 0.
func (g *Gate) admitNothing(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return g.refuse(ctx, 0, err)
	}
	if g.life.Err() != nil {
		return g.refuse(ctx, 0, limits.ErrClosed)
	}
	return nil
}

// ended applies err, which a call returned, to the gates that it concerns and returns it. since is
// when the call left and p its permit, nil if it has none.
func (g *Gate) ended(err error, since time.Duration, p *Permit) error {
	a := answer{g, g.account, since + g.accountAhead}
	a.end(err, p)
	return err
}

func (g *Gate) acquire(ctx context.Context, r queue.Request) (*Permit, error) {
	p := new(Permit)
	if err := p.acquire(ctx, g, &r); err != nil {
		return nil, err
	}
	return p, nil
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
		if limit > 0 {
			g.endOpening()
		}
		g.bound(now)
		g.queue.Recheck()
	})
	return nil
}

// PauseUntil lets no call start before t, including those that wait. Then calls start in order, one
// interval apart, the first at t. Without a rate, one call starts at t; then each response lets two
// more start (slow start). A t before the end of the current pause changes nothing. why is shown in
// Stats. Setting the clock later does not move the end.
func (g *Gate) PauseUntil(t time.Time, why string) { g.pauseUntil(t, why, queue.Forever, byThrottle) }

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

// Stats returns a consistent picture of the gate, except for Why about parents. Counts may be a
// call behind. The cost of Stats grows with Pacing.
func (g *Gate) Stats() Stats {
	g.queue.Lock()
	now := g.queue.Now()
	g.queue.Advance(now)
	g.counters.passed(g.room.calls.Passed()) // also those that lost their slot after the lane was closed
	budget := g.budget.at(now)
	s := Stats{
		Name:        g.name,
		Concurrency: g.room.limit,
		Rate:        g.rate,
		InFlight:    g.room.used(),
		Waiting:     int64(g.queue.Len()),
		LimitedBy:   g.holds(now),
		NextSlot:    g.queue.Time(max(g.schedule.Slot(), now+g.budget.peek(now, 0))),
		Spacing:     budget.spacing,
		RetryTokens: budget.tokens,
		Admitted:    g.granted,
		Unreturned:  g.stranded.Load(),
		Learned:     g.learner.learned(&g.queue),
	}
	if until := g.schedule.Paused(); until > now {
		s.PausedUntil, s.PausedWhy = g.queue.Time(until), g.why
	}
	g.countWaiting(&s, now)
	if n, came := g.lending.waiting(); n > 0 {
		if s.Waiting+s.Pacing == 0 {
			s.LimitedBy = limits.BySemaphore
		}
		s.Waiting += n
		s.OldestWait = max(s.OldestWait, now-came)
	}
	if n := g.tally.doubt.letting; n > 0 { // they will come to the queue
		if s.LimitedBy == "" {
			s.LimitedBy = limits.ByLearned
		}
		s.Waiting += n
	}
	s.held.End, s.held.AtLeast = g.ends(now, s.LimitedBy)
	s.at = g.queue.Time(now)
	g.queue.Unlock()

	if g.parent != nil {
		s.Parent = g.parent.name
	}
	s.held.For, s.held.Why = string(s.LimitedBy), s.about(s.LimitedBy)
	if s.LimitedBy == limits.ByParent {
		s.held = s.held.Below(g.parent.heldUp())
	}
	if last := g.lastError.Load(); last != nil {
		s.LastError, s.LastErrorAt = last.String(), g.queue.Time(last.at)
	}
	s.Rejected = g.counters.rejections()
	s.Retried = g.retried.Load()
	s.Waits = g.waits.snapshot(s.Admitted)
	return s
}

// String returns the Stats of g in one line for people.
func (g *Gate) String() string { return g.Stats().String() }

// heldUp returns the cause for which the first call in the queue of g waits, and the gates above g.
func (g *Gate) heldUp() sentence.Wait {
	g.queue.Lock()
	now := g.queue.Now()
	cause := g.holds(now)
	w := sentence.Wait{For: string(cause), Why: g.about(cause)}
	w.End, w.AtLeast = g.ends(now, cause)
	g.queue.Unlock()
	if cause == limits.ByParent {
		w = w.Below(g.parent.heldUp())
	}
	return w
}

func init() {
	reroute.TurnAway = func(gate any, which func(label uint32) bool) { gate.(*Gate).turnAway(which) }
}

func (g *Gate) turnAway(which func(label uint32) bool) {
	g.queue.TurnAway(which)
	if k := g.claimants.Load(); k != nil {
		for gate := range k.all() {
			gate.queue.TurnAway(which)
		}
	}
}

// Forget discards all that the gate has learned from throttled calls. Use it if you know that the
// server has changed. The configuration stays, as does a pause, which Resume ends. The gate learns
// nothing more from calls in flight. With [Adaptive].Peers it may learn the estimate from them.
func (g *Gate) Forget() {
	g.queue.Change(func(now time.Duration) {
		g.memory.forget(g.sofar(now))
	})
}

// Snapshot returns the estimate of the gate, for Restore: see [Adaptive].
func (g *Gate) Snapshot() []byte {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.learner
	switch {
	case l == nil:
		return adaptive.New(adaptive.Config{}).Snapshot()
	case l.blamed == nil:
		return l.controller.Snapshot()
	}
	var units []unitSnapshot
	l.each(func(b *belief) {
		if b.limited() {
			units = append(units, unitSnapshot{b.unit, b.controller.Snapshot()})
		}
	})
	return snapshot.Seal(unitsKind, units)
}

// Restore adopts the estimates of a Snapshot, such as one of an earlier run of the program. The
// configured rate and concurrency stay maxima. It changes nothing if the snapshot has no estimates,
// if Adaptive is off, or, and then it returns an error, if data is not a snapshot of a gate.
func (g *Gate) Restore(data []byte) error {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.newLearner()
	if err := l.restore(data); err != nil {
		return fmt.Errorf("sluice: restore of gate %q: %w", g.name, err)
	}
	if l.changes() > 0 && !g.adaptive.Disabled {
		if g.rate.Count > 0 && l.controller.Changes() == 0 && !g.adaptive.searches() {
			g.takeOver(l, g.sofar(g.queue.Now()), 1) // its limit was not exhausted: it begins at the rate
		}
		g.setLearner(l)
		g.queue.Recheck()
		g.wake(g.queue.Now())
	}
	return nil
}

// Close closes the gate: waiting and later callers get [limits.ErrClosed]. Calls in flight stay
// valid. Close does not wait until a gate with Adaptive.Peers has returned its share: a program that
// then exits should call Shutdown.
func (g *Gate) Close() {
	g.queue.Close(limits.ErrClosed)
	g.end()
	g.tie.end()
	g.queue.Lock()
	defer g.queue.Unlock()
	g.checkDrained()
}

// Shutdown closes the gate and blocks until nothing is in flight. If ctx is done first, it returns
// ctx.Err(), and the gate stays closed. With Adaptive.Peers it also waits, for at most a second,
// until the share is returned.
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
