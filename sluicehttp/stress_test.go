package sluicehttp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// loopback is a real server on a real socket that counts its connections and what
// is in flight in its handler.
type loopback struct {
	*httptest.Server
	open, opened       atomic.Int64
	inFlight, mostBusy atomic.Int64
}

func newLoopback(t testing.TB, http2 bool, handler http.HandlerFunc) *loopback {
	t.Helper()
	l := new(loopback)
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := l.inFlight.Add(1)
		defer l.inFlight.Add(-1)
		for most := l.mostBusy.Load(); n > most && !l.mostBusy.CompareAndSwap(most, n); most = l.mostBusy.Load() {
		}
		handler(w, r)
	}))
	l.Config.ErrorLog = nil
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			l.open.Add(1)
			l.opened.Add(1)
		case http.StateClosed, http.StateHijacked:
			l.open.Add(-1)
		}
	}
	if l.EnableHTTP2 = http2; http2 {
		l.StartTLS()
	} else {
		l.Start()
	}
	return l
}

// base returns a new transport that trusts l.
func (l *loopback) base() *http.Transport {
	base := l.Client().Transport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 100
	base.ExpectContinueTimeout = time.Minute
	return base
}

// eventually waits for what another goroutine does soon, on the real clock: it
// says no only after a time that nothing here takes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("never: %s", what)
}

// Bodies read, half read, unread, closed, cancelled, by 500 goroutines, from a
// server that fails now and then: no permit and no connection is lost.
func TestTransport_Stress(t *testing.T) {
	const limit = 50
	goroutines, each := 500, 2
	if os.Getenv("SLUICE_FULL") != "" {
		each = 6
	}
	if testing.Short() || built.Raced() && each == 2 {
		goroutines = 100
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2=%v", http2), func(t *testing.T) {
			l := newLoopback(t, http2, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				size, _ := strconv.Atoi(r.URL.Query().Get("size"))
				switch rand.IntN(12) {
				case 0:
					w.Header().Set("Retry-After-Ms", "1")
					w.WriteHeader(429)
				case 1:
					w.WriteHeader(503)
				case 2:
					panic(http.ErrAbortHandler)
				}
				for size > 0 && r.Context().Err() == nil {
					n, err := io.WriteString(w, strings.Repeat("x", min(size, 1000)))
					if size -= n; err != nil {
						return
					}
				}
			})
			base := l.base()
			policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond), ThrottleBackoff: sluice.Constant(time.Millisecond)}
			// A gate that learns would wait for minutes: one call in twelve is refused at random.
			gate := sluice.Config{Concurrency: limit, RetryBudget: -1, Adaptive: sluice.Adaptive{Disabled: true}}
			rt := mustTransport(t, base, sluicehttp.Config{Retry: policy, Gate: gate})
			client := &http.Client{Transport: rt}
			var answers atomic.Int64
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for i := range each {
						ctx, cancel := context.WithCancel(bg)
						if rand.IntN(4) == 0 {
							ctx = sluicehttp.WithOverrides(ctx, sluicehttp.Overrides{AttemptTimeout: time.Minute})
						}
						method, body := "GET", io.Reader(nil)
						switch rand.IntN(4) {
						case 0:
							method, body = "PUT", strings.NewReader("body")
						case 1:
							method, body = "POST", struct{ io.Reader }{strings.NewReader("body")}
						}
						req := request(t, ctx, method, fmt.Sprintf("%s/?size=%d", l.URL, rand.IntN(4)*rand.IntN(20_000)), body)
						if rand.IntN(10) == 0 {
							time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
						}
						resp, err := client.Do(req)
						if err == nil {
							answers.Add(1)
							switch (g + i) % 5 {
							case 0:
								io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
							case 1:
								io.CopyN(io.Discard, resp.Body, 500)
								resp.Body.Close()
							case 2:
								resp.Body.Close()
							case 3:
								closed := make(chan struct{}) // by another goroutine, while it is read
								go func() { defer close(closed); resp.Body.Close() }()
								io.Copy(io.Discard, resp.Body)
								<-closed
							case 4: // cancelled, and never closed, as happens
								io.CopyN(io.Discard, resp.Body, 10)
							}
						}
						cancel()
					}
				})
			}
			wg.Wait()
			if n := answers.Load(); n < int64(goroutines*each/2) {
				t.Errorf("only %d of %d requests were answered", n, goroutines*each)
			}
			eventually(t, "nothing in flight", func() bool { return inFlight(rt) == 0 }) // a goroutine reports what was cancelled
			rt.Stats(func(key string, s sluicehttp.Stats) bool {                         // also of its three routes
				if s.InFlight != 0 || s.Waiting != 0 || s.Held != 0 {
					t.Errorf("%s: %d in flight, %d waiting, %d held in the end", key, s.InFlight, s.Waiting, s.Held)
				}
				return true
			})
			if n := l.mostBusy.Load(); !http2 && n > 2*limit {
				// A handler may not have heard yet of a client that has gone.
				t.Errorf("%d in flight at the server, where %d may be", n, limit)
			}
			eventually(t, "all connections closed", func() bool {
				client.CloseIdleConnections() // again: a stream that was cancelled ends a little later
				return l.open.Load() == 0
			})
			l.Close()
		})
	}
}

