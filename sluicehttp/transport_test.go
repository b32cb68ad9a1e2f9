package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestTransport_EachHostHasItsPace(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}}
	inWorld(t, cfg, nil, func(w *world) {
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() { w.wantGet(fmt.Sprintf("http://%c.test/", 'a'+i%3), 200) })
		}
		wg.Wait()
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			r := w.srv.Record().Host(host)
			if err := r.CheckSpacing(100 * ms); err != nil {
				w.Error(err)
			}
			if len(r.Requests) != 10 {
				w.Errorf("%s got %d requests", host, len(r.Requests))
			}
		}
		if w.now() != 900*ms {
			w.Errorf("took %v, want 900ms", w.now())
		}
	})
}

func TestTransport_Key(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, nil, func(w *world) {
		for _, url := range []string{
			"http://a.test/", "http://A.TEST:80/x?y", "https://a.test/", "https://a.test:443/",
			"http://a.test:8080/", "http://[::1]:80/", "http://[::1]/",
		} {
			w.wantGet(url, 200)
		}
		want := map[string]uint64{"http://a.test": 2, "https://a.test": 2, "http://a.test:8080": 1, "http://[::1]": 2}
		w.rt.Stats(func(key string, s sluicehttp.Stats) bool {
			if s.Admitted != want[key] || s.Name != key {
				w.Errorf("%s, named %s: %d requests, want %d", key, s.Name, s.Admitted, want[key])
			}
			delete(want, key)
			return true
		})
		if len(want) > 0 {
			w.Errorf("there is no %v", want)
		}
	})
}

func TestTransport_Concurrency(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 3}}
	inWorld(t, cfg, layers(sluicetest.Delay(time.Second)), func(w *world) {
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() { w.wantGet("http://a.test/", 200) })
		}
		wg.Wait()
		if got := w.srv.Record().MostInFlight(); got != 3 || w.now() != 4*time.Second {
			w.Errorf("%d in flight, %v in all; want 3, 4s", got, w.now())
		}
	})
}

// A redirect is another request, and its host another host.
func TestTransport_Redirects(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Concurrency: 1}}
	faults := layers(sluicetest.Host("a.test", sluicetest.Status(302, "Location: http://b.test/")))
	inWorld(t, cfg, faults, func(w *world) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { w.wantGet("http://a.test/", 200) })
		}
		w.wantGet("http://b.test/", 200)
		wg.Wait()
		for _, host := range []string{"a.test", "b.test"} {
			if err := w.srv.Record().Host(host).CheckSpacing(time.Second); err != nil {
				w.Error(err)
			}
		}
		if w.now() != 4*time.Second { // five to b, of which the first goes at once
			w.Errorf("took %v, want 4s", w.now())
		}
		ctx, report := sluicehttp.WithReport(bg)
		if _, _, err := w.get(ctx, "http://a.test/"); err != nil {
			w.Error(err)
		}
		if hop := report.Last(); hop.Key != "http://b.test" || len(hop.Attempts) != 1 {
			w.Errorf("last hop %+v", hop)
		}
	})
}

func TestOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Host("away.test", sluicetest.Status(302, "Location: http://b.test/")))
		defer srv.Close()
		base := srv.Transport()
		defer base.CloseIdleConnections()
		rt := mustTransport(t, base, sluicehttp.Config{
			Key: func(req *http.Request) string { return "all of " + req.URL.Hostname() },
			NewGate: func(key string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: key, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))}}})
			},
		})
		client := &http.Client{Transport: rt}
		get := func(o sluicehttp.Overrides, url string) error {
			resp, err := client.Do(request(t, sluicehttp.WithOverrides(bg, o), "GET", url, nil))
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		for _, c := range []struct {
			o    sluicehttp.Overrides
			url  string
			want error
		}{
			{sluicehttp.Overrides{}, "http://a.test/", nil},
			{sluicehttp.Overrides{Key: "search", Cost: 7}, "http://a.test/", nil},
			{sluicehttp.Overrides{Key: "search", Cost: 11}, "http://a.test/", limits.ErrTooLarge},
			// The key does not follow to another host.
			{sluicehttp.Overrides{Key: "search", Cost: 3}, "http://away.test/", nil},
		} {
			if err := get(c.o, c.url); !errors.Is(err, c.want) {
				t.Errorf("%+v: %v, want %v", c.o, err, c.want)
			}
		}
		if err := get(sluicehttp.Overrides{Cost: -1}, "http://a.test/"); err == nil || !strings.Contains(err.Error(), "negative cost") {
			t.Errorf("cost -1: %v", err)
		}
		got := make(map[string]uint64)
		rt.Stats(func(key string, s sluicehttp.Stats) bool {
			got[key] = s.Admitted
			return true
		})
		if want := "map[all of a.test:1 all of b.test:1 search:2]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

func TestConfig_Keys(t *testing.T) {
	asked := 0
	cfg := sluicehttp.Config{
		Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}},
		Keys: sluice.KeyedConfig{MaxKeys: 2, Forget: func(*sluice.Gate) bool { asked++; return true }},
	}
	inWorld(t, cfg, nil, func(w *world) {
		w.wantGet("http://a.test/", 200)
		w.wantGet("http://b.test/", 200)
		if _, _, err := w.get(bg, "http://c.test/"); !errors.Is(err, limits.ErrTooManyKeys) {
			w.Errorf("got %v, want ErrTooManyKeys", err)
		}
		time.Sleep(time.Second) // now nothing is owed
		w.wantGet("http://c.test/", 200)
		n := 0
		w.rt.Stats(func(string, sluicehttp.Stats) bool { n++; return true })
		if n != 2 && n != 1 || asked == 0 {
			w.Errorf("there are %d gates, asked %d times", n, asked)
		}
	})
}

