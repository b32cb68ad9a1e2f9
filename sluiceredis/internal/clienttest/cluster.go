package clienttest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

const (
	masters = 3
	slots   = 16384
)

// onCluster tests the behavior that only a cluster has.
func onCluster(t *testing.T, c sluiceredis.Client, addrs []string) {
	t.Run("each limit on one server", func(t *testing.T) { spread(t, c, addrs) })
	t.Run("keys of several servers", func(t *testing.T) { crossSlot(t, c) })
	t.Run("slots that move", func(t *testing.T) { moving(t, c, addrs) })
	t.Run("strict", func(t *testing.T) { strict(t, c) }) // leaves a key in each slot
}

// In strict mode each slot has its own epoch.
func strict(t *testing.T, c sluiceredis.Client) {
	s := must[*sluiceredis.Store](t)(sluiceredis.New(c, sluiceredis.Config{Prefix: prefix(t), Timeout: 10 * sec, Strict: true}))
	l := must[*sluiceredis.Bucket](t)(s.Bucket("strict", limits.Rate{Burst: 1, Count: 1, Per: time.Hour}))
	if res := must[limits.Result](t)(l.Take(bg, "0", 1)); res.Allowed() {
		t.Error("what a server may have lost was granted")
	}
	if err := s.ConfirmIntact(bg); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if res := must[limits.Result](t)(l.Take(bg, fmt.Sprint(i), 1)); !res.Allowed() {
			t.Errorf("key %d: %+v", i, res)
		}
	}
}

// On a cluster each limit is on one server, whole, and scripts are sent to each.
func spread(t *testing.T, c sluiceredis.Client, addrs []string) {
	s := store(t, c)
	quota := limits.Rate{Burst: 3, Count: 1, Per: time.Hour}
	buckets := must[*sluiceredis.Bucket](t)(s.Bucket("cluster", quota))
	log := must[*sluiceredis.Counter](t)(s.Sliding("cluster", 3, time.Hour))
	fixed := must[*sluiceredis.Counter](t)(s.Fixed("cluster", sluiceredis.FixedConfig{Limit: 3, Window: time.Hour}))
	day := must[*sluiceredis.Bucket](t)(s.Bucket("cluster/day", quota))
	hour := must[*sluiceredis.Counter](t)(s.Sliding("cluster/hour", 9, time.Hour))
	minute := must[*sluiceredis.Counter](t)(s.Fixed("cluster/minute", sluiceredis.FixedConfig{Limit: 9, Window: time.Hour}))
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			key := fmt.Sprint("{", i, "}") // not a hash tag of ours
			joint := minute.On(key).Join(day.On(key), hour.On(key))
			if joint == nil {
				t.Errorf("%s: not joined", key)
				return
			}
			for j := range 4 { // keys of three limits are in one slot
				if wait, which, err := joint.AdmitAll(bg, []int64{1, 1, 1}, nil); err != nil || (wait == 0) != (j < 3) || wait > 0 && which != 1 {
					t.Errorf("%s, call %d: %v by %d, %v", key, j, wait, which, err)
				}
			}
			if err := errors.Join(joint.AdjustAll(bg, []int64{-3, -3, -3}, 0)...); err != nil {
				t.Error(err)
			}
			for kind, take := range map[string]func() (limits.Result, error){
				"leaky": func() (limits.Result, error) { return buckets.Take(bg, key, 1) },
				"log":   func() (limits.Result, error) { return log.Take(bg, key, 1) },
				"fixed": func() (limits.Result, error) { return fixed.Take(bg, key, 1) },
			} {
				for j := range 4 {
					if res, err := take(); err != nil || res.Allowed() != (j < 3) {
						t.Errorf("%s of %s, call %d: %+v, %v", kind, key, j, res, err)
					}
				}
			}
			permits, err := s.Semaphore(key, 1, sluiceredis.SemaphoreConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			lease, err := permits.Acquire(bg, 1, 0)
			if err != nil {
				t.Error(err)
				return
			}
			lease.Release()
			pace, err := s.Pacer(key, limits.Rate{Count: 1, Per: time.Minute}, sluiceredis.PacerConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			r, err := pace.Reserve(bg, 1, 0)
			if err != nil {
				t.Error(err)
				return
			}
			r.Cancel(bg)
		})
	}
	wg.Wait()
	name := prefix(t)
	for i := range 30 {
		must[[]int64](t)(c.Run(bg, count, []string{fmt.Sprint(name, i)}, []string{"1"}))
	}
	for _, addr := range addrs {
		if keys := must[[]string](t)(admin(t, addr).Keys(bg, name+"*").Result()); len(keys) == 0 {
			t.Errorf("the server at %s has no key", addr)
		}
	}
}

