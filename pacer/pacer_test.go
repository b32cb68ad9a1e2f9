package pacer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// bg is for waits that nothing but the pacer ends.
var bg = context.Background()

var tenPerSecond = limits.Rate{Count: 10, Per: time.Second}

func mustNew(t *testing.T, rate limits.Rate, cfg pacer.Config) *pacer.Pacer {
	t.Helper()
	p, err := pacer.New(rate, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPacer_Acquire_OneIntervalApartInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
			want = append(want, synclog.At(i, time.Duration(i)*100*ms))
		}
		if got := p.Waiting(); got != 63 {
			t.Errorf("Waiting() = %d, want 63", got)
		}
		time.Sleep(time.Minute)
		l.Want(t, want...)
	})
}

func TestPacer_Acquire_CostIsPaidAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
		for i, n := range []int64{1, 5, 1, 0, 2, 1} {
			l.Call(i, func() error { return p.Acquire(bg, n) })
		}
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 0),
			synclog.At(3, 0), // n = 0 consumes nothing and waits for nobody
			synclog.At(1, 100*ms),
			synclog.At(2, 600*ms),
			synclog.At(4, 700*ms),
			synclog.At(5, 900*ms),
		)
	})
}

// In golang.org/x/time/rate the caller after 50 cancelled ones waits 5 s
// (golang/go#56924).
func TestPacer_Acquire_CancelledCallersLeaveNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
		l.Call(0, func() error { return p.Acquire(bg, 1) })
		ctx, cancel := context.WithCancel(bg)
		var waiting sync.WaitGroup
		for range 50 {
			waiting.Go(func() {
				if err := p.Acquire(ctx, 1); err != context.Canceled {
					t.Errorf("cancelled Acquire returned %v", err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(ms)
		cancel()
		waiting.Wait()
		if got := p.Waiting(); got != 0 {
			t.Errorf("Waiting() = %d after all were cancelled", got)
		}
		l.Call(1, func() error { return p.Acquire(bg, 1) })
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms))
	})
}

func TestPacer_Acquire_CancelInTheMiddleLetsOthersMoveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		for i, ctx := range []context.Context{bg, bg, ctx, bg} {
			l.Call(i, func() error { return p.Acquire(ctx, 1) })
		}
		time.Sleep(50 * ms)
		cancel()
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 0),
			synclog.Failed(2, 50*ms, context.Canceled),
			synclog.At(1, 100*ms),
			synclog.At(3, 200*ms),
		)
	})
}

func TestPacer_Acquire_DoneContextTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}, pacer.Config{}))
		ctx, cancel := context.WithCancel(bg)
		cancel()
		for _, n := range []int64{0, 1} {
			if err := p.Acquire(ctx, n); err != context.Canceled {
				t.Errorf("Acquire(done, %d) = %v", n, err)
			}
			if err := p.AcquireWithin(ctx, n, 0); err != context.Canceled {
				t.Errorf("AcquireWithin(done, %d) = %v", n, err)
			}
		}
		if !p.TryAcquire(1) {
			t.Error("the slot was taken")
		}
	})
}

func TestPacer_AcquireWithin_HopelessWaitsFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: 10 * time.Second}, pacer.Config{}))
		p.TryAcquire(1)
		start := time.Now()

		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		err := p.Acquire(ctx, 1)
		var wait *limits.WaitError
		if !errors.As(err, &wait) || wait.Need != 10*time.Second || wait.Have != 2*time.Second {
			t.Errorf("Acquire with a deadline after 2 s: %v", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not match context.DeadlineExceeded", err)
		}
		err = p.AcquireWithin(bg, 1, 9999*ms)
		if !errors.As(err, &wait) || wait.Need != 10*time.Second || wait.Have != 9999*ms {
			t.Errorf("AcquireWithin 9.999 s: %v", err)
		}
		if want := "sluice: would have to wait 10s, 9.999s were allowed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		err = p.AcquireWithin(bg, 1, -time.Hour)
		if !errors.As(err, &wait) || wait.Have != 0 {
			t.Errorf("AcquireWithin a negative time: %v", err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the refusals took %v", d)
		}
		if err := p.AcquireWithin(bg, 1, 10*time.Second); err != nil {
			t.Errorf("AcquireWithin exactly the wait: %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("left after %v, want 10 s", d)
		}
	})
}

