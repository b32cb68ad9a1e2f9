package sluicehttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A reset in milliseconds from now looks like seconds: 60000 is most of a day. It is known by falling by 1000
// in a second, before the window is used up, and a true reset in seconds stays one.
func TestMillis(t *testing.T) {
	for _, c := range []struct {
		name  string
		reset func(s sluicetest.LimitState) int64
		lost  bool
	}{
		{"milliseconds", func(s sluicetest.LimitState) int64 { return s.Reset.Milliseconds() }, false},
		{"seconds", func(s sluicetest.LimitState) int64 { return 60000 + int64(s.Reset.Seconds()) }, true},
		{"always the same", func(sluicetest.LimitState) int64 { return 60000 }, true},
		{"of two windows", func(s sluicetest.LimitState) int64 { return 60000 + s.Remaining%2*500 }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := func(h http.Header, s sluicetest.LimitState) {
				h.Set("X-Rate-Limit-Limit", fmt.Sprint(s.Limit))
				h.Set("X-Rate-Limit-Remaining", fmt.Sprint(s.Remaining))
				h.Set("X-Rate-Limit-Reset", fmt.Sprint(c.reset(s)))
			}
			limit := sluicetest.Limit{Quota: 100, Window: time.Minute, HeaderStyle: header}
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Enforce(limit), sluicetest.Delay(100*ms)), func(w *world) {
				var group sync.WaitGroup
				var mu sync.Mutex
				served, gaveUp := 0, 0
				for range 8 {
					group.Go(func() {
						for range 25 {
							status, _, err := w.get(bg, "https://a.test/")
							mu.Lock()
							if err == nil && status == 200 {
								served++
							}
							if errors.Is(err, sluice.ErrServerWait) {
								gaveUp++
							}
							mu.Unlock()
						}
					})
				}
				group.Wait()
				if lost := gaveUp > 0; lost != c.lost || !c.lost && (served < 200 || w.now() > 65*second) {
					t.Errorf("%d served, %d gave up, in %v", served, gaveUp, w.now())
				}
			})
		})
	}
}
