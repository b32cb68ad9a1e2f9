package sluice_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// Ten workers share one gate: at most three calls in flight, one each
// millisecond.
func Example() {
	gate, err := sluice.New(sluice.Config{
		Name:        "example.com",
		Concurrency: 3,
		Rate:        sluice.Rate{Count: 1000, Per: time.Second},
	})
	if err != nil {
		panic(err)
	}
	var workers sync.WaitGroup
	squares := make([]int, 10)
	for i := range squares {
		workers.Go(func() {
			err := gate.Do(context.Background(), func(context.Context) error {
				squares[i] = i * i // the call
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	workers.Wait()
	fmt.Println(squares, gate.Stats().Granted)
	// Output: [0 1 4 9 16 25 36 49 64 81] 10
}

// A wait that cannot end in time is refused before it begins.
func ExampleGate_AcquireWithin() {
	gate, _ := sluice.New(sluice.Config{Name: "daily", Rate: sluice.Rate{Count: 1, Per: 24 * time.Hour}})
	ctx := context.Background()
	for range 2 {
		permit, err := gate.AcquireWithin(ctx, 1, time.Minute)
		if err != nil {
			fmt.Println("refused, a day is longer than", err.(*sluice.WaitError).Have)
			continue
		}
		fmt.Println("let through")
		permit.Release()
	}
	// Output:
	// let through
	// refused, a day is longer than 1m0s
}

// How long would it take, before the first call is made?
func ExampleGate_Estimate() {
	gate, _ := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}})
	plan := gate.Estimate(50_000)
	fmt.Println(plan.Total.Round(time.Minute), "limited by the", plan.LimitedBy)
	// Output: 2h47m0s limited by the rate
}

// An estimate is settled for what the call really cost. The rate of this gate
// counts tokens of a language model, not calls.
func ExamplePermit_Settle() {
	gate, _ := sluice.New(sluice.Config{
		Rate:     sluice.Rate{Count: 60_000, Per: time.Minute},
		RateUnit: sluice.Cost,
	})
	permit, err := gate.Acquire(context.Background(), 5000) // at most
	if err != nil {
		panic(err)
	}
	next := func() time.Duration { return time.Until(gate.Stats().NextSlot).Round(time.Second) }
	fmt.Println("next call in", next())
	permit.Settle(1000) // it was less
	permit.Release()
	fmt.Println("next call in", next())
	// Output:
	// next call in 5s
	// next call in 1s
}

// A semaphore of 2 on another machine, or any limit that only answers, made
// one that callers wait for.
func ExampleNewQueue() {
	limit := &everyOther{}
	wait := sluice.NewQueue(limit)
	for range 3 {
		if err := wait.Acquire(context.Background(), 1); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("3 were let through, asked", limit.asked, "times")
	// Output: 3 were let through, asked 6 times
}

// everyOther refuses every other time it is asked.
type everyOther struct{ asked int }

func (e *everyOther) Admit(context.Context, int64) (time.Duration, error) {
	e.asked++
	return time.Duration(e.asked%2) * time.Microsecond, nil
}

func (e *everyOther) Adjust(context.Context, int64, time.Duration) error { return nil }
