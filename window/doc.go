// Package window admits at most so many calls per window of time, and refuses
// the rest at once.
//
//	quota := window.NewSliding(300, 20*time.Second) // never more than 300 in any 20 s
//	if r := quota.Take(1); !r.Allowed() {
//		return fmt.Errorf("try again in %v", r.RetryAfter)
//	}
//
//	daily := window.NewCalendar(5000, window.Day, berlin) // 5,000 per day from 00:00
//
// # A log or a counter?
//
//	                       Log                      Counter
//	                       sliding window, exact    fixed windows
//	in any window ≤        N                        2·N, around an edge
//	                                                N, from one edge to the next
//	room comes back        call by call             all at once, at the edge
//	memory                 16 bytes a call, ≤ 16·N  constant
//	knows the calendar     no                       yes, with NewCalendar
//
// Use a Log unless the other side counts from 00:00 as well, or N is so large
// that 16·N bytes are too much. Both answer and never wait. To wait until a
// call fits, give them to sluice.NewQueue or, beside other limits, to a
// sluice.Gate. A whole N may still leave at one instant: to spread calls
// evenly use package pacer. If up to twice N in a window does no harm, package
// leaky needs 8 bytes where a Log needs 16·N.
//
// # What is wrong with the usual versions
//
// The sliding log is mostly shown as a sorted set, with milliseconds for both
// the score and the member. Calls of one millisecond are then one call; calls
// are added before they are counted, so that refused ones count and a caller
// who keeps trying is never let in again; period·1000 overflows 32 bits after
// 24 days; and the clock is that of whoever calls. Here each call counts, down
// to the nanosecond and beyond, a refused one leaves no trace, durations are 64
// bits and saturate, and only the monotonic clock counts. Each of these has a
// test with its name.
//
// The fixed window is mostly shown as a counter that expires, without the warning
// that 2·N calls can pass within a moment around an edge. A test of [Fixed] shows
// that they do.
//
// # Bad numbers
//
// A limit or window that is not positive is refused: the constructors that
// take them by position panic, those that take a [Quota] and the Set methods
// return an error and change nothing. n < 0 panics, n = 0 takes nothing and is
// always allowed, and n beyond the limit is refused with Result.Err() =
// [limits.ErrTooLarge]. Nothing wraps around: amounts and instants saturate, and a
// window of 292 years is as long as any. docs/bad-input.md has a table of mistakes
// for all packages.
package window
