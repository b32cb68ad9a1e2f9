package sluicehttp_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A slidingWindow counts as httprate does, with a share of the window before, and publishes windows.
type slidingWindow struct {
	n            int
	per          time.Duration
	began        time.Time
	used, before int
}

func (l *slidingWindow) grant(now time.Time, h http.Header) bool {
	switch begins := now.Truncate(l.per); {
	case begins.Equal(l.began):
	case begins.Equal(l.began.Add(l.per)):
		l.began, l.before, l.used = begins, l.used, 0
	default:
		l.began, l.before, l.used = begins, 0, 0
	}
	share := 1 - float64(now.Sub(l.began))/float64(l.per)
	used := int(math.Round(float64(l.before)*share)) + l.used
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.n))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(l.began.Add(l.per).Unix(), 10))
	if used+1 > l.n {
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, l.n-used)))
		h.Set("Retry-After", whole(l.per))
		return false
	}
	l.used++
	h.Set("X-RateLimit-Remaining", strconv.Itoa(l.n-used-1))
	return true
}

// A window that slides is used, although each throttled call costs ten seconds. 600 calls take 200 s at the limit.
func TestTransport_UnusedLimit(t *testing.T) {
	search := sluice.Adaptive{Search: true}
	for _, c := range []struct {
		name string
		cfg  sluicehttp.Config
		most time.Duration
	}{
		{"no configuration", sluicehttp.Config{}, 245 * time.Second},
		{"concurrency", sluicehttp.Config{Concurrency: 8}, 240 * time.Second},
		{"cost", sluicehttp.Config{Cost: one}, 260 * time.Second},
		{"search", sluicehttp.Config{Gate: sluice.Config{Adaptive: search}}, 260 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limit := &slidingWindow{n: 30, per: 10 * time.Second}
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2)), grant: limit.grant}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				w.calls(16, 600)
				t.Logf("%v, %d throttled", w.now(), srv.refused)
				if w.now() > c.most || srv.refused > 30 {
					t.Errorf("600 calls took %v, %d were throttled", w.now(), srv.refused)
				}
			})
		})
	}
}

// Another limit, which nobody publishes, is found as without the windows. AvoidThrottling keeps what it has found.
func TestTransport_UnusedLimit_AnotherLimit(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  sluicehttp.Config
		says bool // the response that throttles shows the windows as well
		most int  // throttled calls
		took time.Duration
	}{
		{"with the windows", sluicehttp.Config{}, true, 75, 11 * time.Minute},
		{"without a word", sluicehttp.Config{}, false, 70, 11 * time.Minute},
		{"AvoidThrottling", sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{AvoidThrottling: true}}}, false, 12, 18 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			window := &slidingWindow{n: 100, per: 10 * time.Second}
			hidden, last := 4.0, time.Time{} // a bucket
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2))}
			srv.grant = func(now time.Time, h http.Header) bool {
				hidden, last = min(4, hidden+4*now.Sub(last).Seconds()), now
				if hidden >= 1 {
					hidden--
					return window.grant(now, h)
				}
				if c.says {
					h.Set("X-RateLimit-Limit", "100")
					h.Set("X-RateLimit-Remaining", "60")
					h.Set("X-RateLimit-Reset", strconv.FormatInt(now.Truncate(window.per).Add(window.per).Unix(), 10))
				}
				return false
			}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				w.calls(16, 2400)
				t.Logf("%v, %d throttled", w.now(), srv.refused)
				if w.now() > c.took || srv.refused > c.most {
					t.Errorf("2,400 calls at 4/s took %v, %d were throttled", w.now(), srv.refused)
				}
			})
		})
	}
}
