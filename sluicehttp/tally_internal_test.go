package sluicehttp

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A bucket that states its rate, 10 per second, and not its size, 20, grants 26 calls in 600 ms, before it can be full
// again. That is more than a bucket of 10 can grant, but it is one limit.
func TestTally_LimitThatHoldsMoreThanItSays(t *testing.T) {
	const size, rate = 20.0, 10.0
	for _, stated := range []int{10, 20} {
		var tally tally
		held := size
		for now := time.Unix(1, 0); held >= 1; now = now.Add(25 * time.Millisecond) {
			held--
			h := http.Header{}
			h.Set("X-RateLimit-Limit", strconv.Itoa(stated))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(int(held)))
			h.Set("X-RateLimit-Reset-After", "2")
			said, _ := ratelimit.Parse(http.StatusOK, h, now, ratelimit.Options{})
			tally.note(&said.Limits[0], &reply{now: now, granted: true})
			if held += rate * 0.025; tally.several {
				t.Fatalf("says %d: several limits after %v calls, with %v left", stated, tally.granted, held)
			}
		}
	}
}
