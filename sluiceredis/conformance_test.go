package sluiceredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/clienttest"
)

func TestGoRedisConforms(t *testing.T) {
	built.SkipRaced(t)
	t.Parallel()
	clienttest.Run(t, clienttest.Library{
		Single: func(t testing.TB, addr string, timeout time.Duration) sluiceredis.Client {
			o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 16, ReadTimeout: -1}
			if timeout > 0 {
				o.ReadTimeout, o.MaxRetries = timeout, 3
			}
			return fit(t, redis.NewClient(o))
		},
		Login: func(t testing.TB, addr, user, password string) sluiceredis.Client {
			return fit(t, redis.NewClient(&redis.Options{
				Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, Username: user, Password: password,
			}))
		},
		Cluster: func(t testing.TB, addrs []string) sluiceredis.Client {
			return fit(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true}))
		},
	})
}

func fit(t testing.TB, client redis.UniversalClient) sluiceredis.Client {
	t.Cleanup(func() { _ = client.Close() })
	c, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
