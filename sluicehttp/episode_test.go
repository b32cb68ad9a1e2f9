package sluicehttp_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// tooFew throttles calls beyond 19 in windows of 2 s, which begin with a call, and says to wait for one.
func tooFew() func(string, int) (int, string) {
	var end time.Time
	used := 0
	return func(string, int) (int, string) {
		now := time.Now()
		if !now.Before(end) {
			end, used = now.Add(2*time.Second), 0
		}
		if used++; used > 19 {
			return 429, "Retry-After: 1"
		}
		return 200, ""
	}
}

// A route that was called once, such as to log in, does not keep the gate of the host from learning its
// limit by the calls of the only other one.
func TestTransport_Scope_OneRouteIsLeft(t *testing.T) {
	cfg := sluicehttp.Config{Rate: sluice.PerSecond(10)}
	inSite(t, cfg, tooFew(), func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.want("/login")
		var sent atomic.Int64
		for range 8 {
			c.Go(func() {
				for sent.Add(1) <= 1000 {
					c.want("/send")
				}
			})
		}
		c.Wait()
		if took := s.now(); took > 120*time.Second {
			t.Errorf("1000 calls at 9.5/s took %v", took)
		}
		if refused := s.total() - 1001; refused > 20 {
			t.Errorf("%d calls were throttled", refused)
		}
	})
}

// The route that was forgotten is known again when it calls: what the other is told does not hold it up.
func TestTransport_Scope_OtherRouteIsBack(t *testing.T) {
	says := func(path string, n int) (int, string) {
		if path == "/send" && n < 2 {
			return 429, "Retry-After: 10"
		}
		return 200, ""
	}
	inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.want("/login")
		c.begin("/send")
		time.Sleep(15 * time.Second) // the wait has ended, and the second one has begun
		c.want("/login")
		if took := s.now(); took > 16*time.Second {
			t.Errorf("the other route was held up until %v", took)
		}
	})
}
