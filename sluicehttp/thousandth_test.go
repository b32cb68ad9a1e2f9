package sluicehttp_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A reset in milliseconds, in a field that has seconds elsewhere: it is known by how fast it comes nearer.
func TestTransport_ResetInMillis(t *testing.T) {
	l := &npmWindow{n: 100, per: 20 * time.Second}
	srv := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: func(now time.Time, h http.Header) bool {
		remaining, left, ok := l.take(now)
		h.Set("X-Rate-Limit-Limit", "100")
		h.Set("X-Rate-Limit-Remaining", strconv.Itoa(remaining))
		h.Set("X-Rate-Limit-Reset", strconv.FormatInt(left.Milliseconds(), 10))
		return ok
	}}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(srv)), func(w *world) {
		var all sync.WaitGroup
		calls := make(chan int)
		for range 4 {
			all.Go(func() {
				for range calls {
					w.wantGet("https://a.test/", http.StatusOK)
				}
			})
		}
		for i := range 350 {
			calls <- i
		}
		close(calls)
		all.Wait()
		if w.now() > 75*time.Second { // 61 s are the least
			t.Errorf("they took %v", w.now())
		}
	})
}
