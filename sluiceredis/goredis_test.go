package sluiceredis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// unreachable is a client whose server is away.
type unreachable struct{}

var errAway = errors.New("away")

func (unreachable) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	return nil, errAway
}

func (unreachable) RunMany(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	for i := range replies {
		replies[i].Err = errAway
	}
	return replies
}

func (unreachable) ServerID(context.Context, string) (string, error) { return "", errAway }

// count is a script that shows how often it ran.
var count = NewScript("count", "return {redis.call('INCRBY', KEYS[1], ARGV[1])}")

func TestGoRedisRefusesWhatDoesNotObey(t *testing.T) {
	good := &redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}
	for _, v := range []struct {
		name string
		make func() redis.UniversalClient
		want string // empty: accepted
	}{
		{"a client", func() redis.UniversalClient { return redis.NewClient(good) }, ""},
		{"of a cluster", func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{good.Addr}, ContextTimeoutEnabled: true})
		}, ""},
		{"none", func() redis.UniversalClient { return nil }, "no client"},
		{"without deadlines", func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: good.Addr}) }, "ContextTimeoutEnabled"},
		{"of a cluster without", func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{good.Addr}})
		}, "ContextTimeoutEnabled"},
		{"of replicas", func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{good.Addr}, ContextTimeoutEnabled: true, ReadOnly: true})
		}, "replicas"},
		{"a ring", func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": good.Addr}, ContextTimeoutEnabled: true})
		}, "not supported"},
	} {
		c := v.make()
		_, err := NewGoRedis(c)
		if c != nil {
			_ = c.Close()
		}
		if v.want == "" && err != nil || v.want != "" && (err == nil || !strings.Contains(err.Error(), v.want)) {
			t.Errorf("%s: %v, want %q", v.name, err, v.want)
		}
	}
}

func TestGoRedisRunsOneAndMany(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		key := b.prefix + " n"
		if got, err := b.client.Run(bg, count, []string{key}, []string{"5"}); err != nil || len(got) != 1 || got[0] != 5 {
			t.Errorf("%v, %v", got, err)
		}
		other := NewScript("other", "return {7, tonumber(ARGV[1])} -- "+b.prefix)
		bad := NewScript("bad", "return redis.error_reply('ODD no')")
		replies := b.client.RunMany(bg, []Call{
			{count, []string{key}, []string{"1"}}, {other, nil, []string{"8"}}, {bad, nil, nil}, {count, []string{key}, []string{"1"}},
		})
		if len(replies) != 4 || replies[0].Err != nil || replies[1].Err != nil || replies[3].Err != nil {
			t.Fatalf("%+v", replies)
		}
		if a, o, c := replies[0].Ints, replies[1].Ints, replies[3].Ints; a[0] != 6 || c[0] != 7 || o[0] != 7 || o[1] != 8 {
			t.Errorf("%+v", replies)
		}
		var server *ServerError
		if !errors.As(replies[2].Err, &server) || !strings.Contains(server.Message, "ODD no") || errors.Is(replies[2].Err, ErrAmbiguous) {
			t.Errorf("an error: %v", replies[2].Err)
		}
		for _, s := range []string{"return 1", "return {'x'}"} {
			if _, err := b.client.Run(bg, NewScript("text", s), nil, nil); err == nil {
				t.Errorf("%s: no error", s)
			}
		}
	})
}

// A server that forgot its scripts is sent them again, once each, in a pipeline
// too.
func TestGoRedisReloadsScripts(t *testing.T) {
	s := redistest.Start(t)
	b := newBackend(t, s.Addr)
	for i := range 3 {
		if err := b.redis.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := b.client.Run(bg, count, []string{"n"}, []string{"1"}); err != nil || got[0] != int64(3*i+1) {
			t.Fatalf("%v, %v", got, err)
		}
		if err := b.redis.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
		for j, r := range b.client.RunMany(bg, []Call{{count, []string{"n"}, []string{"1"}}, {count, []string{"n"}, []string{"1"}}}) {
			if r.Err != nil || r.Ints[0] != int64(3*i+2+j) {
				t.Fatalf("%+v", r)
			}
		}
	}
	if got := b.client.Reloads(); got != 9 {
		t.Errorf("%d reloads, want 9", got)
	}
}

