package leaky

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-go/sluice/internal/buckets"
)

// A Quota is what a bucket lets through: Capacity at once, and Count per Per
// in the long run.
//
// The interval at which one unit leaks, Per ÷ Count, is rounded down to a
// nanosecond, as redis-cell does. The rate is therefore up to one part in
// (interval in nanoseconds) above Count per Per: 3 per second are 3.000000003.
// At 10⁶ per second that could be one part in a thousand; more is refused.
type Quota struct {
	Capacity int64         // most units in the bucket, at least 1; max_burst + 1
	Count    int64         // units that leak per Per, at least 1
	Per      time.Duration // positive
}

// String returns q as "16, 30 per 1m0s".
func (q Quota) String() string {
	return fmt.Sprintf("%d, %d per %v", q.Capacity, q.Count, q.Per)
}

// Check returns an error unless q is possible: all fields positive, at most
// 10⁶ per second, and drained within 146 years when full.
func (q Quota) Check() error {
	_, err := q.rule()
	return err
}

// A rule is a quota with what follows from it. It does not change.
type rule struct {
	quota    Quota
	interval time.Duration // T: how long one unit takes to leak, E in redis-cell's terms
	depth    time.Duration // how long a full bucket takes to drain: capacity·T
	inverse  uint64        // 2⁶⁴ ÷ T, rounded up
	packed   packed        // 0 if it is too wide
}

// units returns how many units leak in d ≥ 0: d ÷ T, rounded down, nearly always
// without a division, which would take as long as all the rest of a decision but
// the clock. The inverse is less than one too large, so the product is right
// wherever d·T < 2⁶⁴, as for 5 hours of 1 ms, and else at times one unit too large.
// To take that unit off would need no branch; but a processor foresees this one,
// and goes on, where it would have to wait for the difference.
func (r *rule) units(d time.Duration) int64 {
	n, _ := bits.Mul64(uint64(d), r.inverse)
	if n*uint64(r.interval) > uint64(d) {
		n = uint64(d) / uint64(r.interval)
	}
	return int64(n)
}

// inverse returns that of an interval T ≥ 2.
func inverse(interval time.Duration) uint64 { return math.MaxUint64/uint64(interval) + 1 }

// longest is the longest depth: half the range, so that now + depth does not
// leave it in the next 146 years. A tat that had to stop at the end of the
// range would forget what was taken.
const longest = time.Duration(math.MaxInt64/2 + 1)

// rule checks q and returns its rule.
func (q Quota) rule() (rule, error) {
	switch {
	case q.Capacity <= 0:
		return rule{}, fmt.Errorf("leaky: quota of %v: the capacity must be positive", q)
	case q.Count <= 0:
		return rule{}, fmt.Errorf("leaky: quota of %v: the count must be positive", q)
	case q.Per <= 0:
		return rule{}, fmt.Errorf("leaky: quota of %v: the period must be positive", q)
	}
	interval := q.Per / time.Duration(q.Count)
	switch {
	case interval < time.Microsecond:
		return rule{}, fmt.Errorf("leaky: quota of %v: more than 1000000 per second", q)
	case q.Capacity > int64(longest/interval):
		return rule{}, fmt.Errorf("leaky: quota of %v: takes longer than 146 years to drain", q)
	}
	return rule{q, interval, interval * time.Duration(q.Capacity), inverse(interval), pack(int64(interval), q.Capacity)}, nil
}

// bucket returns that of r with that level.
func (r *rule) bucket(level time.Duration) buckets.Bucket {
	return buckets.Bucket{Interval: int64(r.interval), Capacity: r.quota.Capacity, Level: int64(level)}
}

// mustRule is rule for literals: it panics where that returns an error.
func mustRule(q Quota) rule {
	r, err := q.rule()
	if err != nil {
		panic(err.Error())
	}
	return r
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("leaky: n < 0: %d", n))
	}
}
