package sluicehttp

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # How fast does a bucket refill?
//
// Servers such as throttled and tollbooth say with each granted call the remaining quota of a bucket, and not the rate at
// which it refills. But between two responses that quota falls by the calls, and rises by the refill:
//
//	at       2.32 s   2.43 s
//	call         25       31     6 calls later
//	remains       9        7     fell by 2
//
// So 4 came back in 0.11 s, about 36 per second. The quota is rounded down, so that may be 3 or 5; and the calls took
// unequal time to the server. Each response bounds the rate, and of all responses since a first one the closest bounds
// apply. In a full bucket nothing comes back, so the bounds begin again whenever as much remains as ever did.
// internal/adaptive/refill.go says what the rate is good for.
//
// # Is it a bucket, and is it true?
//
// If the responses agree on no rate, it is no bucket, or it is also used by others, in bursts, or by calls that take more
// than one; or they are about several buckets. The same if later ones agree on quite another rate, as those of a window
// that slides do: there the refill follows the pace. The reset of a window does not move, or is a time of the clock. Then
// nothing is believed for a minute, and longer each time. So it is if a call is throttled although something remains.
//
// All of this may be true of a bucket that limits nothing. So the pace is lowered once. It is lowered again only after
// a call was throttled when, by the responses, nothing was left: that proves it for a minute, and longer each time.
type flow struct {
	call     uint16        // the last call that was noted, in the order in which they were sent
	quickest time.Duration // response
	full     float64       // the most that remained
	from     gauge         // the response with which the current bounds begin
	bounds                 // on which all responses since agree
	last     bounds        // by the last one alone
	before   bounds        // on which the responses before from agree
	used     bool          // the pace was lowered

	proven time.Time // until when,
	proofs time.Duration
	barring
}

// A gauge is the remaining quota in a response, and its times.
type gauge struct {
	call      uint16 // 0 for none
	sent, now time.Time
	remaining float64
	reset     time.Time
}

// took returns the duration of the call until its response.
func (g *gauge) took() time.Duration { return g.now.Sub(g.sent) }

// bounds are those of a rate per second.
type bounds struct{ least, most float64 }

// all are the bounds of a rate of which nothing is known.
var all = bounds{math.Inf(-1), math.Inf(1)}

const (
	flowBar   = time.Minute // for which nothing is believed after a false header,
	flowProof = time.Minute // and a proven one is

	soon = .2 // seconds: a bucket that is empty by then is nearly empty
	few  = 2. // calls; so is one of which no more remain, and a fall by fewer may be rounding

	mostCalls = 1 << 14 // after which the bounds begin again: the numbers of calls wrap at 1 << 16

	wellKnown   = .15 // a rate that may be wrong by that share raises the pace,
	roughly     = .35 // by that lowers it,
	hardly      = .4  // and by that, by the last response alone, is one at all
	sameRefill  = .2  // as a share, by which two rates differ that are the same
	mostLate    = 2   // the quickest response, divided by it, is the most by which two calls are counted later than usual
	leastRefill = .25 // of the pace: a search stops growing only if the rate may be that; in a window nothing comes back
)

// note notes response r, in which remaining is left of l, and returns the conclusions.
func (f *flow) note(l *ratelimit.Limit, remaining float64, r *reply) adaptive.Refill {
	clock := l.Rounding > time.Second || l.Rounding == time.Second && l.ResetAt.Sub(r.now)%time.Second != 0
	at := gauge{r.call, r.sent, r.now, remaining, l.ResetAt}
	switch {
	case r.refused && remaining >= 1:
		return f.fail(r.now)
	case r.call == 0 || clock || f.from.call != 0 && int16(r.call-f.call) <= 0:
		return adaptive.Refill{}
	}
	f.call = r.call
	switch {
	case r.refused:
		return f.refused(&at)
	case r.cached: // many limits do not count it
		f.from = gauge{}
		return adaptive.Refill{}
	case !r.granted:
		return adaptive.Refill{}
	}
	if took := at.took(); f.quickest == 0 || took < f.quickest {
		f.quickest = took
	}
	switch {
	case f.from.call == 0 || at.call-f.from.call > mostCalls:
		f.begin(&at)
		return adaptive.Refill{}
	case f.stands(&at, l.Rounding):
		return f.fail(r.now)
	case r.later > f.full: // it comes too late: those may have used up all of it
		return adaptive.Refill{}
	case remaining >= f.full:
		f.begin(&at)
		return f.unlessBarred(adaptive.Refill{Full: remaining >= few}, r.now)
	case !f.bound(&at):
		return f.fail(r.now)
	}
	return f.find(&at, r.later)
}

