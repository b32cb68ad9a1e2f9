package sluicehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// A body that stalls holds an Inspector up for a second, and with it RoundTrip and the
// permit. The response is then judged by its header, and the caller can read all of it.
func TestInspector_StallingBody(t *testing.T) {
	jsonType := "Content-Type: application/json"
	long := `{"message": "` + strings.Repeat("x", 100) + `"}`
	for _, c := range []struct {
		name    string
		inspect sluicehttp.Inspector
		status  int
		header  []string
		second  time.Duration // when the second attempt comes, or how long after the stall; 0 if there is none
	}{
		{"GitHub, forbidden", sluicehttp.GitHub, 403, nil, 0},
		{"GitHub, too many", sluicehttp.GitHub, 429, nil, time.Second},
		{"Google", sluicehttp.Google, 429, []string{"Retry-After: 60"}, time.Minute},
		{"Google, without a time", sluicehttp.Google, 503, nil, time.Second},
		{"GraphQL", sluicehttp.GraphQL, 200, []string{jsonType}, 0},
		{"another", func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) { peek(); peek() }, 404, nil, 0},
	} {
		for _, scheme := range []string{"http", "https"} {
			for _, stall := range []time.Duration{limits.Never, 10 * time.Second} {
				for _, set := range []string{"", "AttemptTimeout", "Permits"} {
					t.Run(fmt.Sprintf("%s/%s/%v/%s", c.name, scheme, stall, set), func(t *testing.T) {
						cfg := sluicehttp.Config{Inspect: c.inspect, Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
						patience := time.Second
						switch set {
						case "AttemptTimeout":
							cfg.Retry.AttemptTimeout, patience = 200*ms, 200*ms
						case "Permits":
							cfg.Gate.Semaphore = new(lender)
						}
						faults := layers(sluicetest.On(1, sluicetest.Stall(20, stall)), sluicetest.On(1, sluicetest.Reply(c.status, long, c.header...)))
						inWorld(t, cfg, faults, func(w *world) {
							resp, err := w.client.Do(request(t, bg, "GET", scheme+"://a.test/", nil))
							if err != nil {
								t.Fatal(err)
							}
							defer resp.Body.Close()
							if c.second > 0 {
								at := c.second
								if at < time.Minute {
									at += patience
								}
								w.wantCame(0, at)
								return
							}
							if w.now() != patience || resp.StatusCode != c.status {
								t.Errorf("%s at %v", resp.Status, w.now())
							}
							start := make([]byte, 20)
							if _, err := io.ReadFull(resp.Body, start); err != nil || string(start) != long[:20] {
								t.Errorf("read %q, %v", start, err)
							}
							if stall == limits.Never {
								resp.Body.Close()
							} else {
								rest, err := io.ReadAll(resp.Body)
								if string(rest) != long[20:] || err != nil || w.now() != stall {
									t.Errorf("read %q, %v at %v", rest, err, w.now())
								}
							}
							if n := inFlight(w.rt); n != 0 {
								t.Errorf("%d in flight", n)
							}
						})
					})
				}
			}
		}
	}
}

