package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
	"github.com/sluice-go/sluice/sluicetest"
)

// Whatever a server says by which a key is paused, and however it is configured, the
// key is asked again after MaxPause at the latest.
func TestConfig_MaxPause(t *testing.T) {
	const day = 24 * time.Hour
	forever := "9999999999" // seconds, or the year 2286
	for _, c := range []struct {
		name   string
		cfg    sluicehttp.Config
		status int
		header []string
		want   time.Duration // until the next request; 0 for at once
		cut    bool          // and a warning says so
	}{
		{"429", sluicehttp.Config{}, 429, []string{"Retry-After: " + forever}, day, true},
		{"429, a date", sluicehttp.Config{}, 429, []string{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}, day, true},
		{"503", sluicehttp.Config{}, 503, []string{"Retry-After: 400000000"}, day, true},
		{"403", sluicehttp.Config{}, 403, []string{"Retry-After: 400000000"}, day, true},
		{"301", sluicehttp.Config{}, 301, []string{"Retry-After: 400000000"}, day, true},
		{"a limit at zero", sluicehttp.Config{}, 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 400000000"}, day, true},
		{"a 429 and a limit at zero", sluicehttp.Config{}, 429, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 400000000"}, day, true},
		{"all calls", sluicehttp.Config{}, 429, []string{"Retry-After: 400000000", "X-RateLimit-Global: true"}, day, true},
		{"an hour", sluicehttp.Config{}, 429, []string{"Retry-After: 3600"}, time.Hour, false},
		{"a day", sluicehttp.Config{}, 429, []string{"Retry-After: 86400"}, day, false},
		{"a second more", sluicehttp.Config{}, 429, []string{"Retry-After: 86401"}, day, true},
		{"of a minute", sluicehttp.Config{MaxPause: time.Minute}, 429, []string{"Retry-After: 3600"}, time.Minute, true},
		{"of a week", sluicehttp.Config{MaxPause: 7 * day}, 429, []string{"Retry-After: 400000000"}, 7 * day, true},
		{"as long as a server may ask for", sluicehttp.Config{Retry: sluice.RetryPolicy{MaxServerWait: 2 * day}}, 429, []string{"Retry-After: 400000000"}, 2 * day, true},
		{"a server may ask for anything", sluicehttp.Config{Retry: sluice.RetryPolicy{MaxServerWait: -1, MaxElapsed: 1}}, 429, []string{"Retry-After: 400000000"}, day, true},
		{"no bound", sluicehttp.Config{MaxPause: -1}, 429, []string{"Retry-After: 400000"}, 400000 * time.Second, false},
		{"spread", sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, 200, []string{"X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 400000000"}, day, true},
		{"policy", sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, 200, []string{`RateLimit-Policy: "a";q=1;w=400000000`}, day, true},
		{"a floor of ours", sluicehttp.Config{MaxPause: 10 * time.Second}, 429, []string{"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 12", "X-RateLimit-Reset: 2100", "X-GitHub-Request-Id: 1"}, 10 * time.Second, false},
		{"a policy of an hour", sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, 200, []string{`RateLimit-Policy: "a";q=1;w=3600`}, time.Hour, false},
	} {
		for _, chance := range []float64{0, 0.999} {
			t.Run(fmt.Sprint(c.name, "/", chance), func(t *testing.T) {
				inWorld(t, c.cfg, layers(sluicetest.On(1, sluicetest.Reply(c.status, "x", c.header...))), func(w *world) {
					w.rt.SetRandom(func() float64 { return chance })
					ctx, cancel := context.WithTimeout(bg, time.Second)
					defer cancel()
					_, err := w.rt.RoundTrip(request(t, ctx, "GET", "http://a.test/", nil))
					if err != nil {
						t.Fatal(err)
					}
					s := stats(t, w.rt)
					if got := strings.Contains(s.Warning.Why, "longest pause"); got != c.cut {
						t.Errorf("the warning is %q, cut: %v", s.Warning, c.cut)
					}
					time.Sleep(c.want - 1)
					short, cancel := context.WithTimeout(bg, 1)
					defer cancel()
					if _, _, err := w.get(short, "http://a.test/"); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sluice.ErrServerWait) {
						t.Errorf("before the end: %v", err)
					}
					most := time.Duration(1)
					if chance > 0 && !c.cut && c.want != day && c.cfg.MaxPause <= 0 {
						most += time.Second
					}
					time.Sleep(most)
					w.wantGet("http://a.test/", 200)
					if got := w.now(); got > c.want+most {
						t.Errorf("the second request left at %v, want %v", got, c.want)
					}
				})
			})
		}
	}
}

// A failure that is no throttle makes only its own call wait, and that for MaxPause at
// most.
func TestConfig_MaxPause_OneCall(t *testing.T) {
	cfg := sluicehttp.Config{Retry: sluice.RetryPolicy{MaxServerWait: -1, MaxElapsed: -1}}
	inWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Reply(502, "", "Retry-After: 9999999999"))), func(w *world) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.wantGet("http://a.test/", 200)
		}()
		synctest.Wait()
		if s := stats(t, w.rt); !s.PausedUntil.IsZero() || s.Warnings != 1 {
			t.Errorf("paused until %v, warning %v", s.PausedUntil, s.Warning)
		}
		w.wantGet("http://a.test/", 200)
		<-done
		w.wantCame(0, 0, 24*time.Hour)
	})
}

