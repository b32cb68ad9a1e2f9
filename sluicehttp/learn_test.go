package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestTransport_Throttle_PausesAll(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}}
	inWorld(t, cfg, layers(sluicetest.On(3, sluicetest.Status(429, "Retry-After: 60"))), func(w *world) {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { w.wantGet("http://a.test/", 200) })
		}
		wg.Wait()
		// The fourth got no such response, and waits as well.
		w.wantCame(0, 100*ms, 200*ms, 60200*ms, 60300*ms, 60400*ms, 60500*ms)
	})
}

func TestTransport_Throttle_LongestPauseCounts(t *testing.T) {
	faults := layers(sluicetest.Delay(ms), sluicetest.Script(
		sluicetest.Status(429, "Retry-After: 100"), sluicetest.Status(429, "Retry-After: 10")))
	cfg := sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}}}
	inWorld(t, cfg, faults, func(w *world) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { w.wantGet("http://a.test/", 200) })
		}
		wg.Wait()
		w.wantCame(0, 0, 100*time.Second+ms, 100*time.Second+2*ms) // the second when the first was answered
	})
}

// Never before the time that the server set, and at most a tenth or a second later.
func TestTransport_Throttle_Jitter(t *testing.T) {
	for _, c := range []struct {
		u          float64
		wait, want time.Duration
	}{
		{0, 5 * time.Second, 5 * time.Second},
		{0.5, 5 * time.Second, 5250 * ms},
		{0.5, 60 * time.Second, 60500 * ms},
		// What may just be waited for is not refused because of the jitter.
		{0.5, 5 * time.Minute, 5 * time.Minute},
		{0.5, 5*time.Minute - 100*ms, 5*time.Minute - 50*ms},
	} {
		fault := sluicetest.On(1, sluicetest.Status(429, fmt.Sprintf("Retry-After-Ms: %d", c.wait.Milliseconds())))
		inWorld(t, sluicehttp.Config{}, layers(fault), func(w *world) {
			w.rt.SetRandom(func() float64 { return c.u })
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, c.want)
		})
	}
}

func TestTransport_Throttle_WithoutATime(t *testing.T) {
	for _, says := range []string{"X-Nothing: 1", "Retry-After: 0", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"} {
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.On(1, sluicetest.Status(429, says))), func(w *world) {
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, time.Second)
		})
	}
}

func TestTransport_Throttle_BeyondMaxServerWait(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Status(429, "Retry-After: 3600")), func(w *world) {
		ctx, report := sluicehttp.WithReport(bg)
		status, _, err := w.get(ctx, "http://a.test/")
		if status != 429 || err != nil || w.now() != 0 {
			t.Errorf("%d, %v at %v", status, err, w.now())
		}
		wantWhy(t, report, sluice.ErrServerWait, 1)
		if at := report.Last().RetryAt.Sub(w.start); at != time.Hour {
			t.Errorf("come back at %v", at)
		}
		// No other request is sent: they get the same answer.
		ctx, report = sluicehttp.WithReport(bg)
		_, _, err = w.get(ctx, "http://a.test/")
		stopped, ok := errors.AsType[*sluice.RetryError](err)
		if !ok || !errors.Is(err, sluice.ErrServerWait) || stopped.RetryAt.Sub(w.start) != time.Hour {
			t.Errorf("got %v", err)
		}
		wantWhy(t, report, sluice.ErrServerWait, 0)
		w.wantCame(0)
	})
}

