package sluicehttp_test

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A window that is used up throttles the calls that come too late, and explains why: the gate learns no
// rate from them, which would leave a quarter of each window unused. A window that slides,
// or that others use, explains it badly: then the gate learns what it would without headers.
func TestTransport_UsedUpWindow(t *testing.T) {
	const n, per = 30, 10 * time.Second
	fixed := func() func(time.Time, http.Header) bool { return (&npmWindow{n: n, per: per}).fastify }
	for _, c := range []struct {
		name   string
		grant  func() func(time.Time, http.Header) bool
		cfg    sluicehttp.Config
		learns bool
	}{
		{"a crowd", fixed, sluicehttp.Config{}, false},
		{"fastify", fixed, sluicehttp.Config{}, false},
		{"express", func() func(time.Time, http.Header) bool { return (&npmWindow{n: n, per: per}).express }, sluicehttp.Config{}, false},
		{"koa", func() func(time.Time, http.Header) bool { return (&npmWindow{n: n, per: per}).koa }, sluicehttp.Config{}, false},
		{"with a child", fixed, sluicehttp.Config{Claimant: func(*http.Request) sluice.Claimant { return sluice.Claimant{Name: "a"} }}, false},
		{"that slides", func() func(time.Time, http.Header) bool { return httprate(n, per) }, sluicehttp.Config{}, true},
		{"that others use", func() func(time.Time, http.Header) bool {
			l := &npmWindow{n: n, per: per}
			return func(now time.Time, h http.Header) bool {
				l.take(now)
				l.take(now)
				return l.fastify(now, h)
			}
		}, sluicehttp.Config{}, true},
		{"without headers when it throttles", func() func(time.Time, http.Header) bool {
			grant := fixed()
			return func(now time.Time, h http.Header) bool {
				ok := grant(now, h)
				if !ok {
					clear(h)
				}
				return ok
			}
		}, sluicehttp.Config{}, true},
		{"with Search", fixed, sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Search: true}}}, true},
		{"with AvoidThrottling", fixed, sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{AvoidThrottling: true}}}, true},
		{"with Published off", fixed, sluicehttp.Config{Published: sluicehttp.Published{Disabled: true}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: c.grant()}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				time.Sleep(234 * ms) // no server begins with a second
				begin, calls, callers := time.Now(), 5*n, 32
				if c.name == "a crowd" {
					callers = 100
				}
				w.calls(callers, calls)
				learns := false
				for _, s := range w.rt.Stats {
					learns = learns || s.Learned != nil
				}
				took := srv.last.Sub(begin)
				t.Logf("%v, %d throttled", took, srv.refused)
				if learns != c.learns {
					t.Errorf("it learns: %v, want %v", learns, c.learns)
				}
				// Four windows have to pass, each up to a second late by its rounded end.
				if late := srv.refused - max(0, callers-n); !c.learns && (took > 4*per+3*time.Second || late > 6) {
					t.Errorf("%d calls took %v, %d were throttled", calls, took, srv.refused)
				}
			})
		})
	}
}