func TestConfig_Keys_GateOfAnOpenBody(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}, Keys: sluice.KeyedConfig{Idle: -1}}
	inWorld(t, cfg, nil, func(w *world) {
		resp, err := w.client.Get("http://a.test/")
		if err != nil {
			w.Fatal(err)
		}
		for range 5 { // they look for gates to forget
			w.wantGet("http://b.test/", 200)
			w.wantGet("http://c.test/", 200)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, _, err := w.get(ctx, "http://a.test/"); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("the second request to a got %v; its first is still being read", err)
		}
		resp.Body.Close()
		w.wantGet("http://a.test/", 200)
	})
}

func TestTransport_Close(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}
	inWorld(t, cfg, nil, func(w *world) {
		resp, err := w.client.Get("http://a.test/")
		if err != nil {
			w.Fatal(err)
		}
		waiting := make(chan error)
		go func() {
			_, _, err := w.get(bg, "http://a.test/")
			waiting <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := w.rt.Shutdown(ctx); err != context.DeadlineExceeded {
			w.Errorf("Shutdown with an open body: %v", err)
		}
		if err := <-waiting; !errors.Is(err, limits.ErrClosed) {
			w.Errorf("the waiting request got %v", err)
		}
		for _, url := range []string{"http://a.test/", "http://new.test/"} {
			if _, _, err := w.get(bg, url); !errors.Is(err, limits.ErrClosed) {
				w.Errorf("%s got %v", url, err)
			}
		}
		if err := resp.Body.Close(); err != nil {
			w.Error(err)
		}
		if err := w.rt.Shutdown(bg); err != nil {
			w.Error(err)
		}
	})
}

func TestNew_ConfigErrors(t *testing.T) {
	gate := func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{}) }
	for text, cfg := range map[string]sluicehttp.Config{
		"negative concurrency":       {Gate: sluice.Config{Concurrency: -1}},
		"both Gate and NewGate":      {Gate: sluice.Config{Concurrency: 1}, NewGate: gate},
		"negative MaxKeys":           {Keys: sluice.KeyedConfig{MaxKeys: -1}},
		"negative LongHeld":          {LeakThreshold: -1},
		"spread of -0.1":             {Published: sluicehttp.Published{Spread: -0.1}},
		"spread of 1.1":              {Published: sluicehttp.Published{Spread: 1.1}},
		"spread of NaN":              {Published: sluicehttp.Published{Spread: math.NaN()}},
		"reserve of -0.1":            {Published: sluicehttp.Published{Reserve: -0.1}},
		"reserve of 1":               {Published: sluicehttp.Published{Reserve: 1}},
		"reserve of NaN":             {Published: sluicehttp.Published{Reserve: math.NaN()}},
		"off, with a Spread":         {Published: sluicehttp.Published{Disabled: true, Spread: 1}},
		"with a Spread or a Reserve": {Published: sluicehttp.Published{Disabled: true, Reserve: 0.1}},
		"status 501":                 {AlsoRetry: []int{409, 501}},
		"status 399":                 {AlsoRetry: []int{399}},
		"status 600":                 {AlsoRetry: []int{600}},
	} {
		rt, err := sluicehttp.New(nil, cfg)
		if rt != nil || err == nil || !strings.Contains(err.Error(), text) || !strings.HasPrefix(err.Error(), "sluice") {
			t.Errorf("%s: %v, %v", text, rt, err)
		}
	}
	rt, err := sluicehttp.New(nil)
	if err != nil || rt.Unwrap() != http.DefaultTransport {
		t.Errorf("%v, %v", rt, err)
	}
}