// http.Client.Timeout is a deadline, and a wait beyond it is known to be hopeless.
func TestTransport_Throttle_BeyondTheClientTimeout(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Status(429, "Retry-After: 60")), func(w *world) {
		w.rt.SetRandom(func() float64 { return 0.7 })
		w.client.Timeout = 10 * time.Second
		ctx, report := sluicehttp.WithReport(bg)
		if status, _, err := w.get(ctx, "http://a.test/"); status != 429 || err != nil || w.now() != 0 {
			t.Errorf("an answer is there: %d, %v at %v", status, err, w.now())
		}
		const text = "the timeout of 10 s is shorter than the 60 s pause, until 00:01:01"
		wantWhy(t, report, context.DeadlineExceeded, 1)
		if why := report.Last().Why; !strings.Contains(why.Error(), text) {
			t.Errorf("the report says %v", why)
		}
		if at := report.Last().RetryAt.Sub(w.start); at != 60700*ms {
			t.Errorf("come back at %v", at)
		}
		_, _, err := w.get(bg, "http://a.test/")
		wait, ok := errors.AsType[*limits.WaitError](err)
		if !ok || wait.Need != 60700*ms || wait.Have != 10*time.Second || !errors.Is(err, context.DeadlineExceeded) || w.now() != 0 {
			t.Errorf("got %v at %v", err, w.now())
		}
		if want := `Get "http://a.test/": sluicehttp: http://a.test: ` + text; err.Error() != want {
			t.Errorf("got  %v\nwant %v", err, want)
		}
		if timeout, ok := err.(interface{ Timeout() bool }); !ok || !timeout.Timeout() {
			t.Error("it is no timeout")
		}
		w.wantCame(0)
	})
}

func TestTransport_TooShort(t *testing.T) {
	slowly := func(d time.Duration) sluicetest.Layer {
		return sluicetest.First(100, sluicetest.Delay(d), sluicetest.Cut())
	}
	for _, c := range []struct {
		timeout time.Duration
		cfg     sluicehttp.Config
		fault   sluicetest.Layer
		want    string
	}{
		{1500 * ms, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: 90 * time.Second}}}, nil, "the timeout of 1.5 s is shorter than the 90 s wait for the rate of 1/1m30s, until 00:01:30"},
		{20 * ms, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: 30 * ms}}}, nil, "the timeout of 20 ms is shorter than the 30 ms wait for the rate of 1/30ms"},
		{10200 * ms, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: 104 * time.Second}}}, nil, "the timeout of 10.2s is shorter than the 10.4s wait for the rate of 10/1m44s"},
		{ms, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}}}, nil, "the timeout of 1 ms is shorter than the 1h0m0s wait for the rate of 1/h, until 01:00:00"},
		{500 * ms, sluicehttp.Config{Retry: seconds}, sluicetest.Cut(), "the timeout of 500 ms is shorter than the 1 s backoff: EOF"},
		{1030 * ms, sluicehttp.Config{Retry: seconds}, slowly(40 * ms), "what is left of the timeout of 1 s, 990 ms, is shorter than the 1 s backoff: EOF"},
		{10 * time.Second, sluicehttp.Config{Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Minute)}}, slowly(200 * ms), "the timeout of 10 s is shorter than the 60 s backoff, until 00:01:00: EOF"},
		{2500 * ms, sluicehttp.Config{Retry: seconds}, sluicetest.Cut(), "what is left of the timeout of 2.5 s, 500 ms, is shorter than the 1 s backoff: EOF"},
	} {
		var faults []sluicetest.Layer
		if c.fault != nil {
			faults = layers(c.fault)
		}
		inWorld(t, c.cfg, faults, func(w *world) {
			if c.fault == nil {
				w.wantGet("http://a.test/", 200)
			}
			w.client.Timeout = c.timeout
			if _, _, err := w.get(bg, "http://a.test/"); err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// Whatever the family, a client that obeys is refused once at most: before it
// knows that there is a limit.
func TestTransport_Throttle_EveryFamily(t *testing.T) {
	for name, family := range map[string]sluicetest.HeaderStyle{
		"Retry-After": sluicetest.RetryAfter, "date": retryAfterDate, "ms": retryAfterMillis, "epoch": retryAfterEpoch,
		"GitHub": sluicetest.GitHub, "OpenAI": sluicetest.OpenAI, "Anthropic": sluicetest.Anthropic,
		"draft 3": draft3, "draft 7": draft7, "draft 10": sluicetest.Draft10,
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				limit := sluicetest.Limit{Quota: 20, Window: time.Minute, HeaderStyle: family}
				cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}
				inWorld(t, cfg, layers(sluicetest.Enforce(limit)), func(w *world) {
					w.rt.SetRandom(rand.Float64)
					for range 100 {
						w.wantGet(scheme+"://a.test/", 200)
					}
					r := w.srv.Record()
					// The Retry-After beside the one in ms is rounded up.
					if err := r.CheckRetryAfter(); err != nil && name != "ms" {
						t.Error(err)
					}
					// These tell nothing as long as all is well.
					most := 0
					if slices.Contains([]string{"Retry-After", "date", "ms", "epoch"}, name) {
						most = 4
					}
					if r.Throttled() > most {
						t.Errorf("%d refused, want at most %d", r.Throttled(), most)
					}
					if w.now() > 4*time.Minute+30*time.Second { // the gate learns meanwhile
						t.Errorf("took %v", w.now())
					}
				})
			})
		}
	}
}