// Keys that no server has all of are rejected, and nothing is taken from any.
func crossSlot(t *testing.T, c sluiceredis.Client) {
	both := Script("both", "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[2]) return {1}")
	name := prefix(t)
	same := []string{name + "{tag}a", name + "{tag}b"}
	split := []string{name + "a", name + "b", name + "c", name + "d"}
	call := func(keys ...string) sluiceredis.ScriptCall { return sluiceredis.ScriptCall{Script: both, Keys: keys} }
	refused := func(err error) {
		t.Helper()
		var server *sluiceredis.ServerError
		if !errors.As(err, &server) || server.Code != "CROSSSLOT" || errors.Is(err, sluiceredis.ErrAmbiguous) {
			t.Errorf("%v", err)
		}
	}
	_, err := c.Run(bg, both, split[:2], nil)
	refused(err)
	replies := c.RunMany(bg, []sluiceredis.ScriptCall{call(same...), call(split[1:3]...), call(same...), call(split[2:]...)})
	refused(replies[1].Err)
	refused(replies[3].Err)
	if replies[0].Err != nil || replies[2].Err != nil {
		t.Errorf("%+v", replies)
	}
	for _, key := range split {
		if got, err := c.Run(bg, count, []string{key}, []string{"0"}); err != nil || got[0] != 0 {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
	if got, err := c.Run(bg, count, same[:1], []string{"0"}); err != nil || got[0] != 2 {
		t.Errorf("of one tag: %v, %v", got, err)
	}
}

// A redirected command was not executed at the first server, and is executed once
// where it belongs, while a slot moves and when it has moved.
func moving(t *testing.T, c sluiceredis.Client, addrs []string) {
	name := "{" + prefix(t) + "}"
	key := func(part string) string { return name + part }
	nodes, ids := make([]*redis.Client, masters), make([]string, masters)
	for i, addr := range addrs {
		nodes[i] = admin(t, addr)
		ids[i] = must[string](t)(nodes[i].Do(bg, "CLUSTER", "MYID").Text())
	}
	slot := must[int64](t)(nodes[0].ClusterKeySlot(bg, name).Result())
	from := int(slot * masters / slots)
	to := (from + 1) % masters
	set := func(node int, words ...any) {
		t.Helper()
		if err := nodes[node].Do(bg, append([]any{"CLUSTER", "SETSLOT", slot}, words...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	executed := func(part string, want int64) {
		t.Helper()
		got, err := c.Run(bg, count, []string{key(part)}, []string{"1"})
		if err != nil || got[0] != want {
			t.Errorf("%s: %v, %v, want %d", part, got, err, want)
		}
		r := c.RunMany(bg, []sluiceredis.ScriptCall{
			{Script: count, Keys: []string{key(part)}, Args: []string{"1"}},
			{Script: count, Keys: []string{prefix(t)}, Args: []string{"1"}}, // of another slot
			{Script: count, Keys: []string{key(part)}, Args: []string{"1"}},
		})
		if r[0].Err != nil || r[2].Err != nil || r[1].Err != nil {
			t.Fatalf("%s: %+v", part, r)
		}
		if r[0].Ints[0] != want+1 || r[2].Ints[0] != want+2 || r[1].Ints[0] != 1 {
			t.Errorf("%s: %+v, want %d and %d", part, r, want+1, want+2)
		}
	}
	executed("stays", 1)
	set(to, "IMPORTING", ids[from])
	set(from, "MIGRATING", ids[to])
	executed("stays", 4)
	executed("new", 1) // which the old master does not have: ASK

	// One key is here, the other there: nobody can.
	two := Script("two", "return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[2])}")
	var server *sluiceredis.ServerError
	if got, err := c.Run(bg, two, []string{key("stays"), key("new")}, nil); !errors.As(err, &server) || server.Code != "TRYAGAIN" || errors.Is(err, sluiceredis.ErrAmbiguous) {
		t.Errorf("keys of both: %v, %v", got, err)
	}

	host, port, _ := net.SplitHostPort(addrs[to])
	if err := nodes[from].Do(bg, "MIGRATE", host, port, key("stays"), 0, 5000).Err(); err != nil {
		t.Fatal(err)
	}
	executed("stays", 7)
	set(to, "NODE", ids[to])
	set(from, "NODE", ids[to])
	executed("stays", 10) // MOVED
	executed("new", 4)
}