func TestPacer_SetRate_ReachesWaiters(t *testing.T) {
	change := map[string]struct {
		do   func(p *pacer.Pacer)
		want []time.Duration // departures of three callers; the change comes at 50 ms
	}{
		"faster":          {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1000, Per: time.Second}) }, []time.Duration{0, 50 * ms, 51 * ms}},
		"a little faster": {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: 80 * ms}) }, []time.Duration{0, 80 * ms, 160 * ms}},
		"slower":          {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: time.Second}) }, []time.Duration{0, 1000 * ms, 2000 * ms}},
		"pause":           {func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(950 * ms)) }, []time.Duration{0, 1000 * ms, 1100 * ms}},
		"pause prolonged": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(950 * ms))
			p.PauseUntil(time.Now().Add(1950 * ms))
			p.PauseUntil(time.Now().Add(450 * ms))
		}, []time.Duration{0, 2000 * ms, 2100 * ms}},
		"pause taken back": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(time.Hour))
			time.Sleep(450 * ms)
			p.Resume()
		}, []time.Duration{0, 500 * ms, 600 * ms}},
		"pause taken back at once": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(time.Hour))
			p.Resume()
			p.Resume()
		}, []time.Duration{0, 100 * ms, 200 * ms}},
		"pause in the past": {func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(-time.Hour)) }, []time.Duration{0, 100 * ms, 200 * ms}},
		"pause for ever": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Unix(1<<40, 0))
			time.Sleep(100 * 365 * 24 * time.Hour)
			p.Resume()
		}, []time.Duration{0, 100*365*24*time.Hour + 50*ms, 100*365*24*time.Hour + 150*ms}},
	}
	for name, c := range change {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
				var want []synclog.Left
				for i, at := range c.want {
					l.Call(i, func() error { return p.Acquire(bg, 1) })
					want = append(want, synclog.At(i, at))
				}
				time.Sleep(50 * ms)
				c.do(p)
				time.Sleep(24 * time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

func TestPacer_SetRate_FailsWaitersWithoutTime(t *testing.T) {
	change := map[string]func(p *pacer.Pacer){
		"slower": func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: time.Second}) },
		"pause":  func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(time.Second)) },
	}
	for name, change := range change {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
				ctx, cancel := context.WithTimeout(bg, 500*ms)
				defer cancel()
				p.TryAcquire(1)
				l.Call(1, func() error { return p.Acquire(ctx, 1) })
				l.Call(2, func() error { return p.AcquireWithin(bg, 1, 300*ms) })
				l.Call(3, func() error { return p.AcquireWithin(bg, 1, time.Hour) })
				time.Sleep(50 * ms)
				change(p)
				l.Want(t,
					synclog.Failed(1, 50*ms, context.DeadlineExceeded),
					synclog.Failed(2, 50*ms, context.DeadlineExceeded),
				)
				if ctx.Err() != nil {
					t.Error("it waited for its deadline")
				}
				time.Sleep(time.Minute)
				if got := l.Sofar(); len(got) != 3 || got[2].Who != 3 || got[2].Err != nil {
					t.Errorf("the third caller: %v", got)
				}
			})
		})
	}
}

// Only those whom the change makes hopeless fail, counted without those who fail
// before them.
func TestPacer_SetRate_FailsNoMoreThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{})), synclog.New()
		p.TryAcquire(1)
		for i, most := range []time.Duration{2 * time.Second, 500 * ms, 2 * time.Second, 2 * time.Second, 3 * time.Second} {
			l.Call(i, func() error { return p.AcquireWithin(bg, 1, most) })
		}
		p.SetRate(limits.Rate{Count: 1, Per: time.Second}) // slots at 1, 2, 3 … s
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, time.Second),
			synclog.Failed(1, 0, context.DeadlineExceeded),
			synclog.At(2, 2*time.Second), // moved up
			synclog.Failed(3, 0, context.DeadlineExceeded),
			synclog.At(4, 3*time.Second),
		)
	})
}

