package sluice

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/schedule"
)

// # How does a call pass a gate without the lock of its queue?
//
// While nobody waits, the gate is not paused and its retry budget is not
// empty, a call of cost 1 needs two things: a place among the calls in flight,
// which is a number, and the slot that the lane holds. It looks whether the
// slot has come, takes the place, takes the slot, and gives the place back if
// it lost the slot to another:
//
//	open   0 … places    raised by compare-and-swap, here and under the lock
//	lane   next slot     closed while somebody holds the lock or waits
//
// Between looking and taking the slot the lock may come and go: the lane is closed,
// others are let through, it is open again. A place is therefore never taken for
// granted under the lock either. With 1 place and no rate, a gate that looked for
// room and then added 1 let two in: one that it had found room for, and one that
// had entered in between and found the lane open again.
//
// A call that gives its place back takes the lock next, where it wakes whoever missed the
// place meanwhile. But if the gate was closed in between, the call may have been the last
// that Shutdown waits for, so giving back is a release like any other. Gates with quotas
// or a parent, or whose concurrency counts cost, take the lock.

// slip lets a call of cost 1 through, at now, if it can without the lock.
func (g *Gate) slip() (now time.Duration, v schedule.Verdict) {
	slots := g.lane.Slots() // throughout: others may mean another limit
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		next, now, v := slots.Look(g.queue.Epoch())
		switch {
		case v != schedule.Leave:
			return now, v
		case !g.flight.enter(slots.Places()):
			return now, schedule.Ask
		case slots.Take(next, now):
			return now, v
		}
		g.outrun()
	}
	return 0, schedule.Ask
}

// outrun gives back the place of a call that lost its slot to another.
func (g *Gate) outrun() {
	g.flight.unpass()
	g.vacate()
}

// A flight is how many calls are in flight and, in the upper half of the word,
// how many of them have passed without the lock since that was last asked:
// counting them in a word of their own would cost a tenth of a call. The upper
// half does not run over, for one call in 64 takes the lock to be measured.
type flight struct {
	_    [64]byte // every call changes the word, and reads what is beside it in a gate
	word atomic.Int64
	_    [64]byte
}

const (
	inFlight  = math.MaxUint32 // the lower half
	onePassed = 1 << 32        // in the upper half
)

// enter adds a call without the lock if there are fewer than places.
func (f *flight) enter(places int64) bool { return f.take(places, 1+onePassed) }

// add adds a call, with the lock held, if there are fewer than places.
func (f *flight) add(places int64) bool { return f.take(places, 1) }

func (f *flight) take(places, by int64) bool {
	for {
		word := f.word.Load()
		if word&inFlight >= places {
			return false
		}
		if f.word.CompareAndSwap(word, word+by) {
			return true
		}
	}
}

// unpass tells that a call that has entered did not pass.
func (f *flight) unpass() { f.word.Add(-onePassed) }

// leave takes a call away. It panics if there is none: below 0 the number would wrap
// to the largest there is, and the gate would be full for good.
func (f *flight) leave() {
	if f.word.Add(-1)&inFlight == inFlight {
		f.word.Add(1)
		panic("sluice: more calls ended than began")
	}
}

// calls returns how many are in flight.
func (f *flight) calls() int64 { return f.word.Load() & inFlight }

// passed returns how many have passed since it was called last, with the lock
// held: −1 if one of those did not pass in the end.
func (f *flight) passed() int64 {
	n := f.word.Load() >> 32
	if n != 0 {
		f.word.Add(-n << 32)
	}
	return n
}

// leave ends a call that has been in flight since since.
func (g *Gate) leave(since time.Duration) {
	g.vacate()
	if g.hold.wanted(since) {
		g.queue.Lock()
		g.hold.add(g.queue.Now() - since)
		g.queue.Unlock()
	}
}

// vacate gives a place back and takes the lock only if somebody waits for it, or
// for the gate to drain.
func (g *Gate) vacate() {
	g.flight.leave()
	if g.queue.Busy() {
		g.queue.Lock()
		g.queue.Advance(g.queue.Now())
		g.queue.Kick()
		g.checkDrained()
		g.queue.Unlock()
	}
}

// Close implements queue.Latch.
func (r *rule) Close() (asleep int) {
	next, used := r.lane.Close()
	r.granted += uint64(r.flight.passed())
	if used {
		// Later than that: under the lock, or by a clock read before it.
		r.budget.left = max(r.budget.left, next-r.schedule.Interval())
		r.schedule.Took(next)
	}
	return 0
}

// Open implements queue.Latch.
func (r *rule) Open(int) bool {
	if r.ask != nil || r.concurrencyUnit == Cost || r.budget.spacing > 0 || r.ramp != nil {
		return false
	}
	next, interval, ok := r.schedule.Plain()
	return ok && r.lane.Open(next, interval, r.places())
}
