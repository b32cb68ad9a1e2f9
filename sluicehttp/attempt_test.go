package sluicehttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// Each attempt is seen once, with its key and times: a success, a failure that is retried,
// a 429 with its pause, a connection that is cut, and not a call that the gate refused.
func TestConfig_OnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var got []string
		cfg := sluicehttp.Config{
			Gate:  sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}},
			Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond), Attempts: 3},
			OnAttempt: func(key string, a sluicehttp.Attempt) {
				failed := ""
				if a.Err != nil {
					failed = " failed"
				}
				got = append(got, fmt.Sprintf("%s %d waited %v took %v%s", key, a.Status, a.Waited, a.Took, failed))
			},
		}
		withWorld(t, cfg, layers(
			sluicetest.Delay(10*ms),
			sluicetest.Script(nil, sluicetest.Status(500), nil, sluicetest.Status(429, "Retry-After: 5"), nil, sluicetest.Cut()),
		), func(w *world) {
			for range 4 {
				resp, err := w.client.Get("http://a.test/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			want := []string{
				"http://a.test 200 waited 0s took 10ms",
				"http://a.test 500 waited 990ms took 10ms failed",
				"http://a.test 200 waited 990ms took 10ms",
				"http://a.test 429 waited 990ms took 10ms failed",
				"http://a.test 200 waited 5s took 10ms",
				"http://a.test 0 waited 990ms took 10ms failed",
				"http://a.test 200 waited 990ms took 10ms",
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
			got = nil
			w.rt.Close()
			if _, err := w.client.Get("http://a.test/"); err == nil || len(got) != 0 {
				t.Errorf("after Close: %v, %q", err, got)
			}
		})
	})
}

// If OnAttempt panics, the response is closed and the permit given back.
func TestConfig_OnAttempt_Panics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		withWorld(t, sluicehttp.Config{OnAttempt: func(string, sluicehttp.Attempt) { panic("no") }}, nil, func(w *world) {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				req, _ := http.NewRequestWithContext(bg, http.MethodGet, "http://a.test/", nil)
				w.rt.RoundTrip(req)
			}()
			if n := inFlight(w.rt); n != 0 {
				t.Errorf("%d in flight", n)
			}
		})
	})
}

// Limits yields what servers publish, and nothing for those that do not.
func TestTransport_Limits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		withWorld(t, sluicehttp.Config{}, layers(sluicetest.Host("a.test",
			sluicetest.Enforce(sluicetest.Limit{Quota: 10, Window: time.Minute, Family: sluicetest.GitHub}))), func(w *world) {
			for _, host := range []string{"a", "a", "b"} {
				resp, err := w.client.Get("http://" + host + ".test/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			var got []string
			for key, all := range w.rt.Limits() {
				for _, l := range all {
					limit, _ := l.Max.Value()
					left, _ := l.Remaining.Value()
					got = append(got, fmt.Sprintf("%s %s: %v of %v", key, l.Name, left, limit))
				}
			}
			if want := []string{"http://a.test default: 8 of 10"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			for range w.rt.Limits() {
				break
			}
		})
	})
}