// find returns the conclusions from the response at, which f.bounds includes. later is the number of calls that were sent
// after its own.
func (f *flow) find(at *gauge, later float64) (found adaptive.Refill) {
	fell := f.from.remaining - at.remaining
	left := at.remaining - later + max(0, f.least)*at.took().Seconds() // when a call that is sent now is counted
	proven := at.now.Before(f.proven)
	mayLower := (!f.used || proven) && fell >= few
	pace := float64(at.call-f.from.call) / max(at.sent.Sub(f.from.sent).Seconds(), 1e-9)
	rate := (f.least + f.most) / 2
	// Responses that hardly agree seem to be very sure.
	known := f.last.unsure() < hardly
	lowers := mayLower && known && f.unsure() < roughly && left <= max(few, min(f.full/2, soon*rate))
	raises := fell <= -few && known && f.unsure() < wellKnown
	if lowers || raises {
		found = adaptive.Refill{Rate: rate, Unsure: f.unsure(), Proven: proven}
		if !f.agrees() {
			return f.fail(at.now)
		}
		if lowers {
			f.used, found.Debt = true, max(0, few-left)
		}
		f.begin(at)
	} else {
		found.Sinks = mayLower && f.most > leastRefill*pace && left <= soon*pace
	}
	return f.unlessBarred(found, at.now)
}

// refused notes that the call of at was throttled and nothing remains.
func (f *flow) refused(at *gauge) adaptive.Refill {
	if f.from.call == 0 {
		return adaptive.Refill{}
	}
	if !f.bound(at) {
		return f.fail(at.now)
	}
	if f.from.remaining >= few && f.last.unsure() < hardly && f.agrees() {
		f.proofs = min(max(2*f.proofs, flowProof), longestBar)
		f.proven = at.now.Add(f.proofs)
	}
	f.from = gauge{}
	return adaptive.Refill{}
}

// begin begins new bounds with the response at.
func (f *flow) begin(at *gauge) {
	f.full = max(f.full, at.remaining)
	f.from, f.bounds, f.last = *at, all, all
}

// bound bounds the rate by the response at, and reports whether it agrees with those before.
func (f *flow) bound(at *gauge) bool {
	took := at.sent.Sub(f.from.sent).Seconds()
	if took <= 0 {
		return true
	}
	calls := float64(at.call - f.from.call)
	back := calls - (f.from.remaining - at.remaining)
	// By as much as they took longer than the quickest, both may have been counted later; but that may also be the time
	// that they took afterwards. A throttled call may be quicker than any that was granted.
	late := max(0, min(at.took()+f.from.took()-2*f.quickest, f.quickest/mostLate)).Seconds()
	unsure := 1 + late*calls/took
	f.last = bounds{(back - unsure) / took, (back + unsure) / took}
	f.bounds = bounds{max(f.least, f.last.least), min(f.most, f.last.most)}
	return f.least <= f.most && f.most >= 0
}

// unsure returns by which share the middle of the bounds may be wrong; infinity if the rate may be 0.
func (b bounds) unsure() float64 {
	if b.least <= 0 || math.IsInf(b.most, 1) {
		return math.Inf(1)
	}
	return (b.most - b.least) / (b.most + b.least)
}

// agrees reports whether the bounds are those of the responses before them, about, and narrows these.
func (f *flow) agrees() bool {
	if f.before == (bounds{}) {
		f.before = f.bounds
	}
	b := &f.before
	if f.least > b.most*(1+sameRefill) || f.most < b.least*(1-sameRefill) {
		return false
	}
	least, most := max(b.least, f.least), min(b.most, f.most)
	*b = bounds{min(least, most), max(least, most)}
	return true
}

// stands reports whether the reset is that of a window: the same for two responses, or too near.
func (f *flow) stands(at *gauge, rounding time.Duration) bool {
	moved, passed := at.reset.Sub(f.from.reset), at.now.Sub(f.from.now)
	return moved == 0 && passed > 0 || passed > 2*rounding+mostOvertaking && moved < passed/2
}

// fail forgets all, and believes nothing for a while.
func (f *flow) fail(now time.Time) (found adaptive.Refill) {
	bar := f.barring
	if !now.Before(f.barred) {
		bar, found.Wrong = bar.longer(now, flowBar), true
	}
	*f = flow{call: f.call, quickest: f.quickest, barring: bar}
	return found
}

// unlessBarred returns found, or nothing if nothing is believed at now.
func (f *flow) unlessBarred(found adaptive.Refill, now time.Time) adaptive.Refill {
	if now.Before(f.barred) {
		return adaptive.Refill{}
	}
	return found
}
