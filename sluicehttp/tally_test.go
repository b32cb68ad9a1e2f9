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

// perObject is a server that limits each path to n requests in a window, and shows that as a window
// of all of them.
type perObject struct {
	n   int
	per time.Duration

	mu   sync.Mutex
	of   map[string]*npmWindow
	sent int
}

func (s *perObject) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(10 * ms)
	s.mu.Lock()
	if s.of == nil {
		s.of = make(map[string]*npmWindow)
	}
	l := s.of[r.URL.Path]
	if l == nil {
		l = &npmWindow{n: s.n, per: s.per}
		s.of[r.URL.Path] = l
	}
	remaining, left, ok := l.take(time.Now())
	s.sent++
	s.mu.Unlock()
	h := w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(s.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(left.Seconds(), 'f', 3, 64))
	if !ok {
		h.Set("Retry-After", strconv.FormatFloat(left.Seconds(), 'f', 3, 64))
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// Ten channels with a limit each, whose client keeps to it: the one that is used up first must not
// stop the others, or what they have left waits for a third window, after 10 s.
func TestTransport_LimitOfEachObject(t *testing.T) {
	server := &perObject{n: 5, per: 5 * time.Second}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(server)), func(w *world) {
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * ms)
				began := time.Now()
				for k := range 10 {
					if k == 5 {
						time.Sleep(time.Until(began.Add(5100 * ms)))
					}
					w.wantGet(fmt.Sprintf("https://a.test/channels/%d/messages", 100+i), 200)
				}
			})
		}
		wg.Wait()
		if server.sent != 100 || w.now() > 6*time.Second {
			t.Errorf("%d requests in %v", server.sent, w.now())
		}
	})
}

// One limit that is used up, and of which the client takes no more than it grants, stops the calls as
// before: none is throttled.
func TestTransport_LimitOfAll(t *testing.T) {
	server := &perObject{n: 50, per: 5 * time.Second}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(server)), func(w *world) {
		for range 200 {
			w.wantGet("https://a.test/messages", 200)
		}
		if server.sent > 200 || w.now() > 20*time.Second {
			t.Errorf("%d requests in %v", server.sent, w.now())
		}
	})
}