// What the caller does to a Config later changes nothing.
func TestNew_CopiesTheConfig(t *testing.T) {
	cfg := sluicehttp.Config{
		Retry:     seconds,
		AlsoRetry: []int{409},
		Headers: ratelimit.Options{
			Millis:       []string{"X-RateLimit-Reset"},
			CacheMarkers: []string{"X-From-Cache"},
		},
	}
	answers := sluicetest.Script(
		sluicetest.Status(409),
		sluicetest.Status(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60", "X-From-Cache: 1"),
		sluicetest.Status(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"),
	)
	inWorld(t, cfg, layers(answers), func(w *world) {
		cfg.AlsoRetry[0] = 410
		cfg.Headers.Millis[0] = "X-Other"
		cfg.Headers.CacheMarkers[0] = "X-Other"
		for range 3 {
			w.wantGet("http://a.test/", 200)
		}
		w.wantCame(0, time.Second, time.Second, time.Second+60*ms)
	})
	cfg = sluicehttp.Config{Gate: sluice.Config{Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 10, Per: time.Hour, Burst: 10}))}}}}
	rt := mustTransport(t, instant{}, cfg)
	cfg.Gate.Limits[0] = sluice.Limit{} // of which no gate can be made
	if _, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil)); err != nil {
		t.Error(err)
	}
}

func TestConfig_NewGate_Errors(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		gate *sluice.Gate
		err  error
		want string
	}{{nil, wrong, "wrong"}, {nil, nil, "no gate was made for http://a.test"}} {
		rt := mustTransport(t, instant{}, sluicehttp.Config{NewGate: func(string) (*sluice.Gate, error) { return c.gate, c.err }})
		body := &closing{}
		ctx, report := sluicehttp.WithReport(bg)
		_, err := rt.RoundTrip(request(t, ctx, "POST", "http://a.test/", body))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		wantWhy(t, report, err, 0)
		if body.closed != 1 {
			t.Errorf("the body was closed %d times", body.closed)
		}
	}
}

func TestTransport_RoundTrip_InvalidRequests(t *testing.T) {
	rt := mustTransport(t, instant{}, sluicehttp.Config{})
	done, cancel := context.WithCancel(bg)
	cancel()
	home, _ := url.Parse("http://a.test/")
	for want, req := range map[string]*http.Request{
		"no URL":           {Header: http.Header{}},
		"no header":        {URL: home},
		"context canceled": (&http.Request{URL: home, Header: http.Header{}}).WithContext(done),
	} {
		body := &closing{}
		req.Body = body
		if resp, err := rt.RoundTrip(req); resp != nil || err == nil || !strings.Contains(err.Error(), want) || body.closed != 1 {
			t.Errorf("%s: %v, %v; closed %d times", want, resp, err, body.closed)
		}
	}
}

// A base transport that breaks its contract must cost no permit.
type broken struct{ panics bool }

func (b broken) RoundTrip(*http.Request) (*http.Response, error) {
	if b.panics {
		panic("base")
	}
	return nil, nil
}

func (broken) CloseIdleConnections() { panic("idle") }

func TestTransport_BrokenBase(t *testing.T) {
	policy := seconds
	policy.Attempts = 1
	cfg := sluicehttp.Config{Retry: policy, Gate: sluice.Config{Concurrency: 1}}
	rt := mustTransport(t, broken{}, cfg)
	if _, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil)); err == nil || !strings.Contains(err.Error(), "neither a response nor an error") {
		t.Errorf("got %v", err)
	}
	caught := func(f func()) (v any) {
		defer func() { v = recover() }()
		f()
		return nil
	}
	if v := caught(rt.CloseIdleConnections); v != "idle" {
		t.Errorf("CloseIdleConnections: %v", v)
	}
	panicky := mustTransport(t, broken{panics: true}, cfg)
	req := request(t, bg, "GET", "http://a.test/", nil)
	if v := caught(func() { panicky.RoundTrip(req) }); v != "base" {
		t.Errorf("recovered %v", v)
	}
	if n := inFlight(rt) + inFlight(panicky); n != 0 {
		t.Errorf("%d in flight", n)
	}
	mustTransport(t, instant{}, cfg).CloseIdleConnections() // which it has not
}

