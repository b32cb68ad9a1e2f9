package leaky

import (
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/keyed"
)

var (
	// ErrTooLarge is the Err of a request for more than the capacity, which
	// no wait can satisfy.
	ErrTooLarge = errs.ErrTooLarge

	// ErrTooManyKeys is the Err of a request with a new key, when as many keys
	// as may be are remembered.
	ErrTooManyKeys = keyed.ErrTooManyKeys
)

// NoRetry is the RetryAfter of a request that waiting does not help; [Result.Err]
// tells why.
const NoRetry time.Duration = -1

// A Result is what a bucket answers. Durations are exact and count from the
// instant of the answer. The zero Result is one that was not allowed.
//
// It has four words because that is what Go hands over in registers and leaves
// there: with a fifth, which said that the request was allowed, each caller wrote
// the result to its stack and read it again, for a seventh of a decision.
type Result struct {
	// Limit is the capacity of the bucket; 0 if there is no bucket, because
	// there are too many keys.
	Limit int64

	// Remaining is how many units would fit now, after this call.
	Remaining int64

	// RetryAfter is 0 if the request was allowed; but ask Allowed, for it is 0
	// in the zero Result, too. After a refusal it is how long it will take
	// until the same n fits, if nobody else takes anything: positive, or NoRetry.
	RetryAfter time.Duration

	// ResetAfter is how long it takes until the bucket is empty and all of
	// Limit is available.
	ResetAfter time.Duration
}

// Allowed means go ahead: n was taken.
func (r Result) Allowed() bool { return r.RetryAfter == 0 && r.Limit > 0 }

// Err returns nil if the request was allowed or is worth repeating after
// RetryAfter, [ErrTooLarge] if it can never be allowed, and [ErrTooManyKeys]
// if there is no room for its key.
func (r Result) Err() error {
	switch {
	case r.RetryAfter >= 0:
		return nil
	case r.Limit == 0:
		return ErrTooManyKeys
	}
	return ErrTooLarge
}

// Cell returns r as the five integers that CL.THROTTLE of redis-cell replies
// since version 0.3.1: 1 if refused, the limit, what remains, the seconds until
// a retry (-1 if allowed or hopeless) and the seconds until the reset. Seconds
// are cut to milliseconds and then rounded up, so 0.9 ms are 0 seconds.
func (r Result) Cell() [5]int64 { return r.cell(ceilSeconds) }

// CellLegacy returns what redis-cell up to version 0.3.0 replied: Cell, but
// with seconds rounded down.
func (r Result) CellLegacy() [5]int64 { return r.cell(floorSeconds) }

func (r Result) cell(seconds func(time.Duration) int64) [5]int64 {
	five := [5]int64{0, r.Limit, r.Remaining, -1, seconds(r.ResetAfter)}
	if !r.Allowed() {
		five[0] = 1
	}
	if r.RetryAfter > 0 {
		five[3] = seconds(r.RetryAfter)
	}
	return five
}

func floorSeconds(d time.Duration) int64 { return int64(d / time.Second) }

func ceilSeconds(d time.Duration) int64 {
	s := floorSeconds(d)
	if d%time.Second >= time.Millisecond {
		s++
	}
	return s
}
