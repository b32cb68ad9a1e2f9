// Package leaky decides immediately whether a call fits a rate: the leaky bucket, as a limit that
// never waits.
//
//	rate := limits.Rate{Count: 30, Per: time.Minute, Burst: 16}
//	b, err := leaky.New(rate) // up to 16 together, 30 per minute in the long run
//	…
//	if r := b.Take(1); !r.Allowed() {
//		return fmt.Errorf("try again in %v", r.RetryAfter)
//	}
//
// A bucket holds up to its capacity, the burst of the rate, and leaks Count units per Per. A call
// pours its n in if that fits; otherwise it is rejected, which costs nothing.
//
// To space calls out evenly, use package pacer: a bucket allows a whole burst at the same time. For
// at most N in any window of time, use package window: in a time W a bucket allows up to burst +
// W·count/per. To wait until a bucket has room, pass it to a sluice.Gate, as one of Config.Limits.
//
// The generic cell rate algorithm and a token bucket with capacity − level tokens are the same.
//
// A new bucket is empty: all of its burst fits. [Bucket.Restore] keeps its state over a restart.
package leaky
