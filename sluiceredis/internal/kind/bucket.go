package kind

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/rates"
	"github.com/sluice-go/sluice/sluiceredis/internal/sat"
)

// # How is the level of a leaky bucket remembered?
//
// The textbook funnel remembers its remaining space and when it was last visited. At each
// visit it adds the units that have leaked since. That goes wrong in three ways. It
// drops the fraction of a unit at each visit, so a funnel of 10 per second that is
// visited every 199 ms leaks one unit at a time instead of 1.99: half of the rate. It
// multiplies by a rate in floating point, which counts no further than its mantissa.
// And a clock that steps back fills or blocks it.
//
// So no units are stored, but a time: when the bucket will be empty, the
// theoretical arrival time, TAT. One unit is worth the interval T = per ÷ count, a full
// bucket is worth capacity·T, and the level is the time from now to the TAT.
//
//	level := max(0, TAT − now)
//	fits  if and only if level + n·T ≤ capacity·T
//	TAT   := now + level + n·T       if it fits; unchanged otherwise
//
// With capacity 5 and T = 1 s, calls of one unit at the same time, and then
// every half second:
//
//	now        0   0   0   0   0   0     0.5   1.0   1.5   2.0
//	TAT        0   1   2   3   4   5     5     5     6     6      before it
//	level      0   1   2   3   4   5     4.5   4     4.5   4
//	allowed    yes yes yes yes yes no    no    yes   no    yes
//	retry                          1     0.5         0.5
//	remaining  4   3   2   1   0   0     0     0     0     0
//
//	level
//	  5      █▄    ▄
//	  4      █ █▄▄█ █▄▄█     refused at 0.5 and 1.5, let in at 1.0 and 2.0
//	  3      █
//	  …      █               five at once
//	  0 ─────█──────────────
//	         0   1   2  s
//
// In any time W the bucket allows at most capacity + W/T units: the level
// rises by T with each, falls by no more than W, and stays within 0 and
// capacity·T. That is the invariant, whatever the order of the calls.
//
// Nothing is computed between two calls, so there is nothing to round. A clock that
// steps back by s raises the level by s until it has caught up.
//
// Source: the generic cell rate algorithm, virtual scheduling form (ITU-T
// Recommendation I.371, as secondary literature gives it); replies and rounding
// as redis-cell defines them.

// A Bucket is the algorithm of leaky buckets of one rate, made by [NewBucket]. Its state is the
// time at which the bucket will be empty, or the level: how long it takes from now until then.
type Bucket struct {
	capacity int64
	interval time.Duration // T: the time in which one unit leaks
	depth    time.Duration // the time in which a full bucket drains: capacity·T
	inverse  uint64        // 2⁶⁴ ÷ T, rounded up
}

// deepest is the largest depth: half the range, so that now + depth stays within it for
// the next 146 years. A TAT cut off at the end of the range would lose the taken units.
const deepest = time.Duration(math.MaxInt64/2 + 1)

// NewBucket returns the algorithm of buckets that hold rate.Burst units (0 means 1) and leak
// rate.Count per rate.Per. It returns an error if rate.Check does, for more than 10⁶ per second,
// and if a full bucket would take longer than 146 years to drain.
//
// The interval per unit is rounded down to a nanosecond, as in redis-cell: 3 per second are
// 3.000000003. At 10⁶ per second that is up to one part in a thousand.
func NewBucket(rate limits.Rate) (Bucket, error) {
	if err := rates.Check(rate.Count, rate.Per, rate.Burst); err != nil {
		return Bucket{}, err
	}
	interval, capacity := rate.Interval(), max(1, rate.Burst)
	switch {
	case interval < time.Microsecond:
		return Bucket{}, fmt.Errorf("rate of %v: more than 1000000 per second", rate)
	case capacity > int64(deepest/interval):
		return Bucket{}, fmt.Errorf("rate of %v: a full bucket would take longer than 146 years to drain", rate)
	}
	return newBucket(capacity, interval), nil
}

func newBucket(capacity int64, interval time.Duration) Bucket {
	return Bucket{capacity, interval, interval * time.Duration(capacity), math.MaxUint64/uint64(interval) + 1}
}

// Capacity returns the number of units that a full bucket holds.
func (r *Bucket) Capacity() int64 { return r.capacity }

// Interval returns the time in which one unit leaks.
func (r *Bucket) Interval() time.Duration { return r.interval }

// Depth returns the time in which a full bucket drains.
func (r *Bucket) Depth() time.Duration { return r.depth }

