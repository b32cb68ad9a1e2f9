// Package clienttest has the tests that every [sluiceredis.Client] must pass, whichever library it
// is made of: the contract of a Client, the limits of sluiceredis kept through it, and both when
// the server or the way to it breaks.
//
// It runs on miniredis, on a real server, on a Cluster of three masters and on
// servers that are made up; the limits also in memory, by which they are judged.
package clienttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// A Library is how clients are made. They are closed with the test.
type Library struct {
	// Single returns a client of the server at addr, which may be away. If
	// timeout is not 0 it waits no longer for a reply, whatever the context says,
	// and is configured to send again as much as its library allows.
	Single func(t testing.TB, addr string, timeout time.Duration) sluiceredis.Client

	// Login returns a client of the server at addr, which is there, that logs in
	// with those credentials. Without a user it does not log in.
	Login func(t testing.TB, addr, user, password string) sluiceredis.Client

	// Cluster returns a client of the cluster that those servers belong to.
	Cluster func(t testing.TB, addrs []string) sluiceredis.Client
}

// bg is for calls that nothing but the server ends.
var bg = context.Background()

const (
	ms  = time.Millisecond
	sec = time.Second
)

// count is a script that shows the number of its runs.
var count = Script("count", "return {redis.call('INCRBY', KEYS[1], ARGV[1])}")

// tests counts tests, which may be run again on the same server.
var tests atomic.Int64

// prefix returns the beginning of keys that no other test has.
func prefix(t testing.TB) string { return fmt.Sprint("test ", tests.Add(1), " ", t.Name()) }

// Run runs everything.
func Run(t *testing.T, lib Library) {
	t.Run("memory", func(t *testing.T) { everyLimit(t, nil) })
	t.Run("miniredis", func(t *testing.T) { both(t, lib.Single(t, redistest.Mini(t), 0)) })
	t.Run("redis", func(t *testing.T) { both(t, lib.Single(t, redistest.Shared(t).Addr, 0)) })
	t.Run("cluster", func(t *testing.T) {
		addrs := redistest.Addrs(redistest.StartCluster(t, masters))
		c := lib.Cluster(t, addrs)
		both(t, c)
		onCluster(t, c, addrs)
	})
	t.Run("broken", func(t *testing.T) { broken(t, lib) })
}

// both tests a client and the limits on it.
func both(t *testing.T, c sluiceredis.Client) {
	t.Run("client", func(t *testing.T) { contract(t, c) })
	t.Run("limits", func(t *testing.T) { everyLimit(t, c) })
}

// store returns a store whose keys no other test has.
func store(t testing.TB, c sluiceredis.Client) *sluiceredis.Store {
	t.Helper()
	return storeAt(t, c, prefix(t))
}

func storeAt(t testing.TB, c sluiceredis.Client, prefix string) *sluiceredis.Store {
	t.Helper()
	return must[*sluiceredis.Store](t)(sluiceredis.New(c, sluiceredis.Config{Prefix: prefix, Timeout: 10 * sec}))
}

// must ends a test that cannot go on.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// admin returns a connection for commands that do not concern the client.
func admin(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 4})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
