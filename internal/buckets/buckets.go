// Package buckets decides how several quotas share one key of leaky buckets.
package buckets

import (
	"math"

	"github.com/sluice-go/sluice/internal/sat"
)

// # What if two quotas are asked for one key?
//
// A deploy that changes a quota replaces one machine after the other. Meanwhile one
// key is asked by two quotas in turn. A level that is cut down to what the smaller
// quota can hold lets the larger one grant that again, with every question:
//
//	100 at once, 50/s   grants 100 ····· full ····· grants 80, again and again
//	 20 at once, 50/s            asks: 20 is full
//
// A level kept as time has the same fault in another form: 100 units at 50/s are
// 2 s, and 2 s are 10 units at 5/s, which leaves room for 90 more.
//
// So each quota has a bucket of its own, and what any of them grants is poured into
// all. A quota grants what fits into its own bucket. To ask empties none.
//
// Bound. Let a grant by a quota of capacity c and rate r end a window of length W.
// Its bucket held all of the window's grants but for what leaked, r·W at most, and
// held no more than c. So the window has at most c + r·W grants: what the laxest of
// the quotas allows alone. Two rules keep the buckets small, and the bound true:
//
//   - A bucket that the grant of a quota at least as fast overfills is full and no
//     fuller. Until then its window had at most c' + r'·W' grants, by induction, of
//     some quota with r' ≥ r; after it at most r·W''. Together that is less than
//     c' + r'·(W' + W''). A slower quota's grants are owed in full, so a quota that is
//     faster and smaller waits until they have leaked: up to (c' − c) ÷ r.
//   - A quota that asks for the first time has no bucket. It gets one with as many
//     units as the bucket that is there, which is exact or too many if that one
//     leaks no faster than its own does. Otherwise it gets no more room than that
//     one has: where the new bucket is larger, the difference is taken as used.
//     Again it is full at most, unless it is the faster one.
//
// Of more than two buckets one is that of the quota that grants, and the others are
// one, with the largest capacity and the shortest interval of them; what a laxer
// quota covers is left out. With three quotas of which none is laxer than the others
// the bound is therefore that of the largest capacity and the highest rate. So it is
// when a quota with a larger capacity and a lower rate comes to a bucket that has
// just become empty: its past is forgotten.

// A Bucket is how full the bucket of a quota is, as the time that it takes to drain.
type Bucket struct {
	Interval int64 // T, in which one unit leaks, ns; 0 in a bucket that is none
	Capacity int64 // units
	Level    int64 // ns
}

// Depth returns how long a full bucket takes to drain.
func (b Bucket) Depth() int64 { return b.Interval * b.Capacity }

// Is reports whether b is the bucket of that quota.
func (b Bucket) Is(interval, capacity int64) bool {
	return b.Interval == interval && b.Capacity == capacity
}

// laxer reports whether b never refuses what o does not: o needs no bucket then.
func (b Bucket) laxer(o Bucket) bool { return b.Interval <= o.Interval && b.Capacity >= o.Capacity }

// Convert returns the same number of units at another interval, at most 2 ns more and
// never less, if the result is at most 2⁵³ ns. It computes in floating point because
// a script must get the same; see sluiceredis/lua/leaky.lua.
func Convert(ns, from, to int64) int64 {
	if from == to {
		return ns
	}
	whole, _, ok := sat.MulDiv(ns/from, to, 0, 1)
	if !ok {
		return math.MaxInt64
	}
	if part := ns % from; part > 0 {
		part = int64(math.Ceil(float64(part)/float64(from)*float64(to))) + 2
		if whole > math.MaxInt64-part {
			return math.MaxInt64
		}
		whole += part
	}
	return whole
}

// as returns the bucket of a quota that has none yet, given b.
func (b Bucket) as(interval, capacity int64) Bucket {
	n := Bucket{interval, capacity, Convert(b.Level, b.Interval, interval)}
	if interval < b.Interval || b.Level == 0 {
		return n
	}
	if interval > b.Interval && capacity > b.Capacity {
		n.Level = max(n.Level, min(n.Depth(), sum(n.Level, (capacity-b.Capacity)*interval)))
	}
	over := Convert(max(0, b.Level-b.Depth()), b.Interval, interval) // owed after a correction
	n.Level = min(n.Level, sum(n.Depth(), over))
	return n
}

// A Pair is the buckets of a key: that of the quota which asked last, and one for
// the others. The zero Pair is of a key that holds nothing.
type Pair struct{ Own, Rest Bucket }

// By returns p as a quota finds it, and whether its bucket is new. Then it must be
// kept even if the quota is refused, or it would never leak.
func (p Pair) By(interval, capacity int64) (_ Pair, fresh bool) {
	if p.Own.Is(interval, capacity) {
		return p, false
	}
	if p.Rest.Is(interval, capacity) {
		return Pair{p.Rest, p.Own}, false
	}
	own := Bucket{Interval: interval, Capacity: capacity}
	for _, b := range []Bucket{p.Own, p.Rest} {
		if b.Level > 0 {
			own.Level = max(own.Level, b.as(interval, capacity).Level)
		}
	}
	return Pair{own, cover(p.Own, p.Rest)}, p.Own.Level > 0 || p.Rest.Level > 0
}

// cover returns a bucket that stands for both.
func cover(a, b Bucket) Bucket {
	switch {
	case b.Level == 0 || a.Level > 0 && a.laxer(b):
		return a
	case a.Level == 0 || b.laxer(a):
		return b
	}
	t := min(a.Interval, b.Interval)
	return Bucket{t, max(a.Capacity, b.Capacity), max(Convert(a.Level, a.Interval, t), Convert(b.Level, b.Interval, t))}
}

// Pour pours so many nanoseconds into the bucket of the quota that asked, which
// grants them, and as many units into the other.
func (p *Pair) Pour(ns int64) {
	own, rest := &p.Own, &p.Rest
	own.Level = sum(own.Level, ns)
	if rest.Level == 0 || own.laxer(*rest) {
		*rest = Bucket{}
		return
	}
	after := sum(rest.Level, Convert(ns, own.Interval, rest.Interval))
	if own.Interval <= rest.Interval && own.Level <= own.Depth() {
		after = min(after, max(rest.Level, rest.Depth()))
	}
	rest.Level = after
}

// Return takes so many nanoseconds out again that were just poured. Of a bucket that
// leaks faster they may be gone already.
func (p *Pair) Return(ns int64) {
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