// A connection is used again after an answer was read, discarded or had no body.
func TestTransport_ReusesConnections(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var n atomic.Int64
		l := newLoopback(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%2 == 1 {
				w.WriteHeader(503)
				io.WriteString(w, strings.Repeat("x", 4000))
			}
		})
		base := l.base()
		rt := mustTransport(t, base, sluicehttp.Config{
			Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)},
			Gate:  sluice.Config{Concurrency: 1, Adaptive: sluice.Adaptive{Disabled: true}}, // which would take half a minute
		})
		client := &http.Client{Transport: rt}
		for range 10 {
			resp, err := client.Get(l.URL)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v, %v", resp, err)
			}
			resp.Body.Close()
		}
		if n.Load() != 20 || l.opened.Load() != 1 {
			t.Errorf("%d connections for %d requests, want 1 for 20", l.opened.Load(), n.Load())
		}
		client.CloseIdleConnections()
		l.Close()
	}
}

// Requests that succeed, fail, are throttled, retried, cut off, closed early and cancelled:
// in the end each of them has taken what it took, from the limit of the program and from
// that of a parent.
func TestConfig_Cost_Conserves(t *testing.T) {
	for _, url := range []string{"http://a.test/", "https://a.test/"} {
		inBubble(t, func(t *testing.T) {
			const all, estimate, used, calls = 1_000_000, 100, 30, 400
			newBucket := func() *leaky.Bucket {
				return limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: all}))
			}
			own, parents := newBucket(), newBucket()
			cfg := sluicehttp.Config{
				Gate: sluice.Config{
					Concurrency: 16,
					Limits:      []sluice.Limit{{Unit: "tokens", Limiter: own}},
					Parent:      must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: parents}}})),
				},
				Cost: estimated("tokens"), Usage: totalTokens("tokens"),
				Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), Attempts: 2},
			}
			answer := answerWith{kind: stream, parts: []string{delta, strings.ReplaceAll(usage30, "\r\n", "\n"), done}}
			l := layers(
				sluicetest.Every(7, sluicetest.Status(429)), sluicetest.Every(11, sluicetest.Status(500)),
				sluicetest.Delay(100*ms), sluicetest.Handler(answer),
			)
			if url == "http://a.test/" { // with HTTP/2 a cut connection takes others along that never arrive
				l = append(layers(sluicetest.Every(13, sluicetest.Cut())), l...)
			}
			withWorld(t, cfg, l, func(w *world) {
				var settled atomic.Int64
				var wg sync.WaitGroup
				for i := range calls {
					wg.Go(func() {
						ctx, cancel := context.WithCancel(bg)
						defer cancel()
						if i%9 == 0 { // not at the instant at which a request leaves: is it sent?
							time.AfterFunc(time.Duration(i)*37*ms+ms/2, cancel)
						}
						resp, err := w.client.Do(request(t, ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"max_tokens":%d}`, estimate))))
						if err != nil {
							return
						}
						defer resp.Body.Close()
						var body strings.Builder
						if i%5 == 0 { // closed early
							_, err = io.CopyN(&body, resp.Body, int64(len(delta)))
						} else {
							_, err = io.Copy(&body, resp.Body)
						}
						_ = err // of a request that was cancelled
						if strings.Contains(body.String(), "total_tokens") {
							settled.Add(1)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				refused, sent := int64(0), int64(0)
				for _, r := range w.srv.Record().Requests {
					if sent++; r.Status == 429 {
						refused++
					}
				}
				want := all - (sent-refused)*estimate + settled.Load()*(estimate-used)
				wantLeft(t, own, want)
				wantLeft(t, parents, want)
				if n := inFlight(w.rt); n != 0 {
					t.Errorf("%d in flight", n)
				}
				if n := w.rt.Charges(); n != 0 {
					t.Errorf("%d attempts are remembered, although no limit is published", n)
				}
				if settled.Load() < calls/4 || refused < calls/20 {
					t.Errorf("%d settled and %d refused show little", settled.Load(), refused)
				}
			})
		})
	}
}