// A pace that is spread until a reset in twelve years keeps no gate for so long.
func TestConfig_MaxPause_Spread(t *testing.T) {
	header := []string{"X-RateLimit-Limit: 4000000000", "X-RateLimit-Remaining: 400000000", "X-RateLimit-Reset: 400000000"}
	cfg := sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Keys: sluice.KeyedConfig{Idle: -1}}
	inWorld(t, cfg, layers(sluicetest.Host("a.test", sluicetest.Reply(200, "", header...))), func(w *world) {
		w.wantGet("http://a.test/", 200)
		time.Sleep(24 * time.Hour)
		for range 3 {
			w.wantGet("http://b.test/", 200)
			w.wantGet("http://c.test/", 200)
		}
		w.rt.Stats(func(key string, _ sluicehttp.Stats) bool {
			if key == "http://a.test" {
				t.Error("the gate is still there")
			}
			return true
		})
	})
}

// A report says when the transport will ask again, not when the server wants it to.
func TestConfig_MaxPause_Report(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Reply(429, "", "Retry-After: 9999999999")), func(w *world) {
		ctx, report := sluicehttp.WithReport(bg)
		w.get(ctx, "http://a.test/")
		wantWhy(t, report, sluice.ErrServerWait, 1)
		if got := report.Last().RetryAt.Sub(w.start); got != 24*time.Hour {
			t.Errorf("RetryAt is %v", got)
		}
	})
}

