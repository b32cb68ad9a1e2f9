package sluicehttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// quota answers with what is left of so many requests a minute, and with nothing
// once silent.
func quota(n int, header func(left int, reset time.Duration) []string) (sluicetest.Layer, func()) {
	var mu sync.Mutex
	start, used, silent := time.Now(), 0, false
	window := time.Minute
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			for time.Since(start) >= window {
				start, used = start.Add(window), 0
			}
			used++
			if !silent {
				for _, line := range header(n-used, window-time.Since(start)) {
					name, value, _ := strings.Cut(line, ": ")
					w.Header().Set(name, value)
				}
			}
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}, func() { mu.Lock(); silent = true; mu.Unlock() }
}

func github(n int) func(left int, reset time.Duration) []string {
	return func(left int, reset time.Duration) []string {
		return []string{
			fmt.Sprint("X-RateLimit-Limit: ", n), fmt.Sprint("X-RateLimit-Remaining: ", left),
			fmt.Sprint("X-RateLimit-Reset: ", reset.Seconds()),
		}
	}
}

func TestPublished_Spread(t *testing.T) {
	for _, c := range []struct {
		name  string
		share float64
		rate  sluice.Rate
		n     int
		want  func(came []time.Duration) bool
		say   string
	}{
		{
			"always", 1, sluice.Rate{}, 6,
			func(came []time.Duration) bool { // 5 left in 60 s, 4 in 48 s, …
				return slices.Equal(came[:5], []time.Duration{0, 12 * time.Second, 24 * time.Second, 36 * time.Second, 48 * time.Second})
			},
			"one each 12 s",
		},
		{
			"the last half", 0.5, sluice.Rate{Count: 1, Per: time.Second}, 10,
			func(came []time.Duration) bool { // fewer than 5 are left after the sixth, at 5 s
				return came[5] == 5*time.Second && came[6] == 5*time.Second+55*time.Second/4 && came[9] == time.Minute
			},
			"one a second until less than half is left, and 55 s for the last four",
		},
		{
			"never faster than configured", 1, sluice.Rate{Count: 1, Per: 10 * time.Second}, 1000,
			func(came []time.Duration) bool { return came[6] == time.Minute },
			"one each 10 s",
		},
		{
			"never", 0, sluice.Rate{Count: 1, Per: time.Second}, 10,
			func(came []time.Duration) bool { return came[9] == 9*time.Second && came[10] == time.Minute },
			"one a second, and then the next minute",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				layer, _ := quota(c.n, github(c.n))
				srv := sluicetest.NewServer(layer)
				defer srv.Close()
				base := srv.Transport()
				defer base.CloseIdleConnections()
				rt := mustTransport(t, base, sluicehttp.Config{Published: sluicehttp.Published{Spread: c.share}, Gate: sluice.Config{Rate: c.rate, Concurrency: 1}})
				client := &http.Client{Transport: rt}
				for range 12 {
					resp, err := client.Get("http://a.test/")
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				if came := srv.Record().Arrivals(); !c.want(came) {
					t.Errorf("requests came at %v; want %s", came, c.say)
				}
			})
		})
	}
}

// Calls under way will be taken off what remains, too.
func TestPublished_Spread_CallsInFlight(t *testing.T) {
	answer := sluicetest.Status(200, "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 60")
	faults := layers(sluicetest.Path("/slow", sluicetest.Delay(time.Minute)), sluicetest.Path("/quick", sluicetest.Delay(time.Second)), answer)
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Gate: sluice.Config{Concurrency: 9}}, faults, func(w *world) {
		var wg sync.WaitGroup
		for _, path := range []string{"slow", "slow", "slow", "quick"} {
			wg.Go(func() { w.wantGet("http://a.test/"+path, 200) })
		}
		time.Sleep(2 * time.Second)
		// 9 remain in 60 s, and 3 have left.
		if s := stats(t, w.rt); s.Rate.Interval() != 10*time.Second {
			t.Errorf("the pace is %v", s.Rate)
		}
		wg.Wait()
	})
}

// The pace follows each answer, never beyond the configured one, and Stats tells.
func TestPublished_Spread_FollowsAnswers(t *testing.T) {
	left := func(n string) sluicetest.Layer {
		return sluicetest.Status(200, "X-RateLimit-Limit: 10000", "X-RateLimit-Remaining: "+n, "X-RateLimit-Reset: 1000")
	}
	answers := sluicetest.Script(left("5000"), left("4990"), left("1"), left("9999"))
	cfg := sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Gate: sluice.Config{Rate: sluice.Rate{Count: 9, Per: time.Second}}}
	inWorld(t, cfg, layers(answers), func(w *world) {
		for i, want := range []struct {
			rate   float64
			spread bool
		}{{5, true}, {4.99, true}, {0.001, true}, {9, false}} {
			w.wantGet("http://a.test/", 200)
			s := stats(t, w.rt)
			if got := float64(s.Rate.Count) / s.Rate.Per.Seconds(); got != want.rate || s.Published != want.spread {
				t.Errorf("answer %d: %v per second, spread: %v; want %v, %v", i+1, got, s.Published, want.rate, want.spread)
			}
		}
	})
}

