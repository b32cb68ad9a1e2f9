package sluicehttp

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Short windows
//
// A server that grants 20 calls per second and says so is used best by a call every 50 ms. Calls that
// leave as soon as something remains use up each window in a moment, then wait for its end, which most
// servers state as a whole second, and each window costs some throttled calls: 60 to 80 % of 20 per
// second, where a client that was told the rate got 93 %. So a limit with a short window becomes the
// rate of the gate. Long windows do not: a few calls should not be spread over an hour.
//
// The length of a window is stated by few servers. It is the time from one response that shows that
// all is back to the next one, if little remained in between. That is often too long, as calls do not
// come just then, so the shortest of the last three counts, in whole seconds.
//
//	remaining of 20   20 13 5 0     19 12 4 0     20 …
//	                  ├── 1.07 s ───┤── 1.93 s ───┤
//
// A small bucket looks the same if it is used in this way, and so does the limit of one of many
// accounts. So the rate must prove true: if calls start at that pace for two windows, less than a quarter
// remains at the end of one. If more remains, or if calls wait for something else, twice in a row, the
// limit is of another kind or of some of the calls, and stops being a rate for good.

// longestEven is the longest window that is short.
const longestEven = 2 * time.Second

// An even is the knowledge about the windows of one limit, as far as they are short.
type even struct {
	began   time.Time        // when a response showed that a window had begun
	left    time.Duration    // until the reset, as it said
	low     float64          // the least that remained since
	lowAt   time.Time        // when a response said so
	granted float64          // calls since
	lengths [3]time.Duration // of the last windows, the last one first
	length  time.Duration    // of all windows; 0 if it is not known, or not short
	barred  bool             // its windows are no rate for the gate

	// Whether the rate proves true.
	from   time.Time // when the current two windows began
	sent   uint32    // calls before
	least  float64   // that remained since
	failed int       // how often in a row it has not
}

// note notes the response r, after which remaining is left of l.
func (e *even) note(l *ratelimit.Limit, remaining float64, r *reply) {
	most, known := l.Max.Value()
	if !known || most < 2 || !countsCalls(l) || !l.NextAt.IsZero() || r.call == 0 || e.barred {
		return
	}
	left := l.ResetAt.Sub(r.now)
	if r.granted && !r.cached {
		e.granted++
	}
	if e.length > 0 {
		e.prove(most, remaining, l.Window > 0, r)
	}
	switch {
	case r.sent.Before(e.began): // it may be about the window before
	case e.began.IsZero() || remaining >= max(most/2, e.low+2, e.low+most/4) && !r.sent.Before(e.lowAt):
		if !e.began.IsZero() && e.granted <= more(most) { // otherwise there were several, or it is a bucket
			copy(e.lengths[1:], e.lengths[:])
			e.lengths[0] = r.now.Sub(e.began)
		}
		e.began, e.left, e.low, e.lowAt, e.granted = r.now, left, remaining, r.now, 0
	case remaining < e.low:
		e.low, e.lowAt = remaining, r.now
	}
	length := cmp.Or(e.length, e.measure(l.Window))
	switch {
	case remaining > most, remaining <= most/8 && left > e.left+l.Rounding+mostOvertaking:
		e.barred = true // a bucket: the emptier it is, the later it is full
	case length > 0 && e.granted > more(most)*(1+r.now.Sub(e.began).Seconds()/length.Seconds()):
		e.barred = true // more than it grants
	case e.low <= most/4 && e.length == 0 && length <= longestEven:
		e.length, e.from = length, time.Time{}
	}
}

// more returns how many calls may be granted between two responses, if windows have most.
func more(most float64) float64 { return most + most/4 + 1 }

// measure returns the length of the windows, which the server states as stated, or 0; 0 if it is not known.
// Where each of several routes has a limit, all seems to come back much too soon.
func (e *even) measure(stated time.Duration) time.Duration {
	switch {
	case stated > 0 && e.lengths[0] > 0 && e.lengths[0] < stated-early:
		return 0
	case stated > 0 || e.lengths[2] == 0:
		return stated
	}
	return (slices.Min(e.lengths[:]) + early).Truncate(time.Second)
}

// early is by how much a window may seem too short, because responses take different times.
const early = 50 * time.Millisecond

// prove checks, every two windows, that little remains of one if calls start at the pace of the limit.
func (e *even) prove(most, remaining float64, stated bool, r *reply) {
	if !e.from.IsZero() {
		e.least = min(e.least, remaining)
		took := r.now.Sub(e.from)
		if took < 2*e.length {
			return
		}
		switch slow := float64(r.total-e.sent) < 1.5*most; {
		case took > 3*e.length, slow && r.gate.Stats().Waiting == 0: // there were too few calls
		case !slow && e.least > most/4 && e.length > time.Second && !stated:
			e.length = time.Second // perhaps
		case slow, e.least > most/4:
			e.failed++
			e.barred = e.failed >= mostFailed
		default:
			e.failed = 0
		}
	}
	e.from, e.sent, e.least = r.now, r.total, remaining
}

const mostFailed = 2

// rate returns the rate at which calls use the windows of a limit of most evenly, but for reserve; zero if
// its windows are not short, as far as is known.
func (e *even) rate(most, reserve float64) sluice.Rate {
	if e.length <= 0 || e.barred {
		return sluice.Rate{}
	}
	return sluice.Rate{Count: max(1, int64(most-reserve)), Per: e.length}
}

// evens reports whether limits with short windows become the rate of the gate: unless a rate is configured,
// or what remains is spread anyway, or is used by several processes that share what they learn.
func (st *state) evens() bool {
	use := &st.t.cfg.Published
	return !use.Disabled && use.Spread == 0 && st.configured.Count == 0 && st.t.cfg.Gate.Adaptive.Peers == nil
}

// noteEven notes the slowest rate of the limits with short windows in a response.
func (st *state) noteEven(said *ratelimit.Info, found *findings) {
	var slowest sluice.Rate
	for i := range min(len(said.Limits), len(found)) {
		if r := found[i].even; r.Count > 0 && !found[i].ignore && (slowest.Count == 0 || slower(r, slowest)) {
			slowest = r
		}
	}
	if st.unsaid++; len(said.Limits) > 0 {
		st.unsaid = 0
	}
	if slowest.Count == 0 && st.unsaid > 0 && st.unsaid <= staleClaim { // error pages say nothing
		return
	}
	if slowest.Count > 0 {
		st.evenly.Store(true)
		slowest = st.cutRate(slowest, "a short window")
	}
	st.evenRate = slowest
}
