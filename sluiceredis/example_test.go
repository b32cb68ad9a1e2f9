package sluiceredis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
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

// newClient returns a client that shares a rate with those of all machines that use the Redis.
func newClient(addr string) (*http.Client, error) {
	adapter, err := sluiceredis.NewGoRedis(redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
	})) // single server, Sentinel or Cluster
	if err != nil {
		return nil, err
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{OnOutage: sluiceredis.LocalShare})
	if err != nil {
		return nil, err
	}
	account, err := store.Pacer("account", sluice.PerSecond(10), sluiceredis.PacerConfig{})
	if err != nil {
		return nil, err
	}
	return sluicehttp.NewClient(sluicehttp.Config{
		Gate: sluice.Config{Limits: []sluice.Limit{{Name: "account", Limiter: account}}},
	})
}

// The README has the code of newClient.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(source, []byte("// newClient returns"))
	end := begin + bytes.Index(source[begin:], []byte("\n}\n"))
	if !bytes.Contains(page, source[begin:end]) {
		t.Errorf("README.md does not have\n%s", source[begin:end])
	}
}

// Two clients, as on two machines, share a rate of 10 per second.
func Example_client() {
	server := limits.Must(miniredis.Run())
	defer server.Close()
	var count atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count.Add(1) }))
	defer api.Close()
	began := time.Now()
	var all sync.WaitGroup
	for range 2 {
		client, err := newClient(server.Addr())
		if err != nil {
			panic(err)
		}
		for range 3 {
			all.Go(func() {
				if resp, err := client.Get(api.URL); err == nil {
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
	fmt.Println(count.Load(), "requests, at most ten per second:", time.Since(began) > 490*time.Millisecond)
	// Output: 6 requests, at most ten per second: true
}

// Three together for each user, on all machines, then one per hour.
func Example() {
	store, end := open()
	defer end()
	ctx := context.Background()

	replies, err := store.Bucket("replies", limits.Rate{Burst: 3, Count: 1, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := replies.Take(ctx, "ann", 1)
		switch {
		case err != nil:
			panic(err)
		case !res.Allowed():
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

// The same program with a Redis and without: one argument decides.
func ExampleInProcess() {
	client := sluiceredis.InProcess() // or what NewGoRedis returns
	store, err := sluiceredis.New(client, sluiceredis.Config{})
	if err != nil {
		panic(err)
	}
	daily, err := store.Fixed("example.com", sluiceredis.FixedConfig{Limit: 2, Window: 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := daily.Take(context.Background(), "ann", 1)
		fmt.Println(res.Allowed(), res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// While no server can be reached, each of two instances admits half of the limit.
func ExampleOutagePolicy() {
	client := redis.NewClient(&redis.Options{
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	})
	defer client.Close()
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		panic(err)
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{OnOutage: sluiceredis.LocalShare, Instances: 2, FailureThreshold: 1})
	if err != nil {
		panic(err)
	}
	hourly, err := store.Sliding("hourly", 4, time.Hour)
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := hourly.Take(context.Background(), "ann", 1)
		fmt.Println(res.Allowed(), err)
	}
	strict, err := store.Sliding("hourly", 4, time.Hour, sluiceredis.FailClosed)
	if err != nil {
		panic(err)
	}
	_, err = strict.Take(context.Background(), "ann", 1)
	fmt.Println(errors.Is(err, sluiceredis.ErrOutage), store.Stats().Unavailable)
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// true 1
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
		Semaphore: inFlight,
		Limits:    []sluice.Limit{{Name: "daily", Limiter: daily.On("")}},
	})
	if err != nil {
		panic(err)
	}
	err = gate.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("in flight") // ctx ends if the permit is lost
		return nil
	})
	left, _ := daily.Take(context.Background(), "", 0)
	fmt.Println(err, left.Remaining)
	// Output:
	// in flight
	// <nil> 4999
}

// Three in any second and 1,000 a day, of one key: both let a call through or neither
// loses anything. A gate with both limits does the same on its own.
func ExampleBucket_On() {
	store, end := open()
	defer end()
	second, err := store.Bucket("orders/second", limits.Rate{Count: 1, Per: time.Second, Burst: 3})
	if err != nil {
		panic(err)
	}
	day, err := store.Fixed("orders/day", sluiceredis.FixedConfig{Limit: 1000, Window: 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	both := second.On("ann").Join(day.On("ann"))
	for _, n := range []int64{2, 2, 1001} {
		wait, which, err := both.AdmitAll(context.Background(), []int64{n, n}, nil)
		left, _ := day.Take(context.Background(), "ann", 0)
		switch {
		case err != nil:
			fmt.Println("never:", err)
		case wait > 0:
			fmt.Println("refused by limit", which, "and left of the day:", left.Remaining)
		default:
			fmt.Println("go ahead, left of the day:", left.Remaining)
		}
	}
	// Output:
	// go ahead, left of the day: 998
	// refused by limit 0 and left of the day: 998
	// never: sluice: request is larger than the limit
}

// Two machines that share a pacer never leave at the same time.
func ExamplePacer() {
	store, end := open()
	defer end()
	ctx := context.Background()
	pacer, err := store.Pacer("example.com", limits.Rate{Count: 1, Per: 10 * time.Second}, sluiceredis.PacerConfig{})
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

// Gates of several processes that share what they learn about a limit.
func ExampleStore_Exchange() {
	store, end := open()
	defer end()
	ctx := context.Background()

	gate, err := sluice.New(sluice.Config{
		Name:     "api", // gates of one name share a limit
		Adaptive: sluice.Adaptive{Peers: store},
	})
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	fmt.Println(gate.Do(ctx, func(context.Context) error { return nil }))

	// What gates do on their own: one reports that the server accepts 60 calls per second,
	// and has the half of it as soon as another one has joined.
	first := peers.Report{ID: "1", Want: peers.WantsAll, News: []int64{60_000_000}}
	second := peers.Report{ID: "2", Want: peers.WantsAll}
	for _, report := range []peers.Report{first, second, first, second} {
		reply, err := store.Exchange(ctx, "other", report)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d share %d/s, gate %s has %d/s\n",
			reply.Peers, reply.News[0]/1_000_000, report.ID, reply.Share*60/peers.Whole)
	}
	// Output:
	// <nil>
	// 1 share 60/s, gate 1 has 60/s
	// 2 share 60/s, gate 2 has 0/s
	// 2 share 60/s, gate 1 has 30/s
	// 2 share 60/s, gate 2 has 30/s
}

// A service that must not let a burst out twice. An operator says once that its
// Redis is new. Here that is a miniredis, which has no history to go by.
func ExampleStore_ConfirmIntact() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		panic(err)
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{Strict: true})
	if err != nil {
		panic(err)
	}
	err = store.ConfirmIntact(context.Background())
	fmt.Println(errors.Is(err, sluiceredis.ErrNoHistory))
	// Output: true
}
