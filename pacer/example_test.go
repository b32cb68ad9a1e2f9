package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// Three calls, one every 2 ms: the third leaves 4 ms after the first.
func Example() {
	p := limits.Must(pacer.New(limits.Rate{Count: 500, Per: time.Second}))
	ctx := context.Background()
	start := time.Now()
	for range 3 {
		if err := p.Wait(ctx); err != nil {
			fmt.Println(err)
			return
		}
		// Call.
	}
	fmt.Println(time.Since(start) >= 4*time.Millisecond)
	// Output: true
}

func ExamplePacer_AcquireWithin() {
	p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
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

// Reservations are places in the queue. A caller that gives one back lets the others
// move up.
func ExamplePacer_Reserve() {
	p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Minute}))
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
func ExampleNew() {
	p, err := pacer.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.TryAcquire(1), p.TryAcquire(1))

	_, err = pacer.New(limits.Rate{Count: 1, Per: time.Hour, Burst: -3})
	fmt.Println(err)
	// Output:
	// true false
	// pacer: rate of 1 per 1h0m0s: the burst of -3 is negative
}
