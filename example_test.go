package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
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
	fmt.Println(squares, gate.Stats().Admitted)
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
	permit, _ := gate.Acquire(context.Background())
	gate.TryAcquire() // too early
	fmt.Println(gate)
	permit.Release()
	// Output: github: 5/s, 1 of 8 in flight, 1 admitted, 1 rejected
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
		Admitted:    1010,
		Rejected:    sluice.Rejections{Deadline: 2, QueueFull: 1},
		Retried:     7,
	})
	fmt.Println(sluice.Stats{
		InFlight:    1,
		Pacing:      4,
		LimitedBy:   limits.ByPause,
		PausedUntil: at(30, 0),
		PausedWhy:   "429 Too Many Requests",
		Admitted:    20,
	})
	// Output:
	// github: 5/s, 3 of 8 in flight, 1,010 admitted, 3 rejected, 7 retried; 12 calls wait for the rate of 5/s
	// 1 in flight, paused until 10:31:30.000 (429 Too Many Requests), 20 admitted; 4 calls wait for the pause (429 Too Many Requests)
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

// How long a job would take whose calls take 3 s and 1,500 tokens each.
func ExampleGate_Estimate_costs() {
	requests := limits.Must(leaky.New(sluice.Rate{Count: 500, Per: time.Minute, Burst: 500}))
	tokens := limits.Must(window.NewFixed(window.Quota{Limit: 200_000, Window: time.Minute}))
	gate, _ := sluice.New(sluice.Config{Concurrency: 16, Limits: []sluice.Limit{
		{Name: "requests", Limiter: requests, Unit: sluice.Calls},
		{Name: "tokens", Limiter: tokens, Unit: "tokens"},
	}})
	e := gate.Estimate(8000, sluice.ExpectedCall{Costs: sluice.Costs{"tokens": 1500}, Duration: 3 * time.Second})
	fmt.Println(e.Total.Round(time.Minute), "limited by the", e.LimitedBy)
	// Output: 1h0m0s limited by the limit tokens
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
func ExampleLimit() {
	limit := &everyOther{}
	gate := sluice.Must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: limit}}}))
	for range 3 {
		if err := gate.Wait(context.Background()); err != nil {
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
	}))
	ctx := context.Background()
	for _, host := range []string{"a.example", "b.example"} {
		err := hosts.Do(ctx, host, func(context.Context) error { return nil }) // or Use, for more than one call
		fmt.Println(host, err)
	}
	fmt.Println(all)
	// Output:
	// a.example <nil>
	// b.example <nil>
	// all: 0 of 100 in flight, 2 admitted
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
	permit, err := gate.Acquire(ctx)
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

// # Retries

// A failed call is retried through the gate.
func ExampleRetryValue() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)} // so that the example is fast
	attempts := 0
	name, err := sluice.RetryValue(context.Background(), gate, func(context.Context) (string, error) {
		if attempts++; attempts < 3 {
			return "", errors.New("503 Service Unavailable")
		}
		return "Ada", nil
	}, policy)
	fmt.Println(name, err, "after", attempts, "attempts")
	// Output: Ada <nil> after 3 attempts
}

// A server that asks for a longer wait than the policy allows ends the call at once, and
// the waiting calls, too. The error says when to come back.
func ExampleRetryValue_error() {
	gate, err := sluice.New(sluice.Config{Name: "example.com"})
	if err != nil {
		panic(err)
	}
	began := time.Now()
	_, err = sluice.RetryValue(context.Background(), gate, func(context.Context) (string, error) {
		return "", sluice.ThrottledFor(errors.New("429 Too Many Requests"), time.Hour)
	})
	var stopped *sluice.RetryError
	if errors.As(err, &stopped) {
		fmt.Println("last:", stopped.Last)
		fmt.Println("why:", stopped.Why)
		fmt.Println("come back in", stopped.RetryAt.Sub(began).Round(time.Minute))
	}
	// Output:
	// last: 429 Too Many Requests
	// why: the server asks for too long a wait
	// come back in 1h0m0s
}

// An error that would be the same next time is not retried.
func ExampleRetry() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	errNotFound := errors.New("404 Not Found")
	attempts := 0
	err = sluice.Retry(context.Background(), gate, func(context.Context) error {
		attempts++
		return sluice.Permanent(errNotFound)
	})
	fmt.Println(attempts, "attempt:", errors.Is(err, sluice.ErrPermanent), errors.Is(err, errNotFound))
	// Output: 1 attempt: true true
}

