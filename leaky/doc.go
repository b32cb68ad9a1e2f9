// Package leaky tells at once whether a call fits a quota: the leaky bucket as
// a meter.
//
//	b := leaky.New(16, 30, time.Minute) // up to 16 together, 30 per minute in the long run
//	if r := b.Take(1); !r.Allowed() {
//		return fmt.Errorf("try again in %v", r.RetryAfter)
//	}
//
// A bucket holds capacity units and leaks count of them per period. A call
// pours its n in if that fits and is refused otherwise. Nothing waits, and a
// refusal costs nothing.
//
// # The meter answers, the pacer delays
//
// To space calls out evenly, use package pacer: a bucket lets a whole capacity
// through at one instant. To cap calls in flight, use package semaphore. For
// at most N in any window of time, use a sliding window: in a time W a bucket
// admits up to capacity + W·count/per. To wait until a bucket has room, give it
// to sluice.NewQueue or, beside other limits, to a sluice.Gate.
//
// # One arithmetic, many names
//
// The funnel with a capacity and a leaking rate, the generic cell rate
// algorithm of redis-cell's CL.THROTTLE, and the token bucket of Spring Cloud
// Gateway are the same: tokens left = capacity − level. So there is one type
// here, and recordings of both systems are replayed against it.
//
//	there                                              here
//	new Funnel(c, r), r per ms; watering(n)            New(c, r·1000, time.Second); Take(n).Allowed()
//	Funnel(c, r), r per second; watering(n)            New(c, r, time.Second); Take(n).Allowed()
//	… with r = 0.5                                     New(c, 1, 2*time.Second): a count per period, never a fraction
//	isActionAllowed(user, action, c, r)                Keyed[struct{user, action string}].TakeQuota(key, quota, 1)
//	CL.THROTTLE key burst count period                 Keyed.TakeQuota(key, Quota{burst + 1, count, period·time.Second}, 1)
//	CL.THROTTLE key burst count period n               … TakeQuota(key, …, n); Result.Cell has the five integers
//	CL.THROTTLE key burst count period 0               … TakeQuota(key, …, 0), which only looks
//	redis-cell ≤ 0.3.0 and its floored seconds         Result.CellLegacy
//	replenishRate r, burstCapacity c                   New(c, r, time.Second)
//	requestedTokens n                                  Take(n)
//	r = 1, c = 60·k, requestedTokens 60 (k per minute) New(k, 1, time.Minute); Take(1)
//
// The capacity is max_burst plus one, as redis-cell's own reply says. Spring's
// script counts whole seconds, so up to twice its capacity passes around the
// edge of one; a bucket counts nanoseconds and has no edges.
//
// Three things differ from redis-cell on purpose. A bucket holds units, not time, also
// when its quota changes: see [Keyed.TakeQuota]. n is never negative. Looking at a
// bucket does not change it.
//
// # A restart
//
// A new bucket is empty. A program that is restarted would have a second day's
// allowance: [Bucket.Snapshot] and [Bucket.Restore] carry the first one over.
//
// # Bad numbers
//
// A capacity, count or period that is not positive, more than 10⁶ per second,
// and a bucket that would take longer than 146 years to drain are refused: New
// and TakeQuota panic, the constructors that take a Config or Quota and
// SetQuota return an error. n < 0 panics, n = 0 takes nothing and is always
// allowed, and n beyond the capacity is refused with [Result.Err] =
// [limits.ErrTooLarge]. Nothing wraps around: amounts and instants saturate.
// docs/bad-input.md has a table of mistakes for all packages.
package leaky
