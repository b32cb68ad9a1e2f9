package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # What does a used-up window teach?
//
// Nothing that the server has not said: until when to wait. A gate that learns a rate from it uses the
// next windows more slowly than they allow. Of 30 calls in 10 s, sent evenly, 3 of 4 are left in the first
// 25 s; sent when a window begins, nearly all:
//
//	response                                            taught
//	429, 0 of 30 remain, reset and Retry-After in 8 s   nothing
//	429, 0 of 30 remain, reset in 8 s, Retry-After: 2   a rate: a sliding window says that
//	429, 0 of 30 remain, reset 0.4 s ago,               nothing: the end is rounded down
//	     after 40 s in which 0 remained
//	429, 0 of 30 remain, reset in 1 s                   a rate: the length of window.go
//	429, no limit                                       a rate
//
// Where others use the limit, too, each gets a share of each window, and one that learned would get nearly
// nothing beside one that does not. But a server may count otherwise than it says, and throttle in spite of
// that: an excuse is accepted only as long as most calls are not throttled. Those that were in flight when the
// first one was do not count: a crowd of any size says nothing about windows.
type excuse struct {
	since time.Time // when the first call was throttled
	begun uint32    // calls sent until then,
	n     uint32    // and those that started later and were throttled
}

// accepts notes the throttled call of r, and reports whether published windows explain why it was throttled.
func (e *excuse) accepts(r *reply) bool {
	switch {
	case !r.usedUp:
		return false
	case e.since.IsZero():
		e.since, e.begun = r.now, r.total
	case r.began.After(e.since):
		if e.n++; e.n > fewExcused+(r.total-e.begun)/2 {
			*e = excuse{}
			return false
		}
	}
	return true
}

// fewExcused calls may be throttled, and half of those that were sent.
const fewExcused = 4

// mayExcuse reports whether a gate may learn nothing from a throttled call: not one with a limit, or that looks
// for one with others. One that has an estimate learns anyway, see sluice.Gate.honor.
func (st *state) mayExcuse() bool { return st.published == nil && st.spacesWindows() }

// explains reports whether the call of r was throttled because a window of l is used up. It notes in c.long if
// that is a long one.
func (c *claim) explains(l *ratelimit.Limit, r *reply) bool {
	if !r.refused || !isZero(l.Remaining) || !countsCalls(l) || !l.NextAt.IsZero() || c.ofBucket {
		return false
	}
	if r.retryAt.Sub(l.ResetAt).Abs() > mostRounding { // it slides, or is a bucket
		return false
	}
	c.long = c.long || l.ResetAt.Sub(r.now) >= leastLong
	return c.long || c.kept
}

const (
	leastLong    = 4 * time.Second // of a window must be left once: the reset of a small bucket is nearer
	mostRounding = 2 * time.Second // by which the wait may differ: a rounded second, and the jitter of a transport
)
