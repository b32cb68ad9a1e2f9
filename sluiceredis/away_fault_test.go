package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// startCluster starts a cluster of that many masters, and returns it with a client.
func startCluster(t *testing.T, nodes int, args ...string) ([]*redistest.Server, Client) {
	t.Helper()
	servers := redistest.StartCluster(t, nodes, args...)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	g, err := NewGoRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	return servers, g
}

// until waits until ok, for 20 s at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 20_000 {
		if ok() {
			return
		}
		time.Sleep(ms)
	}
	t.Fatalf("never: %s", what)
}

// However a server is lost, no call outlasts its deadline, the store finds out,
// callers get their share, nobody waits meanwhile, and when it is back it decides.
// Everybody together is admitted what the limit and the shares allow.
func TestServerThatIsLost(t *testing.T) {
	for name, v := range map[string]struct {
		breaks, mends func(*redistest.Server, *redistest.Proxy)
	}{
		"cut": {
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{Refuse: true}); p.Reset() },
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{}) },
		},
		"calls go nowhere": {
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{DropCalls: true}) },
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{}); p.Reset() },
		},
		"replies go nowhere": {
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{DropReply: true}) },
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{}); p.Reset() },
		},
		"connects and says nothing": {
			func(_ *redistest.Server, p *redistest.Proxy) {
				p.Set(redistest.Fault{DropCalls: true, DropReply: true})
				p.Reset()
			},
			func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Fault{}); p.Reset() },
		},
		"kill -9": {
			func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Restart(t) },
		},
		"SIGSTOP": {
			func(s *redistest.Server, _ *redistest.Proxy) { _ = s.Process().Signal(syscall.SIGSTOP) },
			func(s *redistest.Server, _ *redistest.Proxy) { _ = s.Process().Signal(syscall.SIGCONT) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			proxy := redistest.NewProxy(t, server.Addr)
			b := newBackend(t, proxy.Addr)
			var told heard
			s, err := New(b.client, Config{
				Prefix: b.prefix, OnOutage: LocalShare, Instances: 2, Timeout: 200 * ms, ProbeInterval: 200 * ms, Notify: told.hear,
			})
			if err != nil {
				t.Fatal(err)
			}
			// Nothing leaks while the test lasts.
			const capacity = 1000
			l := newLeaky(t, s, "lost", limits.Rate{Burst: capacity, Count: 1, Per: time.Hour})
			var mu sync.Mutex
			var granted, unknown int64
			var longest time.Duration
			take := func(within time.Duration) {
				ctx, cancel := context.WithTimeout(bg, within)
				defer cancel()
				began := time.Now()
				res, err := l.Take(ctx, "k", 1)
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, took-within)
				switch {
				case err == nil && res.Allowed():
					granted++
				case errors.Is(err, ErrOutage):
					t.Errorf("with a share: %v", err)
				case err != nil && ctx.Err() == nil:
					t.Errorf("%v", err)
				case err != nil:
					unknown++
				}
			}
			many := func(callers, each int) {
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for range each {
							take(time.Second)
						}
					})
				}
				wg.Wait()
			}
			many(10, 10)
			until(t, "100 granted", func() bool { // a script may come to nothing on a busy machine, and ten calls with it
				if granted >= 100 && s.breaker.Mode() == outage.Asking {
					return true
				}
				take(time.Second)
				return false
			})
			v.breaks(server, proxy)
			many(10, 1)
			until(t, "away", func() bool { take(50 * ms); return s.breaker.Mode() != outage.Asking })
			many(100, 10)
			if calls := s.Stats().Scripts; calls > 100+50 {
				t.Errorf("%d calls: who asks a server that is away?", calls)
			}
			if granted > capacity/2 {
				t.Errorf("%d granted with a share of %d", granted, capacity/2)
			}
			v.mends(server, proxy)
			until(t, "back", func() bool { take(time.Second); return s.breaker.Mode() == outage.Asking })
			many(10, 10)
			before := granted
			// On a machine that is busy the server may seem to hang once more. Then the share decides, which
			// may be used up while the limit is not, and only a call finds that the server is back.
			until(t, "used up", func() bool {
				many(10, 150)
				res, err := l.Take(bg, "k", 0)
				return err == nil && res.Remaining == 0 && s.breaker.Mode() == outage.Asking
			})
			// A script whose fate is unknown decided about ten calls, or it was the report of the
			// share, which is made again.
			stats := s.Stats()
			lost := int64(stats.Ambiguous) * 10
			if stats.Ambiguous > 1 {
				lost += int64(stats.Reported)
			}
			usedUp := granted+lost >= capacity // nothing may be left after the outage
			if granted > capacity || granted+unknown+lost < capacity || before == granted && !usedUp {
				t.Errorf("%d granted of %d, %d unknown, %+v", granted, capacity, unknown, stats)
			}
			// On a machine that is busy with other things timers are late.
			if longest > 5*sec {
				t.Errorf("a call took %v longer than it had", longest)
			}
			until(t, "told", func() bool { take(time.Second); m := told.outages(); return len(m) > 0 && !m[len(m)-1] })
			if m := told.outages(); len(m) < 2 || !m[0] || m[len(m)-1] {
				t.Errorf("told %v", m)
			}
			t.Logf("a call took at most %v longer than it had; %+v", longest, s.Stats())
		})
	}
}

