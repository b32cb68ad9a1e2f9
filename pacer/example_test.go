package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	var wait *pacer.WaitError
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
		for _, r := range []*pacer.Reservation{now, next, last} {
			if r.Delay() == pacer.Never {
				fmt.Print("cancelled ")
				continue
			}
			fmt.Print(r.Delay().Round(time.Second), " ")
		}
		fmt.Println()
	}
	show()
	next.Cancel()
	show()
	// Output:
	// 0s 1m0s 2m0s
	// 0s cancelled 1m0s
}

// A burst is how many calls may go together after a time of idleness. A new
// pacer has nothing stored.
func ExampleNewWith() {
	p, err := pacer.NewWith(1000, time.Second, pacer.Config{Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	together := func() (n int) {
		for p.TryAcquire(1) {
			n++
		}
		return n
	}
	fmt.Println(together() < 3)
	r := p.Reserve(10) // 10 ms pass until the call after this one
	r.Wait(context.Background())
	p.Acquire(context.Background(), 1)
	time.Sleep(10 * time.Millisecond) // idle
	fmt.Println(together() >= 3)
	// Output:
	// true
	// true
}
