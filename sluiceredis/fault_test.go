package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// What breaks here is a real server, or the way to it.

// underLoad has callers take from a bucket while breaking goes on, which is over
// before one unit has leaked, and returns how many were granted and how many outcomes are unknown.
func underLoad(t *testing.T, s *Store, capacity int64, breaking func()) (granted, unknown int64) {
	t.Helper()
	l := newLeaky(t, s, "load", leaky.Quota{Capacity: capacity, Count: 1, Per: 80 * sec})
	var mu sync.Mutex
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(bg, 100*ms)
				res, err := l.Take(ctx, "k", 1)
				cancel()
				mu.Lock()
				switch {
				case errors.Is(err, ErrAmbiguous), errors.Is(err, context.DeadlineExceeded):
					unknown++
				case err == nil && res.Allowed:
					granted++
				}
				mu.Unlock()
				if err != nil {
					time.Sleep(ms)
				}
			}
		})
	}
	breaking()
	close(stop)
	wg.Wait()
	return granted, unknown
}

// taken returns how many units the bucket of underLoad has lent, as the server
// sees it.
func taken(t *testing.T, b *backend, capacity int64) int64 {
	t.Helper()
	l := newLeaky(t, b.store(t), "load", leaky.Quota{Capacity: capacity, Count: 1, Per: 80 * sec})
	res, err := l.Peek(bg, "k")
	if err != nil {
		t.Fatal(err)
	}
	return capacity - res.Remaining
}

// Whatever the network does, nobody is granted what the server does not know of,
// and what the server counted too much is no more than what is unknown.
func TestBrokenNetwork(t *testing.T) {
	for name, fault := range map[string]redistest.Fault{
		"replies lost": {DropReply: true},
		"calls lost":   {DropCalls: true},
		"slow replies": {Delay: 150 * ms},
		"trickle":      {Trickle: 3 * ms},
		"refused":      {Refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const capacity = 100_000
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr)
			near, far := newBackend(t, server.Addr), newBackend(t, p.Addr)
			far.prefix = near.prefix
			s := far.store(t)
			granted, unknown := underLoad(t, s, capacity, func() {
				for range 3 {
					time.Sleep(100 * ms)
					p.Set(fault)
					if fault.Refuse {
						p.Reset()
					}
					time.Sleep(200 * ms)
					p.Set(redistest.Fault{})
					p.Reset()
				}
				time.Sleep(100 * ms)
			})
			got := taken(t, near, capacity)
			if granted == 0 || got < granted || got > granted+unknown {
				t.Errorf("%d granted, %d unknown, the server counted %d", granted, unknown, got)
			}
		})
	}
}

// A server that forgets its scripts, throws its clients out or stands still is
// asked again when it is there; nothing is granted that it did not count.
func TestServerThatMisbehaves(t *testing.T) {
	for name, breaks := range map[string]func(s *redistest.Server, c *redis.Client){
		"SCRIPT FLUSH": func(s *redistest.Server, c *redis.Client) { c.ScriptFlush(bg) },
		"CLIENT KILL": func(s *redistest.Server, c *redis.Client) {
			c.ClientKillByFilter(bg, "TYPE", "normal", "SKIPME", "yes")
		},
		"SIGSTOP": func(s *redistest.Server, c *redis.Client) {
			_ = s.Process().Signal(syscall.SIGSTOP)
			time.Sleep(20 * ms)
			_ = s.Process().Signal(syscall.SIGCONT)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const capacity = 100_000
			server := redistest.Start(t)
			b := newBackend(t, server.Addr)
			s := b.store(t)
			admin := dial(t, server.Addr)
			granted, unknown := underLoad(t, s, capacity, func() {
				for range 30 {
					breaks(server, admin)
					time.Sleep(10 * ms)
				}
			})
			got := taken(t, b, capacity)
			if granted == 0 || got < granted || got > granted+unknown {
				t.Errorf("%d granted, %d unknown, the server counted %d", granted, unknown, got)
			}
			if name == "SCRIPT FLUSH" && (b.client.Reloads() < 20 || s.Stats().Failed+s.Stats().Ambiguous > 0) {
				t.Errorf("%d reloads, %+v", b.client.Reloads(), s.Stats())
			}
		})
	}
}

