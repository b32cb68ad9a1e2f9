package sluicehttp

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Which throttled calls a window explains, by the seconds at which they started and were answered.
func TestExcuse(t *testing.T) {
	type answer struct {
		began, now float64
		sent       uint32 // calls so far
		window     bool
		accepted   bool
	}
	first := answer{0, .1, 100, true, true}
	crowd := answer{0, .2, 100, true, true}
	more := answer{.2, .3, 100, true, true}
	for _, c := range []struct {
		name    string
		answers []answer
	}{
		{"a crowd does not count", []answer{first, crowd, crowd, {.1, .2, 100, true, true}, crowd, crowd, crowd, {0, 10.2, 100, true, true}}},
		{"four may follow, and then it begins again", []answer{first, more, more, more, more, {.2, .3, 100, true, false}, first, more, more, more, more, {.2, .3, 100, true, false}}},
		{"half of those that are sent", []answer{first, {11, 12, 102, true, true}, {11, 12, 104, true, true}, {11, 12, 106, true, true}, {11, 12, 108, true, true},
			{11, 12, 110, true, true}, {11, 12, 110, true, true}, {11, 12, 110, true, true}, {11, 12, 110, true, true}, {11, 12, 110, true, true}, {11, 12, 110, true, false}}},
		{"no window", []answer{first, {11, 12, 130, false, false}, {11, 12, 130, true, true}}},
		{"none at first", []answer{{0, .1, 30, false, false}, {1, 2, 60, true, true}}},
	} {
		var e excuse
		epoch := time.Now()
		at := func(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }
		for i, a := range c.answers {
			r := reply{now: at(a.now), began: at(a.began), total: a.sent, refused: true, usedUp: a.window}
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
