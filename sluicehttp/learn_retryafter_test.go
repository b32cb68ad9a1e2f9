package sluicehttp_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// retried are all statuses that are retried, and whether a Retry-After of theirs
// holds every call.
func retried() map[int]bool {
	all := map[int]bool{408: false, 409: false, 425: false, 429: true, 500: false, 502: false, 503: true, 504: false, 599: false, 529: true}
	for status := 520; status < 529; status++ {
		all[status] = false
	}
	return all
}

var alsoRetry = []int{409, 599}

// A Retry-After is obeyed by the call that got it, of whatever status, and by the
// others if it says that there are too many.
func TestTransport_RetryAfter_EveryStatus(t *testing.T) {
	rate := sluice.Rate{Count: 1, Per: time.Second}
	parent := func() *sluice.Gate { // made in the bubble
		g, _ := sluice.New(sluice.Config{Concurrency: 1})
		return g
	}
	for status, all := range retried() {
		for name, gate := range map[string]func() sluice.Config{
			"no rate":        func() sluice.Config { return sluice.Config{} },
			"rate":           func() sluice.Config { return sluice.Config{Rate: rate} },
			"concurrency":    func() sluice.Config { return sluice.Config{Concurrency: 1} },
			"parent":         func() sluice.Config { return sluice.Config{Parent: parent()} },
			"parent at rate": func() sluice.Config { return sluice.Config{Rate: rate, Parent: parent()} },
		} {
			for _, scheme := range []string{"http", "https"} {
				t.Run(fmt.Sprint(status, "/", name, "/", scheme), func(t *testing.T) {
					first := sluicetest.On(1, sluicetest.Status(status, "Retry-After: 20"))
					inWorld(t, sluicehttp.Config{}, layers(first), func(w *world) {
						w.rt = mustTransport(t, w.rt.Unwrap(), sluicehttp.Config{Gate: gate(), AlsoRetry: alsoRetry})
						w.client.Transport = w.rt
						var wg sync.WaitGroup
						wg.Go(func() { w.wantGet(scheme+"://a.test/1", 200) })
						time.Sleep(2 * time.Second)
						wg.Go(func() { w.wantGet(scheme+"://a.test/2", 200) })
						time.Sleep(time.Second)
						if n := inFlight(w.rt); n != 0 {
							t.Errorf("%d in flight while they wait", n)
						}
						wg.Wait()
						came := w.srv.Record().Arrivals()
						switch {
						case !all:
							w.wantCame(0, 2*time.Second, 20*time.Second)
						case len(came) != 3 || came[1] != 20*time.Second:
							t.Errorf("requests arrived at %v", came)
						}
						if err := w.srv.Record().Obeyed(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

// Whatever form the wait has, it is jittered upwards and never shortened.
func TestTransport_RetryAfter_EveryForm(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"Retry-After: 20": 20 * time.Second,
		"Retry-After: Sat, 01 Jan 2000 00:00:20 GMT": 20 * time.Second,
		"Retry-After-Ms: 2500":                       2500 * ms,
		"X-RateLimit-Retry-After: 3":                 3 * time.Second,
		"Retry-After: 0":                             time.Second, // the backoff
		"Retry-After: soon":                          time.Second,
		"X-Nothing: 1":                               time.Second,
	} {
		for _, u := range []float64{0, 0.5} {
			inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.On(1, sluicetest.Status(502, header))), func(w *world) {
				w.rt.SetRandom(func() float64 { return u })
				w.wantGet("http://a.test/", 200)
				want := want
				if want != time.Second {
					want += time.Duration(u * float64(min(want/10, time.Second)))
				}
				w.wantCame(0, want)
			})
		}
	}
}

// The bounds on waits are those on any other: the answer comes back at once, and
// the report says when to come back.
func TestTransport_RetryAfter_IsBounded(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   sluice.RetryPolicy
		override sluicehttp.Overrides
		method   string
		timeout  time.Duration
		why      error
	}{
		{"MaxServerWait", sluice.RetryPolicy{MaxServerWait: 19 * time.Second}, sluicehttp.Overrides{}, "GET", 0, sluice.ErrServerWait},
		{"MaxElapsed", sluice.RetryPolicy{MaxElapsed: 19 * time.Second}, sluicehttp.Overrides{}, "GET", 0, sluice.ErrElapsed},
		{"deadline", sluice.RetryPolicy{}, sluicehttp.Overrides{}, "GET", 19 * time.Second, context.DeadlineExceeded},
		{"NoRetry", sluice.RetryPolicy{}, sluicehttp.Overrides{NoRetry: true}, "GET", 0, sluicehttp.ErrNoRetry},
		{"POST", sluice.RetryPolicy{}, sluicehttp.Overrides{}, "POST", 0, sluicehttp.ErrUnsafe},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{Retry: c.policy}, layers(sluicetest.On(1, sluicetest.Status(504, "Retry-After: 20"))), func(w *world) {
				ctx, report := sluicehttp.WithReport(sluicehttp.With(bg, c.override))
				w.client.Timeout = c.timeout
				status, _, err := w.do(request(t, ctx, c.method, "http://a.test/", nil))
				if status != 504 || err != nil || w.now() != 0 {
					t.Errorf("%d, %v at %v", status, err, w.now())
				}
				wantWhy(t, report, c.why, 1)
				if at := report.Last().RetryAt.Sub(w.start); at != 20*time.Second {
					t.Errorf("come back at %v", at)
				}
				w.wantGet("http://a.test/", 200) // others are not held
				w.wantCame(0, 0)
			})
		})
	}
}

func TestTransport_RetryAfter_Canceled(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Status(500, "Retry-After: 20")), func(w *world) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		time.AfterFunc(3*time.Second, cancel)
		if _, _, err := w.get(ctx, "http://a.test/"); err == nil || w.now() != 3*time.Second {
			t.Errorf("%v at %v", err, w.now())
		}
		w.wantCame(0)
	})
}

