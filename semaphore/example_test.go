package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// A worker pool without workers: a goroutine per job, at most three at work.
func Example() {
	ctx := context.Background()
	pool := semaphore.NewWeighted(3)
	squares := make([]int, 10)
	for i := range squares {
		if err := pool.Acquire(ctx, 1); err != nil {
			break // ctx is done: start no more
		}
		go func() {
			defer pool.Release(1)
			squares[i] = i * i
		}()
	}
	pool.Acquire(ctx, 3) // all three are free: all jobs are done
	fmt.Println(squares)
	// Output: [0 1 4 9 16 25 36 49 64 81]
}

// A call takes as many permits as it costs. A call that can never fit fails immediately.
func ExampleWeighted_Acquire() {
	ctx := context.Background()
	megabytes := semaphore.NewWeighted(100)
	for _, size := range []int64{60, 40, 250} {
		switch err := megabytes.Acquire(ctx, size); {
		case errors.Is(err, limits.ErrTooLarge):
			fmt.Println(size, "MB is too large for this machine")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(size, "MB taken,", megabytes.Available(), "MB left")
			defer megabytes.Release(size)
		}
	}
	// Output:
	// 60 MB taken, 40 MB left
	// 40 MB taken, 0 MB left
	// 250 MB is too large for this machine
}

// A reader takes one permit, a writer all of them. No reader overtakes a waiting writer,
// so readers cannot starve it.
func ExampleWeighted_TryAcquire() {
	lock := semaphore.NewWeighted(1000)
	lock.TryAcquire(1)
	fmt.Println("a second reader:", lock.TryAcquire(1))

	var writer sync.WaitGroup
	writer.Go(func() {
		lock.Acquire(context.Background(), 1000)
		fmt.Println("the writer writes")
		lock.Release(1000)
	})
	for lock.Waiting() == 0 {
		runtime.Gosched() // until the writer has come
	}
	fmt.Println("a third reader:", lock.TryAcquire(1), "although", lock.Available(), "are free")

	lock.Release(2)
	writer.Wait()
	// Output:
	// a second reader: true
	// a third reader: false although 998 are free
	// the writer writes
}

// A bounded wait ends with an error that matches context.DeadlineExceeded,
// although the context is not done.
func ExampleWeighted_AcquireWithin() {
	ctx := context.Background()
	slots := semaphore.NewWeighted(1)
	fmt.Println(slots.AcquireWithin(ctx, 1, time.Millisecond))

	err := slots.AcquireWithin(ctx, 1, time.Millisecond)
	fmt.Println(err)
	fmt.Println(errors.Is(err, limits.ErrTimeout), errors.Is(err, context.DeadlineExceeded), ctx.Err())

	slots.Release(1)
	fmt.Println(slots.AcquireWithin(ctx, 1, 0)) // it is free, so there is no need to wait
	// Output:
	// <nil>
	// sluice: waited as long as allowed
	// true true <nil>
	// <nil>
}

// The other side takes fewer concurrent calls for a while. Calls in flight finish, and
// no call follows until there is room.
func ExampleWeighted_SetLimit() {
	calls := semaphore.NewWeighted(10)
	calls.TryAcquire(8)
	calls.SetLimit(5)
	fmt.Println("in flight", calls.InFlight(), "of", calls.Limit(), "available", calls.Available())
	calls.Release(3)
	fmt.Println("another?", calls.TryAcquire(1))
	calls.Release(1)
	fmt.Println("another?", calls.TryAcquire(1))
	fmt.Println(calls.SetLimit(-1))
	// Output:
	// in flight 8 of 5 available -3
	// another? false
	// another? true
	// semaphore: negative limit -1
}

// To let no call start for a moment, take all permits that are free and give them back.
func ExampleWeighted_Drain() {
	calls := semaphore.NewWeighted(10)
	calls.TryAcquire(3)
	taken := calls.Drain()
	fmt.Println("took", taken, "available:", calls.Available())
	calls.Release(taken)
	fmt.Println("available:", calls.Available())

	calls.SetLimit(1) // 3 are out, 2 more than there are now
	fmt.Println("forgot", -calls.Drain())
	calls.Release(1) // and the other two never
	fmt.Println("available:", calls.Available())
	// Output:
	// took 7 available: 0
	// available: 7
	// forgot 2
	// available: 1
}
