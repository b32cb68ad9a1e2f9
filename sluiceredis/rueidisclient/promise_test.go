package rueidisclient

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/clienttest"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// TestPromise runs the cells of the table of promises and features that a client of rueidis
// can meet: those on a server, by the real clock.
func TestPromise(t *testing.T) {
	stores := 0
	promise.Run(t, "sluiceredis/rueidisclient", map[string]promise.Setup{
		"real_clock": clienttest.Promise(func(tb testing.TB, l promise.Limits) clienttest.Shared {
			client := open(tb, rueidis.ClientOption{InitAddress: []string{redistest.Shared(tb).Addr}, ForceSingleClient: true})
			stores++
			s, err := sluiceredis.New(client, sluiceredis.Config{Prefix: fmt.Sprint("promise ", stores), Timeout: time.Minute})
			if err != nil {
				tb.Fatal(err)
			}
			return clienttest.Shared{Store: s}
		}),
	})
}