// late is a base transport that answers after d, whatever the context says.
type late struct {
	d    time.Duration
	body io.ReadCloser
}

func (b late) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(b.d)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: b.body}, nil
}

// An answer that comes too late is no answer, even if it has no body, or comes at
// the very instant at which the attempt ends.
func TestTransport_BaseIgnoresTheContext(t *testing.T) {
	policy := seconds
	policy.Attempts, policy.AttemptTimeout = 1, time.Second
	for _, c := range []struct {
		base late
		runs int // at one instant either may be first
	}{{late{2 * time.Second, nil}, 1}, {late{2 * time.Second, &closing{}}, 1}, {late{time.Second, nil}, 100}} {
		for range c.runs {
			synctest.Test(t, func(t *testing.T) {
				rt := mustTransport(t, c.base, sluicehttp.Config{Retry: policy, Gate: sluice.Config{Concurrency: 1}})
				resp, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil))
				switch {
				case err == nil && c.base.d == time.Second: // it was in time
					resp.Body.Close()
				case err == nil || !strings.Contains(err.Error(), "no response within the AttemptTimeout of 1s"):
					t.Errorf("after %v: %v, %v", c.base.d, resp, err)
				}
				if body, ok := c.base.body.(*closing); ok && body.closed == 0 {
					t.Error("the body of the answer was not closed")
				}
				if n := inFlight(rt); n != 0 {
					t.Errorf("%d in flight", n)
				}
			})
		}
	}
}

// Without a limit, a call costs one allocation beyond those of its base. The AttemptTimeout needs
// a context, and a timer: the default costs no more if the context of the request ends before it.
func TestTransport_Allocations(t *testing.T) {
	base := instant{header: http.Header{"Content-Type": {"application/json"}}, body: true}
	get := func(rt http.RoundTripper, ctx context.Context) func() {
		req := request(t, ctx, http.MethodGet, "https://api.example.com/v1/items", nil)
		return func() {
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	soon, cancel := context.WithTimeout(bg, 5*time.Minute)
	defer cancel()
	none := sluicehttp.Config{Retry: sluice.RetryPolicy{AttemptTimeout: -1}}
	for _, c := range []struct {
		name string
		cfg  sluicehttp.Config
		ctx  context.Context
		most float64
	}{
		{"no AttemptTimeout", none, bg, 1},
		{"no AttemptTimeout, a deadline", none, soon, 4}, // to see the context end
		{"the default, a deadline before it", sluicehttp.Config{}, soon, 4},
		{"the default", sluicehttp.Config{}, bg, 7},
	} {
		own := testing.AllocsPerRun(1000, get(base, c.ctx))
		if n := testing.AllocsPerRun(1000, get(mustTransport(t, base, c.cfg), c.ctx)) - own; n > c.most {
			t.Errorf("%s: %v allocations beyond those of the base, want %v", c.name, n, c.most)
		}
	}
}

// # Keys

// All spellings of one server share its gate, and no others do.
func TestTransport_Key_Spellings(t *testing.T) {
	servers := map[string][]string{
		"http://example.test": {
			"http://example.test/", "http://example.test", "http://EXAMPLE.test/", "HTTP://Example.Test/", "http://example.test:80/", "http://example.test./",
			"http://example.test.:80/", "http://example.test:/", "http://example.test:080/", "http://example.test:0000080/",
			"http://user:password@example.test/", "http://example.test/path?query#fragment",
			"http://ｅｘａｍｐｌｅ.test/", "http://example。test/", "http://example.test。/",
		},
		"https://example.test":      {"https://example.test/", "https://example.test:443/", "https://example.test.:0443/"},
		"https://example.test:80":   {"https://example.test:80/", "https://example.test:080/"},
		"http://example.test:443":   {"http://example.test:443/", "http://EXAMPLE.test.:0443/"},
		"http://example.test:8080":  {"http://example.test:8080/", "http://Example.test:08080"},
		"http://xn--bcher-kva.test": {"http://bücher.test/", "http://BÜCHER.test/", "http://xn--bcher-kva.test/", "http://XN--BCHER-KVA.test:80", "http://bu\u0308cher.test./"},
		"http://[::1]":              {"http://[::1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]:80/", "http://[::1]:"},
		"http://[2001:db8::a]:8080": {"http://[2001:db8::a]:8080/", "http://[2001:DB8:0::A]:8080/", "http://[2001:0db8:0000:0000:0000:0000:0000:000a]:08080/"},
		"http://127.0.0.1":          {"http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[::FFFF:7f00:1]:80/", "http://127.0.0.1./"},
		"http://127.0.0.1:8080":     {"http://127.0.0.1:8080/"},
		"http://[fe80::1%eth0]":     {"http://[fe80::1%25eth0]/", "http://[FE80:0::1%25eth0]:80/"},
		"http://[fe80::1%ETH0]":     {"http://[fe80::1%25ETH0]/"},
		"http://a_b.test":           {"http://a_b.test/", "http://A_B.test/"},
		"http://a.test":             {"http://a.test"},
	}
	for want, urls := range servers {
		for _, u := range urls {
			rt := mustTransport(t, instant{header: http.Header{}}, sluicehttp.Config{})
			for range 2 { // the second time it is the most recent
				if _, err := rt.RoundTrip(request(t, bg, "GET", u, nil)); err != nil {
					t.Errorf("%s: %v", u, err)
				}
			}
			if _, err := rt.RoundTrip(request(t, bg, "GET", urls[0], nil)); err != nil {
				t.Errorf("%s: %v", want, err)
			}
			gates := make(map[string]uint64)
			rt.Stats(func(key string, s sluicehttp.Stats) bool {
				gates[key] = s.Admitted
				return true
			})
			if len(gates) != 1 || gates[want] != 3 {
				t.Errorf("%s: gates %v, want %s", u, gates, want)
			}
		}
	}
}

// A host that no server can have gets some key, and no panic.
func TestTransport_Key_InvalidHosts(t *testing.T) {
	for _, host := range []string{"", ".", "..", ":", ":80", "[", "[]", "]", "[::1", "::1", "a.test:http", "a.test:-1", "a b", "\xff", "[\xff]", "%", "xn--\u0000", "a:b:c", "[::1]x"} {
		rt := mustTransport(t, instant{header: http.Header{}}, sluicehttp.Config{})
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: host}, Header: http.Header{}}
		if _, err := rt.RoundTrip(req); err != nil {
			t.Errorf("%q: %v", host, err)
		}
		stats(t, rt)
	}
}