// Share returns the algorithm of one of m equal parts: a capacity divided by m, rounded
// down, and m times the interval. If the capacity is less than m, ok is false.
func (r *Bucket) Share(m int64) (part Bucket, ok bool) {
	if m < 1 || r.capacity < m {
		return Bucket{}, false
	}
	return newBucket(r.capacity/m, r.interval*time.Duration(m)), true
}

// Fits is Take for callers that keep the level, or store it only if nothing has changed since. It
// returns the level after n were put in, and the time they must wait: 0 if they fit now,
// [limits.Never] if never. n = 0 fits unless the bucket is fuller than full.
func (r *Bucket) Fits(level time.Duration, n int64) (after, wait time.Duration) {
	cost, room := time.Duration(n)*r.interval, r.depth-level
	switch {
	case n > r.capacity: // never; and the cost may have overflowed
		return level, limits.Never
	case cost > room:
		return level, min(cost-room, limits.Never-1) // of a debt beyond all times: it still ends
	}
	return level + cost, 0
}

// Result returns the result for a return value of Fits.
func (r *Bucket) Result(level, wait time.Duration) limits.Result {
	return limits.Result{
		Limit:      r.capacity,
		Remaining:  r.units(max(0, r.depth-level)),
		RetryAfter: wait,
		ResetAfter: level,
	}
}

// units returns the number of units that leak in d ≥ 0: d ÷ T, rounded down, nearly always
// without a division, which would take as long as the rest of a decision without the
// clock. The inverse is less than one too large, so the product is right wherever
// d·T < 2⁶⁴, as for 5 hours of 1 ms, and otherwise sometimes one unit too large.
// Subtracting that unit would need no branch, but the processor predicts this one and
// continues, where it would have to wait for the difference.
func (r *Bucket) units(d time.Duration) int64 {
	n, _ := bits.Mul64(uint64(d), r.inverse)
	if n*uint64(r.interval) > uint64(d) {
		n = uint64(d) / uint64(r.interval)
	}
	return int64(n)
}

// # What if two rates are used for one key?
//
// A deployment that changes a rate replaces one machine after the other. Meanwhile one key is used
// with two rates alternately. If the level is cut down to the capacity of the smaller bucket, the
// larger one admits that again, with every call:
//
//	100 at once, 50/s   grants 100 ····· full ····· grants 80, again and again
//	 20 at once, 50/s           called: 20 is full
//
// A level kept as time has the same fault in another form: 100 units at 50/s are
// 2 s, and 2 s are 10 units at 5/s, which leaves room for 90 more.
//
// So each rate has its own bucket, and the units that any of them admits are poured into all. A
// bucket admits the units that fit into it. A call that is rejected changes nothing.
//
// Bound. Let a grant by a bucket of capacity c and rate r end a window of length W. The bucket held
// all of the units admitted in the window except those that leaked, r·W at most, and held no more
// than c. So the window has at most c + r·W admitted units: as many as the laxest of the rates
// allows alone. Two rules keep the buckets small, and the bound true:
//
//   - A bucket that the grant of a rate at least as fast overfills is full and no
//     fuller. Until then its window had at most c' + r'·W' admitted units, by induction, of
//     some rate with r' ≥ r; after it at most r·W''. Together that is less than
//     c' + r'·(W' + W''). The units admitted by a slower rate are owed in full, so a rate that is
//     faster and smaller waits until they have leaked: up to (c' − c) ÷ r.
//   - A rate that is used for the first time has no bucket. It gets one with as many
//     units as the existing bucket, which is exact or too many if that one
//     leaks no faster than its own does. Otherwise it gets no more room than that
//     one has: where the new bucket is larger, the difference is taken as used.
//     Again it is full at most, unless it is the faster one.
//
// Of more than two buckets one is that of the rate in use, and the others are
// one, with the largest capacity and the shortest interval of them; a bucket that a
// laxer one covers is left out. With three rates, if none is laxer than the others,
// the bound is therefore that of the largest capacity and the highest rate. The same
// holds when a larger and slower rate is used for a bucket that has
// just become empty: its past is discarded.

// A BucketState is how full the bucket of one rate is, as the time it takes to drain.
type BucketState struct {
	Interval int64 // T, in which one unit leaks, in nanoseconds; 0 if there is no bucket
	Capacity int64 // in units
	Level    int64 // in nanoseconds
}

// depth returns the time in which a full bucket drains.
func (b BucketState) depth() int64 { return b.Interval * b.Capacity }

// State returns the state of a bucket of r at that level.
func (r *Bucket) State(level time.Duration) BucketState {
	return BucketState{int64(r.interval), r.capacity, int64(level)}
}

