package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// A cluster of three masters, which changes under load.

// onCluster returns a store on a cluster, and the slot of a key.
func onCluster(t *testing.T, servers []*redistest.Server) (s *Store, client *redis.ClusterClient) {
	t.Helper()
	client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers), ContextTimeoutEnabled: true, PoolSize: 16})
	t.Cleanup(func() { _ = client.Close() })
	g, err := NewGoRedis(client)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = New(g, Config{}); err != nil {
		t.Fatal(err)
	}
	return s, client
}

func slotAt(t *testing.T, c *redis.ClusterClient, key string) int {
	t.Helper()
	slot, err := c.ClusterKeySlot(bg, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// A slot moves from server to server, key after key, while its limits are in use:
// each is exact, wherever it is. A semaphore has two keys; while some of them
// are here and some there it cannot be asked, and says so.
func TestLongReshard(t *testing.T) {
	needLong(t)
	servers := redistest.StartCluster(t, 3)
	s, client := onCluster(t, servers)
	const name = "load"
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	moving := keys[0]
	slot := slotAt(t, client, s.key("b1", name, moving, ""))
	l := startLoad(t, s, 16, sec, keys...)

	// The other limits of the slot: those with the same tag.
	const limit = 100_000
	log, fixed := newLog(t, s, name, limit, time.Hour), newFixed(t, s, name, FixedConfig{Limit: limit, Window: time.Hour})
	sem := newSemaphore(t, s, name, 3, SemaphoreConfig{Poll: 2 * ms})
	for i, part := range []string{"leases", "token"} {
		sem.keys[i] = s.key("sem1", name, moving, part) // whose tag would have no key
	}
	var mu sync.Mutex
	granted, unknown, codes := map[string]int64{}, map[string]int64{}, map[string]int64{}
	var held atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	each := func(kind string, call func(ctx context.Context) (bool, error)) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * ms):
				}
				ctx, cancel := context.WithTimeout(bg, sec)
				ok, err := call(ctx)
				cancel()
				mu.Lock()
				switch {
				case errors.Is(err, ErrAmbiguous), err == context.DeadlineExceeded:
					unknown[kind]++
				case err == limits.ErrTimeout: // all are leased, or it could not be asked for long enough
				case err != nil:
					codes[kind+" "+reason(err)]++
				case ok:
					granted[kind]++
				}
				mu.Unlock()
			}
		})
	}
	for range 4 {
		each("log", func(ctx context.Context) (bool, error) {
			res, err := log.Take(ctx, moving, 1)
			return res.Allowed(), err
		})
		each("fixed", func(ctx context.Context) (bool, error) {
			res, err := fixed.Take(ctx, moving, 1)
			return res.Allowed(), err
		})
		each("semaphore", func(ctx context.Context) (bool, error) {
			lease, err := sem.acquire(ctx, 1, 500*ms)
			if err != nil {
				return false, err
			}
			if n := held.Add(1); n > 3 {
				t.Errorf("%d are held, of 3", n)
			}
			time.Sleep(ms)
			held.Add(-1)
			lease.Release()
			return true, nil
		})
	}
	redistest.Eventually(t, "all is used", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(granted) == 3 && l.grants(moving) > 10
	})
	at := 0 // the slot is in the first third, or wherever it is
	for i := range servers {
		if slot >= i*16384/3 && slot < (i+1)*16384/3 {
			at = i
		}
	}
	moves := 0
	for end := time.Now().Add(8 * sec); time.Now().Before(end); moves++ {
		to := (at + 1) % 3
		redistest.MoveSlot(t, slot, servers[at], servers[to], servers, func() { time.Sleep(20 * ms) })
		at = to
	}
	time.Sleep(500 * ms)
	close(stop)
	wg.Wait()
	l.end()
	for _, key := range keys {
		if got := l.counted(t, key); got < l.granted[key] || got > l.granted[key]+l.unknown[key]+l.gone[key] {
			t.Errorf("%s: %d granted, %d unknown, the cluster counted %d", key, l.granted[key], l.unknown[key], got)
		}
	}
	for kind, take := range map[string]func(context.Context, string, int64) (limits.Result, error){"log": log.Take, "fixed": fixed.Take} {
		res, err := take(bg, moving, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := limit - res.Remaining; got < granted[kind] || got > granted[kind]+unknown[kind] {
			t.Errorf("%s: %d granted, %d unknown, the cluster counted %d", kind, granted[kind], unknown[kind], got)
		}
	}
	for what := range codes {
		if what != "semaphore TRYAGAIN" {
			t.Errorf("%s: %d times", what, codes[what])
		}
	}
	if failed := l.reasons(keys...); len(failed) > 0 {
		t.Errorf("failed: %s", sorted(failed))
	}
	t.Logf("%d moves of the slot: %d granted by 30 buckets, %d unknown, %d gone; on the slot %s; unknown %s; refused %s; latest call %v after its deadline",
		moves, sum(l.granted), sum(l.unknown), sum(l.gone), sorted(granted), sorted(unknown), sorted(codes), l.over.Round(ms/10))
}

// One master of three dies and has no replica. Where full coverage is not asked
// for, who has nothing to do with it notices nothing; otherwise the cluster ends
// itself within its timeout, which is a typed error. Nobody waits beyond his
// deadline, and nothing is admitted that is not counted.
func TestLongClusterLosesAMaster(t *testing.T) {
	needLong(t)
	for _, coverage := range []string{"no", "yes"} {
		t.Run("full coverage "+coverage, func(t *testing.T) {
			servers := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", coverage)
			s, client := onCluster(t, servers)
			var keys, dead, alive []string
			for i := range 30 {
				key := fmt.Sprint("key", i)
				keys = append(keys, key)
				if slotAt(t, client, s.key("b1", "load", key, "")) < 16384/3 {
					dead = append(dead, key)
				} else {
					alive = append(alive, key)
				}
			}
			l := startLoad(t, s, 16, 300*ms, keys...)
			redistest.Eventually(t, "grants", func() bool { return l.grants(keys[29]) > 20 })
			servers[0].Kill()
			died := time.Now()
			time.Sleep(6 * sec)
			l.end()
			for _, key := range dead {
				if l.last[key].After(died.Add(300 * ms)) {
					t.Errorf("%s was granted by a dead server", key)
				}
			}
			what := l.reasons(alive...)
			var unknown, gone int64
			for _, key := range alive {
				unknown, gone = unknown+l.unknown[key], gone+l.gone[key]
				if coverage == "no" && l.last[key].Before(died.Add(5*sec)) {
					t.Errorf("%s was granted last %v after the death of a server it is not on", key, l.last[key].Sub(died))
				}
			}
			switch coverage {
			case "no":
				if len(what) > 0 || unknown+gone > 0 {
					t.Errorf("those on living servers: %s, %d unknown, %d gone", sorted(what), unknown, gone)
				}
				for _, key := range alive {
					if got := l.counted(t, key); got != l.granted[key] {
						t.Errorf("%s: %d granted, the cluster counted %d", key, l.granted[key], got)
					}
				}
			case "yes":
				if what["CLUSTERDOWN"] == 0 {
					t.Errorf("those on living servers: %s", sorted(what))
				}
			}
			if l.over > 5*sec {
				t.Errorf("a call outlived its deadline by %v", l.over)
			}
			t.Logf("%d keys of living servers: %s, %d unknown, %d gone; %d keys of the dead: %s; latest call %v after its deadline",
				len(alive), sorted(what), unknown, gone, len(dead), sorted(l.reasons(dead...)), l.over.Round(ms/10))
		})
	}
}
