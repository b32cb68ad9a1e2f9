package limits

import "time"

// Never, as a reported wait, means that waiting does not help; as the longest wait that a caller
// allows, no bound. It is longer than any other duration.
const Never = time.Duration(1<<63 - 1)

// A Result is the decision of a limit. Durations are exact and count from the time of the decision.
// The zero Result means not allowed.
type Result struct {
	// Limit is the maximum number of units that the limit allows; 0 if the key was rejected with
	// ErrTooManyKeys.
	Limit int64

	// Remaining is the number of units that would fit now, after this call.
	Remaining int64

	// RetryAfter is the time until the same n fits, if no other call takes anything, or [Never]. It
	// is 0 if the request was allowed, and in the zero Result.
	RetryAfter time.Duration

	// ResetAfter is the time until all of Limit is available.
	ResetAfter time.Duration
}

// Allowed reports whether the request was allowed: n was taken.
func (r Result) Allowed() bool { return r.RetryAfter == 0 && r.Limit > 0 }

// Err returns nil if the request was allowed or is worth repeating after RetryAfter, [ErrTooLarge]
// if it can never be allowed, and [ErrTooManyKeys] if there is no room for its key.
func (r Result) Err() error {
	switch {
	case r.RetryAfter != Never:
		return nil
	case r.Limit == 0:
		return ErrTooManyKeys
	}
	return ErrTooLarge
}
