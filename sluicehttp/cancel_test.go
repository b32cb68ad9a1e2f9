package sluicehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// canceledText begins the errors of net/http, some of which also say what was awaited.
const canceledText = "net/http: request canceled"

// setCancel sets Request.Cancel.
func setCancel(req *http.Request, c <-chan struct{}) {
	req.Cancel = c //lint:ignore SA1019 it is what is tested
}

// Request.Cancel ends an attempt, by the base transport, and the request is not sent again.
// It ends no wait: then it ends the next attempt.
func TestTransport_RequestCancel(t *testing.T) {
	tenSeconds := sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}}
	silent := sluicetest.Delay(limits.Never)
	for name, c := range map[string]struct {
		cfg      sluicehttp.Config
		answer   sluicetest.Layer
		before   int           // requests that take the gate
		ended    time.Duration // it is cancelled after 3 s
		attempts int
	}{
		"in an attempt":       {sluicehttp.Config{Retry: seconds}, silent, 0, 3 * time.Second, 1},
		"in a second attempt": {sluicehttp.Config{Retry: seconds}, sluicetest.Script(sluicetest.Status(503), silent), 0, 3 * time.Second, 2},
		"with AttemptTimeout": {sluicehttp.Config{Retry: sluice.RetryPolicy{AttemptTimeout: time.Minute}}, silent, 0, 3 * time.Second, 1},
		"with a semaphore":    {sluicehttp.Config{Gate: sluice.Config{Semaphore: new(lender)}}, silent, 0, 3 * time.Second, 1},
		"in the queue":        {sluicehttp.Config{Gate: tenSeconds}, sluicetest.Script(sluicetest.Status(200), silent), 1, 10 * time.Second, 1},
		"in a backoff":        {sluicehttp.Config{Retry: sluice.RetryPolicy{Backoff: sluice.Constant(10 * time.Second)}}, sluicetest.Script(sluicetest.Status(503), silent), 0, 10 * time.Second, 2},
		"after a throttle":    {sluicehttp.Config{}, sluicetest.Script(sluicetest.Reply(429, "", "Retry-After: 0"), silent), 0, 3 * time.Second, 2},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				inWorld(t, c.cfg, layers(c.answer), func(w *world) {
					for range c.before {
						resp, err := w.client.Get(scheme + "://a.test/")
						if err != nil {
							t.Fatal(err)
						}
						resp.Body.Close()
					}
					ctx, report := sluicehttp.WithReport(bg)
					req := request(t, ctx, "GET", scheme+"://a.test/", nil)
					cancel := make(chan struct{})
					setCancel(req, cancel)
					time.AfterFunc(3*time.Second, func() { close(cancel) })
					resp, err := w.rt.RoundTrip(req)
					if resp != nil || err == nil || !strings.HasPrefix(err.Error(), canceledText) {
						t.Errorf("got %v, %v", resp, err)
					}
					last := report.Last()
					if w.now() != c.ended || len(last.Attempts) != c.attempts || !errors.Is(last.Why, sluice.ErrPermanent) {
						t.Errorf("it ended at %v after %d attempts: %v", w.now(), len(last.Attempts), last.Why)
					}
					if n := inFlight(w.rt); n != 0 {
						t.Errorf("%d in flight", n)
					}
				})
			})
		}
	}
}

// A request that is cancelled while its response is read: the read fails, which releases the
// permit.
func TestTransport_RequestCancel_InTheBody(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Stall(2, limits.Never)), func(w *world) {
				req := request(t, bg, "GET", scheme+"://a.test/", nil)
				cancel := make(chan struct{})
				setCancel(req, cancel)
				resp, err := w.rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Minute, func() { close(cancel) })
				if content, err := io.ReadAll(resp.Body); len(content) != 2 || err == nil {
					t.Errorf("read %d bytes, %v", len(content), err)
				}
				if n := inFlight(w.rt); w.now() != time.Minute || n != 0 {
					t.Errorf("at %v, %d in flight", w.now(), n)
				}
			})
		})
	}
}

// An http.Client with a Timeout sets Request.Cancel and closes it at the deadline of the
// context: the error is about time, wherever the call is, and the request is not sent again.
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
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Fatalf("%s: %v", name, err)
				}
				if w.now() != 10*time.Second || len(report.Last().Attempts) > 1 {
					t.Fatalf("%s: at %v, %d attempts", name, w.now(), len(report.Last().Attempts))
				}
			})
		}
	}
}
