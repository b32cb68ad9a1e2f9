package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// Three calls, one each 2 ms: the third leaves 4 ms after the first.
func Example() {
	p := pacer.New(500, time.Second)
	ctx := context.Background()
	start := time.Now()
	for range 3 {
		if err := p.Acquire(ctx, 1); err != nil {
			fmt.Println(err)
			return
		}
		// Call.
	}
	fmt.Println(time.Since(start) >= 4*time.Millisecond)
	// Output: true
}

func ExamplePacer_AcquireWithin() {
	p := pacer.New(1, time.Hour)
	ctx := context.Background()
	fmt.Println(p.AcquireWithin(ctx, 1, time.Second))

	err := p.AcquireWithin(ctx, 1, time.Second)
	var wait *limits.WaitError
	if errors.As(err, &wait) {
		fmt.Println("come back in", wait.Need.Round(time.Minute))
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// come back in 1h0m0s
	// true
}

// Reservations are places in the queue. Who gives one back lets the others
// move up.
func ExamplePacer_Reserve() {
	p := pacer.New(1, time.Minute)
	now, next, last := p.Reserve(1), p.Reserve(1), p.Reserve(1)
	show := func() {
		for name, r := range map[string]pacer.Reservation{"now": now, "next": next, "last": last} {
			if r.Delay() == limits.Never {
				fmt.Println(name, "is cancelled")
				continue
			}
			fmt.Println(name, "leaves in", r.Delay().Round(time.Second))
		}
	}
	show()
	next.Cancel()
	show()
	// Unordered output:
	// now leaves in 0s
	// next leaves in 1m0s
	// last leaves in 2m0s
	// now leaves in 0s
	// next is cancelled
	// last leaves in 1m0s
}

// A burst is how many calls may go together after a time of idleness. A new
// pacer has nothing stored.
func ExampleNewWith() {
	p, err := pacer.NewWith(1, time.Hour, pacer.Config{Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.TryAcquire(1), p.TryAcquire(1))

	_, err = pacer.NewWith(1, time.Hour, pacer.Config{Burst: 3, BurstTime: time.Hour})
	fmt.Println(err)
	// Output:
	// true false
	// pacer: burst given both as a count and as a time
}
