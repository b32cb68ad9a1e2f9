package clienttest

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// credentials tests a server that rejects the credentials of a client, as it does
// after they were changed: the policy decides the calls, few connections are made,
// and the server decides again when the credentials are right.
func credentials(t *testing.T, lib Library) {
	s := redistest.Start(t)
	setUser := func(c *redis.Client, rule string) {
		t.Helper()
		args := []any{"ACL", "SETUSER"}
		for word := range strings.FieldsSeq(rule) {
			args = append(args, word)
		}
		if err := c.Do(bg, args...).Err(); err != nil {
			t.Fatal(rule, err)
		}
	}
	first := admin(t, s.Addr)
	setUser(first, "root on >r ~* &* +@all")
	setUser(first, "app on >one ~* &* +@all")
	root := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "root", Password: "r", DisableIdentity: true, PoolSize: 1})
	defer root.Close()
	for _, v := range []struct{ name, user, password, away, back string }{
		{"WRONGPASS", "app", "one", "app resetpass >two", "app resetpass >one"},
		{"NOAUTH", "", "", "default resetpass >two", "default nopass"},
		{"NOPERM", "app", "one", "app -@all", "app +@all"},
	} {
		for _, policy := range []sluiceredis.OutagePolicy{sluiceredis.FailOpen, sluiceredis.LocalShare, sluiceredis.FailClosed} {
			t.Run(v.name+", "+policy.String(), func(t *testing.T) {
				c := lib.Login(t, s.Addr, v.user, v.password)
				store := must[*sluiceredis.Store](t)(sluiceredis.New(c, sluiceredis.Config{Prefix: prefix(t), OnOutage: policy, Instances: 1, ProbeInterval: 100 * ms}))
				l := must[*sluiceredis.Bucket](t)(store.Bucket("x", limits.Rate{Burst: 1_000_000, Count: 1, Per: sec}))
				take := func() bool { res, err := l.Take(bg, "k", 1); return err == nil && res.Allowed() }
				if !take() {
					t.Fatal("refused before the credentials were changed")
				}
				setUser(root, v.away)
				if err := root.ClientKillByFilter(bg, "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
					t.Fatal(err)
				}
				before, wrong := connections(t, root), 0
				var mu sync.Mutex
				var wg sync.WaitGroup
				const callers, calls = 20, 200
				for i := range callers {
					wg.Go(func() {
						for range calls { // of different keys: some leave in one script with many arguments
							res, err := l.Take(bg, strconv.Itoa(i), 1)
							if (err == nil && res.Allowed()) != (policy != sluiceredis.FailClosed) {
								mu.Lock()
								wrong++
								mu.Unlock()
							}
						}
					})
				}
				wg.Wait()
				if wrong > 0 {
					t.Errorf("the policy did not decide %d of %d calls", wrong, callers*calls)
				}
				stats := store.Stats()
				// One for each of the callers that were on their way, and one for each
				// probe, some of which a client tries more than once.
				if made := connections(t, root) - before; made > 2*(callers+int(stats.Probes)) {
					t.Errorf("%d connections for %d calls, %d probes", made, callers*calls, stats.Probes)
				}
				if stats.Outages != 1 {
					t.Errorf("away %d times", stats.Outages)
				}
				setUser(root, v.back)
				for limit := time.Now().Add(20 * sec); store.Stats().Unavailable > 0; {
					if take(); time.Now().After(limit) {
						t.Fatal("the server does not decide again")
					}
				}
				for limit := time.Now().Add(20 * sec); !take(); {
					if time.Now().After(limit) {
						t.Fatal("refused when the credentials were right again")
					}
				}
			})
		}
	}
}

// connections returns the number of connections made to the server so far.
func connections(t *testing.T, root *redis.Client) int {
	t.Helper()
	info, err := root.Info(bg, "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(line, "total_connections_received:"); ok {
			made, _ := strconv.Atoi(strings.TrimSpace(n))
			return made
		}
	}
	t.Fatal("the server does not count connections")
	return 0
}
