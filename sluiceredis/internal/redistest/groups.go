package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Servers that work together: replicas, those watched by Sentinels, clusters.

// Written waits until the server has handed its append-only file all that it did. With
// appendfsync everysec it puts that off for as long as the disk is busy.
func (s *Server) Written(t testing.TB) {
	t.Helper()
	client := s.Dial(t)
	Eventually(t, "an append-only file with all in it", func() bool {
		info, err := client.Info(context.Background(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "aof_buffer_length:0\r\n")
	})
}

// Dial returns a client of the server, closed with the test. It is for the actions of a test on the
// server, not for its subject.
func (s *Server) Dial(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Eventually waits until ok says true, and fails the test after a minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute there is still not: %s", what)
		}
	}
}

// Info returns a field of INFO, or "" if the server does not answer.
func Info(c *redis.Client, field string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for line := range strings.Lines(c.Info(ctx, "everything").Val()) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// StartReplica starts a replica of the primary at addr, which may be that of a
// [Proxy], and returns when it has all that the primary has.
func StartReplica(t testing.TB, addr string, args ...string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	primary := (&Server{Addr: addr}).Dial(t)
	if err := primary.ConfigSet(context.Background(), "repl-diskless-sync-delay", "0").Err(); err != nil { // else 5 s
		t.Fatal(err)
	}
	s := Start(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	// Before it has acknowledged something, data for it stays where it is, and is lost with the
	// primary.
	_, own, _ := net.SplitHostPort(s.Addr)
	Eventually(t, "a replica in step", func() bool {
		_ = primary.Publish(context.Background(), "redistest", "") // something to acknowledge
		_, state, _ := strings.Cut(primary.Info(context.Background(), "replication").Val(), "port="+own+",state=online,offset=")
		return state != "" && state[0] != '0'
	})
	return s
}

// StartSentinels starts n Sentinels that watch the primary at addr as name, and
// returns when they know each other and its replicas. They take it for dead
// after down, if more than half of them agree.
func StartSentinels(t testing.TB, name, addr string, n, replicas int, down time.Duration) []*Server {
	t.Helper()
	Need(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var all []*Server
	for range n {
		dir := t.TempDir()
		config := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\nsentinel down-after-milliseconds %[1]s %[5]d\nsentinel failover-timeout %[1]s 10000\n",
			name, host, port, n/2+1, down.Milliseconds())
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := launch(Server{dir: dir, config: config, args: []string{"--sentinel"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		all = append(all, s)
	}
	for _, s := range all {
		c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr, DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		Eventually(t, "Sentinels that know each other", func() bool {
			m := c.Master(context.Background(), name).Val()
			return m["num-other-sentinels"] == strconv.Itoa(n-1) && m["num-slaves"] == strconv.Itoa(replicas)
		})
	}
	return all
}

// slots is the number of slots of a cluster.
const slots = 16384

// StartCluster starts a cluster of n masters, each with its share of the slots in
// order, and returns when all of them say that it is whole.
func StartCluster(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	var all []*Server
	var buses []string
	for i := range n {
		// Next to the port there is another for the bus; the default, 10,000 more, need not be a
		// port.
		bus, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(bus)
		s := Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", port}, args...)...)
		all, buses = append(all, s), append(buses, port)
		c := s.Dial(t)
		if err := c.ClusterAddSlotsRange(context.Background(), i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		// As redis-cli --cluster create does. Masters with equal epochs agree on others only
		// after some seconds, and a slot that was moved before may go back.
		if err := c.Do(context.Background(), "cluster", "set-config-epoch", i+1).Err(); err != nil {
			t.Fatal(err)
		}
		host, first, _ := net.SplitHostPort(all[0].Addr)
		if err := c.Do(context.Background(), "cluster", "meet", host, first, buses[0]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		c := s.Dial(t)
		Eventually(t, "a cluster that is whole", func() bool {
			info := c.ClusterInfo(context.Background()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d", slots)) && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", n))
		})
	}
	return all
}

// Addrs returns where servers are.
func Addrs(servers []*Server) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// NodeID returns the name of a server of a cluster.
func NodeID(t testing.TB, s *Server) string {
	t.Helper()
	id, err := s.Dial(t).Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// MoveSlot moves a slot of a cluster from one server to another, as resharding
// does: first both know of it, then key after key goes, and then all are told.
// between, if not nil, is called after each key: then some keys are here and
// some there.
func MoveSlot(t testing.TB, slot int, from, to *Server, all []*Server, between func()) {
	t.Helper()
	ctx := context.Background()
	do := func(s *Server, args ...any) any {
		t.Helper()
		v, err := s.Dial(t).Do(ctx, args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	do(to, "cluster", "setslot", slot, "importing", NodeID(t, from))
	do(from, "cluster", "setslot", slot, "migrating", NodeID(t, to))
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		keys := do(from, "cluster", "getkeysinslot", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		do(from, "migrate", host, port, keys[0], 0, 5000)
		if between != nil {
			between()
		}
	}
	do(to, "cluster", "setslot", slot, "node", NodeID(t, to)) // first who has it now
	for _, s := range all {
		if s != to {
			do(s, "cluster", "setslot", slot, "node", NodeID(t, to))
		}
	}
}
