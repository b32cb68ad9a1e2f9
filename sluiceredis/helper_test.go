package sluiceredis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// bg is for calls that nothing but the server ends.
var bg = context.Background()

// A backend is a Redis, or what stands for one.
type backend struct {
	redis  *redis.Client
	client Client
	prefix string
}

// onBackends runs test on miniredis and on a real server.
func onBackends(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Run("miniredis", func(t *testing.T) { test(t, newBackend(t, redistest.Mini(t))) })
	t.Run("redis", func(t *testing.T) { test(t, onRedis(t)) })
}

// onRedis returns the shared server.
func onRedis(t testing.TB) *backend { return newBackend(t, redistest.Shared(t).Addr) }

// dial returns a client of go-redis as this package wants it.
func dial(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 16,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newBackend(t testing.TB, addr string) *backend {
	c := dial(t, addr)
	g, err := NewGoRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	return &backend{c, g, fmt.Sprint("test ", tests.Add(1), " ", t.Name())}
}

// tests counts tests, which may be run again on the same server.
var tests atomic.Int64

// store returns a store whose keys no other test has.
func (b *backend) store(t testing.TB) *Store { return b.storeOn(t, b.client) }

func (b *backend) storeOn(t testing.TB, client Client) *Store {
	t.Helper()
	s, err := New(client, Config{Prefix: b.prefix, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A frozen is a client with its own clock, to the nanosecond: scripts run as
// they are, but for where they read the time from and how long keys live.
type frozen struct {
	Client
	t     testing.TB
	b     *backend
	clock string // the key of a list: seconds, microseconds, nanoseconds in the second

	mu    sync.Mutex
	known map[*Script]*Script
}

// freeze returns a store whose server's clock stands still.
func (b *backend) freeze(t testing.TB) (*Store, *frozen) {
	f := &frozen{Client: b.client, t: t, b: b, clock: b.prefix + " clock", known: map[*Script]*Script{}}
	f.set(0)
	return b.storeOn(t, f), f
}

// epoch is what set counts from.
const epoch = 1_790_000_000 * time.Second

// set sets the clock.
func (f *frozen) set(at time.Duration) {
	f.t.Helper()
	at += epoch
	pipe := f.b.redis.TxPipeline()
	pipe.Del(bg, f.clock)
	pipe.RPush(bg, f.clock, int64(at/time.Second), int64(at%time.Second/time.Microsecond), int64(at%time.Second))
	if _, err := pipe.Exec(bg); err != nil {
		f.t.Fatal(err)
	}
}

// Run implements Client.
func (f *frozen) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	f.mu.Lock()
	if f.known[s] == nil {
		text := s.Text
		replace := func(old, new string, must bool) {
			if must && !strings.Contains(text, old) {
				f.t.Fatalf("%s has no %s", s.Name, old)
			}
			text = strings.ReplaceAll(text, old, new)
		}
		replace("redis.call('TIME')", fmt.Sprintf("redis.call('LRANGE', '%s', 0, 2)", f.clock), true)
		replace("us * 1000", "tonumber(time[3])", false)
		for _, expiry := range []string{"distance / 1000000", "(last - now) / 1000", "l.longest.window / 1000"} {
			replace("whole(math.ceil("+expiry+") + 1)", "'3600000'", false) // keys expire by a clock that goes on
		}
		replace("format('%d', after / 1000000 + 2)", "'3600000'", s.Name == "take")
		if s != alive && strings.Contains(text, "whole(math.ceil(") { // TestAliveScript checks that one
			f.t.Fatalf("%s has an expiry that is not replaced", s.Name)
		}
		f.known[s] = newScript(s.Name, text)
	}
	frozen := f.known[s]
	f.mu.Unlock()
	return f.Client.Run(ctx, frozen, keys, args)
}
