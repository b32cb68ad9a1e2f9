package pacer_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// The worked example of internal/schedule: T = 1 s, F = 3, W = 4 s.
var (
	onePerSecond = limits.Rate{Count: 1, Per: time.Second}
	warmingUp    = pacer.Config{WarmUp: 4 * time.Second}
)

func TestConfig_WarmUp_StartsSlowlyAndSpeedsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, onePerSecond, warmingUp), synclog.New()
		for i := range 7 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 2500*ms), synclog.At(2, 4000*ms), synclog.At(3, 5000*ms),
			synclog.At(4, 6000*ms), synclog.At(5, 7000*ms), synclog.At(6, 8000*ms))
	})
}

// Cost is an area: one call of weight 3 costs what three of weight 1 do.
func TestConfig_WarmUp_CostsSplitAndMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, weights := range map[string][]int64{"one by one": {1, 1, 1, 1, 1}, "at once": {5}, "mixed": {2, 3}} {
			p := mustNew(t, onePerSecond, warmingUp)
			for _, n := range weights {
				p.Reserve(n)
			}
			if d := p.Reserve(1).Delay(); d != 7*time.Second {
				t.Errorf("%s: the sixth leaves after %v, want 7 s", name, d)
			}
		}
	})
}

func TestConfig_WarmUp_CoolsDownWhenIdle(t *testing.T) {
	for name, c := range map[string]struct {
		idle func(p *pacer.Pacer)
		want time.Duration // from the first call after it to the second
	}{
		"not at all":  {func(*pacer.Pacer) { time.Sleep(time.Second) }, 1000 * ms},
		"half":        {func(*pacer.Pacer) { time.Sleep(3 * time.Second) }, 1000 * ms}, // 2 stored, the threshold
		"three":       {func(*pacer.Pacer) { time.Sleep(4 * time.Second) }, 1500 * ms}, // 3 stored
		"wholly":      {func(*pacer.Pacer) { time.Sleep(5 * time.Second) }, 2500 * ms}, // as when it was new
		"no further":  {func(*pacer.Pacer) { time.Sleep(time.Hour) }, 2500 * ms},       // not colder than cold
		"by a pause":  {func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(time.Hour)) }, 2500 * ms},
		"same at 2/s": {func(p *pacer.Pacer) { time.Sleep(5 * time.Second); p.SetRate(limits.Rate{Count: 2, Per: time.Second}) }, 1375 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, onePerSecond, warmingUp)
				if err := p.Acquire(bg, 10); err != nil { // warms up, and 10 s are owed
					t.Fatal(err)
				}
				last := p.Reserve(1)
				time.Sleep(last.Delay())
				c.idle(p)
				first, second := p.Reserve(1), p.Reserve(1)
				if got := second.Slot().Sub(first.Slot()); got != c.want {
					t.Errorf("apart by %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestConfig_WarmUp_ForecastsComeTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustNew(t, limits.Rate{Count: 7, Per: time.Second}, pacer.Config{WarmUp: 3 * time.Second})
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		l := synclog.New()
		var want []synclog.Left
		for i := range 40 {
			r := p.Reserve(1 + int64(i%3))
			want = append(want, synclog.At(i, r.Slot().Sub(l.Start)))
			l.Call(i, func() error { return r.Wait(ctx) })
		}
		time.Sleep(time.Hour)
		// The area is summed in other pieces than it was forecast in.
		for i, got := range l.Sofar() {
			if d := got.At - want[i].At; got.Caller != want[i].Caller || d.Abs() > 100 {
				t.Errorf("call %d left at %v, forecast %v", got.Caller, got.At, want[i].At)
			}
		}
	})
}

func TestConfig_WarmUp_Mistakes(t *testing.T) {
	for name, c := range map[string]struct {
		rate limits.Rate
		cfg  pacer.Config
	}{
		"negative":     {onePerSecond, pacer.Config{WarmUp: -1}},
		"with a burst": {limits.Rate{Count: 1, Per: time.Second, Burst: 2}, pacer.Config{WarmUp: 1}},
	} {
		if p, err := pacer.New(c.rate, c.cfg); p != nil || err == nil || !strings.HasPrefix(err.Error(), "pacer: ") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if err := mustNew(t, onePerSecond, warmingUp).SetRate(limits.Rate{Count: 1, Per: time.Second, Burst: 2}); err == nil {
		t.Error("a pacer that warms up got a burst")
	}
	// Absurd, but legal: it saturates.
	p := mustNew(t, limits.Rate{Count: 1, Per: 1 << 62}, pacer.Config{WarmUp: 1 << 62})
	p.TryAcquire(math.MaxInt64)
	if d := p.Reserve(1).Delay(); d != limits.Never {
		t.Errorf("the next slot is in %v", d)
	}
}
