package sluicehttp_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// meeting is a store of this process.
type meeting struct {
	began  time.Time
	groups peers.Groups
}

func (m *meeting) Exchange(_ context.Context, group string, r peers.Report) (peers.Reply, error) {
	return m.groups.Exchange(time.Since(m.began).Microseconds(), group, r), nil
}

// Two processes that share a limit leave the reserve to a program that does not know of them, also if
// that has used more, or all, before they come. In the next window they go on.
func TestPublished_Reserve_WithPeers(t *testing.T) {
	for name, c := range map[string]struct {
		others int // requests of the other program before ours
		want   int // requests of ours in that window
	}{
		"nothing is used":     {0, 90},
		"the reserve is used": {10, 80},
		"more is used":        {60, 30},
		"all is used":         {100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				layer, _ := quota(100, func(left int, reset time.Duration) []string { return github(100)(max(0, left), reset) })
				srv := sluicetest.NewServer(layer)
				defer srv.Close()
				base := srv.Transport()
				defer base.CloseIdleConnections()
				request := func(ctx context.Context, rt http.RoundTripper) {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/", nil)
					if err != nil {
						t.Error(err)
						return
					}
					if resp, err := rt.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
				}
				for range c.others {
					request(t.Context(), base)
				}
				store := &meeting{began: time.Now()}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range 2 {
					ours := mustTransport(t, base, sluicehttp.Config{
						Published: sluicehttp.Published{Reserve: .1},
						Gate:      sluice.Config{Concurrency: 1, Adaptive: sluice.Adaptive{Peers: store}},
					})
					all.Go(func() {
						for ctx.Err() == nil {
							request(ctx, ours)
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
				// Each of the two learns by its first response, and may have one request on its way
				// when the other one takes the last.
				near := func(got, want int) bool { return got >= want && got <= want+3 }
				time.Sleep(59 * time.Second)
				first := len(srv.Record().Arrivals()) - c.others
				if !near(first, c.want) {
					t.Errorf("%d requests of ours in the first minute, want %d", first, c.want)
				}
				time.Sleep(time.Minute)
				if got := len(srv.Record().Arrivals()) - c.others - first; !near(got, 90) {
					t.Errorf("%d requests of ours in the second minute, want 90", got)
				}
				cancel()
				all.Wait()
				time.Sleep(5 * time.Second) // until they have left their group
			})
		})
	}
}
