package clienttest

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// capacity of the bucket that is asked under load: more than all of them take.
const capacity = 100_000

// bucket returns it. One unit leaks in 80 s.
func bucket(t *testing.T, s *sluiceredis.Store) *sluiceredis.Bucket {
	t.Helper()
	return must[*sluiceredis.Bucket](t)(s.Bucket("load", limits.Rate{Burst: capacity, Count: 1, Per: 80 * sec}))
}

// underLoad has callers take from the bucket, each for so long at most, while
// breaking goes on, and returns the number of admitted calls and of unknown outcomes.
func underLoad(t *testing.T, s *sluiceredis.Store, longest time.Duration, breaking func()) (granted, unknown int64) {
	t.Helper()
	l := bucket(t, s)
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
				ctx, cancel := context.WithTimeout(bg, longest)
				res, err := l.Take(ctx, "k", 1)
				cancel()
				mu.Lock()
				switch {
				case errors.Is(err, sluiceredis.ErrAmbiguous), errors.Is(err, context.DeadlineExceeded):
					unknown++
				case err == nil && res.Allowed():
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

// compare compares the units that callers obtained with those that the server has leased.
func compare(t *testing.T, near *sluiceredis.Store, granted, unknown int64) {
	t.Helper()
	res := must[limits.Result](t)(bucket(t, near).Take(bg, "k", 0))
	if got := capacity - res.Remaining; granted == 0 || got < granted || got > granted+unknown {
		t.Errorf("%d granted, %d unknown, the server counted %d", granted, unknown, got)
	}
}

// Whatever the network does, no caller obtains units that the server does not know of,
// and the surplus that the server counted is at most the units of unknown outcome.
func brokenNetwork(t *testing.T, lib Library) {
	for name, fault := range map[string]redistest.Fault{
		"replies lost": {DropReply: true},
		"calls lost":   {DropCalls: true},
		"slow replies": {Delay: 150 * ms},
		"trickle":      {Trickle: 3 * ms},
		"refused":      {Refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr)
			granted, unknown := underLoad(t, storeAt(t, lib.Single(t, p.Addr, 0), "load"), 100*ms, func() {
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
			compare(t, storeAt(t, lib.Single(t, server.Addr, 0), "load"), granted, unknown)
		})
	}
}

// The server ends its side of the connections, and goes on reading.
func halfClosed(t *testing.T, lib Library) {
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	granted, unknown := underLoad(t, storeAt(t, lib.Single(t, p.Addr, 0), "load"), 100*ms, func() {
		for range 20 {
			time.Sleep(20 * ms)
			p.HalfClose()
		}
	})
	compare(t, storeAt(t, lib.Single(t, server.Addr, 0), "load"), granted, unknown)
}

// A server that loses its scripts, throws its clients out or stands still is
// asked again when it is there; nothing is admitted that it did not count.
func misbehaves(t *testing.T, lib Library) {
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
			server := redistest.Start(t)
			c, other := lib.Single(t, server.Addr, 0), admin(t, server.Addr)
			s := storeAt(t, c, "load")
			granted, unknown := underLoad(t, s, 10*sec, func() {
				for range 30 {
					breaks(server, other)
					time.Sleep(10 * ms)
				}
			})
			if name == "SCRIPT FLUSH" && (texts(other) < 20 || s.Stats().Failed+s.Stats().Ambiguous > 0) {
				t.Errorf("%d scripts were sent with their text, %+v", texts(other), s.Stats())
			}
			compare(t, s, granted, unknown)
		})
	}
}

// A rejection has a reason, and takes nothing.
func refuses(t *testing.T, lib Library) {
	server := redistest.Start(t)
	admin := admin(t, server.Addr)
	s := store(t, lib.Single(t, server.Addr, 0))
	l := must[*sluiceredis.Bucket](t)(s.Bucket("refuse", limits.Rate{Burst: 3, Count: 1, Per: time.Hour}))
	code := func(want string) {
		t.Helper()
		var e *sluiceredis.ServerError
		if _, err := l.Take(bg, "k", 1); !errors.As(err, &e) || e.Code != want || errors.Is(err, sluiceredis.ErrAmbiguous) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	admin.ConfigSet(bg, "maxmemory", "1")
	code("OOM")
	admin.ConfigSet(bg, "maxmemory", "0")
	admin.ReplicaOf(bg, "127.0.0.1", "1")
	code("READONLY")
	admin.ReplicaOf(bg, "NO", "ONE")
	if res, err := l.Take(bg, "k", 3); err != nil || !res.Allowed() {
		t.Errorf("%+v, %v", res, err)
	}
}

// A server that was killed and kept a log knows the admitted units; one that did
// not starts over, and no more than one capacity is admitted again.
func killed(t *testing.T, lib Library) {
	for _, v := range []struct {
		name string
		args []string
		want int64 // admitted after the restart, of 5 that were admitted before
	}{
		{"empty", nil, 5},
		{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, 0},
		{"appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, v.args...)
			s := store(t, lib.Single(t, server.Addr, 0))
			l := must[*sluiceredis.Bucket](t)(s.Bucket("killed", limits.Rate{Burst: 5, Count: 1, Per: time.Hour}))
			grants := func() (n int64) {
				for range 10 {
					for range 100 { // until the client has noticed
						res, err := l.Take(bg, "k", 1)
						if err == nil {
							if res.Allowed() {
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
			if v.args != nil {
				server.Written(t)
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
