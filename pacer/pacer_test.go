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
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
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
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
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

// In golang.org/x/time/rate the caller after 50 canceled ones waits 5 s
// (golang/go#56924).
func TestPacer_Acquire_CancelledCallersLeaveNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
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
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
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
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
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
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: 10 * time.Second}))
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

// At its deadline a context is done: a slot at that time is too late.
func TestPacer_AcquireWithin_SlotExactlyAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}))
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
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}))
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
		p, err := pacer.New(rate)
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

func TestPacer_Wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustNew(t, tenPerSecond, pacer.Config{})
		start := time.Now()
		for range 3 {
			if err := p.Wait(bg); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 200*ms {
			t.Errorf("three calls took %v", took)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := p.Wait(ctx); err != context.Canceled {
			t.Error(err)
		}
	})
}
