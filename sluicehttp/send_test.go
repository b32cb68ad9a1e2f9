package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// lender lends permits that it can lose.
type lender struct {
	mu       sync.Mutex
	lent     []chan struct{}
	released int
}

func (l *lender) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := make(chan struct{})
	l.lent = append(l.lent, lost)
	return lease{l, lost}, nil
}

type lease struct {
	l    *lender
	lost chan struct{}
}

func (l lease) Lost() <-chan struct{} { return l.lost }

func (l lease) Release() {
	l.l.mu.Lock()
	defer l.l.mu.Unlock()
	l.l.released++
}

// A permit that another machine has lent and lost ends its attempt, which is then
// made again, and the reading of an answer.
func TestTransport_LostLease(t *testing.T) {
	l := new(lender)
	lose := func(i int) func() {
		return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			close(l.lent[i])
		}
	}
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Semaphore: l}}
	faults := layers(sluicetest.On(1, sluicetest.Delay(limits.Never)), sluicetest.Stall(2, limits.Never), sluicetest.Reply(200, "hello"))
	inWorld(t, cfg, faults, func(w *world) {
		time.AfterFunc(10*time.Second, lose(0))
		time.AfterFunc(20*time.Second, lose(1))
		ctx, report := sluicehttp.WithReport(bg)
		resp, err := w.client.Do(request(t, ctx, "GET", "http://a.test/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if first := report.Last().Attempts[0]; !errors.Is(first.Err, limits.ErrLeaseLost) || first.Took != 10*time.Second {
			t.Errorf("the first attempt ended with %v after %v", first.Err, first.Took)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != "he" || err == nil || w.now() != 20*time.Second {
			t.Errorf("read %q, %v at %v", got, err, w.now())
		}
		resp.Body.Close()
		if l.released != 2 || inFlight(w.rt) != 0 {
			t.Errorf("%d leases were released, %d are in flight", l.released, inFlight(w.rt))
		}
		// One that is not lost leaves no goroutine behind that waits for that: the bubble
		// would not end.
		resp, err = w.client.Get("http://b.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
}

func TestTransport_AttemptTimeout(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 10 * time.Second
	for _, c := range []struct {
		name, method string
		o            sluicehttp.Overrides
		fault        sluicetest.Layer
		status       int
		at           time.Duration
	}{
		{"hangs", "GET", sluicehttp.Overrides{}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 200, 11 * time.Second},
		{"hangs, not to be sent twice", "POST", sluicehttp.Overrides{}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 0, 10 * time.Second},
		{"by override", "GET", sluicehttp.Overrides{AttemptTimeout: time.Second}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 200, 2 * time.Second},
		{"slow, without bound", "GET", sluicehttp.Overrides{AttemptTimeout: -1}, sluicetest.Delay(time.Minute), 200, time.Minute},
		{"a long body is no failure", "GET", sluicehttp.Overrides{}, events(100, time.Second), 200, 99 * time.Second},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				inWorld(t, sluicehttp.Config{Retry: policy, Gate: sluice.Config{Concurrency: 1}}, layers(c.fault), func(w *world) {
					status, _, err := w.do(request(t, sluicehttp.WithOverrides(bg, c.o), c.method, scheme+"://a.test/", nil))
					if status != c.status || w.now() != c.at || (err == nil) != (status != 0) {
						t.Errorf("%d, %v at %v; want %d at %v", status, err, w.now(), c.status, c.at)
					}
					if err != nil {
						timeout, ok := errors.AsType[interface {
							error
							Timeout() bool
						}](err)
						if !ok || !timeout.Timeout() || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no response within the AttemptTimeout of 10s") {
							t.Errorf("got %v", err)
						}
					}
				})
			})
		}
	}
}

// A dial that hangs has written nothing, so that a POST may be tried again.
func TestTransport_AttemptTimeout_Dial(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 10 * time.Second
	inWorld(t, sluicehttp.Config{Retry: policy}, nil, func(w *world) {
		onDial(w.rt.Unwrap(), func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.do(request(t, bg, "POST", "http://a.test/", strings.NewReader("x")))
		w.wantCame(11 * time.Second)
	})
}

// # OnAttempt

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
			sluicetest.Enforce(sluicetest.Limit{Quota: 10, Window: time.Minute, HeaderStyle: sluicetest.GitHub}))), func(w *world) {
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

// Without a configuration a silent server does not hold a request for ever, and a POST is not
// sent twice because of it.
func TestTransport_AttemptTimeout_Default(t *testing.T) {
	long := strings.NewReader(strings.Repeat("x", 1<<20+1))
	for _, c := range []struct {
		name, method string
		set          time.Duration
		body         io.Reader
		requests     int
		at           time.Duration
	}{
		{"a GET is sent again", "GET", 0, nil, 2, 10 * time.Minute},
		{"a POST is not", "POST", 0, strings.NewReader("x"), 1, 10 * time.Minute},
		{"a long upload is not cut", "POST", 0, long, 1, 24 * time.Hour},
		{"nor one of unknown length", "POST", 0, io.MultiReader(strings.NewReader("x")), 1, 24 * time.Hour},
		{"negative is none", "GET", -1, nil, 1, 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := sluicehttp.Config{Retry: sluice.RetryPolicy{AttemptTimeout: c.set, Attempts: 2, Backoff: sluice.Constant(0)}}
			inWorld(t, cfg, layers(sluicetest.ReadBody(), sluicetest.Delay(limits.Never)), func(w *world) {
				ctx, cancel := context.WithTimeout(bg, 24*time.Hour)
				defer cancel()
				_, _, err := w.do(request(t, ctx, c.method, "http://a.test/", c.body))
				if n := len(w.srv.Record().Requests); err == nil || n != c.requests {
					t.Errorf("%d requests, want %d; %v", n, c.requests, err)
				}
				if first := w.now() / time.Duration(c.requests); first.Round(time.Minute) != c.at {
					t.Errorf("an attempt ended after %v, want %v", first, c.at)
				}
			})
		})
	}
}