// What is refused is refused with a reason, and nothing is taken.
func TestServerThatRefuses(t *testing.T) {
	server := redistest.Start(t)
	b := newBackend(t, server.Addr)
	s := b.store(t)
	l := newLeaky(t, s, "refuse", leaky.Quota{Capacity: 3, Count: 1, Per: time.Hour})
	code := func(want string) {
		t.Helper()
		var e *ServerError
		if _, err := l.Take(bg, "k", 1); !errors.As(err, &e) || e.Code != want || errors.Is(err, ErrAmbiguous) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	b.redis.ConfigSet(bg, "maxmemory", "1")
	code("OOM")
	b.redis.ConfigSet(bg, "maxmemory", "0")
	b.redis.ReplicaOf(bg, "127.0.0.1", "1")
	code("READONLY")
	b.redis.ReplicaOf(bg, "NO", "ONE")
	if res, err := l.Take(bg, "k", 3); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
}

// A server that was killed and kept a log knows what it had granted; one that did
// not begins anew, and no more than one capacity is granted again.
func TestServerThatIsKilled(t *testing.T) {
	for _, v := range []struct {
		name string
		args []string
		want int64 // granted after the restart, of 5 that were granted before
	}{
		{"empty", nil, 5},
		{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, 0},
		{"appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, v.args...)
			b := newBackend(t, server.Addr)
			l := newLeaky(t, b.store(t), "killed", leaky.Quota{Capacity: 5, Count: 1, Per: time.Hour})
			grants := func() (n int64) {
				for range 10 {
					for range 100 { // until the pool has noticed
						res, err := l.Take(bg, "k", 1)
						if err == nil {
							if res.Allowed {
								n++
							}
							break
						}
						time.Sleep(ms)
					}
				}
				return n
			}
			if got := grants(); got != 5 {
				t.Fatalf("%d granted", got)
			}
			server.Kill()
			if _, err := l.Take(bg, "k", 1); err == nil {
				t.Error("nobody is there, and it answers")
			}
			server.Restart(t)
			if got := grants(); got != v.want {
				t.Errorf("%d granted after the restart, want %d", got, v.want)
			}
		})
	}
}

// On a cluster each limit is on one server, whole, and scripts are sent to each.
func TestCluster(t *testing.T) {
	const nodes = 3
	var servers []*redistest.Server
	var addrs []string
	for range nodes {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		servers, addrs = append(servers, s), append(addrs, s.Addr)
	}
	for i, s := range servers {
		c := dial(t, s.Addr)
		if err := c.ClusterAddSlotsRange(bg, i*16384/nodes, (i+1)*16384/nodes-1).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(addrs[0])
		if err := c.ClusterMeet(bg, host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	defer c.Close()
	for range 1000 { // until they know each other
		ok := true
		for _, addr := range addrs {
			info := dial(t, addr).ClusterInfo(bg).Val()
			ok = ok && len(info) > 16 && info[:16] == "cluster_state:ok"
		}
		if ok {
			break
		}
		time.Sleep(20 * ms)
	}
	g, err := NewGoRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLeaky(t, s, "cluster", leaky.Quota{Capacity: 3, Count: 1, Per: time.Hour})
	log, fixed := newLog(t, s, "cluster", 3, time.Hour), newFixed(t, s, "cluster", FixedConfig{Limit: 3, Window: time.Hour})
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			key := fmt.Sprint("{", i, "}") // not a hash tag of ours
			for _, take := range []func(context.Context, string, int64) (leaky.Result, error){l.Take, log.Take, fixed.Take} {
				for j := range 4 {
					if res, err := take(bg, key, 1); err != nil || res.Allowed != (j < 3) {
						t.Errorf("%s, call %d: %+v, %v", key, j, res, err)
					}
				}
			}
			sem := newSemaphore(t, s, key, 1, SemaphoreConfig{})
			lease, err := sem.Lend(bg, 1, 0)
			if err != nil {
				t.Error(err)
				return
			}
			lease.Release()
			p := newPacer(t, s, key, 1, time.Minute, PacerConfig{})
			r, err := p.Reserve(bg, 1, 0)
			if err != nil {
				t.Error(err)
				return
			}
			r.Cancel(bg)
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	var calls []Call
	for i := range 30 {
		key := s.key("k", "n", fmt.Sprint(i), "")
		calls = append(calls, Call{count, []string{key}, []string{"1"}})
		id, err := g.ServerID(bg, key)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	for i, r := range g.RunMany(bg, calls) { // a pipeline to each, none of which knows the script
		if r.Err != nil || r.Ints[0] != 1 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if len(ids) != nodes {
		t.Errorf("%d servers have keys", len(ids))
	}
}
