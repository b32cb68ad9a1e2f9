package proxy

import (
	"fmt"
	"log/slog"

	"github.com/sluice-go/sluice/cmd/internal/shared"
	"github.com/sluice-go/sluice/ext/peers"
)

// newShared returns what proxies with the same Redis share: what their gates learn, see
// sluice.Adaptive.Peers. No call waits for it, so it need not be there when the proxy begins; until it
// is, each proxy learns alone, and log says so. It returns nil without a URL. Close the client at the end.
func newShared(url string, log *slog.Logger) (s peers.Store, close func() error, err error) {
	if url == "" {
		return nil, func() error { return nil }, nil
	}
	store, client, err := shared.Open(url, func(err error) {
		if err != nil {
			log.Warn("the Redis is away; learning alone", "err", err)
		} else {
			log.Info("the Redis is back")
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("-redis: %w", err)
	}
	return store, client.Close, nil
}