// What Resume lifts: whatever made the key wait for a server.
func TestTransport_Resume(t *testing.T) {
	kind := "Content-Type: application/json"
	patient := sluice.RetryPolicy{MaxServerWait: -1, MaxElapsed: -1}
	tenant := sluicehttp.Config{Key: func(*http.Request) string { return "tenant" }}
	for _, c := range []struct {
		name   string
		cfg    sluicehttp.Config
		answer sluicetest.Layer
	}{
		{"a throttle", sluicehttp.Config{}, sluicetest.Reply(429, "", "Retry-After: 9999999999")},
		{"nothing remains", sluicehttp.Config{}, sluicetest.Reply(200, "", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 400000000")},
		{"all calls", sluicehttp.Config{}, sluicetest.Reply(429, "", "Retry-After: 9999", "X-RateLimit-Global: true")},
		{"spread", sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, sluicetest.Reply(200, "", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 9999")},
		{"a floor", sluicehttp.Config{Inspect: inspect.GitHub}, sluicetest.Reply(403, secondary, kind)},
		{"a tenant", tenant, sluicetest.Reply(429, "", "Retry-After: 9999999999")},
		{"a tenant, all calls", tenant, sluicetest.Reply(429, "", "Retry-After: 9999", "X-RateLimit-Global: true")},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Retry = patient
			c.cfg.Gate.Adaptive.Disabled = true // it would search for the limit
			inWorld(t, c.cfg, layers(sluicetest.On(1, c.answer)), func(w *world) {
				first, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				w.get(first, "http://a.test/")
				var wg sync.WaitGroup
				wg.Go(func() { w.wantGet("http://a.test/", 200) }) // waits
				synctest.Wait()
				if n := len(w.srv.Record().Requests); n != 1 {
					t.Fatalf("%d requests before Resume", n)
				}
				if w.rt.Resume("http://b.test") {
					t.Error("there is no such key")
				}
				key := "http://a.test"
				if c.cfg.Key != nil {
					key = c.cfg.Key(nil)
				}
				if !w.rt.Resume(key) {
					t.Error("there is such a key")
				}
				wg.Wait()
				w.wantGet("http://a.test/", 200) // comes later
				if w.now() > 1 {                 // without a rate a refused gate starts slowly
					t.Errorf("it took %v", w.now())
				}
			})
		})
	}
}

// A key can be paused by hand, waits that were not begun included; other keys go on.
func TestTransport_PauseUntil(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(), func(w *world) {
		w.wantGet("http://a.test/", 200)
		if w.rt.PauseUntil("http://b.test", time.Now().Add(time.Hour), "") {
			t.Error("there is no such key")
		}
		if !w.rt.PauseUntil("http://a.test", time.Now().Add(time.Minute), "by hand") {
			t.Error("there is such a key")
		}
		if s := stats(t, w.rt); s.PausedWhy != "by hand" {
			t.Errorf("paused because of %q", s.PausedWhy)
		}
		w.wantGet("http://b.test/", 200)
		if w.now() != 0 {
			t.Errorf("another key waited until %v", w.now())
		}
		w.wantGet("http://a.test/", 200)
		if w.now() != time.Minute {
			t.Errorf("the paused key went on at %v", w.now())
		}
	})
}

// The rate and the concurrency of a key can be changed by hand: the rate holds between those
// that servers cause, and other keys keep theirs.
func TestTransport_SetRate(t *testing.T) {
	slow, fast := sluice.Rate{Count: 1, Per: time.Minute}, sluice.Rate{Count: 1, Per: time.Second}
	inWorld(t, sluicehttp.Config{Gate: sluice.Config{Rate: slow, Concurrency: 5}}, layers(), func(w *world) {
		w.wantGet("http://a.test/", 200)
		for _, c := range []struct {
			key         string
			rate        sluice.Rate
			found, fail bool
		}{
			{"http://b.test", fast, false, false},
			{"http://a.test", sluice.Rate{Count: -1, Per: 1}, true, true},
			{"http://a.test", fast, true, false},
		} {
			if found, err := w.rt.SetRate(c.key, c.rate); found != c.found || (err != nil) != c.fail {
				t.Errorf("%+v: %v, %v", c, found, err)
			}
		}
		w.wantGet("http://a.test/", 200)
		w.wantGet("http://a.test/", 200)
		if w.now() != 2*time.Second {
			t.Errorf("the third request left at %v", w.now())
		}
		if found, err := w.rt.SetConcurrency("http://a.test", 2); !found || err != nil {
			t.Error(found, err)
		}
		if _, err := w.rt.SetConcurrency("http://a.test", -1); err == nil {
			t.Error("a negative concurrency")
		}
		if s := stats(t, w.rt); s.Rate != fast || s.Concurrency != 2 {
			t.Errorf("%v, %d in flight", s.Rate, s.Concurrency)
		}
		w.wantGet("http://b.test/", 200)
		w.wantGet("http://b.test/", 200)
		if w.now() != 2*time.Second+time.Minute {
			t.Errorf("another key went on at %v", w.now())
		}
	})
}

// A slower rate that a server has caused stays in force when the configured one is changed; a
// published one is replaced, and counts again when there is none.
func TestTransport_SetRate_AndServers(t *testing.T) {
	left := sluicetest.Status(200, "X-RateLimit-Limit: 10000", "X-RateLimit-Remaining: 500", "X-RateLimit-Reset: 1000")
	cfg := sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}, Gate: sluice.Config{Rate: sluice.Rate{Count: 9, Per: time.Second}}}
	inWorld(t, cfg, layers(left), func(w *world) {
		w.wantGet("http://a.test/", 200)
		for _, rate := range []int64{100, 9} {
			if _, err := w.rt.SetRate("http://a.test", sluice.Rate{Count: rate, Per: time.Second}); err != nil {
				t.Error(err)
			}
			if s := stats(t, w.rt); s.Rate.Interval() != 2*time.Second {
				t.Errorf("%d/s asked: %v", rate, s.Rate)
			}
		}
		if _, err := w.rt.SetRate("http://a.test", sluice.Rate{Count: 1, Per: time.Hour}); err != nil || stats(t, w.rt).Rate.Per != time.Hour {
			t.Errorf("%v, %v", stats(t, w.rt).Rate, err)
		}
	})
	published := sluicetest.Status(200, "RateLimit-Policy: \"a\";q=10;w=5")
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, layers(published), func(w *world) {
		for _, want := range []sluice.Rate{{Count: 10, Per: 5 * time.Second}, {Count: 7, Per: time.Second}, {Count: 10, Per: 5 * time.Second}} {
			w.wantGet("http://a.test/", 200)
			if got := stats(t, w.rt).Rate; got != want {
				t.Errorf("%v, want %v", got, want)
			}
			next := sluice.Rate{Count: 7, Per: time.Second}
			if want == next {
				next = sluice.Rate{}
			}
			if _, err := w.rt.SetRate("http://a.test", next); err != nil {
				t.Error(err)
			}
		}
	})
}