func TestTransport_ExhaustedLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header []string
		want   time.Duration // when the second request comes
	}{
		{"nothing remains", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"}, 30 * time.Second},
		{"something remains", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30"}, 0},
		{"no reset", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0"}, 0},
		{"not found", 404, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"}, 30 * time.Second},
		{"from a cache", 200, []string{"Age: 7", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"}, 0},
		{"a redirect", 300, []string{`RateLimit: "p";r=0;t=10`}, 0},
		{"a redirect that says when", 300, []string{"Retry-After: 10"}, 10 * time.Second},
		{"the longest of two", 200, []string{`RateLimit: "a";r=0;t=10, "b";r=0;t=20, "c";r=1;t=30`}, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.On(1, sluicetest.Status(c.status, c.header...))), func(w *world) {
				w.wantGet("http://a.test/", c.status)
				w.wantGet("http://a.test/", 200)
				w.wantCame(0, c.want)
			})
		})
	}
}

// The reason of a pause for a redirect that says when is the redirect: no limit is exhausted.
func TestStats_PausedByARedirect(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.On(1, sluicetest.Status(303, "Retry-After: 10"))), func(w *world) {
		w.wantGet("http://a.test/", 303)
		if s := stats(t, w.rt); !s.PausedUntil.Equal(w.start.Add(10*time.Second)) || s.PausedWhy != "303 See Other" {
			t.Errorf("paused until %v: %s", s.PausedUntil, s.PausedWhy)
		}
	})
}

func TestStats_Limits(t *testing.T) {
	answer := sluicetest.Status(200, "X-RateLimit-Limit: 50", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30", "Retry-After: soon, perhaps")
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Header("RateLimit-Reset: -1"), answer), func(w *world) {
		w.wantGet("http://a.test/", 200)
		s := stats(t, w.rt)
		if len(s.Limits) != 1 || s.Limits[0].Max.String() != "50" || s.Limits[0].Remaining.String() != "0" || !s.SeenAt.Equal(w.start) {
			t.Errorf("limits %+v at %v", s.Limits, s.SeenAt)
		}
		if !s.PausedUntil.Equal(w.start.Add(30*time.Second)) || s.PausedWhy != "X-Ratelimit-Reset: nothing remains" {
			t.Errorf("paused until %v: %s", s.PausedUntil, s.PausedWhy)
		}
		if s.Warnings == 0 || s.Warning.Field == "" {
			t.Errorf("%d warnings, %v", s.Warnings, s.Warning)
		}
	})
}

// A success ends the doubling of the waits after throttles without a time, although it says
// nothing about limits.
func TestTransport_SilentSuccessEndsDoubling(t *testing.T) {
	secondary := sluicetest.Status(429, "X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 12", "X-RateLimit-Reset: 2100", "X-GitHub-Request-Id: 1")
	for name, c := range map[string]struct {
		second int // which of the requests after the first is refused, too
		want   []time.Duration
	}{
		"twice in a row":    {1, []time.Duration{0, time.Minute, 3 * time.Minute, 3 * time.Minute}},
		"a success between": {2, []time.Duration{0, time.Minute, time.Minute, 2 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			faults := layers(sluicetest.On(1, secondary), sluicetest.On(c.second, secondary))
			cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}}}
			inWorld(t, cfg, faults, func(w *world) {
				w.wantGet("http://a.test/", 200)
				w.wantGet("http://a.test/", 200)
				w.wantCame(c.want...)
			})
		})
	}
}