// While the body stalls the key is paused by what the header says: no other request
// leaves. An Inspector that finds a shorter pause in a body that is there delays no call.
func TestInspector_StallingBody_KeyIsPaused(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		last   time.Duration // when the last of the others may leave
	}{
		{"Retry-After", 429, "Retry-After: 60", time.Minute},
		{"for less than a second", 429, "Retry-After: 0.5", time.Second},
		{"nothing remains", 200, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60", time.Minute},
		{"without a time", 429, "X-Nothing: 0", 0},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				peek := func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) { peek() }
				cfg := sluicehttp.Config{Inspect: peek, Retry: seconds, Gate: sluice.Config{Concurrency: 100}}
				faults := layers(sluicetest.Path("/first", sluicetest.Stall(1, limits.Never)),
					sluicetest.Path("/first", sluicetest.Reply(c.status, "long", strings.Split(c.header, "|")...)))
				inWorld(t, cfg, faults, func(w *world) {
					ctx := sluicehttp.With(bg, sluicehttp.Overrides{NoRetry: true})
					done := make(chan struct{})
					go func() {
						defer close(done)
						resp, err := w.rt.RoundTrip(request(t, ctx, "GET", scheme+"://a.test/first", nil))
						if err != nil {
							t.Error(err)
							return
						}
						if w.now() != time.Second {
							t.Errorf("RoundTrip came back at %v", w.now())
						}
						resp.Body.Close()
					}()
					synctest.Wait()
					var others []chan struct{}
					for range 100 { // one every 10 ms
						other := make(chan struct{})
						others = append(others, other)
						go func() {
							defer close(other)
							w.get(bg, scheme+"://a.test/other")
						}()
						time.Sleep(10 * ms)
					}
					<-done
					for _, other := range others {
						<-other
					}
					for i, at := range w.srv.Record().Arrivals()[1:] {
						wait := c.last
						if c.name == "for less than a second" {
							wait = 500 * ms
						}
						if at < wait {
							t.Fatalf("request %d left at %v, want %v or later", i, at, wait)
						}
					}
				})
			})
		}
	}
	// The body is there: what the header said lasts no longer than the inspection.
	less := func(_ *http.Response, peek func() []byte, said *ratelimit.Info) {
		if string(peek()) == "soon" {
			said.RetryAt = time.Now().Add(100 * ms)
		}
	}
	for stall, want := range map[time.Duration]time.Duration{0: 100 * ms, 50 * ms: 160 * ms, 300 * ms: 640 * ms} {
		cfg := sluicehttp.Config{Inspect: less, Retry: seconds}
		cfg.Gate.Adaptive.Off = true // it would ask the server when it thinks best
		faults := layers(sluicetest.On(1, sluicetest.Stall(1, stall)), sluicetest.On(1, sluicetest.Reply(429, "soon", "Retry-After: 60")))
		inWorld(t, cfg, faults, func(w *world) {
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, want)
		})
	}
}

// A function of the configuration that panics leaks neither the permit nor the body.
func TestInspector_Panic(t *testing.T) {
	inspect := func(before bool) sluicehttp.Inspector {
		return func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) {
			if !before {
				peek()
			}
			panic("inspect")
		}
	}
	retry := seconds
	retry.Retryable = func(error) bool { panic("retry") }
	for name, cfg := range map[string]sluicehttp.Config{
		"at once":      {Inspect: inspect(true)},
		"after a peek": {Inspect: inspect(false)},
		"Policy.Retry": {Retry: retry},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				faults := layers(sluicetest.Stall(4, limits.Never), sluicetest.Reply(502, "12345678"))
				inWorld(t, sluicehttp.Config{}, faults, func(w *world) {
					closed := 0
					base := roundTripper(func(req *http.Request) (*http.Response, error) {
						resp, err := w.rt.Unwrap().RoundTrip(req)
						if err == nil {
							resp.Body = &closeCounter{resp.Body, &closed}
						}
						return resp, err
					})
					rt := mustTransport(t, base, cfg)
					func() {
						defer func() {
							if recover() == nil {
								t.Error("no panic")
							}
						}()
						rt.RoundTrip(request(t, bg, "GET", scheme+"://a.test/", nil))
					}()
					if n := inFlight(rt); closed != 1 || n != 0 {
						t.Errorf("closed %d times, %d in flight", closed, n)
					}
				})
			})
		}
	}
}

type closeCounter struct {
	io.ReadCloser
	n *int
}

func (c *closeCounter) Close() error {
	*c.n++
	return c.ReadCloser.Close()
}

// While an Inspector waits for a body, the key is not paused for longer than
// Config.MaxPause either.
func TestInspector_StallingBody_PauseIsNotLonger(t *testing.T) {
	cfg := sluicehttp.Config{Inspect: sluicehttp.Google, MaxPause: 200 * ms, Retry: sluice.RetryPolicy{Attempts: 1}}
	faults := layers(sluicetest.On(1, sluicetest.Stall(4, limits.Never)), sluicetest.On(1, sluicetest.Reply(429, "12345678", "Retry-After: 60")))
	for _, scheme := range []string{"http", "https"} {
		inWorld(t, cfg, faults, func(w *world) {
			ctx, cancel := context.WithCancel(bg)
			var wg sync.WaitGroup
			wg.Go(func() { w.get(ctx, scheme+"://a.test/") })
			time.Sleep(300 * ms)
			w.wantGet(scheme+"://a.test/", 200)
			if w.now() != 300*ms {
				t.Errorf("%s: the next call left at %v", scheme, w.now())
			}
			cancel()
			wg.Wait()
		})
	}
}
