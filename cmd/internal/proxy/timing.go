package proxy

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// say writes the wait of the call, its cause, and the number of attempts into the header of a
// response:
//
//	Server-Timing: sluice;dur=1204.0;desc="rate", sluice-attempts;desc="2"
func (c *call) say(h http.Header) {
	waited, cause := c.wasHeldBy()
	text := fmt.Sprintf("sluice;dur=%.1f", float64(waited)/float64(time.Millisecond))
	if waited >= time.Millisecond && cause != "" {
		text += fmt.Sprintf(";desc=%q", string(cause))
	}
	if n := len(c.report.Last().Attempts); n != 1 {
		text += fmt.Sprintf(", sluice-attempts;desc=\"%d\"", n)
	}
	h.Add("Server-Timing", text)
}

// forecast returns the wait of a call that comes behind ahead others, as far as it is known: the
// rest of a pause, and the time that the calls take at the pace of the gate. The real wait may be
// longer.
func (u *upstream) forecast(key string, ahead int64) *limits.WaitError {
	wait := &limits.WaitError{By: key}
	u.transport.Stats(func(name string, s sluicehttp.Stats) bool {
		if name != key {
			return true
		}
		now := time.Now()
		if left := s.PausedUntil.Sub(now); !s.PausedUntil.IsZero() && left > 0 {
			wait.For, wait.Need, wait.Why = limits.ByPause, left, s.PausedWhy
		}
		if pace := paceOf(s.Stats); pace > 0 {
			queue := time.Duration(min(float64(ahead)/pace, maxForecast.Seconds()) * float64(time.Second))
			if wait.Need += queue; queue > wait.Need/2 {
				wait.For, wait.Why = limits.ByRate, ""
			}
		}
		return false
	})
	return wait
}

// maxForecast keeps a forecast within a time.Duration.
const maxForecast = 1000 * time.Hour

// paceOf returns the known pace of a gate in calls per second, 0 if something else limits them.
func paceOf(s sluice.Stats) float64 {
	pace := 0.0
	if r := s.Rate; r.Count > 0 {
		pace = float64(r.Count) / r.Per.Seconds()
	}
	l := s.Learned
	switch {
	case l == nil || l.Unit != "" && l.Unit != sluice.Calls:
	case l.Window.Count > 0:
		return float64(l.Window.Count) / l.Window.Per.Seconds()
	case l.Pace > 0:
		return l.Pace
	}
	return pace
}
