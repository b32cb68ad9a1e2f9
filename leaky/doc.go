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
// A bucket delays to its capacity, the burst of the rate, and leaks Count units per
// Per. A call pours its n in if that fits and is rejected otherwise. It never waits, and a
// rejection costs nothing.
//
// To space calls out evenly, use package pacer: a bucket allows a whole burst at the same time. To
// limit calls in flight, use package semaphore. For at most N in any window of time, use package
// window: in a time W a bucket allows up to burst + W·count/per. To wait until a bucket has room,
// pass it to sluice.NewQueue or, together with other limits, to a sluice.Gate.
//
// # Other names of the same thing
//
// The funnel with a capacity and a leaking rate, the generic cell rate algorithm of
// redis-cell's CL.THROTTLE, and the token bucket of Spring Cloud Gateway are the same:
// tokens left = capacity − level. Recordings of both systems are replayed against the
// one implementation here.
//
//	there                                           here
//	new Funnel(c, r), r per ms; watering(n)         New({Count: r·1000, Per: time.Second, Burst: c}); Take(n)
//	Funnel(c, r), r per second; watering(n)         New({Count: r, Per: time.Second, Burst: c}); Take(n)
//	… with r = 0.5                                  New({Count: 1, Per: 2·time.Second, Burst: c})
//	isActionAllowed(user, action, c, r)             Keyed[struct{user, action string}].TakeRate(key, rate, 1)
//	CL.THROTTLE key burst count period n            Keyed.TakeRate(key, {Count: count, Per: period, Burst: burst + 1}, n)
//	replenishRate r, burstCapacity c                New({Count: r, Per: time.Second, Burst: c})
//	requestedTokens n                               Take(n)
//
// The burst here includes the first call, so it is redis-cell's max_burst plus one.
// Spring's script counts whole seconds, so up to twice its capacity passes around the
// edge of one; a bucket counts nanoseconds and has no edges.
//
// Three things differ from redis-cell on purpose. A bucket holds units, not time, even
// when its rate changes: see [Keyed.TakeRate]. n is never negative. Looking at a
// bucket does not change it.
//
// # A restart
//
// A new bucket is empty: all of its burst fits. A restarted program could therefore use
// a daily allowance twice. [Bucket.Snapshot] and [Bucket.Restore] prevent that.
package leaky