// A refusal that no waiting ends is about one account, and not about how often calls are made:
// each call learns why, without a wait. It taught the gate, and calls hung for minutes.
func TestTransport_RefusedForGood_HoldsUpNoOthers(t *testing.T) {
	for name, answer := range map[string]sluicetest.Layer{
		"header":                   sluicetest.Status(429, "X-Should-Retry: false"),
		"header, Retry-After":      sluicetest.Status(429, "X-Should-Retry: false", "Retry-After: 30"),
		"header, nothing remains":  sluicetest.Status(429, "X-Should-Retry: false", "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 60"),
		"503 that says not to try": sluicetest.Status(503, "X-Should-Retry: false", "Retry-After: 30"),
	} {
		for config, cfg := range map[string]sluicehttp.Config{
			"default": {}, "search": {Gate: sluice.Config{Adaptive: sluice.Adaptive{Search: true}}},
			"rate": {Gate: sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}},
		} {
			t.Run(name+", "+config, func(t *testing.T) {
				inWorld(t, cfg, layers(sluicetest.Delay(10*ms), answer), func(w *world) {
					for range 20 {
						w.wantGet("http://a.test/", map[bool]int{true: 503, false: 429}[strings.HasPrefix(name, "503")])
						time.Sleep(time.Second)
					}
					if last := w.srv.Record().Arrivals()[19]; last != 19*1010*ms {
						t.Errorf("the twentieth request arrived at %v", last)
					}
				})
			})
		}
	}
}

// # Retry-After

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
						if err := w.srv.Record().CheckRetryAfter(); err != nil {
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
				ctx, report := sluicehttp.WithReport(sluicehttp.WithOverrides(bg, c.override))
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

// 529 is a refusal like 429: any method is sent again, unless NoRetryThrottled.
func TestTransport_RetryAfter_529(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, withTime := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				header, want := "X-Nothing: 1", time.Second
				if withTime {
					header, want = "Retry-After: 20", 20*time.Second
				}
				cfg := sluicehttp.Config{Retry: seconds, NoRetryThrottled: keep}
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

// # Throttles of all calls

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
			ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Key: "search"})
			if status, _, err := w.get(ctx, "http://a.test/refused"); status != 200 {
				t.Errorf("%d, %v", status, err)
			}
		})
		wg.Go(func() { w.wantGet("http://a.test/waits", 200) }) // since before the throttle
		wg.Wait()
		w.wantCame(0, 0, 61*time.Second, 61*time.Second)
	})
}

// A program that knows no limit, as sluice batch: 300 calls of a server of 50 per second that asks
// for a pause of a second after each rejection, which a client that waits as it is asked cannot do in
// less than 6.8 s. They took 12.2 s. Up to 16 are rejected before it is known that there is a limit.
func TestTransport_UnknownLimit_300Calls(t *testing.T) {
	const calls, workers = 300, 16
	inBubble(t, func(t *testing.T) {
		bucket := limits.Must(leaky.New(sluice.Rate{Count: 50, Per: time.Second, Burst: 5}))
		var refused atomic.Int64
		limited := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if bucket.Take(1).Allowed() {
					next.ServeHTTP(rw, r)
					return
				}
				refused.Add(1)
				rw.Header().Set("Retry-After", "1")
				rw.WriteHeader(http.StatusTooManyRequests)
			})
		}
		withWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(ms), limited), func(w *world) {
			var all sync.WaitGroup
			var next atomic.Int64
			for range workers {
				all.Go(func() {
					for next.Add(1) <= calls {
						w.wantGet("http://a.test/", 200)
					}
				})
			}
			all.Wait()
			if took := w.now(); took > 9*time.Second || refused.Load() > workers+2 {
				t.Errorf("%d calls took %v, and %d were rejected; want 9 s and %d", calls, took, refused.Load(), workers+2)
			}
		})
	})
}
