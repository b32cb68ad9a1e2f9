package sluiceredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/sluiceredis"
)

// open returns a store in a Redis that ends with the example; a program connects
// to the one it has.
func open() (store *sluiceredis.Store, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		panic(err)
	}
	store, err = sluiceredis.New(adapter, sluiceredis.Config{})
	if err != nil {
		panic(err)
	}
	return store, func() {
		_ = client.Close()
		server.Close()
	}
}

// Three together for each user, on all machines, then one per hour.
func Example() {
	store, end := open()
	defer end()
	ctx := context.Background()

	replies, err := store.Leaky("replies", leaky.Quota{Capacity: 3, Count: 1, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := replies.Take(ctx, "ann", 1)
		switch {
		case err != nil:
			panic(err)
		case !res.Allowed:
			fmt.Println("try again in", res.RetryAfter.Round(time.Minute))
		default:
			fmt.Println("go ahead,", res.Remaining, "more")
		}
	}
	// Output:
	// go ahead, 2 more
	// go ahead, 1 more
	// go ahead, 0 more
	// try again in 1h0m0s
}

// CL.THROTTLE user123 15 30 60 1, and then 17, which is more than fits.
func ExampleStore_Throttle() {
	store, end := open()
	defer end()
	for _, n := range []int64{1, 17} {
		res, err := store.Throttle(context.Background(), "user123", 15, 30, 60*time.Second, n)
		fmt.Println(res.Cell(), err)
	}
	// Output:
	// [0 16 15 -1 2] <nil>
	// [1 16 15 -1 2] <nil>
}

// Two limits of a gate that all machines share: ten in flight, 5,000 a day.
func ExampleSemaphore() {
	store, end := open()
	defer end()
	inFlight, err := store.Semaphore("example.com", 10, sluiceredis.SemaphoreConfig{})
	if err != nil {
		panic(err)
	}
	daily, err := store.Fixed("example.com", sluiceredis.FixedConfig{Limit: 5000, Window: 24 * time.Hour, Aligned: true})
	if err != nil {
		panic(err)
	}
	gate, err := sluice.New(sluice.Config{
		Permits: inFlight,
		Quotas:  []sluice.Quota{{Name: "daily", Meter: daily.On("")}},
	})
	if err != nil {
		panic(err)
	}
	err = gate.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("in flight") // ctx ends if the permit is lost
		return nil
	})
	left, _ := daily.Peek(context.Background(), "")
	fmt.Println(err, left.Remaining)
	// Output:
	// in flight
	// <nil> 4999
}

// Two machines that share a pacer never leave at the same time.
func ExamplePacer() {
	store, end := open()
	defer end()
	ctx := context.Background()
	pacer, err := store.Pacer("example.com", 1, 10*time.Second, sluiceredis.PacerConfig{})
	if err != nil {
		panic(err)
	}
	for range 3 {
		slot, err := pacer.Reserve(ctx, 1, time.Minute)
		if err != nil {
			panic(err)
		}
		fmt.Println("may leave in", slot.Delay().Round(time.Second))
	}
	fmt.Println(pacer.AcquireWithin(ctx, 1, 0) != nil)
	// Output:
	// may leave in 0s
	// may leave in 10s
	// may leave in 20s
	// true
}
