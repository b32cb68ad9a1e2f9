package sluice

import (
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/schedule"
)

// # What holds a call up in its own gate
//
// Its room in flight, and its slot at the rate, or a pause: package schedule. And, while they are
// on, brakes, which the answers to calls put on: a slow start, the estimate of the gate, and the
// spacing of an empty retry budget. Admission, forecasts, causes, Stats and Keyed ask all brakes
// alike, so a further one is one more line in brakes.on.

// An admitter is a Gate as its queue sees it: queue.Admitter, queue.Latch, and the functions of
// queue.Config. All methods are called with the queue locked. The limits of a gate are
// decided here, in Admit or, for gates with further limits or a parent, by commit.
type admitter Gate

// Admit implements queue.Admitter: it takes from all limits or from none.
func (r *admitter) Admit(now, due time.Duration, n int64) time.Duration {
	if !r.room.take(n) {
		return queue.Forever
	}
	wait := r.depart(now, due, n, nil)
	if wait > 0 {
		r.room.giveBack(n)
	}
	return wait
}

// depart lets n with costs, which has taken its room, start at now and returns 0, or returns how
// long to wait.
func (r *admitter) depart(now, due time.Duration, n int64, costs Costs) time.Duration {
	if r.peering != nil {
		r.peering.use(n, costs)
	}
	w, braked := want{n: n, costs: costs}, r.brakes.any()
	if braked {
		w.inFlight = r.room.calls.Calls() - 1 // n has taken its room
		if wait := r.brakes.demand(now, w); wait > 0 {
			return max(wait, r.schedule.Wait(now, 0))
		}
	}
	if wait := r.schedule.Admit(now, due, r.rateUnit.of(n)); wait > 0 {
		return wait
	}
	if braked {
		r.brakes.started(now, due, w)
	}
	r.budget.left = now // also while it is no brake: an answer may make it one
	r.held.by = ""
	r.granted++
	r.sent += uint64(n)
	if r.peering != nil {
		r.peering.started(n, costs)
	}
	return 0
}

// demand returns how long n with costs, a call that wants to start, waits at the head of the queue.
// A call that waits uses the gate as one that starts does: its groups keep telling it its share.
func (r *admitter) demand(now time.Duration, n int64, costs Costs) queue.Wait {
	if r.peering != nil {
		r.peering.use(n, costs)
	}
	return r.waitFor(now, n, r.brakes.demand(now, want{n, costs, r.room.calls.Calls()}))
}

// peek is demand for somebody who only looks.
func (r *admitter) peek(now time.Duration, n int64) queue.Wait {
	braked, _ := r.brakes.peek(now, r.room.calls.Calls())
	return r.waitFor(now, n, braked)
}

func (r *admitter) waitFor(now time.Duration, n int64, braked time.Duration) queue.Wait {
	if !r.room.has(n) {
		return queue.Wait{For: queue.Forever}
	}
	wait := queue.Surely(r.schedule.Wait(now, 0))
	wait.Paced = true
	wait.For = max(wait.For, braked) // which answers make shorter
	return wait
}

// Forecast implements queue.Admitter: the sum of the rate and a pause. Two things are
// left out because they are unknown: when calls in flight will end, and how long the
// spacing of the retry budget will last. Multiplied by the calls ahead, that spacing
// refused calls that would have left in time.
func (r *admitter) Forecast(now time.Duration, ahead int64) time.Duration {
	return r.schedule.Wait(now, ahead)
}

// UnitTime implements queue.HasUnitTime.
func (r *admitter) UnitTime() float64 { return r.schedule.UnitTime() }

// giveUp implements queue.Config.GiveUp: it ends the wait of a call if the gate is
// paused, or the server has refused all calls, for longer than RetryPolicy.MaxServerWait.
func (r *admitter) giveUp(now, patience time.Duration) error {
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
func (r *admitter) Receipt() uint32 { return r.departures.receipt() }

// Close implements queue.Latch: it takes back the state that admitUnlocked changes.
func (r *admitter) Close() (asleep int) {
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
func (r *admitter) Open(int) bool {
	if r.ask != nil && r.direct == nil || r.room.unit == Cost || r.brakes.any() || r.peering != nil {
		return false
	}
	next, interval, ok := r.schedule.Plain()
	return ok && r.lane.Open(next, interval, r.room.places())
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
func (g *Gate) admitUnlocked() (now time.Duration, v schedule.Verdict) {
	slots := g.lane.Slots() // throughout: others may mean another limit
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		next, now, v := slots.Look(g.queue.Epoch())
		switch {
		case v != schedule.Leave:
			return now, v
		case !g.room.calls.AddUnlocked(slots.Places()):
			return now, schedule.Ask
		case slots.Take(next, now):
			return now, v
		}
		g.loseSlot()
	}
	return 0, schedule.Ask
}

// loseSlot returns the place of a call whose slot another call took.
func (g *Gate) loseSlot() {
	g.room.calls.UncountPassed()
	g.vacate()
}
