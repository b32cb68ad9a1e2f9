package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	xsync "golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// BenchmarkGatesGrow is GateDo of one of ever more gates, found by a key that is picked at
// random. Each has a call in flight, so it is not forgotten. syncmap+xtime is a sync.Map of an
// x/sync semaphore and an x/time/rate limiter for each key; it never forgets.
func BenchmarkGatesGrow(b *testing.B) {
	for n := 1; n <= 1_000_000 && (n <= herdSize() || !testing.Short()); n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprintf(shortKey, i)
			}
			b.Run("sluice", gatesOf(keys, newSluiceGates))
			b.Run("syncmap+xtime", gatesOf(keys, newXtimeGates))
		})
	}
}

const eachGate = 1024 // calls in flight

// gatesOf measures what newGates returns: how a call is made, and how one is begun.
func gatesOf(keys []string, newGates func() (do, begin func(key string) error)) func(b *testing.B) {
	var do func(key string) error
	asked := inRandomOrder(keys)
	return func(b *testing.B) {
		if do == nil { // once, and not for each b.N that is tried
			var begin func(key string) error
			do, begin = newGates()
			for _, key := range keys {
				if err := begin(key); err != nil {
					b.Fatal(err)
				}
			}
		}
		each(b, func(n int) {
			i, got := rand.IntN(len(asked)), 0
			for range n {
				if do(asked[i]) == nil {
					got++
				}
				if i++; i == len(asked) {
					i = 0
				}
			}
			grants(b, got, n)
		})
	}
}

func newSluiceGates() (do, begin func(key string) error) {
	ctx, call := context.Background(), func(context.Context) error { return nil }
	all := limits.Must(sluice.NewKeyed(func(string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Concurrency: eachGate, Rate: sluice.Rate{Count: perNano, Per: time.Second}})
	}, sluice.KeyedConfig{MaxKeys: 1_000_000}))
	do = func(key string) error { return all.Do(ctx, key, call) }
	begin = func(key string) error {
		return all.Use(key, func(g *sluice.Gate) error {
			_, err := g.Acquire(ctx, 1)
			return err
		})
	}
	return do, begin
}

func newXtimeGates() (do, begin func(key string) error) {
	type gate struct {
		inFlight *xsync.Weighted
		rate     *rate.Limiter
	}
	ctx := context.Background()
	var all sync.Map
	acquire := func(key string) (*gate, error) {
		v, ok := all.Load(key)
		if !ok {
			v, _ = all.LoadOrStore(key, &gate{xsync.NewWeighted(eachGate), rate.NewLimiter(perNano, slack)})
		}
		g := v.(*gate)
		if err := g.inFlight.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		return g, g.rate.Wait(ctx)
	}
	do = func(key string) error {
		g, err := acquire(key)
		if err == nil {
			g.inFlight.Release(1)
		}
		return err
	}
	begin = func(key string) error {
		_, err := acquire(key)
		return err
	}
	return do, begin
}
