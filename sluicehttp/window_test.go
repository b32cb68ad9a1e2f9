package sluicehttp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A limit with a short window becomes the rate of a gate, unless something else decides that; and no
// longer than the server publishes it.
func TestTransport_ShortWindow(t *testing.T) {
	second := func(count int64) sluice.Rate { return sluice.Rate{Count: count, Per: time.Second} }
	published := func(use sluicehttp.Published) sluicehttp.Config { return sluicehttp.Config{Published: use} }
	for _, c := range []struct {
		name   string
		cfg    sluicehttp.Config
		silent bool // in the end the server publishes nothing
		want   sluice.Rate
	}{
		{"no configuration", sluicehttp.Config{}, false, second(20)},
		{"concurrency", sluicehttp.Config{Concurrency: 8}, false, second(20)},
		{"cost", sluicehttp.Config{Cost: one}, false, second(20)},
		{"reserve", published(sluicehttp.Published{Reserve: .1}), false, second(18)},
		{"half in reserve", published(sluicehttp.Published{Reserve: .5}), false, second(10)},
		{"a rate", sluicehttp.Config{Rate: second(15)}, false, second(15)},
		{"disabled", published(sluicehttp.Published{Disabled: true}), false, sluice.Rate{}},
		{"peers", sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Peers: awayStore{}}}}, false, sluice.Rate{}},
		{"no more limit", sluicehttp.Config{}, true, sluice.Rate{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			window := &npmWindow{n: 20, per: time.Second}
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: window.fastify}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				w.calls(16, 300)
				if c.silent {
					srv.grant = func(time.Time, http.Header) bool { return true }
					w.calls(16, 50)
				}
				w.rt.Stats(func(_ string, s sluicehttp.Stats) bool {
					if s.Rate != c.want {
						t.Errorf("the rate is %v, want %v", s.Rate, c.want)
					}
					return true
				})
				if err := w.rt.Shutdown(bg); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The rate of a gate stays if some responses show only another limit.
func TestTransport_ShortWindow_AnotherLimit(t *testing.T) {
	window, responses := &npmWindow{n: 20, per: time.Second}, 0
	srv := &limiter{random: rand.New(rand.NewPCG(1, 2))}
	srv.grant = func(now time.Time, h http.Header) bool {
		if responses++; responses%4 > 0 {
			return window.express(now, h)
		}
		_, _, ok := window.take(now)
		h.Set("RateLimit", `"day"; r=5000; t=80000`)
		h.Set("RateLimit-Policy", `"day"; q=100000; w=86400`)
		return ok
	}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(srv)), func(w *world) {
		w.calls(16, 600)
		if took, refused := w.now(), srv.refused; took > 32*time.Second || refused > 30 {
			t.Errorf("600 calls at 20/s took %v, and %d were throttled", took, refused)
		}
	})
}

// Calls that come seldom are not spaced, although many come together.
func TestTransport_ShortWindow_Batches(t *testing.T) {
	window := &npmWindow{n: 20, per: time.Second}
	srv := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: window.express}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(srv)), func(w *world) {
		w.calls(16, 200) // now it has a rate
		for range 10 {
			time.Sleep(5 * time.Second)
			began := time.Now()
			w.calls(18, 18)
			if took := time.Since(began); w.now() > 45*time.Second && took > 100*ms {
				t.Errorf("after %v 18 calls took %v", w.now(), took)
			}
		}
	})
}

// A limit of one route with a short window is no rate for the others.
func TestTransport_ShortWindow_OfOneRoute(t *testing.T) {
	window := &npmWindow{n: 20, per: time.Second}
	srv := &limiter{random: rand.New(rand.NewPCG(1, 2))}
	srv.grant = func(time.Time, http.Header) bool { return true }
	search := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: window.fastify}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Path("/search", sluicetest.Handler(search)), sluicetest.Handler(srv)), func(w *world) {
		const callers, during = 8, 20 * time.Second
		var wg sync.WaitGroup
		for i := range 2 * callers {
			url := "http://a.test/items"
			if i%2 == 0 {
				url = "http://a.test/search"
			}
			wg.Go(func() {
				for w.now() < during {
					w.wantGet(url, 200)
				}
			})
		}
		wg.Wait()
		// A call takes 35 ms in the mean.
		if most := callers * int(during/(35*ms)); srv.sent < most*9/10 {
			t.Errorf("%d calls of about %d", srv.sent, most)
		}
		if searches := search.sent - search.refused; searches < 300 {
			t.Errorf("%d searches of 400", searches)
		}
		t.Logf("%d items, %d searches, %d refused", srv.sent, search.sent-search.refused, search.refused)
	})
}

// An awayStore cannot be reached.
type awayStore struct{}

func (awayStore) Exchange(context.Context, string, peers.Report) (peers.Reply, error) {
	return peers.Reply{}, errors.New("away")
}

// calls makes n calls of so many callers.
func (w *world) calls(callers, n int) {
	work := make(chan bool)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range work {
				w.wantGet("http://a.test/", 200)
			}
		})
	}
	for range n {
		work <- true
	}
	close(work)
	wg.Wait()
}
