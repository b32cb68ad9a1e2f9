package recipes

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/docs/recipes/after"
	"github.com/sluice-go/sluice/docs/recipes/before"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestBeforeAndAfter: both programs copy 100 items. From the third second on the server
// refuses all calls for 27 s, and asks for 5 s each time. The numbers are in
// coming-from.md.
func TestBeforeAndAfter(t *testing.T) {
	ids := make([]int, 100)
	type program func(ctx context.Context, base http.RoundTripper, saved *atomic.Int64) error
	run := func(name string, p program) (int64, error) {
		var saved atomic.Int64
		var err error
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			busy := func(int, *http.Request) bool {
				since := time.Since(began)
				return 3*time.Second <= since && since < 30*time.Second
			}
			srv := sluicetest.NewServer(
				sluicetest.Delay(500*time.Millisecond),
				sluicetest.When(busy, sluicetest.Status(429, "Retry-After: 5")),
				sluicetest.Reply(200, `{"ID":1}`),
			)
			defer srv.Close()
			base := srv.Transport()
			defer base.CloseIdleConnections()
			err = p(t.Context(), base, &saved)
			refused := len(srv.Record().Filter(func(r sluicetest.Request) bool { return r.Status == 429 }).Requests)
			t.Logf("%s: %d saved, %d refused, in %v: %v", name, saved.Load(), refused, time.Since(began), err)
		})
		return saved.Load(), err
	}
	if saved, err := run("before", func(ctx context.Context, base http.RoundTripper, saved *atomic.Int64) error {
		return before.Sync(ctx, base, "https://api.test", ids, func(*before.Item) error { saved.Add(1); return nil })
	}); err == nil {
		t.Errorf("before: all of %d saved, and the documentation says that it gives up", saved)
	}
	if saved, err := run("after", func(ctx context.Context, base http.RoundTripper, saved *atomic.Int64) error {
		return after.Sync(ctx, base, "https://api.test", ids, func(*after.Item) error { saved.Add(1); return nil })
	}); err != nil || saved != 100 {
		t.Errorf("after: %d saved, %v", saved, err)
	}
}
