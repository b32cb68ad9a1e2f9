// Package window allows at most N units per window of time, and rejects the rest immediately.
//
//	recent, err := window.NewSliding(window.Quota{Limit: 300, Window: 20 * time.Second})
//	…
//	if r := recent.Take(1); !r.Allowed() {
//		return fmt.Errorf("try again in %v", r.RetryAfter)
//	}
//
//	// 5,000 per day from 00:00
//	daily, err := window.NewFixed(window.Quota{Limit: 5000, Per: window.Day, Location: berlin})
//
// # Sliding or fixed?
//
//	                     Sliding                         Fixed
//	in any window ≤      N, exactly                      2·N, around an edge; N from one edge to the next
//	room comes back      call by call                    all together, at the edge
//	memory               16 bytes a call, 16·N at most   constant
//	calendar             no                              yes
//
// Use a [Sliding] unless the other side counts from 00:00 as well, or N is so large
// that 16·N bytes are too much. Both decide immediately and never wait. To wait until a
// call fits, pass them to sluice.NewQueue or, together with other limits, to a
// sluice.Gate. All N may still leave at the same time: to space calls
// evenly use package pacer. If up to twice N in a window does no harm, package
// leaky needs 8 bytes where a Sliding needs 16·N.
//
// # Differences from the usual versions
//
// The sliding window is mostly shown as a sorted set, with milliseconds for both the score and the
// member. Calls of one millisecond are then one call; calls are added before they are counted, so
// that rejected ones count and a caller that keeps trying is never let in again; period·1000
// overflows 32 bits after 24 days; and the clock is the clock of each caller. Here each call counts, a
// rejected one leaves no trace, durations saturate, and only the monotonic clock is used. Each of
// these has a test.
//
// The fixed window is mostly shown as a counter that expires, without the warning
// that 2·N calls can pass within a moment around an edge.
package window