func TestPublished_Spread_EndsAtTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layer, silence := quota(3, github(3))
		srv := sluicetest.NewServer(layer)
		defer srv.Close()
		base := srv.Transport()
		defer base.CloseIdleConnections()
		configured := sluice.Rate{Count: 1, Per: time.Second}
		rt := mustTransport(t, base, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Gate: sluice.Config{Rate: configured}, Keys: sluice.KeyedConfig{Idle: -1}})
		client := &http.Client{Transport: rt}
		get := func(url string) {
			t.Helper()
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		get("http://a.test/")
		s := stats(t, rt)
		if !s.Published || s.Rate.Interval() != 30*time.Second { // 2 in 60 s
			t.Errorf("spread %v, %v", s.Published, s.Rate)
		}
		silence()
		// Other keys come and look for gates to forget; this one is needed.
		time.Sleep(31 * time.Second)
		get("http://b.test/")
		get("http://b.test/")
		found := false
		rt.Stats(func(key string, s sluicehttp.Stats) bool {
			found = found || key == "http://a.test" && s.Published
			return true
		})
		if !found {
			t.Error("the gate was forgotten although its pace is not the configured one")
		}
		time.Sleep(time.Minute) // the window is over
		get("http://a.test/")
		rt.Stats(func(key string, s sluicehttp.Stats) bool {
			if key == "http://a.test" && (s.Published || s.Rate != configured) {
				t.Errorf("after the reset: spread %v, %v", s.Published, s.Rate)
			}
			return true
		})
	})
}

func TestPublished_Spread_Policy(t *testing.T) {
	for _, c := range []struct {
		name        string
		gate        sluice.Config
		header      []string
		rate        sluice.Rate
		concurrency int64
		learnt      bool
	}{
		{"one", sluice.Config{}, []string{`RateLimit-Policy: "default";q=100;w=60`}, sluice.Rate{Count: 100, Per: time.Minute}, 0, true},
		{"the slowest of two", sluice.Config{}, []string{`RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400`}, sluice.Rate{Count: 1000, Per: 24 * time.Hour}, 0, true},
		{"concurrency", sluice.Config{}, []string{`RateLimit-Policy: "flight";q=7;qu="concurrent-requests", "rate";q=5;w=1`}, sluice.Rate{Count: 5, Per: time.Second}, 7, true},
		{"a stated rate", sluice.Config{}, []string{"x-amzn-RateLimit-Limit: 0.5"}, sluice.Rate{Count: 1, Per: 2 * time.Second}, 0, true},
		{"not requests", sluice.Config{}, []string{`RateLimit-Policy: "size";q=100;w=60;qu="content-bytes"`}, sluice.Rate{}, 0, false},
		{"nothing", sluice.Config{}, nil, sluice.Rate{}, 0, false},
		{"a rate of its own", sluice.Config{Rate: sluice.Rate{Count: 1, Per: ms}}, []string{`RateLimit-Policy: "default";q=100;w=60`}, sluice.Rate{Count: 1, Per: ms}, 0, false},
		{"a concurrency of its own", sluice.Config{Concurrency: 3}, []string{`RateLimit-Policy: "flight";q=7;qu="concurrent-requests"`}, sluice.Rate{}, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := sluicetest.Status(200, c.header...)
			inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Gate: c.gate}, layers(answer), func(w *world) {
				w.wantGet("http://a.test/", 200)
				s := stats(t, w.rt)
				if perSecond(s.Rate) != perSecond(c.rate) || s.Concurrency != c.concurrency || s.Published != c.learnt {
					t.Errorf("rate %v, concurrency %d, from the policy %v; want %v, %d, %v", s.Rate, s.Concurrency, s.Published, c.rate, c.concurrency, c.learnt)
				}
			})
		})
	}
}

func perSecond(r sluice.Rate) float64 {
	if r.Count == 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// Without any number of ours a herd is as fast as the server publishes, from the
// second request on.
func TestPublished_Spread_Policy_Herd(t *testing.T) {
	limit := sluicetest.Limit{Count: 10, Per: time.Second, Burst: 1, HeaderStyle: func(h http.Header, s sluicetest.LimitState) {
		h.Set("RateLimit-Policy", `"default";q=10;w=1`)
	}}
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, layers(sluicetest.Delay(50*ms), sluicetest.Enforce(limit)), func(w *world) {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { w.wantGet("http://a.test/", 200) })
		}
		wg.Wait()
		r := w.srv.Record()
		if n := r.Throttled(); n != 0 {
			t.Errorf("%d requests refused", n)
		}
		if err := r.CheckSpacing(100 * ms); err != nil {
			t.Error(err)
		}
		if w.now() != 4950*ms {
			t.Errorf("took %v", w.now())
		}
	})
}

