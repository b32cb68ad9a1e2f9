package sluicehttp

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

func TestThousandth(t *testing.T) {
	type said struct{ ms, reset int } // when a response came, and its reset in seconds
	for _, c := range []struct {
		name   string
		says   []said
		proven bool
		left   time.Duration // to the reset after the last
	}{
		{"milliseconds", []said{{0, 60_000}, {300, 59_700}, {600, 59_400}}, true, 59_400 * time.Millisecond},
		{"that overtake each other", []said{{0, 60_000}, {210, 59_710}, {230, 59_810}, {500, 59_500}}, true, 59_500 * time.Millisecond},
		{"once is no proof", []said{{0, 60_000}, {300, 59_700}, {600, 59_700}}, false, 59_700 * time.Second},
		{"too soon", []said{{0, 60_000}, {50, 59_950}, {100, 59_900}, {150, 59_850}}, false, 59_850 * time.Second},
		{"seconds", []said{{0, 60_000}, {300, 60_000}, {1000, 59_999}, {2000, 59_998}}, false, 59_998 * time.Second},
		{"a bucket", []said{{0, 10}, {300, 20}, {600, 30}, {900, 20}}, false, 20 * time.Second},
		{"other limits under the name", []said{{0, 60_000}, {300, 3000}, {600, 60_000}, {900, 59_999}}, false, 59_999 * time.Second},
		{"another window", []said{{0, 1000}, {300, 700}, {600, 400}, {1050, 950}}, true, 950 * time.Millisecond},
		{"a later one", []said{{0, 1000}, {300, 700}, {600, 400}, {5700, 300}}, true, 300 * time.Millisecond},
		{"no longer", []said{{0, 60_000}, {300, 59_700}, {600, 59_400}, {900, 59_399}}, false, 59_399 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u thousandth
			var l ratelimit.Limit
			var now time.Time
			begin := time.Unix(1e9, 0)
			news := 0
			for _, s := range c.says {
				now = begin.Add(time.Duration(s.ms) * time.Millisecond)
				l = ratelimit.Limit{ResetAt: now.Add(time.Duration(s.reset) * time.Second), Rounding: time.Second}
				if u.note(&l, now) {
					news++
				}
			}
			if u.proven != c.proven || l.ResetAt.Sub(now) != c.left {
				t.Errorf("proven: %v, %v left; want %v, %v", u.proven, l.ResetAt.Sub(now), c.proven, c.left)
			}
			if news%2 == 1 != c.proven {
				t.Errorf("it changed %d times", news)
			}
		})
	}
}
