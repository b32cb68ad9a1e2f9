package kind_test

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A store of buckets: it keeps one time per key, here in a map, and reads the clock.
func Example() {
	rule, err := kind.NewBucket(limits.Rate{Count: 1, Per: time.Second, Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	empty := make(map[string]time.Duration) // when the bucket of a key will be empty
	take := func(key string, now time.Duration, n int64) limits.Result {
		tat, res := rule.Take(empty[key], now, n)
		empty[key] = tat
		return res
	}
	for _, at := range []time.Duration{0, 0, 0, 0, time.Second} {
		res := take("ann", at, 1)
		fmt.Println(at, res.Allowed(), res.Remaining, res.RetryAfter)
	}
	// Output:
	// 0s true 2 0s
	// 0s true 1 0s
	// 0s true 0 0s
	// 0s false 0 1s
	// 1s true 0 0s
}

// Windows of an hour, aligned to Unix time.
func ExampleFixed() {
	rule := kind.Fixed{Limit: 2, Edges: func(wall int64) (start, end int64) {
		start = wall - wall%int64(time.Hour)
		return start, start + int64(time.Hour)
	}}
	var state kind.FixedState
	begin := time.Date(2026, 1, 1, 8, 59, 59, 0, time.UTC)
	for i := range 4 {
		at := begin.Add(time.Duration(i) * time.Second / 2)
		res := rule.Take(&state, at.Sub(begin), at.UnixNano(), 1)
		fmt.Println(at.Format("15:04:05.0"), res.Allowed(), res.RetryAfter)
	}
	// Output:
	// 08:59:59.0 true 0s
	// 08:59:59.5 true 0s
	// 09:00:00.0 true 0s
	// 09:00:00.5 true 0s
}
