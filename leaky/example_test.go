package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// Three together, then one per hour.
func Example() {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3}))
	for range 4 {
		r := b.Take(1)
		if !r.Allowed() {
			fmt.Println("try again in", r.RetryAfter.Round(time.Minute))
			continue
		}
		fmt.Println("go ahead,", r.Remaining, "more")
	}
	// Output:
	// go ahead, 2 more
	// go ahead, 1 more
	// go ahead, 0 more
	// try again in 1h0m0s
}

// What fits later and what never fits are not the same.
func ExampleResult_Err() {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3}))
	b.Take(2)
	for _, n := range []int64{1, 2, 4} {
		r := b.Take(n)
		fmt.Println(n, r.Allowed(), r.Err())
	}
	// Output:
	// 1 true <nil>
	// 2 false <nil>
	// 4 false sluice: request is larger than the limit
}

func ExampleKeyed() {
	type key struct{ user, action string }
	k, err := leaky.NewKeyed[key](limits.Rate{Count: 1, Per: time.Minute, Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fmt.Println("ann:", k.Take(key{"ann", "reply"}, 1).Allowed())
	}
	fmt.Println("bob:", k.Take(key{"bob", "reply"}, 1).Allowed())

	premium := limits.Rate{Count: 500, Per: time.Minute, Burst: 1000}
	fmt.Println("cleo:", k.TakeRate(key{"cleo", "reply"}, premium, 800).Remaining)
	// Output:
	// ann: true
	// ann: true
	// ann: false
	// bob: true
	// cleo: 200
}

// To unblock a key, return all that it can have taken.
func ExampleKeyed_On() {
	logins := limits.Must(leaky.NewKeyed[string](limits.Rate{Count: 1, Per: time.Hour, Burst: 2}))
	for range 3 {
		fmt.Println(logins.Take("ann", 1).Allowed())
	}
	if err := logins.On("ann").Adjust(context.Background(), -math.MaxInt64, 0); err != nil {
		fmt.Println(err)
	}
	fmt.Println(logins.Take("ann", 1).Allowed())
	// Output:
	// true
	// true
	// false
	// true
}

// A bucket decides immediately. In a gate callers wait for it.
func ExampleBucket_Admit() {
	bucket := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 2}))
	gate := sluice.Must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: bucket}}}))
	ctx := context.Background()
	fmt.Println(gate.Wait(ctx), gate.Wait(ctx))

	_, err := gate.AcquireWithin(ctx, 1, time.Minute)
	var wait *limits.WaitError
	if errors.As(err, &wait) {
		fmt.Println("would take", wait.Need.Round(time.Minute))
	}
	// Output:
	// <nil> <nil>
	// would take 1h0m0s
}

// A batch that is restarted goes on with what is left of the day.
func ExampleBucket_Restore() {
	first := limits.Must(leaky.New(limits.Rate{Count: 24, Per: 24 * time.Hour, Burst: 24}))
	first.Take(20)
	saved := first.Snapshot() // to a file, say

	second := limits.Must(leaky.New(limits.Rate{Count: 24, Per: 24 * time.Hour, Burst: 24}))
	if err := second.Restore(saved); err != nil {
		fmt.Println(err)
	}
	r := second.Take(5)
	fmt.Println(r.Remaining, "left, 5 in", r.RetryAfter.Round(time.Minute))

	other := limits.Must(leaky.New(limits.Rate{Count: 24, Per: 24 * time.Hour, Burst: 100}))
	fmt.Println(other.Restore(saved))
	// Output:
	// 4 left, 5 in 1h0m0s
	// sluice: snapshot not restored: rate of 24/d burst 24, not 24/d burst 100
}