func BenchmarkKey(b *testing.B) {
	for _, host := range []string{"api.example.com", "api.example.com:8080", "API.example.com", "bücher.example.com"} {
		b.Run(host, func(b *testing.B) {
			u := &url.URL{Scheme: "http", Host: host}
			b.ReportAllocs()
			for b.Loop() {
				sluicehttp.KeyOf(u)
			}
		})
	}
}

// # The state of a key

// Gates are forgotten as soon as they may be, by some while others are about to use
// them: there are never two at once for a host.
func TestTransport_GatesInUseAreKept(t *testing.T) {
	const hosts, callers, each = 3, 8, 3000
	var inFlight [hosts]atomic.Int32
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		host := &inFlight[req.URL.Host[0]-'a']
		if n := host.Add(1); n > 1 {
			t.Errorf("%d in flight at %s, want 1", n, req.URL.Host)
		}
		runtime.Gosched()
		host.Add(-1)
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	var made atomic.Int32
	rt := mustTransport(t, base, sluicehttp.Config{
		NewGate: func(string) (*sluice.Gate, error) {
			made.Add(1)
			return sluice.New(sluice.Config{Concurrency: 1})
		},
		Keys: sluice.KeyedConfig{Idle: -1},
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				host := (c + i/7) % hosts // a few to one, so that it is the most recent
				req, _ := http.NewRequestWithContext(slow{bg}, http.MethodGet, fmt.Sprintf("http://%c.test/", 'a'+host), nil)
				if _, err := rt.RoundTrip(req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() <= hosts {
		t.Error("no gate was ever forgotten")
	}
	t.Logf("%d gates were made", made.Load())
}

// A state that is pinned cannot be retired, and one that is retired cannot be pinned.
func TestState_Pin(t *testing.T) {
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	rt := mustTransport(t, base, sluicehttp.Config{})
	if _, err := rt.RoundTrip(request(t, bg, http.MethodGet, "http://a.test/", nil)); err != nil {
		t.Fatal(err)
	}
	st := sluicehttp.StateOf(rt)
	pinned := 0
	for range 10 * sluicehttp.KeyedEvery {
		if st.Pin() {
			pinned++
			if st.Retire() {
				t.Fatal("retired while it is pinned")
			}
			st.Unpin()
		}
	}
	if want := 10 * (sluicehttp.KeyedEvery - 1); pinned != want {
		t.Errorf("pinned %d times, want %d", pinned, want)
	}
	if !st.Retire() {
		t.Fatal("not retired although no request uses it")
	}
	for range 3 {
		if st.Pin() {
			t.Error("pinned after it was retired")
		}
	}
	st.Revive()
	if !st.Pin() {
		t.Error("not pinned after it was revived")
	}
}

// A slow context lets others run when it is asked whether it is done, and that is
// between choosing a gate and passing it.
type slow struct{ context.Context }

func (slow) Err() error {
	runtime.Gosched()
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// # Peers

// groups is a peers.Store that hands on the names of the groups.
type groups chan string

func (g groups) Exchange(_ context.Context, group string, _ peers.Report) (peers.Reply, error) {
	g <- group
	return peers.Reply{}, context.Canceled
}

// The gates of a key share what they learn with those of that key in other processes.
func TestConfig_Gate_Peers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(groups, 100)
		transport, err := sluicehttp.New(answers(200), sluicehttp.Config{
			Gate: sluice.Config{Adaptive: sluice.Adaptive{Peers: seen}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		client := &http.Client{Transport: transport}
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if group := <-seen; !strings.Contains(group, "api.example.com") {
			t.Errorf("group %q", group)
		}
	})
}

// answers is a server that answers with a status.
type answers int

func (status answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// # Proxies

// A proxy that refuses to connect us is asked once; one that is overloaded or broken
// is asked again, as a server is.
func TestTransport_ProxyRefuses(t *testing.T) {
	for _, c := range []struct {
		status int
		also   []int
		tries  int
	}{
		{407, nil, 1},
		{401, nil, 1},
		{403, nil, 1},
		{404, nil, 1},
		{407, []int{407}, 4},
		{408, nil, 4},
		{429, nil, 4},
		{500, nil, 4},
		{502, nil, 4},
		{503, nil, 4},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(fmt.Sprint(c.status, c.also, scheme), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					proxy := sluicetest.NewServer(sluicetest.Status(c.status))
					defer proxy.Close()
					base := proxy.Transport()
					base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
					defer base.CloseIdleConnections()
					cfg := sluicehttp.Config{Retry: seconds, AlsoRetry: c.also}
					cfg.Retry.ThrottleBackoff = sluice.Constant(time.Second)
					cfg.Gate.Adaptive.Disabled = true // refused calls would not count as attempts
					rt := mustTransport(t, base, cfg)
					ctx, report := sluicehttp.WithReport(bg)
					resp, err := rt.RoundTrip(request(t, ctx, "GET", scheme+"://a.test/", nil))
					switch {
					case scheme == "https" && err == nil:
						t.Error("there is an answer")
					case scheme == "http" && (err != nil || resp.StatusCode != c.status):
						t.Errorf("got %v, %v", resp, err)
					}
					if n := len(proxy.Record().Requests); n != c.tries {
						t.Errorf("the proxy was asked %d times, want %d", n, c.tries)
					}
					if err != nil && c.tries == 1 && !errors.Is(report.Last().Why, sluice.ErrPermanent) {
						t.Errorf("why: %v", report.Last().Why)
					}
					if resp != nil {
						resp.Body.Close()
					}
				})
			})
		}
	}
}

// A SOCKS proxy that wants other credentials is asked once.
func TestTransport_ProxyRefuses_SOCKS(t *testing.T) {
	for _, chosen := range []byte{0xff, 0x02} { // no method, or a password that is wrong
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			base := &http.Transport{
				Proxy:       http.ProxyURL(&url.URL{Scheme: "socks5", Host: "proxy.test:1080", User: url.UserPassword("a", "b")}),
				DialContext: socks(&dials, chosen),
			}
			rt := mustTransport(t, base, sluicehttp.Config{Retry: seconds})
			if _, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil)); err == nil {
				t.Error("there is an answer")
			}
			if dials != 1 {
				t.Errorf("%d dials", dials)
			}
		})
	}
}

// socks dials a SOCKS5 proxy (RFC 1928) that chooses a method and then refuses.
func socks(dials *int, chosen byte) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		*dials++
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			greeting := make([]byte, 64)
			server.Read(greeting)
			server.Write([]byte{5, chosen})
			if chosen == 2 {
				server.Read(greeting)
				server.Write([]byte{1, 1})
			}
		}()
		return client, nil
	}
}