// 529 is a refusal like 429: any method is sent again, unless KeepRefused.
func TestTransport_RetryAfter_529(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, withTime := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				header, want := "X-Nothing: 1", time.Second
				if withTime {
					header, want = "Retry-After: 20", 20*time.Second
				}
				cfg := sluicehttp.Config{Retry: seconds, KeepRefused: keep}
				inWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Status(529, header))), func(w *world) {
					status, _, err := w.do(request(t, bg, method, "http://a.test/", strings.NewReader("x")))
					if err != nil {
						t.Fatal(err)
					}
					if keep && method == "POST" {
						if status != 529 {
							t.Errorf("%s: %d", method, status)
						}
						w.wantCame(0)
						return
					}
					if status != 200 {
						t.Errorf("%s: %d", method, status)
					}
					w.wantCame(0, want)
				})
			}
		}
	}
}

// RetryPolicy.Retryable and the report get the bare error, whatever the server said.
func TestTransport_RetryAfter_KeepsTheStatus(t *testing.T) {
	for status, asked := range map[int]bool{502: true, 429: false} {
		var got []error
		policy := seconds
		policy.Retryable = func(err error) bool { got = append(got, err); return true }
		inWorld(t, sluicehttp.Config{Retry: policy}, layers(sluicetest.On(1, sluicetest.Status(status, "Retry-After: 2"))), func(w *world) {
			ctx, report := sluicehttp.WithReport(bg)
			if _, _, err := w.get(ctx, "http://a.test/"); err != nil {
				t.Fatal(err)
			}
			if (len(got) == 1) != asked {
				t.Errorf("%d: asked about %v", status, got)
			}
			for _, err := range append(got, report.Last().Attempts[0].Err) {
				if e, ok := err.(*sluicehttp.StatusError); !ok || e.Status != status {
					t.Errorf("%d: %T %v", status, err, err)
				}
			}
		})
	}
}

// A server that fails each request and always names a time uses up the attempts.
func TestTransport_RetryAfter_CountsAttempts(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Status(500, "Retry-After: 10")), func(w *world) {
		w.wantGet("http://a.test/", 500)
		w.wantCame(0, 10*time.Second, 20*time.Second, 30*time.Second)
	})
}