// A timeout has an unknown outcome: what was sent is not sent again, whatever the
// options of the client say.
func TestGoRedisSendsNothingTwice(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	direct := dial(t, s.Addr)
	slow := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, ReadTimeout: 300 * time.Millisecond, MaxRetries: 3, DisableIdentity: true})
	defer slow.Close()
	c, err := NewGoRedis(slow)
	if err != nil {
		t.Fatal(err)
	}
	if err := direct.ScriptLoad(bg, count.text).Err(); err != nil {
		t.Fatal(err)
	}
	connect := func() { // four connections, which have shaken hands
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := slow.Do(bg, "BLPOP", "nothing", "0.05").Err(); err != redis.Nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for _, key := range []string{"one", "many"} {
		direct.Set(bg, key, 1, 0)
	}
	// Replies are held until all calls have arrived; then a client that sends them
	// again would succeed.
	for _, v := range []struct {
		key  string
		each int
		call func() error
	}{
		{"one", 1, func() error { _, err := c.Run(bg, count, []string{"one"}, []string{"1"}); return err }},
		{"many", 2, func() error {
			call := Call{count, []string{"many"}, []string{"1"}}
			replies := c.RunMany(bg, []Call{call, call})
			if (replies[0].Err == nil) != (replies[1].Err == nil) {
				t.Errorf("%+v", replies)
			}
			return replies[0].Err
		}},
	} {
		executed := func() int { n, _ := direct.Get(bg, v.key).Int(); return n - 1 }
		connect()
		p.Set(redistest.Fault{DropReply: true})
		var wg sync.WaitGroup
		for range 4 { // as many as have a connection by now; others would wait for one
			wg.Go(func() {
				if err := v.call(); !errors.Is(err, ErrAmbiguous) {
					t.Errorf("%s: %v", v.key, err)
				}
			})
		}
		for range 1000 {
			if executed() == 4*v.each {
				break
			}
			time.Sleep(ms)
		}
		p.Set(redistest.Fault{})
		wg.Wait()
		if got := executed(); got != 4*v.each {
			t.Errorf("%s: executed %d times, asked %d times", v.key, got, 4*v.each)
		}
	}
}

// Deadlines are obeyed, here by a client that has none of its own, and what
// happened then is unknown; what was never sent was not executed.
func TestGoRedisObeysDeadlines(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	c := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, ReadTimeout: -1, DisableIdentity: true})
	defer c.Close()
	g, err := NewGoRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{redis: c, client: g}
	if _, err := b.client.Run(bg, count, []string{"n"}, []string{"1"}); err != nil {
		t.Fatal(err)
	}
	p.Set(redistest.Fault{DropReply: true})
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	if _, err := b.client.Run(ctx, count, []string{"n"}, []string{"1"}); !errors.Is(err, ErrAmbiguous) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	<-ctx.Done()
	if _, err := b.client.Run(ctx, count, []string{"n"}, []string{"1"}); err != context.DeadlineExceeded {
		t.Errorf("with a context that is done: %v", err)
	}
	for _, r := range b.client.RunMany(ctx, []Call{{count, []string{"n"}, []string{"1"}}}) {
		if r.Err != context.DeadlineExceeded {
			t.Errorf("with a context that is done: %v", r.Err)
		}
	}
	away := newBackend(t, "127.0.0.1:1")
	if _, err := away.client.Run(bg, count, []string{"n"}, []string{"1"}); err == nil || errors.Is(err, ErrAmbiguous) {
		t.Errorf("nobody listens: %v", err)
	}
}

// What a store counts tells an unknown outcome from one that is known.
func TestStoreCountsOutcomes(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := newBackend(t, p.Addr)
	store, err := New(b.client, Config{Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Throttle(bg, "k", 1, 1, sec, 1); err != nil {
		t.Fatal(err)
	}
	p.Set(redistest.Fault{DropReply: true})
	if _, err := store.Throttle(bg, "k", 1, 1, sec, 1); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("no reply: %v", err)
	}
	p.Set(redistest.Fault{})
	b.redis.LPush(bg, "list", "x")
	if _, err := store.Throttle(bg, "list", 1, 1, sec, 1); !errors.Is(err, ErrData) {
		t.Errorf("a list: %v", err)
	}
	b.redis.ConfigSet(bg, "maxmemory", "1")
	var server *ServerError
	if _, err := store.Throttle(bg, "other", 1, 1, sec, 1); !errors.As(err, &server) {
		t.Errorf("no memory: %v", err)
	}
	b.redis.ConfigSet(bg, "maxmemory", "0")
	if n := b.redis.Exists(bg, "other").Val(); n != 0 {
		t.Error("a key was written without memory")
	}
	got := store.Stats()
	if want := (Stats{Calls: 4, Decisions: 1, Ambiguous: 1, Failed: 1, Data: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Run id of a server: another one after a restart.
func TestGoRedisServerID(t *testing.T) {
	s := redistest.Start(t)
	b := newBackend(t, s.Addr)
	before, err := b.client.ServerID(bg, "k")
	if err != nil || len(before) != 40 {
		t.Fatalf("%q, %v", before, err)
	}
	s.Kill()
	s.Restart(t)
	var after string
	for range 100 { // until the pool has noticed
		if after, err = b.client.ServerID(bg, "k"); err == nil {
			break
		}
	}
	if err != nil || after == before {
		t.Errorf("%q after %q, %v", after, before, err)
	}
}