// At its deadline a context is done: a slot at that instant is too late.
func TestPacer_AcquireWithin_SlotExactlyAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{}))
		p.TryAcquire(1)
		for d, want := range map[time.Duration]bool{100 * ms: false, 100*ms + 1: true} {
			ctx, cancel := context.WithTimeout(bg, d)
			defer cancel()
			start := time.Now()
			err := p.Acquire(ctx, 1)
			if ok := err == nil; ok != want || !ok && time.Since(start) != 0 {
				t.Errorf("slot in 100 ms, deadline in %v: %v after %v", d, err, time.Since(start))
			}
		}
	})
}

func TestPacer_PauseUntil_EndsWithNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{}), synclog.New()
		time.Sleep(time.Hour) // full burst
		p.PauseUntil(time.Now().Add(30 * time.Second))
		l.Start = time.Now()
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
			want = append(want, synclog.At(i, 30*time.Second+time.Duration(i)*100*ms))
		}
		time.Sleep(time.Hour)
		l.Want(t, want...)
	})
}

func TestPacer_Resume_LeavesNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{}), synclog.New()
		time.Sleep(time.Hour) // full burst
		p.PauseUntil(time.Now().Add(time.Hour))
		l.Start = time.Now()
		for i := range 3 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
		}
		time.Sleep(time.Second)
		p.Resume()
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1200*ms))
	})
}

func TestConfig_Burst(t *testing.T) {
	for name, c := range map[string]struct {
		burst int64
		idle  time.Duration // before 5 callers come at once
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
func TestConfig_Burst_CountsTheFirstCall(t *testing.T) {
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

func TestPacer_SetRate_KeepsWhatIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		idle  time.Duration
		taken int64
		count int64 // the new rate, per second; it was 10/s
		burst int64 // the new burst; it was 5
		want  int
	}{
		"full, slower":           {time.Hour, 0, 1, 5, 5},
		"full, faster":           {time.Hour, 0, 1000, 5, 5},
		"2 left, slower":         {time.Hour, 3, 1, 5, 2},
		"2 left, faster":         {time.Hour, 3, 1000, 5, 2},
		"2 stored since, slower": {100 * ms, 0, 1, 5, 2},
		"2 stored since, faster": {100 * ms, 0, 1000, 5, 2},
		"none stored, faster":    {time.Hour, 7, 1000, 5, 1}, // its slot is now
		"none stored, slower":    {time.Hour, 7, 1, 5, 0},
		"full, smaller burst":    {time.Hour, 0, 10, 3, 3},
		"full, no burst":         {time.Hour, 0, 1, 0, 1},
		"full, larger burst":     {time.Hour, 0, 1000, 9, 5},
		"2 left, larger burst":   {time.Hour, 3, 10, 9, 2},
		"2 left, smaller burst":  {time.Hour, 3, 10, 2, 2},
		"2 left, no burst":       {time.Hour, 3, 10, 1, 1},
		"none left, no burst":    {time.Hour, 5, 1, 1, 0},
		"owed, larger burst":     {time.Hour, 9, 10, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{})
				time.Sleep(c.idle)
				p.TryAcquire(c.taken)
				if c.taken > 5 {
					time.Sleep(50 * ms) // on the way to the slot
				}
				p.SetRate(limits.Rate{Count: c.count, Per: time.Second, Burst: c.burst})
				got := 0
				for p.TryAcquire(1) {
					got++
				}
				if got != c.want {
					t.Errorf("%d leave at once, want %d", got, c.want)
				}
			})
		})
	}
}

func TestPacer_ThreePerSecondIsExactAfterTenMillion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 3, Per: time.Second}, pacer.Config{}))
		start := time.Now()
		for k := int64(0); k < 10_000_000; k += 1000 {
			r := p.Reserve(1000)
			if got, want := r.Slot().Sub(start), time.Duration(k/3)*time.Second+time.Duration(k%3)*time.Second/3; got != want {
				t.Fatalf("slot of permit %d at %v, want %v", k, got, want)
			}
			if k%1_000_000 == 0 { // used up at its slot, or given back: both exact
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
			p := limits.Must(pacer.New(limits.Rate{Count: r.count, Per: r.per}, pacer.Config{}))
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
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}, pacer.Config{}))
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

