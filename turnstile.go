package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// # What holds a call up in its own gate
//
// Its room in flight, and its slot at the rate, or a pause: package schedule. And, while they are
// on, brakes, which the answers to calls put on: a slow start, the estimate of the gate, and the
// spacing of an empty retry budget. Admission, forecasts, causes, Stats and Keyed ask all brakes
// alike, so a further one is one more line in brakes.on.

// A turnstile lets the calls of a gate start, one after the other, as far as the gate itself decides:
// it knows no parent, no further limit and no semaphore. Its state is guarded by the lock of its queue,
// unless a field says otherwise. The queue asks it as an admitter; commit does for gates with further
// limits or a parent.
type turnstile struct {
	queue queue.Queue

	// Read by calls that start without the lock, see below. After the queue: the fields of it that are
	// read are at its end.
	lane schedule.Lane
	room room

	schedule schedule.Schedule
	why      string // of the pause
	held     held

	// These are fixed.
	asksMore bool          // there is a parent, or there are further limits
	inQueue  bool          // each call needs a place in the queue, to ask further limits or a parent
	above    string        // the name of the parent
	drained  chan struct{} // closed when the gate is closed and nothing is in flight

	reporter
	counters
	memory
}

// held is the cause that delays the head of a queue, unless that is the gate itself.
type held struct {
	by    limits.Cause  // or ""
	until time.Duration // as by has said; 0 if it has not
}

// depart lets n with costs, which has taken its room, start at now and returns 0, or returns how
// long to wait.
func (t *turnstile) depart(now, due time.Duration, n int64, costs Costs) time.Duration {
	if t.sharing != nil {
		t.sharing.use(n, costs)
	}
	w, braked := want{n: n, costs: costs}, t.brakes.any()
	if braked {
		w.inFlight = t.room.calls.Calls() - 1 // n has taken its room
		if wait := t.brakes.demand(now, w); wait > 0 {
			return max(wait, t.schedule.Wait(now, 0))
		}
	}
	if wait := t.schedule.Admit(now, due, t.rateUnit.of(n)); wait > 0 {
		return wait
	}
	if braked {
		t.brakes.started(now, due, w)
	}
	t.budget.left = now // also while it is no brake: an answer may make it one
	t.held.by = ""
	t.granted++
	t.sent += uint64(n)
	if t.sharing != nil {
		t.sharing.started(n, costs)
	}
	return 0
}

// demand returns how long n with costs, a call that wants to start, waits at the head of the queue.
// A call that waits uses the gate as one that starts does: its groups keep telling it its share.
func (t *turnstile) demand(now time.Duration, n int64, costs Costs) queue.Wait {
	if t.sharing != nil {
		t.sharing.use(n, costs)
	}
	return t.waitFor(now, n, t.brakes.demand(now, want{n, costs, t.room.calls.Calls()}))
}

// peek is demand for somebody who only looks.
func (t *turnstile) peek(now time.Duration, n int64) queue.Wait {
	braked, _ := t.brakes.peek(now, t.room.calls.Calls())
	return t.waitFor(now, n, braked)
}

func (t *turnstile) waitFor(now time.Duration, n int64, braked time.Duration) queue.Wait {
	if !t.room.has(n) {
		return queue.Wait{For: queue.Forever}
	}
	wait := queue.Surely(t.schedule.Wait(now, 0))
	wait.Paced = true
	wait.For = max(wait.For, braked) // which answers make shorter
	return wait
}

// demandAtHead returns how long a call of n would wait at the head of the queue for the
// gate itself. If it would not, next is what may hold it up now.
func (t *turnstile) demandAtHead(ctx context.Context, n int64, next limits.Cause) queue.Wait {
	t.queue.Lock()
	defer t.queue.Unlock()
	t.held.by, t.held.until = next, 0
	return t.demand(t.queue.Now(), n, t.costsOf(ctx))
}

// costsOf returns the costs of ctx if g, whose queue is locked, learns from them, or others do.
func (t *turnstile) costsOf(ctx context.Context) Costs {
	if t.learner == nil && t.sharing == nil {
		return nil
	}
	return costsOf(ctx)
}

// noteHeldBy records that cause, which is not the gate itself, delays the head of
// the queue for wait.
func (t *turnstile) noteHeldBy(cause limits.Cause, wait time.Duration) {
	t.queue.Lock()
	defer t.queue.Unlock()
	t.held.by, t.held.until = cause, sat.Add(t.queue.Now(), wait)
}

// # Admission without the lock
//
// While no caller waits, the gate is not paused and its retry budget is not empty, a
// call of cost 1 needs two things: a place among the calls in flight, which is a
// number, and the slot in the lane. It checks that the slot has come, takes the place,
// takes the slot, and gives the place back if another call took the slot first:
//
//	flight   0 … places    changed by compare-and-swap, here and under the lock
//	lane     next slot     closed while the lock is held or a caller waits
//
// Between the check and taking the slot the lock may be taken and released, and other
// calls let through. So code that holds the lock must take a place in one step, too:
// looking for room first and adding 1 afterwards let two calls into 1 place.
//
// A call that gives its place back takes the lock next, and so wakes a caller that
// missed the place meanwhile. If the gate was closed in between, Shutdown may wait for
// that place, so giving it back is a release like any other. Gates with further
// limits, or whose concurrency counts cost, always take the lock. See parent.go for gates
// with a parent.

