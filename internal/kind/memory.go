package kind

import (
	"iter"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// Only limits in memory need what is in this file: sluiceredis has copies of bucket.go and sliding.go.

// Take takes n at now from a bucket that will be empty at tat, if they fit, and returns when it
// will be empty then.
func (r *Bucket) Take(tat, now time.Duration, n int64) (time.Duration, limits.Result) {
	level, wait := r.Fits(max(0, tat-now), n)
	switch {
	case n == 0: // always admitted, even if the bucket is fuller than full
		return tat, r.Result(level, 0)
	case wait == 0:
		tat = now + level
	}
	return tat, r.Result(level, wait)
}

// Adjust returns when a bucket will be empty after delta units were added, or taken back if delta
// is negative, whether they fit or not. A bucket is never emptier than empty.
func (r *Bucket) Adjust(tat, now time.Duration, delta int64) time.Duration {
	n := max(delta, -math.MaxInt64) // so that −n exists
	if n < 0 {
		n = -n
	}
	d, _, ok := sat.MulDiv(n, int64(r.interval), 0, 1)
	if !ok {
		d = math.MaxInt64
	}
	if delta < 0 {
		return max(0, tat-time.Duration(d)) // before now is as good as now: empty
	}
	return sat.Add(max(now, tat), time.Duration(d))
}

// Take is [Bucket.Take] for a key that several rates use. keep is false if p need not
// be stored, because it is as before.
func (p BucketPair) Take(r *Bucket, n int64) (_ BucketPair, res limits.Result, keep bool) {
	p, fresh := p.By(r)
	level, wait := r.Fits(time.Duration(p.Own.Level), n)
	switch {
	case n == 0:
		return p, r.Result(level, 0), false
	case wait == 0:
		p.Pour(int64(level) - p.Own.Level)
	}
	return p, r.Result(level, wait), fresh || wait == 0
}

// Adjust is [Bucket.Adjust] for a key that several rates use.
func (p BucketPair) Adjust(r *Bucket, delta int64) BucketPair {
	p, _ = p.By(r)
	p.Pour(int64(r.Adjust(time.Duration(p.Own.Level), 0, delta)) - p.Own.Level)
	return p
}

// Idle reports whether s, which may be nil, is at now no different from a new state.
func (r Sliding) Idle(s *SlidingState, now time.Duration) bool {
	return s == nil || s.n == 0 || sat.Sub(now, s.run(s.n-1).at) >= r.Window
}

// All returns the recorded times, oldest first, and the number of units that were allowed at each.
func (s *SlidingState) All() iter.Seq2[time.Duration, int64] {
	return func(yield func(at time.Duration, n int64) bool) {
		base := s.base
		for i := range s.n {
			r := s.run(i)
			if !yield(r.at, r.end-base) {
				return
			}
			base = r.end
		}
	}
}

// Admitted returns the results of [limits.Limiter.Admit] for a result of Take.
func Admitted(r limits.Result) (wait time.Duration, err error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	return r.RetryAfter, nil
}