func TestConfig_MaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustNew(t, tenPerSecond, pacer.Config{MaxWaiting: 2})
		l := synclog.New()
		for i := range 4 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
		}
		r := p.Reserve(1)
		if r.Err() != limits.ErrQueueFull || r.Wait(bg) != limits.ErrQueueFull || r.Cancel() || r.Delay() != limits.Never || !r.Slot().IsZero() {
			t.Error("a fourth place in a queue of two")
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.Failed(3, 0, limits.ErrQueueFull), synclog.At(1, 100*ms), synclog.At(2, 200*ms))
	})
}

func TestPacer_TryAcquire_NeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}, pacer.Config{}))
		if !p.TryAcquire(1) || p.TryAcquire(1) {
			t.Error("want one slot now and no more")
		}
		r := p.Reserve(1)
		time.Sleep(100 * ms)
		if p.TryAcquire(1) {
			t.Error("TryAcquire took the slot of an abandoned reservation")
		}
		if !p.TryAcquire(0) {
			t.Error("n = 0 is granted at once")
		}
		time.Sleep(100 * ms)
		if !p.TryAcquire(1) {
			t.Error("an abandoned reservation stalls")
		}
		if r.Cancel() {
			t.Error("cancelled a reservation that was used up")
		}
	})
}

func TestPacer_Mistakes(t *testing.T) {
	for _, rate := range []limits.Rate{
		{},
		{Per: time.Second},
		{Count: -1, Per: time.Second},
		{Count: 1},
		{Count: 1, Per: -time.Second},
		{Count: math.MaxInt64, Per: time.Second},
		{Burst: 2},
		{Count: 1, Per: time.Second, Burst: -1},
		{Count: 1, Per: time.Second, Burst: math.MaxInt64},
		{Count: 1, Per: math.MaxInt64, Burst: 2}, // a pacer that never let anybody through
		{Count: 1, Per: 24 * time.Hour, Burst: 1 << 40},
	} {
		p, err := pacer.New(rate, pacer.Config{})
		if err == nil || p != nil || !strings.HasPrefix(err.Error(), "pacer: ") {
			t.Errorf("New(%v) = %v, %v", rate, p, err)
		}
		p = mustNew(t, limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 40}, pacer.Config{})
		if err := p.SetRate(rate); err == nil || !strings.HasPrefix(err.Error(), "pacer: ") || p.Interval() != ms {
			t.Errorf("SetRate(%v) = %v and left the interval at %v", rate, err, p.Interval())
		}
	}
	if p, err := pacer.New(tenPerSecond, pacer.Config{MaxWaiting: -1}); err == nil || p != nil || !strings.HasPrefix(err.Error(), "pacer: ") {
		t.Errorf("New with a negative MaxWaiting = %v, %v", p, err)
	}
	long := mustNew(t, limits.Rate{Count: 1, Per: time.Second, Burst: (math.MaxInt64/2+1)/int64(time.Second) + 1}, pacer.Config{})
	long.PauseUntil(time.Now())
	var wait *limits.WaitError
	if !long.TryAcquire(1) || !errors.As(long.AcquireWithin(bg, 1, 0), &wait) || wait.Need > time.Second {
		t.Errorf("the longest burst: %v", wait)
	}
	p := mustNew(t, tenPerSecond, pacer.Config{})
	mustPanic(t, "Acquire", func() { p.Acquire(bg, -1) })
	mustPanic(t, "AcquireWithin", func() { p.AcquireWithin(bg, -1, 0) })
	mustPanic(t, "TryAcquire", func() { p.TryAcquire(-1) })
	mustPanic(t, "Reserve", func() { p.Reserve(-1) })
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "pacer: ") {
			t.Errorf("%s: want a panic with the package's prefix, got %q", what, msg)
		}
	}()
	f()
}
