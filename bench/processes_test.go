package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/bench/internal/server"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// BenchmarkProcessesGrow is a decision about the one key that ever more processes share, by
// one of them, picked at random. Each is a Store, or a Limiter of redis_rate, but all use one
// client: a million connections could not be had.
func BenchmarkProcessesGrow(b *testing.B) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip(err)
	}
	redisServer, err := server.Start()
	if err != nil {
		b.Fatal(err)
	}
	defer redisServer.Stop()
	client := redis.NewClient(&redis.Options{Addr: redisServer.Addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	defer client.Close()
	for n := 1; n <= 1_000_000 && (n <= herdSize() || !testing.Short()); n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.Run("sluice", processes(n, func() (decision, error) { return newStore(client) }))
			b.Run("redis_rate", processes(n, func() (decision, error) {
				l, limit := redis_rate.NewLimiter(client), redis_rate.Limit{Rate: 1, Burst: perNano, Period: time.Second}
				return func(ctx context.Context) error {
					res, err := l.Allow(ctx, "all", limit)
					return allowed(err == nil && res.Allowed == 1, err)
				}, nil
			}))
		})
	}
}

// decision asks a limit that has room.
type decision = func(ctx context.Context) error

func newStore(client *redis.Client) (decision, error) {
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		return nil, err
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
	if err != nil {
		return nil, err
	}
	l, err := store.Bucket("all", limits.Rate{Count: 1, Per: time.Second, Burst: 8_000_000})
	return func(ctx context.Context) error {
		res, err := l.Take(ctx, "", 1)
		return allowed(res.Allowed(), err)
	}, err
}

func allowed(ok bool, err error) error {
	if err == nil && !ok {
		return limits.ErrTooLarge
	}
	return err
}

// processes measures n of what newProcess makes.
func processes(n int, newProcess func() (decision, error)) func(b *testing.B) {
	all := sync.OnceValues(func() (all []decision, err error) { // once, and not for each b.N that is tried
		for range n {
			ask, err := newProcess()
			if err != nil {
				return nil, err
			}
			all = append(all, ask)
		}
		runtime.GC() // not while it is measured
		return all, nil
	})
	return func(b *testing.B) {
		all, err := all()
		if err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		for b.Loop() {
			if err := all[rand.IntN(n)](ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}