// A wait that the server asks for holds up all calls of the gate, and does not count as one
// of the attempts.
func ExampleThrottledFor() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	const wait = time.Millisecond // from a header Retry-After
	policy := sluice.RetryPolicy{ThrottleBackoff: sluice.Constant(wait)}
	var refused time.Time
	attempts := 0
	err = sluice.Retry(context.Background(), gate, func(context.Context) error {
		if attempts++; attempts == 1 {
			refused = time.Now()
			return sluice.ThrottledFor(errors.New("429 Too Many Requests"), wait)
		}
		fmt.Println("came back too early:", time.Since(refused) < wait)
		return nil
	}, policy)
	fmt.Println(attempts, "attempts,", err)
	// Output:
	// came back too early: false
	// 2 attempts, <nil>
}

// A server failed one call and said when to send it again: only that call waits.
func ExampleRetryAfter() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	const wait = 2 * time.Millisecond // from a header Retry-After
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}
	var notBefore time.Time
	err = sluice.Retry(context.Background(), gate, func(context.Context) error {
		if notBefore.IsZero() {
			notBefore = time.Now().Add(wait)
			return sluice.RetryAfter(errors.New("502 Bad Gateway"), time.Until(notBefore))
		}
		fmt.Println("came back too early:", time.Now().Before(notBefore))
		return nil
	}, policy)
	fmt.Println("the gate was paused:", !gate.Stats().PausedUntil.IsZero(), err)
	// Output:
	// came back too early: false
	// the gate was paused: false <nil>
}

// A download is in flight until it has been read, so its permit outlives the
// attempt. Between attempts none is held.
func ExampleRetryLoop() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	failures := 2
	open := func() (download string, err error) {
		if failures--; failures >= 0 {
			return "", errors.New("503 Service Unavailable")
		}
		return "a long film", nil
	}

	attempts := sluice.NewRetryLoop(gate, sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)})
	for {
		permit, err := attempts.Next(ctx, 1)
		if err != nil {
			panic(err)
		}
		download, err := open()
		again, err := attempts.Done(ctx, err)
		if err == nil && !again {
			fmt.Println("in flight while it is read:", gate.Stats().InFlight)
			fmt.Println("read", download)
			permit.Release()
			break
		}
		permit.Release()
		if err != nil {
			panic(err)
		}
	}
	fmt.Println("in flight:", gate.Stats().InFlight)
	// Output:
	// in flight while it is read: 1
	// read a long film
	// in flight: 0
}

// # Observers

// What happens in a gate, printed as it happens. Package observe has observers
// for logs and metrics.
func ExampleEvent() {
	gate, _ := sluice.New(sluice.Config{
		Name:        "api",
		Concurrency: 1,
		Observer: func(e sluice.Event) {
			switch e.Kind {
			case sluice.EventRejected:
				fmt.Println(e.Gate, e.Kind, e.Reason)
			case sluice.EventPaused:
				fmt.Println(e.Gate, e.Kind, e.Wait.Round(time.Second), e.Why)
			default:
				fmt.Println(e.Gate, e.Kind)
			}
		},
	})
	ctx := context.Background()
	gate.Do(ctx, func(context.Context) error {
		gate.TryAcquire() // one is in flight
		return sluice.ThrottledFor(errors.New("429 Too Many Requests"), time.Minute)
	})
	gate.Resume()
	// Output:
	// api admitted
	// api rejected busy
	// api learned
	// api paused 1m0s 429 Too Many Requests
	// api released
	// api resumed
}

// Users go before a batch that has sent its calls earlier, and the batch has what they do not use.
func ExampleGate_For() {
	gate, err := sluice.New(sluice.Config{Name: "api", Rate: sluice.Rate{Count: 100, Per: time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := func(who sluice.Claimant) error {
		return gate.For(who, func(gate *sluice.Gate) error {
			return gate.Do(context.Background(), func(context.Context) error { return nil })
		})
	}
	if err := call(sluice.Claimant{Name: "report", Class: "batch"}); err != nil {
		fmt.Println(err)
	}
	if err := call(sluice.Claimant{Name: "ann", Class: "users", ClassWeight: 15}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(gate.Stats().Admitted, "calls")
	// Output:
	// 2 calls
}
