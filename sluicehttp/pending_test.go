package sluicehttp_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// Calls wait once for those in flight, and not again and again, if what remains does not change: GitHub does not count
// a 304, and some servers always say 1. 1,000 calls of 100 ms took 40 s and two minutes.
func TestTransport_Claims_NotCounted(t *testing.T) {
	for _, c := range []struct{ status, limit, left int }{{304, 5000, 30}, {200, 0, 1}, {200, 0, 9}, {200, 100, 5}} {
		t.Run(fmt.Sprint(c.status, " ", c.left, " of ", c.limit), func(t *testing.T) {
			var reset time.Time
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(100 * ms)
				if c.limit > 0 {
					w.Header().Set("X-RateLimit-Limit", strconv.Itoa(c.limit))
				}
				w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(c.left))
				w.Header().Set("X-RateLimit-Reset", fmt.Sprint(reset.Unix()))
				w.WriteHeader(c.status)
			})
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(h)), func(w *world) {
				reset = time.Now().Add(time.Hour)
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						for range 100 {
							w.wantGet("https://a.test/x", c.status)
						}
					})
				}
				wg.Wait()
				if w.now() > 11*time.Second {
					t.Errorf("took %v", w.now())
				}
			})
		})
	}
}
