package sluicehttp_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A throttle of all calls pauses every gate to that server: those that are in use,
// those whose key is new, and those that went elsewhere before. One of a bucket
// pauses that.
func TestTransport_GlobalThrottle(t *testing.T) {
	for _, c := range []struct {
		global string
		want   time.Duration // of the other calls to that server
	}{{"true", time.Minute}, {"false", 0}} {
		faults := layers(sluicetest.Path("/refused", sluicetest.On(1, sluicetest.Status(429, "Retry-After: 60", "X-RateLimit-Global: "+c.global))))
		cfg := sluicehttp.Config{
			Retry: seconds,
			Key:   func(req *http.Request) string { return req.URL.Path },
			Gate:  sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}},
		}
		inWorld(t, cfg, faults, func(w *world) {
			w.wantGet("http://a.test/used", 200)
			w.wantGet("http://b.test/moves", 200)
			w.wantGet("http://a.test:8080/port", 200)
			var wg sync.WaitGroup
			wg.Go(func() { w.wantGet("http://a.test/refused", 200) })
			time.Sleep(time.Second)
			for _, url := range []string{"http://a.test/used", "http://a.test/used", "http://A.test:80/new", "http://a.test/moves", "http://a.test:8080/port", "http://b.test/other"} {
				wg.Go(func() { w.wantGet(url, 200) })
			}
			wg.Wait()
			w.wantGet("http://a.test/later", 200)
			came := make(map[string]time.Duration) // the last one of each
			for _, r := range w.srv.Record().Requests {
				came[r.Host+r.Path] = r.Arrived
			}
			at := max(c.want, time.Second)
			for where, want := range map[string]time.Duration{
				"a.test/refused":   time.Minute,
				"a.test/used":      at + time.Second, // the second of them, at the pace
				"A.test:80/new":    at,
				"a.test/moves":     at,
				"a.test:8080/port": time.Second,
				"b.test/other":     time.Second,
				"a.test/later":     max(time.Minute, at+time.Second),
			} {
				if came[where] != want {
					t.Errorf("global %s: %s came at %v, want %v", c.global, where, came[where], want)
				}
			}
		})
	}
}

// A shorter throttle does not shorten the one that is in force, a later one
// prolongs it, and what has passed is forgotten.
func TestTransport_GlobalThrottle_LongestPauseCounts(t *testing.T) {
	wait := func(seconds string) sluicetest.Layer {
		return sluicetest.Status(429, "Retry-After: "+seconds, "X-RateLimit-Global: true")
	}
	faults := layers(
		// Not before the other two have left, at the same instant.
		sluicetest.Path("/long", sluicetest.On(1, sluicetest.Delay(500*ms), wait("60"))),
		sluicetest.Path("/short", sluicetest.On(1, sluicetest.Delay(time.Second), wait("1"))),
		sluicetest.Path("/more", sluicetest.On(1, sluicetest.Delay(2*time.Second), wait("100"))),
	)
	cfg := sluicehttp.Config{Retry: seconds, Key: func(req *http.Request) string { return req.URL.Path }}
	inWorld(t, cfg, faults, func(w *world) {
		var wg sync.WaitGroup
		for _, path := range []string{"long", "short", "more"} {
			wg.Go(func() { w.wantGet("http://a.test/"+path, 200) })
		}
		time.Sleep(1500 * ms)
		wg.Go(func() { w.wantGet("http://a.test/new", 200) })
		wg.Wait()
		end := 102 * time.Second
		w.wantCame(0, 0, 0, end, end, end, end)
		time.Sleep(time.Second)
		w.wantGet("http://a.test/later", 200)
		if w.now() != end+time.Second {
			t.Errorf("the next came at %v", w.now())
		}
	})
}

// It also pauses the gate of the server itself, which others without a key use.
func TestTransport_GlobalThrottle_GateOfTheServer(t *testing.T) {
	faults := layers(sluicetest.Path("/refused", sluicetest.On(1, sluicetest.Delay(time.Second), sluicetest.Status(429, "Retry-After: 60", "X-RateLimit-Global: true"))))
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: 2 * time.Second}}}
	inWorld(t, cfg, faults, func(w *world) {
		w.wantGet("http://a.test/before", 200)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx := sluicehttp.With(bg, sluicehttp.Overrides{Key: "search"})
			if status, _, err := w.get(ctx, "http://a.test/refused"); status != 200 {
				t.Errorf("%d, %v", status, err)
			}
		})
		wg.Go(func() { w.wantGet("http://a.test/waits", 200) }) // since before the throttle
		wg.Wait()
		w.wantCame(0, 0, 61*time.Second, 61*time.Second)
	})
}
