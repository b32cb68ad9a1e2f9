package proxy

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluiceredis"
)

// newShared returns what proxies with the same Redis share: what their gates learn, see
// sluice.Adaptive.Peers. No call waits for it, so it need not be there when the proxy begins; until it
// is, each proxy learns alone, and log says so. It returns nil without a URL. Close the client at the end.
func newShared(url string, log *slog.Logger) (s peers.Store, close func() error, err error) {
	if url == "" {
		return nil, func() error { return nil }, nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, errors.New("-redis: want a URL, such as redis://localhost:6379/0") // err may show the password
	}
	o.ContextTimeoutEnabled = true // NewGoRedis demands it
	redis.SetLogger(silent{})      // it would write a line for each dial
	client := redis.NewClient(o)
	c, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	store, err := sluiceredis.New(c, sluiceredis.Config{Notify: func(_ string, err error) {
		if err != nil {
			log.Warn("the Redis is away; learning alone", "err", err)
		} else {
			log.Info("the Redis is back")
		}
	}})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return store, client.Close, nil
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
