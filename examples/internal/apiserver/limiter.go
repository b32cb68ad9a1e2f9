package apiserver

import (
	"fmt"
	"math"
	"time"
)

// verdict is what the limiter says of one arriving call.
type verdict int

const (
	accepted verdict = iota
	tooFast          // over the rate
	tooMany          // over the concurrency
)

// limiter enforces both limits. It is written plainly and on its own so that
// what it says about a client is independent of how that client paces itself.
// The caller holds a lock and passes times that never go back.
type limiter struct {
	concurrency int64
	inFlight    int64
	bucket      bucket
}

// arrive judges a call arriving at now. A rejected call takes nothing from the
// bucket; wait is then the time after which the rate would let it in.
func (l *limiter) arrive(now time.Duration) (v verdict, wait time.Duration) {
	if l.inFlight >= l.concurrency {
		return tooMany, 0
	}
	if wait := l.bucket.take(now); wait > 0 {
		return tooFast, wait
	}
	l.inFlight++
	return accepted, 0
}

// leave counts an accepted call out of flight again.
func (l *limiter) leave() { l.inFlight-- }

// bucket is the generic cell rate algorithm in whole numbers: a bucket that
// delays to size calls and regains count of them per period, evenly. All it
// keeps is the time at which it will be full again.
//
// A rate such as 3/s has no period in whole nanoseconds, and a rounded one
// would drift, so times are kept as nanoseconds and a count-th part of one.
type bucket struct {
	count int64
	step  fine // what one call costs: per ÷ count
	slack fine // the distance at which full may lie for a call to be let in: (size − 1) steps
	full  fine
	used  bool // whether full means anything yet
}

// fine is ns + part ÷ count nanoseconds, with 0 ≤ part < count.
type fine struct{ ns, part int64 }

// newBucket returns a full bucket of size calls at count calls per period.
func newBucket(count int64, per time.Duration, size int64) (bucket, error) {
	switch {
	case count <= 0 || per <= 0:
		return bucket{}, fmt.Errorf("a rate of %d calls per %v: both must be above 0", count, per)
	case size <= 0:
		return bucket{}, fmt.Errorf("a bucket of %d calls: must be above 0", size)
	case int64(per) > math.MaxInt64/size:
		return bucket{}, fmt.Errorf("a bucket of %d calls at one per %v fills too slowly to be counted", size, per)
	}
	whole := func(calls int64) fine {
		return fine{ns: calls * int64(per) / count, part: calls * int64(per) % count}
	}
	return bucket{count: count, step: whole(1), slack: whole(size - 1)}, nil
}

// take lets a call in at now and returns 0, or returns the time it would have to wait, rounded up
// to a nanosecond, and changes nothing.
func (b *bucket) take(now time.Duration) (wait time.Duration) {
	t := fine{ns: int64(now)}
	if !b.used || b.full.before(t) {
		b.full, b.used = t, true // full since some time: no more than size calls are kept
	}
	if reach := b.add(t, b.slack); reach.before(b.full) {
		wait := b.full.ns - reach.ns
		if b.full.part > reach.part {
			wait++
		}
		return time.Duration(wait)
	}
	b.full = b.add(b.full, b.step)
	return 0
}

// standing returns the number of calls that fit at now, the time until another does, and the time
// until the bucket is full; both rounded up.
func (b *bucket) standing(now time.Duration) (left int64, next, full time.Duration) {
	probe := *b
	for next = probe.take(now); next == 0; next = probe.take(now) {
		left++
	}
	if left > 0 {
		next = 0
	}
	if full = max(0, time.Duration(b.full.ns)-now); full > 0 && b.full.part > 0 {
		full++
	}
	return left, next, full
}

// before reports whether f is earlier than g.
func (f fine) before(g fine) bool {
	return f.ns < g.ns || f.ns == g.ns && f.part < g.part
}

// add returns f + g. It needs the count that the parts are parts of.
func (b *bucket) add(f, g fine) fine {
	sum := fine{ns: f.ns + g.ns, part: f.part}
	if sum.part -= b.count - g.part; sum.part >= 0 {
		sum.ns++
	} else {
		sum.part += b.count
	}
	return sum
}
