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

func mustNew(t *testing.T, count int64, per time.Duration, cfg pacer.Config) *pacer.Pacer {
	t.Helper()
	p, err := pacer.NewWith(count, per, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCallersLeaveOneIntervalApartInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := pacer.New(10, time.Second), synclog.New()
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

func TestWeightIsPaidAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := pacer.New(10, time.Second), synclog.New()
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
func TestFiftyCancelledCallersLeaveNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := pacer.New(10, time.Second), synclog.New()
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

func TestCancelledCallerInTheMiddleLetsTheRestMoveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := pacer.New(10, time.Second), synclog.New()
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

func TestDoneContextFailsBeforeAnythingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(1, time.Hour)
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

func TestHopelessWaitsFailAtOnceAndConsumeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(1, 10*time.Second)
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

func TestChangesReachThoseWhoWait(t *testing.T) {
	change := map[string]struct {
		do   func(p *pacer.Pacer)
		want []time.Duration // departures of three callers; the change comes at 50 ms
	}{
		"faster":          {func(p *pacer.Pacer) { p.SetRate(1000, time.Second) }, []time.Duration{0, 50 * ms, 51 * ms}},
		"a little faster": {func(p *pacer.Pacer) { p.SetRate(1, 80*ms) }, []time.Duration{0, 80 * ms, 160 * ms}},
		"slower":          {func(p *pacer.Pacer) { p.SetRate(1, time.Second) }, []time.Duration{0, 1000 * ms, 2000 * ms}},
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
				p, l := pacer.New(10, time.Second), synclog.New()
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

func TestWaitersMadeHopelessFailThen(t *testing.T) {
	change := map[string]func(p *pacer.Pacer){
		"slower": func(p *pacer.Pacer) { p.SetRate(1, time.Second) },
		"pause":  func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(time.Second)) },
	}
	for name, change := range change {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := pacer.New(10, time.Second), synclog.New()
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
func TestChangeFailsNoMoreThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := pacer.New(10, time.Second), synclog.New()
		p.TryAcquire(1)
		for i, most := range []time.Duration{2 * time.Second, 500 * ms, 2 * time.Second, 2 * time.Second, 3 * time.Second} {
			l.Call(i, func() error { return p.AcquireWithin(bg, 1, most) })
		}
		p.SetRate(1, time.Second) // slots at 1, 2, 3 … s
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
func TestSlotExactlyAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(10, time.Second)
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

func TestPauseEndsWithNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, 10, time.Second, pacer.Config{Burst: 5}), synclog.New()
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

func TestResumeLeavesNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, 10, time.Second, pacer.Config{Burst: 5}), synclog.New()
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

func TestBurst(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  pacer.Config
		idle time.Duration // before 5 callers come at once
		want []time.Duration
	}{
		"new, nothing stored": {pacer.Config{Burst: 3}, 0, []time.Duration{0, 100, 200, 300, 400}},
		"idle":                {pacer.Config{Burst: 3}, time.Hour, []time.Duration{0, 0, 0, 100, 200}},
		"half":                {pacer.Config{Burst: 3}, 100 * ms, []time.Duration{0, 0, 100, 200, 300}},
		"as a time":           {pacer.Config{BurstTime: 200 * ms}, time.Hour, []time.Duration{0, 0, 0, 100, 200}},
		"a broken time":       {pacer.Config{BurstTime: 250 * ms}, time.Hour, []time.Duration{0, 0, 0, 50, 150}},
		"none":                {pacer.Config{Burst: 1}, time.Hour, []time.Duration{0, 100, 200, 300, 400}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, 10, time.Second, c.cfg)
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

// B = 1 + τ/T: the identity behind the field's classic bug, off by one
// interval.
func TestBurstAndToleranceAreOneThing(t *testing.T) {
	const interval = 100 * ms
	for b := int64(1); b <= 10; b++ {
		synctest.Test(t, func(t *testing.T) {
			byCount := mustNew(t, 10, time.Second, pacer.Config{Burst: b})
			byTime := mustNew(t, 10, time.Second, pacer.Config{BurstTime: time.Duration(b-1) * interval})
			time.Sleep(time.Hour)
			for name, p := range map[string]*pacer.Pacer{"Burst": byCount, "BurstTime": byTime} {
				var got int64
				for p.TryAcquire(1) {
					got++
				}
				if got != b {
					t.Errorf("%s %d: %d calls left together", name, b, got)
				}
			}
		})
	}
}

func TestSetRateKeepsWhatIsStored(t *testing.T) {
	byCount := pacer.Config{Burst: 5}
	byTime := pacer.Config{BurstTime: time.Second}
	for name, c := range map[string]struct {
		cfg   pacer.Config
		idle  time.Duration
		taken int64
		count int64 // the new rate, per second; it was 10/s
		want  int
	}{
		"full, slower":           {byCount, time.Hour, 0, 1, 5},
		"full, faster":           {byCount, time.Hour, 0, 1000, 5},
		"2 left, slower":         {byCount, time.Hour, 3, 1, 2},
		"2 left, faster":         {byCount, time.Hour, 3, 1000, 2},
		"2 stored since, slower": {byCount, 100 * ms, 0, 1, 2},
		"2 stored since, faster": {byCount, 100 * ms, 0, 1000, 2},
		"none stored, faster":    {byCount, time.Hour, 7, 1000, 1}, // its slot is now
		"none stored, slower":    {byCount, time.Hour, 7, 1, 0},
		"a time of 11, faster":   {byTime, time.Hour, 0, 20, 21},
		"a time of 11, slower":   {byTime, time.Hour, 0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, 10, time.Second, c.cfg)
				time.Sleep(c.idle)
				p.TryAcquire(c.taken)
				if c.taken > 5 {
					time.Sleep(50 * ms) // on the way to the slot
				}
				p.SetRate(c.count, time.Second)
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

func TestThreePerSecondIsExactAfterTenMillion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(3, time.Second)
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

func TestRatesFromOnePerDayToAMillionPerSecond(t *testing.T) {
	for _, r := range []struct {
		count int64
		per   time.Duration
	}{{1, 24 * time.Hour}, {5000, time.Hour}, {1, time.Second}, {7, time.Second}, {1_000_000, time.Second}, {1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			p := pacer.New(r.count, r.per)
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

func TestHugeWeightsSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(1, time.Hour)
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

func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustNew(t, 10, time.Second, pacer.Config{MaxWaiting: 2})
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

func TestTryAcquireNeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer.New(10, time.Second)
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

func TestMistakes(t *testing.T) {
	bad := []struct {
		count int64
		per   time.Duration
		cfg   pacer.Config
	}{
		{0, time.Second, pacer.Config{}},
		{-1, time.Second, pacer.Config{}},
		{1, 0, pacer.Config{}},
		{1, -time.Second, pacer.Config{}},
		{math.MaxInt64, time.Second, pacer.Config{}},
		{1, time.Second, pacer.Config{Burst: -1}},
		{1, time.Second, pacer.Config{BurstTime: -1}},
		{1, time.Second, pacer.Config{Burst: 2, BurstTime: 1}},
		{1, time.Second, pacer.Config{Burst: math.MaxInt64}},
		{1, math.MaxInt64, pacer.Config{Burst: 2}}, // a pacer that never let anybody through
		{1, time.Second, pacer.Config{BurstTime: math.MaxInt64}},
		{1, time.Second, pacer.Config{BurstTime: math.MaxInt64/2 + 2}},
		{1, time.Second, pacer.Config{MaxWaiting: -1}},
	}
	for _, c := range bad {
		p, err := pacer.NewWith(c.count, c.per, c.cfg)
		if err == nil || p != nil || !strings.HasPrefix(err.Error(), "pacer: ") {
			t.Errorf("NewWith(%d, %v, %+v) = %v, %v", c.count, c.per, c.cfg, p, err)
		}
		if c.cfg == (pacer.Config{}) {
			mustPanic(t, "New", func() { pacer.New(c.count, c.per) })
			p := pacer.New(1, time.Hour)
			if err := p.SetRate(c.count, c.per); err == nil || p.Interval() != time.Hour {
				t.Errorf("SetRate(%d, %v) = %v and left the interval at %v", c.count, c.per, err, p.Interval())
			}
		}
	}
	long := mustNew(t, 1, time.Second, pacer.Config{BurstTime: math.MaxInt64/2 + 1})
	long.PauseUntil(time.Now())
	var wait *limits.WaitError
	if !long.TryAcquire(1) || !errors.As(long.AcquireWithin(bg, 1, 0), &wait) || wait.Need > time.Second {
		t.Errorf("the longest burst time: %v", wait)
	}
	p := pacer.New(1, time.Second)
	mustPanic(t, "Acquire", func() { p.Acquire(bg, -1) })
	mustPanic(t, "AcquireWithin", func() { p.AcquireWithin(bg, -1, 0) })
	mustPanic(t, "TryAcquire", func() { p.TryAcquire(-1) })
	mustPanic(t, "Reserve", func() { p.Reserve(-1) })
	big := mustNew(t, 1000, time.Second, pacer.Config{Burst: 1 << 40})
	if err := big.SetRate(1, 24*time.Hour); err == nil || big.Interval() != ms {
		t.Errorf("SetRate that makes the burst last longer than 146 years: %v", err)
	}
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