// A secondary limit doubles its waits; Resume begins anew.
func TestTransport_Resume_DoubledWaits(t *testing.T) {
	refuse := sluicetest.Reply(403, secondary)
	cfg := sluicehttp.Config{Inspect: inspect.GitHub, Retry: sluice.RetryPolicy{Attempts: 1, MaxServerWait: 1}}
	inWorld(t, cfg, layers(sluicetest.Script(refuse, refuse)), func(w *world) {
		for range 2 {
			w.wantGet("http://a.test/", 403)
			if got := time.Until(stats(t, w.rt).PausedUntil); got != time.Minute {
				t.Errorf("paused for %v", got)
			}
			time.Sleep(30 * time.Second)
			w.rt.Resume("http://a.test")
		}
		w.wantGet("http://a.test/", 200)
	})
}

// hostile is a base transport for a million names: those below evil.test answer so,
// all others are fine.
func hostile(status int, header ...string) http.RoundTripper {
	fields := make(http.Header)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		fields.Add(name, value)
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(req.URL.Host, ".evil.test") {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		}
		if status == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: status, Header: fields, Body: http.NoBody}, nil
	})
}

// A server with many names fills no table: the other hosts are served, and memory is
// bounded.
func TestConfig_Keys_HostileNames(t *testing.T) {
	built.SkipRaced(t)
	once := sluice.RetryPolicy{Attempts: 1}
	pausing := []string{"Retry-After: 9999999999"}
	for _, c := range []struct {
		name   string
		cfg    sluicehttp.Config
		most   int // gates
		base   http.RoundTripper
		hosts  int
		before func(cfg *sluicehttp.Config)
	}{
		{name: "429", base: hostile(429, pausing...), hosts: 3000},
		{name: "nothing remains", base: hostile(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 400000000"), hosts: 300},
		{name: "503", base: hostile(503, pausing...), hosts: 300},
		{name: "500", base: hostile(500), hosts: 300},
		{name: "dead", base: hostile(0), hosts: 300},
		{name: "all calls", base: hostile(429, "Retry-After: 9999999999", "X-RateLimit-Global: true"), hosts: 300},
		{name: "spread", cfg: sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, base: hostile(200, "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 400000000"), hosts: 300},
		{name: "policy", cfg: sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, base: hostile(200, `RateLimit-Policy: "a";q=1;w=400000000`), hosts: 300},
		{name: "429, with a rate", cfg: sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}}}, base: hostile(429, pausing...), hosts: 300},
		{name: "429, with a parent", base: hostile(429, pausing...), hosts: 300, before: func(cfg *sluicehttp.Config) {
			cfg.Gate.Parent, _ = sluice.New(sluice.Config{Concurrency: 1})
		}},
		{name: "429, with permits", base: hostile(429, pausing...), hosts: 300, before: func(cfg *sluicehttp.Config) { cfg.Gate.Semaphore = new(lender) }},
		{name: "429, with a timeout", cfg: sluicehttp.Config{Retry: sluice.RetryPolicy{Attempts: 1, AttemptTimeout: time.Minute}}, base: hostile(429, pausing...), hosts: 300},
		{name: "429, without a bound", cfg: sluicehttp.Config{MaxPause: -1}, base: hostile(429, pausing...), hosts: 300},
	} {
		for _, keys := range []sluice.KeyedConfig{{MaxKeys: 100}, {MaxKeys: 1}, {EvictAt: 100}, {}} {
			if keys.MaxKeys+keys.EvictAt == 0 && c.name != "429" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%+v", c.name, keys.MaxKeys+keys.EvictAt), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if c.before != nil {
						c.before(&c.cfg)
					}
					cfg := c.cfg
					if cfg.Keys = keys; cfg.Retry.Attempts == 0 {
						cfg.Retry = once
					}
					most := max(keys.MaxKeys, keys.EvictAt)
					hosts := c.hosts
					if most == 0 {
						most, hosts = 10_000, 10_500
					}
					rt := mustTransport(t, c.base, cfg)
					get := func(url string) error {
						resp, err := rt.RoundTrip(request(t, bg, "GET", url, nil))
						if err == nil {
							resp.Body.Close()
						}
						return err
					}
					refused := 0
					for i := range hosts {
						if errors.Is(get(fmt.Sprintf("http://h%d.evil.test/", i)), limits.ErrTooManyKeys) {
							refused++
						}
						if i%50 == 0 {
							if err := get(fmt.Sprintf("http://meanwhile%d.test/", i)); err != nil {
								refused++
							}
						}
						if i%10 == 0 {
							time.Sleep(time.Second)
						}
					}
					for i := range 200 {
						if err := get(fmt.Sprintf("http://good%d.test/", i)); err != nil {
							refused++
						}
						if cfg.Gate.Rate.Count > 0 {
							time.Sleep(time.Second) // it owes its rate a call
						}
					}
					if refused > 0 {
						t.Errorf("%d requests were refused", refused)
					}
					gates := 0
					rt.Stats(func(string, sluicehttp.Stats) bool { gates++; return true })
					if gates > most {
						t.Errorf("%d gates, want at most %d", gates, most)
					}
				})
			})
		}
	}
}

