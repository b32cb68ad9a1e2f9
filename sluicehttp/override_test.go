package sluicehttp_test

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// With keeps every field that it does not set, also one that is added some day.
func TestWith_Merges(t *testing.T) {
	full := sluicehttp.Overrides{Key: "a", Cost: 2, Idempotent: true, NoRetry: true, AttemptTimeout: time.Second, ReleaseAtHeaders: true}
	if got := sluicehttp.OverridesFrom(bg); got != (sluicehttp.Overrides{}) {
		t.Errorf("an empty context has %+v", got)
	}
	fields := reflect.TypeFor[sluicehttp.Overrides]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Fatalf("the test does not know %s", name)
		}
		var one sluicehttp.Overrides
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		for _, order := range [][]sluicehttp.Overrides{{one, {}}, {{}, one}, {one, full}, {full, one}, {full, {}}} {
			ctx := context.Context(bg)
			for _, o := range order {
				ctx = sluicehttp.WithOverrides(ctx, o)
			}
			want := full
			if order[0] != full && order[1] != full {
				want = one
			}
			if got := sluicehttp.OverridesFrom(ctx); got != want {
				t.Errorf("%s: %+v, then %+v: got %+v", name, order[0], order[1], got)
			}
		}
	}
	// The later one wins, and the context before is as it was.
	ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Key: "a", Cost: 2, AttemptTimeout: time.Second})
	later := sluicehttp.WithOverrides(ctx, sluicehttp.Overrides{Key: "b", Cost: 3, AttemptTimeout: -1})
	if got, want := sluicehttp.OverridesFrom(later), (sluicehttp.Overrides{Key: "b", Cost: 3, AttemptTimeout: -1}); got != want {
		t.Errorf("got %+v", got)
	}
	if got, want := sluicehttp.OverridesFrom(ctx), (sluicehttp.Overrides{Key: "a", Cost: 2, AttemptTimeout: time.Second}); got != want {
		t.Errorf("the first became %+v", got)
	}
}

// A middleware that says what a request weighs leaves it at the key of the caller.
func TestWith_Middleware(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, nil, func(w *world) {
		w.client.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			return w.rt.RoundTrip(req.WithContext(sluicehttp.WithOverrides(req.Context(), sluicehttp.Overrides{Cost: 7})))
		})
		ctx, report := sluicehttp.WithReport(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Key: "search"}))
		w.get(ctx, "http://a.test/")
		if key := report.Last().Key; key != "search" {
			t.Errorf("the key is %q", key)
		}
	})
}

// Config.Idempotent adds to what may be sent twice, and takes nothing away.
func TestConfig_Idempotent(t *testing.T) {
	yes := func(*http.Request, []byte) bool { return true }
	no := func(*http.Request, []byte) bool { return false }
	search := func(req *http.Request, _ []byte) bool { return strings.HasPrefix(req.URL.Path, "/search") }
	read := func(_ *http.Request, body []byte) bool { return string(body) == `{"method":"eth_call"}` }
	write := func(_ *http.Request, body []byte) bool { return string(body) == "another" }
	for _, c := range []struct {
		name       string
		idempotent func(*http.Request, []byte) bool
		method     string
		path       string
		key        bool
		o          sluicehttp.Overrides
		cfg        sluicehttp.Config
		tries      int
	}{
		{"not set", nil, "POST", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 1},
		{"a POST", yes, "POST", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"a PATCH", yes, "PATCH", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"a path", search, "POST", "/search", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"another path", search, "POST", "/orders", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 1},
		{"a body", read, "POST", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"another body", write, "POST", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 1},
		{"no, but a GET", no, "GET", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"no, but a key", no, "POST", "/", true, sluicehttp.Overrides{}, sluicehttp.Config{}, 2},
		{"no, but an override", no, "POST", "/", false, sluicehttp.Overrides{Idempotent: true}, sluicehttp.Config{}, 2},
		{"yes, but no retry", yes, "POST", "/", false, sluicehttp.Overrides{NoRetry: true}, sluicehttp.Config{}, 1},
		{"with a timeout", yes, "POST", "/", false, sluicehttp.Overrides{AttemptTimeout: time.Second}, sluicehttp.Config{}, 2},
		{"with permits", yes, "POST", "/", false, sluicehttp.Overrides{}, sluicehttp.Config{Gate: sluice.Config{Semaphore: new(lender)}}, 2},
	} {
		for fault, layer := range map[string]sluicetest.Layer{"500": sluicetest.Status(500), "503": sluicetest.Status(503), "cut": sluicetest.Cut()} {
			for _, scheme := range []string{"http", "https"} {
				t.Run(c.name+"/"+fault+"/"+scheme, func(t *testing.T) {
					asked := 0
					cfg := c.cfg
					cfg.Retry = seconds
					if c.idempotent != nil {
						cfg.Idempotent = func(req *http.Request, body []byte) bool { asked++; return c.idempotent(req, body) }
					}
					inWorld(t, cfg, layers(sluicetest.On(1, layer)), func(w *world) {
						req := request(t, sluicehttp.WithOverrides(bg, c.o), c.method, scheme+"://a.test"+c.path, strings.NewReader(`{"method":"eth_call"}`))
						if c.key {
							req.Header.Set("Idempotency-Key", "1")
						}
						w.do(req)
						if n := len(w.srv.Record().Requests); n != c.tries {
							t.Errorf("%d attempts, want %d", n, c.tries)
						}
						if asked > 1 {
							t.Errorf("asked %d times", asked)
						}
					})
				})
			}
		}
	}
}

// Idempotent gets the body that Cost gets: one that can be read again, up to 1 MiB.
func TestConfig_Idempotent_Body(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	for _, c := range []struct {
		name string
		body func() io.Reader
		want string
	}{
		{"none", func() io.Reader { return nil }, ""},
		{"in memory", func() io.Reader { return strings.NewReader("query") }, "query"},
		{"short, of known length", func() io.Reader { return io.NopCloser(strings.NewReader("query")) }, "query"},
		{"of unknown length", func() io.Reader { return io.MultiReader(strings.NewReader("query")) }, ""},
		{"long", func() io.Reader { return strings.NewReader(long) }, long[:1<<20]},
	} {
		for _, cost := range []func(*http.Request, []byte) sluice.Costs{nil, func(_ *http.Request, body []byte) sluice.Costs {
			if string(body) != c.want {
				t.Errorf("%s: Cost gets %.20q", c.name, body)
			}
			return nil
		}} {
			asked := 0
			cfg := sluicehttp.Config{Cost: cost, Idempotent: func(_ *http.Request, body []byte) bool {
				asked++
				if string(body) != c.want {
					t.Errorf("%s: Idempotent gets %.20q", c.name, body)
				}
				return true
			}}
			inWorld(t, cfg, nil, func(w *world) {
				req := request(t, bg, "POST", "http://a.test/", c.body())
				if c.name == "short, of known length" {
					req.ContentLength = 5
				}
				if status, _, err := w.do(req); status != 200 || err != nil || asked != 1 {
					t.Errorf("%s: %d, %v, asked %d times", c.name, status, err, asked)
				}
			})
		}
	}
}
