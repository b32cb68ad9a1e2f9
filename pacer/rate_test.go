package pacer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

func TestPacer_Burst(t *testing.T) {
	for name, c := range map[string]struct {
		burst int64
		idle  time.Duration // before 5 callers come together
		want  []time.Duration
	}{
		"new, nothing stored": {3, 0, []time.Duration{0, 100, 200, 300, 400}},
		"idle":                {3, time.Hour, []time.Duration{0, 0, 0, 100, 200}},
		"half":                {3, 100 * ms, []time.Duration{0, 0, 100, 200, 300}},
		"none":                {1, time.Hour, []time.Duration{0, 100, 200, 300, 400}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: c.burst}, pacer.Config{})
				time.Sleep(c.idle)
				l := synclog.New()
				var want []synclog.Left
				for i, at := range c.want {
					l.Call(i, func() error { return p.Acquire(bg, 1) })
					want = append(want, synclog.At(i, at*ms))
				}
				time.Sleep(time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

// B = 1 + τ/T: the field's classic bug is off by one interval.
func TestPacer_Burst_CountsTheFirstCall(t *testing.T) {
	for b := int64(1); b <= 10; b++ {
		synctest.Test(t, func(t *testing.T) {
			p := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: b}, pacer.Config{})
			time.Sleep(time.Hour)
			var got int64
			for p.TryAcquire(1) {
				got++
			}
			if got != b {
				t.Errorf("of a burst of %d %d calls left together", b, got)
			}
		})
	}
}

func TestPacer_ThreePerSecondIsExactAfterTenMillion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 3, Per: time.Second}))
		start := time.Now()
		for k := int64(0); k < 10_000_000; k += 1000 {
			r := p.Reserve(1000)
			if got, want := r.Slot().Sub(start), time.Duration(k/3)*time.Second+time.Duration(k%3)*time.Second/3; got != want {
				t.Fatalf("slot of permit %d at %v, want %v", k, got, want)
			}
			if k%1_000_000 == 0 { // used up at its slot, or returned: both exact
				time.Sleep(r.Delay())
			}
		}
	})
}

func TestPacer_RatesFromOnePerDayToAMillionPerSecond(t *testing.T) {
	for _, r := range []struct {
		count int64
		per   time.Duration
	}{{1, 24 * time.Hour}, {5000, time.Hour}, {1, time.Second}, {7, time.Second}, {1_000_000, time.Second}, {1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			p := limits.Must(pacer.New(limits.Rate{Count: r.count, Per: r.per}))
			start := time.Now()
			for k := range int64(1000) {
				if err := p.Acquire(bg, 1); err != nil {
					t.Fatal(err)
				}
				if got, want := time.Since(start), time.Duration(k)*r.per/time.Duration(r.count); k < 100 && got != want {
					t.Fatalf("%d per %v: call %d left at %v, want %v", r.count, r.per, k, got, want)
				}
			}
			if got, want := p.Interval(), r.per/time.Duration(r.count); got != want {
				t.Errorf("Interval() = %v, want %v", got, want)
			}
		})
	}
}

func TestPacer_HugeCostsSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
		if err := p.Acquire(bg, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		var wait *limits.WaitError
		if err := p.Acquire(ctx, 1); !errors.As(err, &wait) || wait.Need != limits.Never {
			t.Errorf("behind a weight of 2⁶³−1: %v", err)
		} else if !strings.Contains(err.Error(), "would not end") {
			t.Errorf("message %q", err)
		}
		var rs []pacer.Reservation
		for range 5 {
			rs = append(rs, p.Reserve(math.MaxInt64))
		}
		if d := rs[4].Delay(); d != limits.Never {
			t.Errorf("Delay() = %v, want never", d)
		}
		for _, r := range rs {
			r.Cancel()
		}
		if got := p.Waiting(); got != 0 {
			t.Errorf("Waiting() = %d", got)
		}
	})
}
