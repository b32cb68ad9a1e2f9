package sluicehttp

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Which throttled calls a window of 30 explains, by the seconds at which they started and were answered. It
// says until when.
func TestExcuse(t *testing.T) {
	type answer struct {
		granted    int // calls before it, after the end of the last window
		began, now float64
		until      float64 // of the window; 0: there is none
		sent       uint32  // calls so far
		accepted   bool
	}
	first := answer{30, 0, .1, 10, 100, true}
	for _, c := range []struct {
		name    string
		answers []answer
	}{
		{"a crowd is one", []answer{first, {0, 0, .2, 10, 100, true}, {0, 0, .2, 10, 100, true}, {0, .1, .2, 10, 100, true},
			{0, 0, .2, 10, 100, true}, {0, 0, .2, 10, 100, true}, {0, 0, .2, 10, 100, true}, {0, 0, 10.2, 10, 100, true}}},
		{"and nothing else", []answer{first, {0, .2, .3, 10, 100, true}, {0, .2, .3, 10, 100, true}, {0, .2, .3, 10, 100, true},
			{0, .2, .3, 10, 100, true}, {0, .2, .3, 10, 100, false}, {30, 11, 12, 20, 500, false}}},
		{"one of ten", []answer{first, {30, 11, 12, 20, 110, true}, {30, 21, 22, 30, 120, true}, {30, 31, 32, 40, 130, true},
			{30, 41, 42, 50, 140, true}, {30, 51, 52, 60, 150, true}, {0, 51, 52, 60, 160, true}, {0, 51, 52, 60, 160, true}, {0, 51, 52, 60, 160, true},
			{0, 51, 52, 60, 160, true}, {0, 51, 52, 60, 160, true}, {0, 51, 52, 60, 160, false}}},
		{"half of a window", []answer{first, {15, 11, 12, 20, 110, true}, {14, 21, 22, 30, 120, false}}},
		// Those before count for none: the second window looked well used because the first was.
		{"half of the second", []answer{first, {14, 11, 12, 20, 110, false}}},
		{"the end is late", []answer{first, {0, 10.1, 10.2, 12.2, 101, true}, {30, 13, 14, 24, 131, true}}},
		{"the end is too late", []answer{first, {0, 10.1, 10.2, 12.3, 101, false}}},
		{"no window", []answer{first, {30, 11, 12, 0, 130, false}, {30, 11, 12, 20, 130, false}}},
		{"never one", []answer{{30, 0, .1, 0, 30, false}, {0, 1, 2, 10, 60, false}}},
	} {
		var e excuse
		epoch := time.Now()
		at := func(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }
		for i, a := range c.answers {
			e.granted += uint32(a.granted)
			r := reply{now: at(a.now), began: at(a.began), total: a.sent, refused: true, retryAt: at(a.until), window: 30}
			if a.until == 0 {
				r.window = 0
			}
			if got := e.accepts(&r); got != a.accepted {
				t.Errorf("%s: call %d is accepted: %v, want %v", c.name, i, got, a.accepted)
			}
		}
	}
}

// A bucket that is full in 10 s and has one more in 1 s is no long window, for which calls would wait, see
// claim.pending.
func TestClaim_Explains_Long(t *testing.T) {
	now := time.Now()
	for wait, long := range map[time.Duration]bool{time.Second: false, 10 * time.Second: true} {
		var c claim
		said, _ := ratelimit.Parse(http.StatusTooManyRequests, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"10"}}, now)
		r := reply{now: now, refused: true, retryAt: now.Add(wait)}
		if got := c.explains(&said.Limits[0], &r); got != long || c.long != long {
			t.Errorf("a wait of %v: explained %v, long %v; want %v", wait, got, c.long, long)
		}
	}
}
