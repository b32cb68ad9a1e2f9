package sluicehttp_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A firewall that answers 403 for ten seconds once ten calls were throttled within ten seconds, of a
// server that allows 20 calls per second: without it, such a ban ended all calls of a batch at once.
// Every tenth of the pages is forbidden at any time. A 403 that overtakes the 429 which caused the ban
// is passed on.
func TestBan(t *testing.T) {
	type ban struct {
		mu    sync.Mutex
		bad   []time.Time
		until time.Time
	}
	firewall := func(b *ban) sluicetest.Layer {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.mu.Lock()
				banned := time.Now().Before(b.until)
				b.mu.Unlock()
				if banned {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				seen := &statusOf{ResponseWriter: w}
				next.ServeHTTP(seen, r)
				if seen.status != http.StatusTooManyRequests {
					return
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				now := time.Now()
				for len(b.bad) > 0 && now.Sub(b.bad[0]) > 10*time.Second {
					b.bad = b.bad[1:]
				}
				if b.bad = append(b.bad, now); len(b.bad) > 10 {
					b.bad, b.until = nil, now.Add(10*time.Second)
				}
			})
		}
	}
	limit := sluicetest.Enforce(sluicetest.Limit{Count: 20, Per: time.Second, Burst: 20})
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Path("/forbidden", sluicetest.Status(http.StatusForbidden)), firewall(new(ban)), limit), func(w *world) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		lost := 0
		items := make(chan int)
		for range 32 {
			wg.Go(func() {
				for i := range items {
					path, want := "/", http.StatusOK
					if i%10 == 9 {
						path, want = "/forbidden", http.StatusForbidden
					}
					status, _, err := w.do(request(w, bg, "GET", "https://a.test"+path, nil))
					mu.Lock()
					if status != want || err != nil {
						lost++
					}
					mu.Unlock()
				}
			})
		}
		for i := range 300 {
			items <- i
		}
		close(items)
		wg.Wait()
		if lost > 30 || w.now() > 6*time.Minute { // mostly 2 to 8, and 14 in one of 600 runs
			t.Errorf("%d of 300 are lost, in %v", lost, w.now())
		}
	})
}

// statusOf notes the status of a response.
type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}