// From the first answer on, a policy that changes is followed.
func TestPublished_Spread_Policy_Changes(t *testing.T) {
	script := sluicetest.Script(
		sluicetest.Status(200, `RateLimit-Policy: "a";q=1;w=1, "b";q=3;qu="concurrent-requests"`),
		sluicetest.Status(200, `RateLimit-Policy: "a";q=2;w=1, "b";q=5;qu="concurrent-requests"`),
	)
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, layers(script), func(w *world) {
		for _, want := range []struct {
			rate        sluice.Rate
			concurrency int64
		}{
			{sluice.Rate{Count: 1, Per: time.Second}, 3},
			{sluice.Rate{Count: 2, Per: time.Second}, 5},
			{sluice.Rate{Count: 2, Per: time.Second}, 5}, // an answer that says nothing
		} {
			w.wantGet("http://a.test/", 200)
			if s := stats(t, w.rt); s.Rate != want.rate || s.Concurrency != want.concurrency {
				t.Errorf("%v, %d; want %v, %d", s.Rate, s.Concurrency, want.rate, want.concurrency)
			}
		}
	})
}

// If the server refuses the first call, those that wait for its answer wait for the end
// of the pause, too.
func TestPublished_Spread_Policy_RefusedAtFirst(t *testing.T) {
	const callers = 8
	for _, status := range []int{403, 429, 503, 529} {
		for _, policy := range []string{"", `RateLimit-Policy: "p";q=1000;w=1`} {
			for _, scheme := range []string{"http", "https"} {
				t.Run(fmt.Sprint(status, policy != "", scheme), func(t *testing.T) {
					fields := []string{"Retry-After: 10"}
					if policy != "" {
						fields = append(fields, policy)
					}
					inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, layers(sluicetest.On(1, sluicetest.Status(status, fields...))), func(w *world) {
						var wg sync.WaitGroup
						for range callers {
							wg.Go(func() { w.wantGet(scheme+"://a.test/", 200) })
						}
						wg.Wait()
						came := w.srv.Record().Arrivals()
						if len(came) != callers+1 || came[1] < 10*time.Second {
							t.Errorf("requests arrived at %v", came)
						}
					})
				})
			}
		}
	}
}

// A throttle ends a pace that was spread, because nothing remains to be spread: not
// before it has paused the gate.
func TestPublished_Spread_EndsAfterThePause(t *testing.T) {
	slow := []string{"X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 2", "X-RateLimit-Reset: 60"}
	refused := sluicetest.Status(429, "Retry-After: 100", "X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60")
	answers := layers(sluicetest.On(1, sluicetest.Status(200, slow...)), sluicetest.On(1, refused)) // to the first request and the second
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, answers, func(w *world) {
		w.wantGet("https://a.test/", 200)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { w.wantGet("https://a.test/", 200) })
		}
		wg.Wait()
		came := w.srv.Record().Arrivals()
		if len(came) != 10 || came[2] < came[1]+100*time.Second {
			t.Errorf("requests arrived at %v", came)
		}
	})
}

// The reserve is left to others: of a window, of a bucket, and of what is spread.
func TestPublished_Reserve(t *testing.T) {
	bucket := func(left int, reset time.Duration) []string { // 1 each 6 s, full when all of 10 are back
		return []string{"X-RateLimit-Limit-Requests: 10", fmt.Sprint("X-RateLimit-Remaining-Requests: ", left), fmt.Sprint("X-RateLimit-Reset-Requests: ", 6*(10-left), "s")}
	}
	for _, c := range []struct {
		name   string
		use    sluicehttp.Published
		header func(left int, reset time.Duration) []string
		costs  bool
		want   []time.Duration
	}{
		{"none", sluicehttp.Published{}, github(10), false, []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, time.Minute}},
		{"of a window", sluicehttp.Published{Reserve: 0.75}, github(10), false, []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute}},
		{"the same with a Cost", sluicehttp.Published{Reserve: 0.75}, github(10), true, []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute}},
		{"of a bucket", sluicehttp.Published{Reserve: 0.75}, bucket, false, []time.Duration{0, 0, 3 * time.Second}},
		{"spread", sluicehttp.Published{Spread: 1, Reserve: 0.5}, github(10), false, []time.Duration{0, 15 * time.Second, 30 * time.Second}},
		{"off", sluicehttp.Published{Disabled: true}, github(2), false, []time.Duration{0, 0, 0, 0, 0}},
		{"off with a Cost", sluicehttp.Published{Disabled: true}, github(2), true, []time.Duration{0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				layer, _ := quota(10, c.header)
				srv := sluicetest.NewServer(layer)
				defer srv.Close()
				base := srv.Transport()
				defer base.CloseIdleConnections()
				cfg := sluicehttp.Config{Published: c.use, Gate: sluice.Config{Concurrency: 1}}
				if c.costs {
					cfg.Cost = func(*http.Request, []byte) sluice.Costs { return nil }
				}
				client := &http.Client{Transport: mustTransport(t, base, cfg)}
				for range c.want {
					resp, err := client.Get("http://a.test/")
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				if came := srv.Record().Arrivals(); !slices.Equal(came, c.want) {
					t.Errorf("requests came at %v; want %v", came, c.want)
				}
			})
		})
	}
}
