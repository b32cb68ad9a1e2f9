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
//	429, 0 of 30 remain, reset in 1 s                   a rate: the length of window.go
//	429, no limit                                       a rate
//
// It is not so simple where other programs use the same limit, or a server counts otherwise than it says:
// then each window throttles many calls. An excuse is accepted only as long as such calls are few. Those that
// were in flight when the first one was throttled do not count: a crowd of any size says nothing about windows.
type excuse struct {
	since   time.Time // when the first call was throttled
	until   time.Time // the end of the last window in which calls were throttled
	granted uint32    // calls that started after it
	begun   uint32    // calls sent when the first one was throttled,
	n       uint32    // and those that started later and were throttled
	void    bool      // they were too many, or there was another reason
}

// accepts notes the throttled call of r, and reports whether published windows explain why it was throttled, and
// all others before it.
func (e *excuse) accepts(r *reply) bool {
	switch {
	case e.void:
	case r.window == 0:
		e.void = true
	case e.since.IsZero():
		e.since, e.until, e.begun, e.granted = r.now, r.retryAt, r.total, 0
	case !r.began.After(e.since): // of the first crowd
	case r.began.After(e.until):
		// In a window that slides, or that others use, fewer calls are granted. But a call that comes just before
		// the end, which is rounded, meets the old window: then none is granted, and the wait is short.
		if early := e.granted == 0 && r.retryAt.Sub(r.now) <= mostRounding; !early {
			e.void = float64(e.granted) < r.window/2 // also without a known maximum
		}
		e.until, e.granted = r.retryAt, 0
		fallthrough
	default:
		e.n++
		e.void = e.void || e.n > fewExcused+(r.total-e.begun)/oneOf
	}
	return !e.void
}

// So many calls may be throttled, and one of so many that were sent.
const (
	fewExcused = 4
	oneOf      = 10
)

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
	return c.long
}

const (
	leastLong    = 4 * time.Second // of a window must be left once: the reset of a small bucket is nearer
	mostRounding = 2 * time.Second // by which the wait may differ: a rounded second, and the jitter of a transport
)
