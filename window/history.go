package window

import (
	"math"
	"sort"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # How is a sliding window counted exactly, and in how much memory?
//
// The simplest version notes the instant of every call, drops the instants that
// have left the window, and counts the rest. The textbooks go wrong in three
// places. They note refused calls, too: whoever keeps trying keeps the window
// full for ever, and a flood takes as much memory as it likes. They make the
// instant the identity of a call, so that calls of one instant are one. And
// they trim by a clock that can step back.
//
// Here only calls that were let through are noted, so there are at most N.
// Calls of one instant form a run with a count. Each run carries how many calls
// there were up to its end, since the beginning; so the calls of any stretch
// are a difference, and the run that must leave before n more fit is found by
// bisection. Time is the largest instant ever seen.
//
// A call at t is in the window up to but not including t + W: windows are half
// open. With N = 3 and W = 10 s, calls at
//
//	at        0     4     4     7       9       10      13       14
//	noted     –     0     0 4   0 4 4   0 4 4   0 4 4   4 4 10   4 4 10   before it
//	allowed   yes   yes   yes   no      no      yes     no       yes
//	retry                       3       1               1                 until the oldest leaves
//
// and after the call at 10:
//
//	runs      ┌ 4: 3 ┬ 10: 4 ┐     the run at 4 ends with the 3rd call, the one
//	base 1 ───┴──────┴───────┘     at 10 with the 4th; 4 − 1 = 3 are in the window
//
// The invariant: at each instant t the log holds every call that was let
// through and not given back since t − W, and when one more is let through
// they are at most N. Any window of length W ends at or after its last call, so
// none holds more than N.
//
// What is taken without asking (Adjust) may exceed N. The excess must leave
// before anything fits, so it does not matter when its oldest parts would: when
// there are more runs than N, the oldest two become one that leaves with the
// later of them. That is exact unless something is given back or the limit
// raised meanwhile, and then errs on the side of fewer calls. A lower limit
// merges nothing that is there already, so it can be taken back.

// A history is what a log remembers. It holds no lock and reads no clock.
type history struct {
	ring  []run // runs, oldest first: n of them from ring[first] on, wrapping around
	first int
	n     int
	base  int64         // how many calls there were before the oldest run
	last  time.Duration // the largest instant ever seen
}

// A run is the calls of one instant.
type run struct {
	at  time.Duration
	end int64 // how many calls there were up to and with this run; may wrap around
}

// A rule is at most limit in any window.
type rule struct {
	limit  int64
	window time.Duration
}

// minRing is the ring that is not worth shrinking.
const minRing = 8

// run returns the i-th oldest run.
func (h *history) run(i int) *run {
	if i += h.first; i >= len(h.ring) {
		i -= len(h.ring)
	}
	return &h.ring[i]
}

// used returns how many calls are noted.
func (h *history) used() int64 {
	if h.n == 0 {
		return 0
	}
	return h.run(h.n-1).end - h.base
}

// advance drops what has left the window at now and returns now, or the
// largest instant seen if the clock went back.
func (h *history) advance(now, window time.Duration) time.Duration {
	h.last = max(h.last, now)
	now = h.last
	gone := func(i int) bool { return sat.Sub(now, h.run(i).at) >= window }
	switch {
	case h.n == 0 || !gone(0):
	case gone(h.n - 1):
		h.clear()
	default:
		h.drop(sort.Search(h.n, func(i int) bool { return !gone(i) }))
	}
	return now
}

// drop forgets the i oldest runs.
func (h *history) drop(i int) {
	h.base = h.run(i - 1).end
	h.fold(i)
}

// fold adds the calls of the i oldest runs to the run after them.
func (h *history) fold(i int) {
	if h.first += i; h.first >= len(h.ring) {
		h.first -= len(h.ring)
	}
	h.n -= i
}

func (h *history) clear() { h.first, h.n, h.base = 0, 0, 0 }

// take is the algorithm: it notes n calls at now, n ≥ 0, if they fit.
func (h *history) take(now time.Duration, r rule, n int64) limits.Result {
	now = h.advance(now, r.window)
	res := limits.Result{Limit: r.limit}
	excess := h.used() - (r.limit - n) // how many must leave before n fit
	switch {
	case n == 0:
	case n > r.limit:
		res.RetryAfter = limits.Never
	case excess > 0:
		res.RetryAfter = h.oldest(excess) + r.window - now
	default:
		h.note(now, r.limit, n)
	}
	res.Remaining = max(0, r.limit-h.used())
	if h.n > 0 {
		// In this order: an instant plus a window may be more than 292 years,
		// but what is in the window is younger than it.
		res.ResetAfter = r.window - (now - h.run(h.n-1).at)
	}
	return res
}

// oldest returns the instant of the k-th oldest call.
func (h *history) oldest(k int64) time.Duration {
	return h.run(sort.Search(h.n, func(i int) bool { return h.run(i).end-h.base >= k })).at
}

// note adds n calls at now, n > 0.
func (h *history) note(now time.Duration, limit, n int64) {
	end := h.base + h.used() + n
	if h.n > 0 && h.run(h.n-1).at == now {
		h.run(h.n - 1).end = end
		return
	}
	if h.n > 0 && int64(h.n) >= limit {
		h.fold(1)
	}
	h.fit(limit)
	h.n++
	*h.run(h.n - 1) = run{now, end}
}

// fit makes room for one more run, and gives memory back if there is four times
// as much as is needed.
func (h *history) fit(limit int64) {
	size := len(h.ring)
	switch {
	case h.n == size:
		size = int(min(max(2*int64(size), 1), max(limit, int64(size)+1)))
	case size > minRing && 4*h.n < size:
		size = max(2*h.n, minRing)
	default:
		return
	}
	ring := make([]run, size)
	for i := range h.n {
		ring[i] = *h.run(i)
	}
	h.ring, h.first = ring, 0
}

// adjust notes delta more calls at now, whether they fit or not, or forgets the
// newest −delta of those that are at least as old as age.
func (h *history) adjust(now time.Duration, r rule, delta int64, age time.Duration) {
	now = h.advance(now, r.window)
	if delta > 0 {
		if n := min(delta, math.MaxInt64-h.used()); n > 0 {
			h.note(now, r.limit, n)
		}
		return
	}
	since := now - max(0, age)
	older := sort.Search(h.n, func(i int) bool { return h.run(i).at > since })
	if older == 0 {
		return
	}
	// Counted from base, for an end may wrap around.
	gone := min(h.run(older-1).end-h.base, -max(delta, -math.MaxInt64))
	if gone == 0 {
		return
	}
	left := h.run(older-1).end - h.base - gone // of those as old
	keep := sort.Search(older, func(i int) bool { return h.run(i).end-h.base >= left })
	if left > 0 {
		h.run(keep).end = h.base + left
		keep++
	}
	for ; older < h.n; older, keep = older+1, keep+1 {
		*h.run(keep) = run{h.run(older).at, h.run(older).end - gone}
	}
	if h.n = keep; h.n == 0 {
		h.clear()
	}
}

// idle reports whether h is, at now, no different from a new one.
func (h *history) idle(now, window time.Duration) bool {
	return h == nil || h.n == 0 || sat.Sub(now, h.run(h.n-1).at) >= window
}
