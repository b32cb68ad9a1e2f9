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

// Five of 205 addresses of a server without a limit always answer 429 with a second to wait. Eight
// workers get the other 200, also if the five come together, so that at first they are all that
// the server is asked for: then all but three were lost after five minutes. After thirty good ones
// five cost up to 329 s when only one other call was let go before each that was rejected, and now 115.
func TestTransport_BadAddresses(t *testing.T) {
	for _, c := range []struct {
		bad    []int64
		fields []string
	}{
		{[]int64{0, 1, 2, 3, 4}, []string{"Retry-After: 1"}},
		{[]int64{20, 21, 22, 23, 24}, []string{"Retry-After: 1"}},
		{[]int64{30, 31, 32, 33, 34}, []string{"Retry-After: 1"}},
		{[]int64{10, 50, 90, 130, 170}, []string{"Retry-After: 1"}},
		{[]int64{20}, usedUp},
		{[]int64{0, 1, 2, 3, 4}, usedUp},
		{[]int64{10, 50, 90, 130, 170}, usedUp},
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
				if last := time.Duration(last.Load()); lost.Load() > 0 || last > 150*time.Second {
					t.Errorf("%d of 200 are lost, and the last one came after %v", lost.Load(), last)
				} else {
					t.Logf("the last of 200 came after %v", last)
				}
			})
		})
	}
}

// usedUp are the fields of a window that is used up.
var usedUp = []string{"Retry-After: 5", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"}
