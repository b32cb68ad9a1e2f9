package sluice_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
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

// A caller that only needs the pace, and does not care how long its calls take.
func ExampleGate_Wait() {
	gate, _ := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}})
	for i := range 3 {
		if err := gate.Wait(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("call", i)
	}
	// Output:
	// call 0
	// call 1
	// call 2
}

// One line for a log, or to print while a program runs.
func ExampleGate_String() {
	gate, _ := sluice.New(sluice.Config{Name: "github", Concurrency: 8, Rate: sluice.Rate{Count: 5, Per: time.Second}})
	permit, _ := gate.Acquire(context.Background(), 1)
	gate.TryAcquire(1) // too early
	fmt.Println(gate)
	permit.Release()
	// Output: github: 5/s, 1 of 8 in flight, 1 granted, 1 refused
}

func ExampleStats_String() {
	today := time.Now()
	at := func(second, milli int) time.Time {
		return time.Date(today.Year(), today.Month(), today.Day(), 10, 31, second, milli*1e6, today.Location())
	}
	fmt.Println(sluice.Stats{
		Name:        "github",
		Rate:        sluice.Rate{Count: 5, Per: time.Second},
		Concurrency: 8,
		InFlight:    3,
		Pacing:      5,
		Waiting:     7,
		LimitedBy:   limits.ByRate,
		Granted:     1010,
		Refused:     sluice.Refusals{Deadline: 2, QueueFull: 1},
		Retried:     7,
	})
	fmt.Println(sluice.Stats{
		InFlight:    1,
		Pacing:      4,
		LimitedBy:   limits.ByPause,
		PausedUntil: at(30, 0),
		PausedWhy:   "429 Too Many Requests",
		Granted:     20,
	})
	// Output:
	// github: 5/s, 3 of 8 in flight, 1,010 granted, 3 refused, 7 retried; 12 calls wait for the rate of 5/s
	// 1 in flight, paused until 10:31:30.000 (429 Too Many Requests), 20 granted; 4 calls wait for the pause (429 Too Many Requests)
}

// A wait that cannot end in time is refused before it begins.
func ExampleGate_AcquireWithin() {
	gate, _ := sluice.New(sluice.Config{Name: "daily", Rate: sluice.Rate{Count: 1, Per: 24 * time.Hour}})
	ctx := context.Background()
	for range 2 {
		permit, err := gate.AcquireWithin(ctx, 1, time.Minute)
		if err != nil {
			fmt.Println("refused, a day is longer than", err.(*limits.WaitError).Have)
			continue
		}
		fmt.Println("granted")
		permit.Release()
	}
	// Output:
	// granted
	// refused, a day is longer than 1m0s
}

// How long a job would take, before its first call.
func ExampleGate_Estimate() {
	gate, _ := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}})
	e := gate.Estimate(50_000)
	fmt.Println(e.Total.Round(time.Minute), "limited by the", e.LimitedBy)
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

// Callers wait, in order, for a limiter that does not wait itself.
func ExampleNewQueue() {
	limit := &everyOther{}
	queue := sluice.NewQueue(limit)
	for range 3 {
		if err := queue.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("3 were allowed, the limiter was asked", limit.asked, "times")
	// Output: 3 were allowed, the limiter was asked 6 times
}

// everyOther refuses every other request.
type everyOther struct{ asked int }

func (e *everyOther) Admit(context.Context, int64) (time.Duration, error) {
	e.asked++
	return time.Duration(e.asked%2) * time.Microsecond, nil
}

func (e *everyOther) Adjust(context.Context, int64, time.Duration) error { return nil }

// Each host has a gate of its own, and all share the limit of the parent.
func ExampleKeyed() {
	all := limits.Must(sluice.New(sluice.Config{Name: "all", Concurrency: 100}))
	hosts := limits.Must(sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: host, Concurrency: 4, Parent: all})
	}, sluice.KeyedConfig{}))
	ctx := context.Background()
	for _, host := range []string{"a.example", "b.example"} {
		err := hosts.Do(ctx, host, func(context.Context) error { return nil }) // or Use, for more than one call
		fmt.Println(host, err)
	}
	fmt.Println(all)
	// Output:
	// a.example <nil>
	// b.example <nil>
	// all: 0 of 100 in flight, 2 granted
}

// An API limits tokens besides requests. A call's tokens are estimated before it leaves and
// known when it is done.
func ExampleWithCosts() {
	tokens, err := leaky.New(sluice.Rate{Count: 60_000, Per: time.Minute, Burst: 10_000})
	if err != nil {
		panic(err)
	}
	gate, err := sluice.New(sluice.Config{
		Rate:   sluice.Rate{Count: 500, Per: time.Minute, Burst: 80},
		Limits: []sluice.Limit{{Name: "tokens", Unit: "tokens", Limiter: tokens}},
	})
	if err != nil {
		panic(err)
	}
	ctx := sluice.WithCosts(context.Background(), sluice.Costs{"tokens": 1200})
	permit, err := gate.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	defer permit.Release()
	fmt.Println("estimated:", tokens.Take(0).Remaining/100, "hundred remain")
	permit.SettleCosts(sluice.Costs{"tokens": 400})
	fmt.Println("settled:  ", tokens.Take(0).Remaining/100, "hundred remain")
	// Output:
	// estimated: 88 hundred remain
	// settled:   96 hundred remain
}
