package sluicehttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// Five of 205 addresses of a server without a limit always answer 429 with a second to wait. Eight workers get the
// other 200, also if the five come together, so that at first they are all that the server is asked for: then all but
// three were lost after five minutes. Later the last of 200 came after 19, 15, 107 and 7 s, and at a window that is
// used up after 11, 33 and 22 s, and now after 5, 5, 8, 4, 7, 9 and 7 s in the mean. A worker with a bad one gets no
// others for some seconds.
func TestTransport_BadAddresses(t *testing.T) {
	for _, c := range []struct {
		bad    []int64
		fields []string
		most   time.Duration
	}{
		{[]int64{0, 1, 2, 3, 4}, []string{"Retry-After: 1"}, 10 * time.Second},
		{[]int64{20, 21, 22, 23, 24}, []string{"Retry-After: 1"}, 13 * time.Second},
		{[]int64{30, 31, 32, 33, 34}, []string{"Retry-After: 1"}, 20 * time.Second},
		{[]int64{10, 50, 90, 130, 170}, []string{"Retry-After: 1"}, 6 * time.Second},
		{[]int64{20}, usedUp, 17 * time.Second},
		{[]int64{0, 1, 2, 3, 4}, usedUp, 20 * time.Second},
		{[]int64{10, 50, 90, 130, 170}, usedUp, 14 * time.Second},
	} {
		bad := c.bad
		t.Run(fmt.Sprint(bad, c.fields[0]), func(t *testing.T) {
			throttles := sluicetest.When(func(_ int, r *http.Request) bool {
				return slices.ContainsFunc(bad, func(n int64) bool { return r.URL.Path == fmt.Sprint("/", n) })
			}, sluicetest.Status(http.StatusTooManyRequests, c.fields...))
			cfg := sluicehttp.Config{
				Key:   func(r *http.Request) string { return r.URL.Host },
				Retry: sluice.RetryPolicy{Attempts: 4, MaxElapsed: -1},
			}
			inWorld(t, cfg, layers(sluicetest.Delay(50*ms), throttles), func(w *world) {
				var workers sync.WaitGroup
				var next, last, lost atomic.Int64
				for range 8 {
					workers.Go(func() {
						for n := next.Add(1) - 1; n < 205; n = next.Add(1) - 1 {
							status, _, err := w.get(bg, fmt.Sprint("https://a.test/", n))
							switch {
							case slices.Contains(bad, n):
							case status != http.StatusOK || err != nil:
								lost.Add(1)
							default:
								last.Store(int64(w.now()))
							}
						}
					})
				}
				workers.Wait()
				took := time.Duration(last.Load())
				if t.Logf("the last of 200 came after %v", took); lost.Load() > 0 || took > c.most {
					t.Errorf("%d of 200 are lost, and the last one came after %v, want at most %v", lost.Load(), took, c.most)
				}
			})
		})
	}
}

// usedUp are the fields of a window that is used up.
var usedUp = []string{"Retry-After: 5", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"}