// Gates of hosts that pause make room all the time, while some are about to use
// them and others read: there are never two in use for a host.
func TestConfig_Keys_OneGatePerHost(t *testing.T) {
	const hosts, callers, each = 7, 4, 4000
	var inFlight [hosts]atomic.Int32
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		host := &inFlight[req.URL.Host[0]-'a']
		if n := host.Add(1); n > 1 {
			t.Errorf("%d in flight at %s, want 1", n, req.URL.Host)
		}
		runtime.Gosched()
		h := http.Header{"Retry-After": {"0.00002"}}
		return &http.Response{StatusCode: 429, Header: h, Body: &leaving{n: host}}, nil
	})
	var made atomic.Int32
	rt := mustTransport(t, base, sluicehttp.Config{
		Retry: sluice.RetryPolicy{Attempts: 1, MaxServerWait: time.Hour},
		NewGate: func(string) (*sluice.Gate, error) {
			made.Add(1)
			// The rate is for a gate that does not start slowly after a refusal.
			return sluice.New(sluice.Config{
				Concurrency: 1, RetryBudget: -1, Rate: sluice.Rate{Count: 1e9, Per: time.Second}, Adaptive: sluice.Adaptive{Disabled: true},
			})
		},
		Keys: sluice.KeyedConfig{MaxKeys: 2, Idle: time.Hour},
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				host := (c + i/7) % hosts
				ctx := sluicehttp.WithOverrides(slow{bg}, sluicehttp.Overrides{NoRetry: true})
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%c.test/", 'a'+host), nil)
				resp, err := rt.RoundTrip(req)
				switch {
				case err == nil:
					runtime.Gosched()
					resp.Body.Close()
				case !errors.Is(err, limits.ErrTooManyKeys):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() <= hosts {
		t.Error("no gate ever made room")
	}
	t.Logf("%d gates were made", made.Load())
}

// leaving is a body that is in flight until it is closed.
type leaving struct {
	n    *atomic.Int32
	once sync.Once
}

func (*leaving) Read([]byte) (int, error) { return 0, nil }

func (l *leaving) Close() error {
	l.once.Do(func() { l.n.Add(-1) })
	return nil
}

// A server that pauses all calls is remembered although its gate made room, but not
// more than 10,000 of them, and none for longer than it lasts.
func TestTransport_GlobalThrottle_MemoryIsBounded(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		base := hostile(429, "Retry-After: 9999", "X-RateLimit-Global: true")
		rt := mustTransport(t, base, sluicehttp.Config{Retry: sluice.RetryPolicy{Attempts: 1}, Keys: sluice.KeyedConfig{MaxKeys: 10}})
		for i := range 12_000 {
			if _, err := rt.RoundTrip(request(t, bg, "GET", fmt.Sprintf("http://h%d.evil.test/", i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		if n := rt.PausedServers(); n != 10_000 {
			t.Errorf("%d servers are remembered", n)
		}
		if _, err := rt.RoundTrip(request(t, bg, "GET", "http://h11999.evil.test/", nil)); !errors.Is(err, sluice.ErrServerWait) {
			t.Errorf("the last one was forgotten: %v", err)
		}
		time.Sleep(3 * time.Hour)
		for i := range 5000 {
			rt.RoundTrip(request(t, bg, "GET", fmt.Sprintf("http://good%d.test/", i), nil))
		}
		if n := rt.PausedServers(); n > 0 {
			t.Errorf("%d servers are still remembered", n)
		}
	})
}

// Gates are kept for what they owe the configured rate, but not without a bound.
func TestConfig_Keys_MemoryIsBounded(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		rt := mustTransport(t, hostile(200), sluicehttp.Config{
			Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}},
			Keys: sluice.KeyedConfig{EvictAt: 20},
		})
		for i := range 1000 {
			resp, err := rt.RoundTrip(request(t, bg, "GET", fmt.Sprintf("http://h%d.test/", i), nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			gates := 0
			rt.Stats(func(string, sluicehttp.Stats) bool { gates++; return true })
			if want := min(i+1, 201); gates > want || i < 200 && gates != want {
				t.Fatalf("%d gates after %d names, want %d", gates, i+1, want)
			}
		}
	})
}
