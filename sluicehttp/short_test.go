package sluicehttp

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// No two numbers in a message look the same.
func TestShortText(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		need, have, timeout time.Duration
		want                string
	}{
		{30 * s, 10*s - 3*time.Microsecond, 10 * s, "the timeout of 10 s is shorter than the 30 s wait for the rate"},
		{30 * s, 4 * s, 10 * s, "what is left of the timeout of 10 s, 4 s, is shorter than the 30 s wait for the rate"},
		{5 * s, 4 * s, 10 * s, "what is left of the timeout of 10 s, 4 s, is shorter than the 5 s wait for the rate"},
		{10 * m, 10 * m, 10 * m, "the timeout of 10m0s is over when the wait for the rate ends"},
		{10 * m, 10*m - 1, 10 * m, "what is left of the timeout of 10m0s, 9m59.999999999s, is shorter than the 10m0s wait for the rate"},
		{10*m + 1, 10 * m, 10 * m, "the timeout of 10m0s is shorter than the 10m0.000000001s wait for the rate"},
		{4 * s, 4 * s, 10 * s, "what is left of the timeout of 10 s, 4s, is over when the wait for the rate ends"},
		{20 * s, 20*s - 400*time.Millisecond, 20 * s, "what is left of the timeout of 20 s, 19.6s, is shorter than the 20s wait for the rate"},
		{19*s + 800*time.Millisecond, 19*s + 600*time.Millisecond, 20 * s, "what is left of the timeout of 20 s, 19.6s, is shorter than the 19.8s wait for the rate"},
		{2*s + 48923253, 2*s - 17*time.Microsecond, 2*s - 16*time.Microsecond, "the timeout of 2s is shorter than the 2.049s wait for the rate"},
		{m, 10 * s, 10 * s, "the timeout of 10 s is shorter than the 60 s wait for the rate of 1/m, until 12:01:00"},
		{limits.Never, 10 * s, 10 * s, "the timeout of 10 s is shorter than the wait for the rate, which does not end"},
	} {
		wait := &limits.WaitError{For: limits.ByRate, Need: c.need, Have: c.have}
		if strings.Contains(c.want, "1/m") {
			wait.Why, wait.Until = "1/m", time.Date(2026, 11, 23, 12, 1, 0, 0, time.UTC)
		}
		if got := shortText(wait, c.timeout); got != c.want {
			t.Errorf("need %v, have %v of %v:\n got %s\nwant %s", c.need, c.have, c.timeout, got, c.want)
		}
	}
}
