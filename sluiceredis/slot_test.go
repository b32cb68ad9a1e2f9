package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
	"github.com/sluice-go/sluice/sluiceredis/internal/slot"
)

// oneNode returns a cluster that is one server, and a client of it as a cluster.
func oneNode(t *testing.T) (*redistest.Server, *redis.ClusterClient) {
	t.Helper()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	if err := dial(t, s.Addr).ClusterAddSlotsRange(bg, 0, slot.Count-1).Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr}, ContextTimeoutEnabled: true,
		// A server that nobody has met does not know its own address.
		NewClient: func(o *redis.Options) *redis.Client {
			if host, port, _ := net.SplitHostPort(o.Addr); host == "" {
				o.Addr = net.JoinHostPort("127.0.0.1", port)
			}
			return redis.NewClient(o)
		}})
	t.Cleanup(func() { _ = c.Close() })
	for range 5000 {
		if strings.HasPrefix(dial(t, s.Addr).ClusterInfo(bg).Val(), "cluster_state:ok") {
			return s, c
		}
		time.Sleep(ms)
	}
	t.Fatal("no cluster")
	return nil, nil
}

// What slot.Of says the server says as well; and each slot has its tag.
func TestSlotsOfKeys(t *testing.T) {
	t.Parallel()
	s, _ := oneNode(t)
	keys := []string{"", "{", "}", "{}", "{}x", "a{b", "a}b{c", "{a}{b}", "{{a}}", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "\x00\xff"}
	for range 500 {
		text := make([]byte, rand.N(20))
		for i := range text {
			text[i] = "ab{}\xff\x00"[rand.N(6)]
		}
		keys = append(keys, string(text))
	}
	for i, tag := range slot.Tags() {
		if tag == "" || len(tag) > 4 || slot.Of(tag) != i {
			t.Fatalf("slot %d: %q", i, tag)
		}
		if i%7 == 0 {
			keys = append(keys, "any:{"+tag+"}")
		}
	}
	pipe := dial(t, s.Addr).Pipeline()
	var all []*redis.IntCmd
	for _, key := range keys {
		all = append(all, pipe.ClusterKeySlot(bg, key))
	}
	if _, err := pipe.Exec(bg); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if got := slot.Of(key); int64(got) != all[i].Val() {
			t.Errorf("%q: %d, the server says %d", key, got, all[i].Val())
		}
	}
	// They are part of the names of keys.
	if got := fmt.Sprint(slot.Tags()[0], " ", slot.Tags()[1], " ", slot.Tags()[8000], " ", slot.Tags()[slot.Count-1]); got != "1bz emj 42 hia" {
		t.Errorf("the tags have changed: %s", got)
	}
}

// On a cluster each slot has its own epoch, where scripts find it.
func TestStrictOnACluster(t *testing.T) {
	t.Parallel()
	_, c := oneNode(t)
	g, err := NewGoRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	s := strictOn(t, g, "cluster")
	for name, ask := range asks(t, s) { // they begin with the epoch
		if err := ask(); err != nil && !isWait(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := s.Stats(); got.Epochs < 2 || got.Failed+got.InvalidKeys > 0 {
		t.Errorf("%+v", got)
	}
	before := s.Stats()
	if err := s.ConfirmIntact(bg); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().Scripts - before.Scripts; got != slot.Count {
		t.Errorf("%d calls", got)
	}
	l := newLeaky(t, s, "cluster", limits.Rate{Burst: 1, Count: 1, Per: time.Hour})
	for i := range 100 {
		if res, err := l.Take(bg, fmt.Sprint(i), 1); err != nil || !res.Allowed() {
			t.Errorf("%d: %+v, %v", i, res, err)
		}
	}
	if got := s.Stats().Epochs; got != before.Epochs {
		t.Errorf("%d epochs, there were %d", got, before.Epochs)
	}
	// A client that does not say that it is a cluster's gets errors, not calls.
	plain := strictOn(t, struct{ Client }{g}, "cluster")
	for name, ask := range asks(t, plain) {
		var e *ServerError
		if err := ask(); !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// isWait reports whether err is the answer of a limit.
func isWait(err error) bool {
	return errors.Is(err, limits.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}
