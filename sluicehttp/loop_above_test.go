package sluicehttp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A retry loop above a transport, such as resty's, sends a request four times, 2 s apart. A server
// that throttles it for ever holds it for MaxServerWait in all and not for each request: from then
// on the gate asks now and then, and other requests fail immediately. A gate that does not learn
// knows of no such time: there MaxElapsed bounds each request, as doc.go says.
func TestRetry_LoopAbove(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      sluicehttp.Config
		loops    int
		within   time.Duration
		requests int // at most
	}{
		{"one call", sluicehttp.Config{}, 1, 7 * time.Minute, 12},
		{"ten calls", sluicehttp.Config{}, 10, 7 * time.Minute, 30},
		{"a rate", sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}}, 1, 7 * time.Minute, 12},
		{"Adaptive.Off", sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Off: true}}}, 1, 62 * time.Minute, 124},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.cfg, layers(sluicetest.Status(429, "Retry-After: 30")), func(w *world) {
				var wg sync.WaitGroup
				for range c.loops {
					wg.Go(func() {
						for range 4 {
							w.get(bg, "http://a.test/")
							time.Sleep(2 * time.Second)
						}
					})
				}
				wg.Wait()
				n := len(w.srv.Record().Requests)
				if w.now() > c.within || n > c.requests {
					t.Errorf("%v with %d requests, want %v with %d at most", w.now(), n, c.within, c.requests)
				}
			})
		})
	}
}
