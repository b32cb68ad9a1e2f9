package sluiceredis_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/clienttest"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// TestPromise runs the cells of the table of promises and features that are about limits
// in a Redis. In a bubble that is one in virtual time, by the real clock a server.
func TestPromise(t *testing.T) {
	promise.Run(t, "sluiceredis", map[string]promise.Setup{
		"redis": clienttest.Promise(func(tb testing.TB, l promise.Limits) clienttest.Shared {
			if l.Real {
				return onServer(tb)
			}
			client, fail := sluiceredis.NewVirtual()
			return clienttest.Shared{
				Store: newStore(tb, client, sluiceredis.Config{}),
				Apart: true, // no script of a virtual server decides two
				Break: func() func() {
					fail(sluiceredis.ErrRefused)
					return func() {
						fail(nil)
						time.Sleep(5 * time.Second) // it is asked again after 1 s at most
					}
				},
			}
		}),
		"redis_away": clienttest.Promise(func(tb testing.TB, l promise.Limits) clienttest.Shared {
			client, fail := sluiceredis.NewVirtual()
			fail(sluiceredis.ErrRefused)
			return clienttest.Shared{
				Store: newStore(tb, client, sluiceredis.Config{OnOutage: sluiceredis.FailOpen}),
				Apart: true,
				Away:  true,
			}
		}),
		"in_process": clienttest.Promise(func(tb testing.TB, l promise.Limits) clienttest.Shared {
			return clienttest.Shared{Store: newStore(tb, sluiceredis.InProcess(), sluiceredis.Config{})}
		}),
		"real_clock": clienttest.Promise(func(tb testing.TB, l promise.Limits) clienttest.Shared { return onServer(tb) }),
	})
}

var promises atomic.Int64

// newStore returns a store whose keys no other subject has.
func newStore(tb testing.TB, client sluiceredis.Client, cfg sluiceredis.Config) *sluiceredis.Store {
	tb.Helper()
	cfg.Prefix = fmt.Sprint("promise ", promises.Add(1))
	s, err := sluiceredis.New(client, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func onServer(tb testing.TB) clienttest.Shared {
	tb.Helper()
	client := fit(tb, redis.NewClient(&redis.Options{
		Addr: redistest.Shared(tb).Addr, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 16,
	}))
	// A silence of a tenth of Timeout is an outage. On a busy machine the server may not run for
	// a second, and these cells are not about outages.
	return clienttest.Shared{Store: newStore(tb, client, sluiceredis.Config{Timeout: time.Minute})}
}