// of reports whether b is a bucket of r.
func (b BucketState) of(r *Bucket) bool {
	return b.Interval == int64(r.interval) && b.Capacity == r.capacity
}

// laxer reports whether b admits all that o admits: o needs no bucket then.
func (b BucketState) laxer(o BucketState) bool {
	return b.Interval <= o.Interval && b.Capacity >= o.Capacity
}

// convert returns the same number of units at another interval, at most 2 ns more and
// never less, if the result is at most 2⁵³ ns. It computes in floating point because
// the Lua of sluiceredis must get the same.
func convert(ns, from, to int64) int64 {
	if from == to {
		return ns
	}
	whole, _, ok := sat.MulDiv(ns/from, to, 0, 1)
	if !ok {
		return math.MaxInt64
	}
	if part := ns % from; part > 0 {
		whole = sum(whole, int64(math.Ceil(float64(part)/float64(from)*float64(to)))+2)
	}
	return whole
}

// as returns the bucket of a rate that has none yet, given b.
func (b BucketState) as(r *Bucket) BucketState {
	interval, capacity := int64(r.interval), r.capacity
	n := BucketState{interval, capacity, convert(b.Level, b.Interval, interval)}
	if interval < b.Interval || b.Level == 0 {
		return n
	}
	if interval > b.Interval && capacity > b.Capacity {
		n.Level = max(n.Level, min(n.depth(), sum(n.Level, (capacity-b.Capacity)*interval)))
	}
	over := convert(max(0, b.Level-b.depth()), b.Interval, interval) // owed after a correction
	n.Level = min(n.Level, sum(n.depth(), over))
	return n
}

// A BucketPair is the buckets of a key that several rates use: that of the rate that was used last,
// and one for all others. The zero BucketPair holds nothing.
type BucketPair struct{ Own, Rest BucketState }

// After returns p as it is a time d ≥ 0 later.
func (p BucketPair) After(d time.Duration) BucketPair {
	p.Own.Level = max(0, p.Own.Level-int64(d))
	p.Rest.Level = max(0, p.Rest.Level-int64(d))
	return p
}

// By returns p with the bucket of r as its own, and whether that bucket is new. A new
// one must be kept even if the call is rejected, or it would never leak.
func (p BucketPair) By(r *Bucket) (_ BucketPair, fresh bool) {
	if p.Own.of(r) {
		return p, false
	}
	if p.Rest.of(r) {
		return BucketPair{p.Rest, p.Own}, false
	}
	own := r.State(0)
	for _, b := range []BucketState{p.Own, p.Rest} {
		if b.Level > 0 {
			own.Level = max(own.Level, b.as(r).Level)
		}
	}
	return BucketPair{own, cover(p.Own, p.Rest)}, p.Own.Level > 0 || p.Rest.Level > 0
}

// cover returns a bucket that stands for both.
func cover(a, b BucketState) BucketState {
	switch {
	case b.Level == 0 || a.Level > 0 && a.laxer(b):
		return a
	case a.Level == 0 || b.laxer(a):
		return b
	}
	t := min(a.Interval, b.Interval)
	return BucketState{t, max(a.Capacity, b.Capacity), max(convert(a.Level, a.Interval, t), convert(b.Level, b.Interval, t))}
}

// Pour puts ns nanoseconds into the own bucket and as many units into the other, or takes them out
// if ns is negative. The units taken out may have leaked already from a bucket that leaks faster.
func (p *BucketPair) Pour(ns int64) {
	own, rest := &p.Own, &p.Rest
	switch {
	case ns == 0:
		return
	case ns < 0:
		p.drain(-ns)
		return
	}
	own.Level = sum(own.Level, ns)
	if rest.Level == 0 || own.laxer(*rest) {
		*rest = BucketState{}
		return
	}
	after := sum(rest.Level, convert(ns, own.Interval, rest.Interval))
	if own.Interval <= rest.Interval && own.Level <= own.depth() {
		after = min(after, max(rest.Level, rest.depth()))
	}
	rest.Level = after
}

func (p *BucketPair) drain(ns int64) {
	own, rest := &p.Own, &p.Rest
	own.Level = max(0, own.Level-ns)
	if rest.Interval >= own.Interval {
		if back, _, ok := sat.MulDiv(ns/own.Interval, rest.Interval, 0, 1); ok {
			rest.Level = max(0, rest.Level-back)
		} else {
			rest.Level = 0
		}
	}
}

// sum returns a + b, neither of which is negative, or the largest number.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
