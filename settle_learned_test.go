package sluice_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// settledServer grants calls from a bucket, of 1 or of what they really take.
type settledServer struct {
	rate, burst, level float64
	at                 time.Time
	granted            int
}

func (s *settledServer) take(n float64) bool {
	now := time.Now()
	s.level = min(s.burst, s.level+now.Sub(s.at).Seconds()*s.rate)
	s.at = now
	if s.level < n {
		return false
	}
	s.level -= n
	s.granted++
	return true
}

// estimates are the n that calls are granted with, and what they are settled by.
type estimates struct{ n, actual int64 }

// loop makes calls until ctx ends, which take 100 ms. Their amounts are n, or tokens.
func (e estimates) loop(ctx context.Context, g *sluice.Gate, tokens bool, take func() bool) {
	for ctx.Err() == nil {
		call, n := ctx, e.n
		if tokens {
			call, n = sluice.WithCosts(ctx, sluice.Costs{"tokens": e.n}), 1
		}
		p, err := g.Acquire(call, n)
		if err != nil {
			return
		}
		granted := take()
		time.Sleep(100 * ms)
		switch {
		case !granted:
			p.Ended(sluice.RetryAfter(errBusy, 0))
		case tokens:
			p.SettleCosts(sluice.Costs{"tokens": e.actual})
		default:
			p.Settle(e.actual)
		}
		p.Release()
	}
}

// A gate that learns gets what the server grants, 20 calls per second, however wrong estimates
// are, and whether the server counts calls or what they really take.
func TestPermit_Settle_WhileTheGateLearns(t *testing.T) {
	all := []estimates{{1, 1000}, {4000, 300}, {300, 0}}
	if os.Getenv("SLUICE_FULL") != "" {
		all = append(all, estimates{1, 1}, estimates{1, 3}, estimates{100, 1000}, estimates{1, 10}, estimates{1, 1500}, estimates{2, 1000}, estimates{1000, 300})
	}
	byCost := sluice.Config{Rate: sluice.Rate{Count: 1e7, Per: time.Second}, RateUnit: sluice.Cost} // what it learns first, then
	for _, cfg := range []sluice.Config{{}, {Adaptive: sluice.Adaptive{Search: true}}, byCost} {
		for _, tokens := range []bool{false, true} {
			for _, byActual := range []bool{false, true} {
				for _, e := range all {
					if e.actual > 0 || !byActual {
						settleWhileLearning(t, cfg, tokens, byActual, e)
					}
				}
			}
		}
	}
}

func settleWhileLearning(t *testing.T, cfg sluice.Config, tokens, byActual bool, e estimates) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		weight := 1.
		if byActual {
			weight = float64(e.actual)
		}
		s := &settledServer{rate: 20 * weight, burst: 5 * weight, level: 5 * weight, at: time.Now()}
		g := mustGate(t, cfg)
		ctx, cancel := context.WithTimeout(bg, 4*time.Minute)
		defer cancel()
		var mu sync.Mutex
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				e.loop(ctx, g, tokens, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return s.take(weight)
				})
			})
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		before := s.granted
		mu.Unlock()
		calls.Wait()
		if got, most := s.granted-before, 20*120; got < most*95/100 {
			t.Errorf("%+v, rate %v, search %v, tokens %v, by actual %v: %d calls of %d; %v",
				e, cfg.Rate, cfg.Adaptive.Search, tokens, byActual, got, most, g.Stats().Learned)
		}
	})
}

// One call that took a million times its estimate is settled while the gate learns calls, and
// stops nobody.
func TestPermit_Settle_OneThatIsFarOff(t *testing.T) {
	for _, released := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, g := newLimited(t, 20, 5), mustGate(t, sluice.Config{})
			call := func() error {
				_ = g.Do(bg, s.call) // some are refused
				return nil
			}
			work(t, 10, 3000, call)
			p, err := g.Acquire(bg, 1)
			if err != nil {
				t.Fatal(err)
			}
			if released {
				p.Release()
			}
			p.Settle(1e6)
			p.Release()
			if took := work(t, 10, 600, call); took > 40*time.Second {
				t.Errorf("600 calls at 20/s took %v: %v", took, g.Stats().Learned)
			}
		})
	}
}
