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
//	                     NewSliding                      NewFixed
//	in any window ≤      N, exactly                      2·N, around an edge; N from one edge to the next
//	room comes back      call by call                    all together, at the edge
//	memory               16 bytes a call, 16·N at most   constant
//	calendar             no                              yes
//
// Use [NewSliding] unless the other side counts from 00:00 as well, or 16·N bytes are too much. To
// wait until a call fits, pass them to a sluice.Gate, as Config.Limits. All N may start at the same
// time: to space calls evenly, use package pacer. If up to twice N in a window does no harm, use
// package leaky.
//
// The limits start no goroutines and need no closing. Made in a testing/synctest bubble, they belong
// to that bubble.
package window
