// Package kind has the algorithms of the limits: one pure function for each kind.
//
//	Bucket     leaky bucket: so many at the same time, and then at a rate
//	Sliding    at most N in any window of time, exactly
//	Fixed      at most N per window, one window after the other
//
// An algorithm has no lock and no clock. It takes the state of a limit, the current time, and the
// number of requested units, and returns a [limits.Result] and the new state.
//
// The module sluiceredis, which may not import this package, has copies of two files; see TestCopies.
//
// A time, called now, is a duration since a moment that the caller chooses, on a clock that does
// not step. It must not be negative. A time earlier than one seen before never allows more than the
// later one.
//
// n must not be negative. n = 0 takes nothing and is always allowed. Sums of amounts and of times
// saturate; nothing wraps around.
package kind