// admitUnlocked lets a call of cost 1 leave at now, if that is possible without the
// lock.
func (t *turnstile) admitUnlocked() (now time.Duration, v schedule.Verdict) {
	slots := t.lane.Slots() // throughout: others may mean another limit
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		next, now, v := slots.Look(t.queue.Epoch())
		switch {
		case v != schedule.Leave:
			return now, v
		case !t.room.calls.AddUnlocked(slots.Places()):
			return now, schedule.Ask
		case slots.Take(next, now):
			return now, v
		}
		t.loseSlot()
	}
	return 0, schedule.Ask
}

// loseSlot returns the place of a call whose slot another call took.
func (t *turnstile) loseSlot() {
	t.room.calls.UncountPassed()
	t.vacate()
}

// finish ends a call that left at since.
func (t *turnstile) finish(since time.Duration) {
	t.vacate()
	if t.hold.Wanted(since) {
		t.queue.Lock()
		now := t.queue.Now()
		t.hold.Add(now - since)
		t.recently.note(since, t.sofar(now))
		t.queue.Unlock()
	}
}

// vacate returns a place in flight. It takes the lock only if a caller waits for
// it, or Shutdown does.
func (t *turnstile) vacate() {
	t.room.calls.End()
	if t.queue.Busy() {
		t.queue.Lock()
		t.queue.Advance(t.queue.Now())
		t.queue.Kick()
		t.checkDrained()
		t.queue.Unlock()
	}
}

// checkDrained is called with the queue locked when the gate was closed or a call
// ended.
func (t *turnstile) checkDrained() {
	if t.room.calls.Calls() > 0 || t.queue.Closed() == nil {
		return
	}
	select {
	case <-t.drained:
	default:
		close(t.drained)
	}
}

// wake looks, with the queue locked, whether callers may start earlier than they thought.
func (t *turnstile) wake(now time.Duration) {
	if t.queue.Len() > 0 {
		t.queue.Advance(now)
		t.queue.Kick()
	}
}

// askAgain makes the first caller in the queue ask its limits again: something was given
// back, which limits that are not Notifiers do not report.
func (t *turnstile) askAgain() {
	t.queue.Lock()
	defer t.queue.Unlock()
	t.wake(t.queue.Now())
}

// refuse counts and reports the refusal of a call of cost n with err, and returns err
// with the gate's name.
func (t *turnstile) refuse(ctx context.Context, n int64, err error) error {
	e := t.refusal(ctx, n, err)
	t.report(e)
	return e.Err
}

// turnedAway reports that a call of cost n was turned away, and returns err.
func (t *turnstile) turnedAway(ctx context.Context, n int64, err error) error {
	t.report(Event{Kind: EventRejected, Context: ctx, N: n, Reason: reasonMoved, Err: errs.Named(t.name, reroute.ErrTurnedAway)})
	return err
}

// refusal counts a refusal and returns its event.
func (t *turnstile) refusal(ctx context.Context, n int64, err error) Event {
	reason := t.counters.refuse(t.queue.Now(), err)
	return Event{Kind: EventRejected, Context: ctx, N: n, Reason: reasons[reason], Err: errs.Named(t.name, err)}
}

// An admitter is a turnstile as its queue sees it: queue.Admitter, queue.Latch, and a function of
// queue.Config. All methods are called with the queue locked.
type admitter struct{ *turnstile }

// Admit implements queue.Admitter: it takes from all limits or from none.
func (r admitter) Admit(now, due time.Duration, n int64) time.Duration {
	if !r.room.take(n) {
		return queue.Forever
	}
	wait := r.depart(now, due, n, nil)
	if wait > 0 {
		r.room.giveBack(n)
	}
	return wait
}

// Forecast implements queue.Admitter: the sum of the rate and a pause. Two things are
// left out because they are unknown: when calls in flight will end, and how long the
// spacing of the retry budget will last. Multiplied by the calls ahead, that spacing
// refused calls that would have left in time.
func (r admitter) Forecast(now time.Duration, ahead int64) time.Duration {
	return r.schedule.Wait(now, ahead)
}

// UnitTime implements queue.HasUnitTime.
func (r admitter) UnitTime() float64 { return r.schedule.UnitTime() }

// giveUp implements queue.Config.GiveUp: it ends the wait of a call if the gate is
// paused, or the server has refused all calls, for longer than RetryPolicy.MaxServerWait.
func (r admitter) giveUp(now, patience time.Duration) error {
	if until := r.schedule.Paused(); until > now && until-now > patience {
		return &pausedError{until - now, r.queue.Time(until), r.why}
	}
	if r.learner.blockedFor(now) > patience {
		// One call must go on asking whether it is over.
		if wait := r.learner.peek(now, r.room.calls.Calls()); wait > 0 {
			return &pausedError{wait, r.queue.Time(sat.Add(now, wait)), "the server refuses all calls"}
		}
	}
	return nil
}

// Receipt implements queue.HasReceipt.
func (r admitter) Receipt() uint32 { return r.departures.receipt() }

// Close implements queue.Latch: it takes back the state that admitUnlocked changes.
func (r admitter) Close() (asleep int) {
	next, used := r.lane.Close()
	r.counters.passed(r.room.calls.Passed())
	if used {
		// Later than that: under the lock, or by a clock read before it.
		r.budget.left = max(r.budget.left, next-r.schedule.Interval())
		r.schedule.Took(next)
	}
	return 0
}

// Open implements queue.Latch: it reports whether calls may be granted without the
// lock.
func (r admitter) Open(int) bool {
	if r.inQueue || r.room.unit == Cost || r.brakes.any() || r.sharing != nil {
		return false
	}
	next, interval, ok := r.schedule.Plain()
	return ok && r.lane.Open(next, interval, r.room.places())
}
