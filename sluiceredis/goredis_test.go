package sluiceredis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// unreachable is a client whose server is unavailable.
type unreachable struct{}

var errAway = errors.New("away")

func (unreachable) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	return nil, errAway
}

func (unreachable) RunMany(ctx context.Context, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	for i := range replies {
		replies[i].Err = errAway
	}
	return replies
}

// count is a script that shows the number of its runs.
var count = newScript("count", "return {redis.call('INCRBY', KEYS[1], ARGV[1])}")

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

// What a store counts tells an unknown outcome from one that is known.
func TestStoreCountsOutcomes(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := newBackend(t, p.Addr)
	store, err := New(b.client, Config{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l := newLeaky(t, store, "b", limits.Rate{Burst: 2, Count: 1, Per: sec})
	if _, err := l.Take(bg, "k", 1); err != nil {
		t.Fatal(err)
	}
	b.redis.LPush(bg, store.key("b1", "b", "list", ""), "x")
	if _, err := l.Take(bg, "list", 1); !errors.Is(err, ErrData) {
		t.Errorf("a list: %v", err)
	}
	b.redis.ConfigSet(bg, "maxmemory", "1")
	var server *ServerError
	if _, err := l.Take(bg, "other", 1); !errors.As(err, &server) {
		t.Errorf("no memory: %v", err)
	}
	b.redis.ConfigSet(bg, "maxmemory", "0")
	if n := b.redis.Exists(bg, store.key("b1", "b", "other", "")).Val(); n != 0 {
		t.Error("a key was written without memory")
	}
	p.Set(redistest.Fault{DropReply: true})
	if _, err := l.Take(bg, "k", 1); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("no reply: %v", err)
	}
	p.Set(redistest.Fault{})
	got := store.Stats()
	if want := (Stats{Unavailable: 1, Outages: 1, Scripts: 4, Decisions: 1, Ambiguous: 1, Failed: 1, InvalidKeys: 1, Rejected: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What a command in a script failed of is told by the first word, also by a server
// that puts other words before it.
func TestServerErrorCodes(t *testing.T) {
	for message, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                                                                   "OOM",
		"OOM command not allowed when used memory > 'maxmemory'. script: f2d3, on @user_script:33.":                                 "OOM",
		"ERR Error running script (call to f_d2f3): @user_script:33: @user_script: 33: -READONLY You can't write against a replica": "READONLY",
		"ERR Error running script (call to f_d2f3): @user_script:1: user_script:1: attempt to call a nil value":                     "ERR",
		"ERR max number of clients reached: -1":                                                                                     "ERR",
		"LOADING":                                                                                                                   "LOADING",
	} {
		err := newServerError(message)
		if err.Code != want || err.Message != message {
			t.Errorf("%q: code %q, want %q", message, err.Code, want)
		}
	}
}
