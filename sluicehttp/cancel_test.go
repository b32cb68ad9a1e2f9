package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// setCancel sets Request.Cancel.
func setCancel(req *http.Request, c <-chan struct{}) {
	req.Cancel = c //lint:ignore SA1019 it is what is tested
}

// Request.Cancel ends a call wherever it is, at once and with the error of net/http,
// and it is not sent again.
func TestTransport_RequestCancel(t *testing.T) {
	const cancelled = "net/http: request canceled"
	at := 3 * time.Second
	for _, c := range []struct {
		name     string
		cfg      sluicehttp.Config
		before   int // requests that take the gate, the last one reads for ever
		answer   sluicetest.Layer
		stalled  bool // the body of the request
		attempts int
	}{
		{"in the queue for the rate", sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}}}, 1, nil, false, 0},
		{"in the queue for room", sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, 1, nil, false, 0},
		{"in a pause", sluicehttp.Config{}, 0, sluicetest.Reply(429, "", "Retry-After: 60"), false, 1},
		{"in a backoff", sluicehttp.Config{Retry: sluice.RetryPolicy{Backoff: sluice.Constant(10 * time.Second)}}, 0, sluicetest.Status(503), false, 1},
		{"in an attempt", sluicehttp.Config{}, 0, sluicetest.Delay(limits.Never), false, 1},
		{"in a second attempt", sluicehttp.Config{Retry: seconds}, 0, sluicetest.Script(sluicetest.Status(503), sluicetest.Delay(limits.Never)), false, 2},
		{"in the body of the request", sluicehttp.Config{}, 0, nil, true, 0},
	} {
		for _, method := range []string{"GET", "POST"} {
			for _, scheme := range []string{"http", "https"} {
				for _, extra := range []string{"", "AttemptTimeout", "Permits", "deadline"} {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", c.name, method, scheme, extra), func(t *testing.T) {
						cfg := c.cfg
						ctx := sluicehttp.With(bg, sluicehttp.Overrides{Idempotent: true})
						switch extra {
						case "AttemptTimeout":
							cfg.Retry.AttemptTimeout = time.Minute
						case "Permits":
							cfg.Gate.Semaphore = new(lender)
						}
						var faults []sluicetest.Layer
						if c.answer != nil {
							faults = layers(c.answer)
						}
						inWorld(t, cfg, faults, func(w *world) {
							if extra == "deadline" {
								var stop func()
								ctx, stop = context.WithTimeout(ctx, time.Hour)
								defer stop()
							}
							var held []*http.Response
							for range c.before {
								resp, err := w.client.Get(scheme + "://a.test/")
								if err != nil {
									t.Fatal(err)
								}
								held = append(held, resp)
							}
							ctx, report := sluicehttp.WithReport(ctx)
							req := request(t, ctx, method, scheme+"://a.test/", nil)
							if c.stalled {
								req.Body, _ = io.Pipe()
								req.ContentLength = 5
							}
							cancel := make(chan struct{})
							setCancel(req, cancel)
							time.AfterFunc(at, func() { close(cancel) })
							resp, err := w.rt.RoundTrip(req)
							if resp != nil || err == nil || err.Error() != cancelled {
								t.Errorf("got %v, %v", resp, err)
							}
							if w.now() != at {
								t.Errorf("it came back at %v", w.now())
							}
							if n := len(report.Last().Attempts); n != c.attempts {
								t.Errorf("%d attempts, want %d", n, c.attempts)
							}
							for _, resp := range held {
								resp.Body.Close()
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

// A request that was cancelled before takes nothing. One that is cancelled when its
// answer is there gives its permit back, whether anybody reads or not.
func TestTransport_RequestCancel_BeforeAndAfter(t *testing.T) {
	for _, o := range []sluicehttp.Overrides{{}, {AttemptTimeout: time.Second}, {ReleaseAtHeaders: true}} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(fmt.Sprintf("%+v/%s", o, scheme), func(t *testing.T) {
				inWorld(t, sluicehttp.Config{}, layers(sluicetest.Stall(2, limits.Never)), func(w *world) {
					req := request(t, sluicehttp.With(bg, o), "GET", scheme+"://a.test/", nil)
					cancel := make(chan struct{})
					setCancel(req, cancel)
					resp, err := w.rt.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					start := make([]byte, 2)
					if _, err := io.ReadFull(resp.Body, start); err != nil {
						t.Error(err)
					}
					close(cancel)
					synctest.Wait()
					if n := inFlight(w.rt); n != 0 {
						t.Errorf("%d in flight after the request was cancelled", n)
					}
					if n, err := resp.Body.Read(start); n > 0 || err == nil || err == io.EOF {
						t.Errorf("read %d, %v", n, err)
					}
					body := &closing{Reader: strings.NewReader("x")}
					req = request(t, bg, "POST", scheme+"://b.test/", body)
					setCancel(req, cancel)
					if _, err := w.rt.RoundTrip(req); err == nil || err.Error() != "net/http: request canceled" {
						t.Errorf("got %v", err)
					}
					if _, closed := body.count(); closed != 1 || len(w.srv.Record().Requests) != 1 {
						t.Errorf("the body was closed %d times, %d requests came", closed, len(w.srv.Record().Requests))
					}
					// One that is never cancelled leaves no goroutine behind.
					req = request(t, sluicehttp.With(bg, o), "HEAD", scheme+"://c.test/", nil)
					setCancel(req, make(chan struct{}))
					if resp, err = w.rt.RoundTrip(req); err != nil {
						t.Error(err)
					} else {
						resp.Body.Close()
					}
				})
			})
		}
	}
}

// An http.Client with a Timeout sets Request.Cancel and closes it at the deadline of
// the context: the error is about time, wherever the call is.
func TestTransport_RequestCancel_ClientTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluicehttp.Config
		answer sluicetest.Layer
	}{
		"in an attempt": {sluicehttp.Config{}, sluicetest.Delay(limits.Never)},
		"in the queue":  {sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, sluicetest.Stall(1, limits.Never)},
	} {
		for range 50 { // two timers fire at one instant, in any order
			inWorld(t, c.cfg, layers(c.answer), func(w *world) {
				if c.cfg.Gate.Concurrency > 0 {
					resp, err := w.client.Get("http://a.test/")
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
				}
				ctx, report := sluicehttp.WithReport(bg)
				w.client.Timeout = 10 * time.Second
				_, err := w.client.Do(request(t, ctx, "GET", "http://a.test/", nil))
				var timeout interface{ Timeout() bool }
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || strings.Contains(err.Error(), "canceled") {
					t.Fatalf("%s: %v", name, err)
				}
				if w.now() != 10*time.Second || len(report.Last().Attempts) > 1 {
					t.Fatalf("%s: at %v, %d attempts", name, w.now(), len(report.Last().Attempts))
				}
			})
		}
	}
}

// A base transport may notice the cancellation first.
func TestTransport_RequestCancel_BaseIsFirst(t *testing.T) {
	for i := range 20 {
		cancel := make(chan struct{})
		sent := 0
		rt := mustTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				close(cancel)
			}
			return nil, errors.New("something else")
		}), sluicehttp.Config{Retry: sluice.RetryPolicy{Backoff: sluice.Constant(1)}})
		req := request(t, bg, []string{"GET", "POST"}[i%2], "http://a.test/", nil)
		setCancel(req, cancel)
		if _, err := rt.RoundTrip(req); err == nil || err.Error() != "net/http: request canceled" || sent != 1 {
			t.Fatalf("%v after %d attempts", err, sent)
		}
	}
}