// Of several instances some are cut off for good: all together are admitted no more
// than the limit and the shares of those.
func TestInstancesCutOff(t *testing.T) {
	const instances, capacity = 4, 400
	for cut := range instances + 1 {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			prefix := newBackend(t, server.Addr).prefix
			var machines []*Bucket
			var proxies []*redistest.Proxy
			for range instances {
				p := redistest.NewProxy(t, server.Addr)
				s, err := New(newBackend(t, p.Addr).client, Config{Prefix: prefix, OnOutage: LocalShare, Timeout: 10 * sec})
				if err != nil {
					t.Fatal(err)
				}
				machines, proxies = append(machines, newLeaky(t, s, "cut", limits.Rate{Burst: capacity, Count: 1, Per: time.Hour})), append(proxies, p)
			}
			until(t, "they have counted each other", func() bool {
				all := true
				for _, l := range machines {
					if _, err := l.Take(bg, "k", 0); err != nil {
						t.Fatal(err)
					}
					all = all && l.store.Stats().Instances == instances && l.store.beats.unsure() == ""
				}
				return all
			})
			for _, p := range proxies[:cut] {
				p.Set(redistest.Fault{Refuse: true})
				p.Reset()
			}
			var wg sync.WaitGroup
			granted := make([]int64, instances)
			for i, l := range machines {
				wg.Go(func() {
					for range 2 * capacity {
						if res, err := l.Take(bg, "k", 1); err != nil {
							t.Error(err)
							return
						} else if res.Allowed() {
							granted[i]++
						}
					}
				})
			}
			wg.Wait()
			sum := int64(0)
			for i, n := range granted {
				if sum += n; i < cut && n != capacity/instances {
					t.Errorf("instance %d, cut off, was granted %d, its share is %d", i, n, capacity/instances)
				}
			}
			want := int64(capacity + cut*capacity/instances)
			if cut == instances {
				want = capacity
			}
			if sum != want {
				t.Errorf("%d granted, want %d", sum, want)
			}
		})
	}
}

// A master of a cluster that is lost does not take the others with it.
func TestMasterThatIsLost(t *testing.T) {
	t.Parallel()
	servers, g := startCluster(t, 3, "--cluster-require-full-coverage", "no")
	s, err := New(g, Config{Prefix: "lost", Timeout: 500 * ms})
	if err != nil {
		t.Fatal(err)
	}
	l := newLeaky(t, s, "l", perHour)
	keys := map[string][]string{}
	for i := range 60 {
		key := fmt.Sprint("k", i)
		if _, err := l.Take(bg, key, 1); err != nil {
			t.Fatal(err)
		}
		place := g.(Topology).Place(s.key("b1", "l", key, ""))
		keys[place] = append(keys[place], key)
	}
	if len(keys) != 3 || len(keys[servers[0].Addr]) == 0 {
		t.Fatalf("%d places: %v", len(keys), keys)
	}
	servers[0].Kill()
	lost := keys[servers[0].Addr]
	until(t, "away", func() bool {
		_, err := l.Take(bg, lost[0], 1)
		var away *outageError
		return errors.As(err, &away) && !away.sent && away.server == servers[0].Addr
	})
	calls := s.Stats().Scripts
	for _, key := range lost {
		if _, err := l.Take(bg, key, 1); !errors.Is(err, ErrOutage) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if got := s.Stats().Scripts - calls; got > 5 { // a probe or two
		t.Errorf("%d calls to a server that is away", got)
	}
	for _, server := range servers[1:] {
		for _, key := range keys[server.Addr] {
			if _, err := l.Take(bg, key, 1); err != nil {
				t.Errorf("%s, on a master that is there: %v", key, err)
			}
		}
	}
	servers[0].Restart(t)
	until(t, "back", func() bool { _, err := l.Take(bg, lost[0], 1); return err == nil })
	until(t, "all is well", func() bool { return s.breaker.Mode() == outage.Asking })
}

// A lease that could not be returned while the server was unavailable is returned when
// it is there again.
func TestLeaseGivenBackLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	near, far := newBackend(t, server.Addr), newBackend(t, p.Addr)
	s, err := New(far.client, Config{Prefix: near.prefix, Timeout: 100 * ms, FailureThreshold: 1, OnOutage: FailOpen})
	if err != nil {
		t.Fatal(err)
	}
	sem := newSemaphore(t, s, "later", 3, SemaphoreConfig{})
	watch := newSemaphore(t, near.store(t), "later", 3, SemaphoreConfig{})
	lent := func() string { return lentBy(near, watch) }
	lease, err := sem.acquire(bg, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Set(redistest.Fault{DropReply: true})
	if _, err := sem.acquire(bg, 1, time.Minute); !errors.Is(err, ErrOutage) {
		t.Errorf("%v", err)
	}
	if lent() != "3" {
		t.Errorf("%s are lent", lent())
	}
	lease.Release() // cannot be told, or takes long
	p.Set(redistest.Fault{})
	p.Reset()
	until(t, "all is given back", func() bool { return lent() == "" || lent() == "0" })
}
