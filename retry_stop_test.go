package sluice_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

func TestRetry_Cancel_BeforeTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond}), newServer(fine)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(bg, -1)
		defer cancel()
		if err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call); err != context.DeadlineExceeded {
			t.Errorf("too late: %v", err)
		}
		s.want(t)
		if _, ok := g.TryAcquire(1); !ok || g.Stats().Granted != 1 {
			t.Error("the slot was taken")
		}
	})
}

func TestRetry_Cancel_DuringTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		ctx, cancel := context.WithCancel(bg)
		stubborn := func(context.Context) error {
			time.Sleep(time.Second)
			cancel()
			time.Sleep(time.Second)
			return errDown
		}
		s := newServer(down, stubborn)
		err := sluice.Retry(ctx, g, each(time.Second), s.call)
		s.want(t, 0, time.Second)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 2, at: 3 * time.Second, elapsed: 3 * time.Second})
		if got := g.Stats(); got.RetryTokens != 95 || got.InFlight != 0 {
			t.Errorf("afterwards: %+v", got)
		}

		ctx, cancel = context.WithCancel(bg)
		got, err := sluice.RetryValue(ctx, g, sluice.RetryPolicy{}, func(context.Context) (int, error) {
			cancel()
			return 42, nil
		})
		if got != 42 || err != nil {
			t.Errorf("a call that succeeds all the same: %d, %v", got, err)
		}
	})
}

func TestRetry_Cancel_DuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, each(10*time.Second), s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestRetry_Cancel_InTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		s := newServer(down)
		l.Call(0, func() error { return sluice.Retry(ctx, g, each(time.Second), s.call) }) // queues for a retry
		l.Call(1, func() error { return sluice.Retry(ctx, g, each(time.Second), s.call) }) // for its first attempt
		time.Sleep(30 * time.Second)
		if got := g.Stats(); got.Pacing != 2 {
			t.Errorf("%d wait for their turn", got.Pacing)
		}
		cancel()
		left := l.Sofar()
		if len(left) != 2 {
			t.Fatalf("%v", left)
		}
		s.wantStop(t, left[0].Err, stop{last: errDown, why: context.Canceled, attempts: 1, at: 30 * time.Second, elapsed: 30 * time.Second})
		if left[1].Err != context.Canceled {
			t.Errorf("before the first attempt: %v", left[1].Err)
		}
		s.want(t, 0)
		if got := g.Stats(); got.Pacing != 0 || got.Waiting != 0 {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

func TestRetry_Cancel_DuringAServerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(retryAfter(time.Minute))
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errBusy, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestRetry_Deadline_BackoffBeyondItIsNotBegun(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 10 * time.Second} { // at the deadline is too late
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Name: "api"}), newServer(down)
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			defer cancel()
			err := sluice.Retry(ctx, g, each(d), s.call)
			s.want(t, 0)
			s.wantStop(t, err, stop{last: errDown, why: context.DeadlineExceeded, attempts: 1, retryAt: d})
			var wait *limits.WaitError
			if !errors.As(err, &wait) || *wait != (limits.WaitError{By: "api", For: limits.ByBackoff, Need: d, Have: 10 * time.Second, Until: time.Now().Add(d)}) {
				t.Errorf("%v has %+v", err, wait)
			}
			if ctx.Err() != nil {
				t.Error("it waited for the deadline")
			}
			if got := g.Stats().RetryTokens; got != 100 {
				t.Errorf("%d tokens left", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down, fine)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		if err := sluice.Retry(ctx, g, each(10*time.Second-1), s.call); err != nil {
			t.Errorf("a nanosecond before the deadline: %v", err)
		}
	})
}

func TestRetry_GateRefusesTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}, MaxWaiting: 1})
		s := newServer(fine)
		g.TryAcquire(1)

		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call)
		if wait, ok := err.(*limits.WaitError); !ok || *wait != (limits.WaitError{By: "api", For: limits.ByRate, Why: "1/m", Need: time.Minute, Have: time.Second, Until: time.Now().Add(time.Minute)}) {
			t.Errorf("hopeless: %v", err)
		}

		var stopped *sluice.RetryError
		waiting := make(chan error)
		go func() { waiting <- sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) }()
		synctest.Wait()
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call); !errors.Is(err, limits.ErrQueueFull) || errors.As(err, &stopped) {
			t.Errorf("full: %v", err)
		}
		g.Close()
		if err := <-waiting; !errors.Is(err, limits.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed while waiting: %v", err)
		}
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call); !errors.Is(err, limits.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed: %v", err)
		} else if want := "sluice: api: closed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		s.want(t)
	})
}

func TestRetry_GateRefusesARetry(t *testing.T) {
	perMinute := sluice.Rate{Count: 1, Per: time.Minute}
	for name, c := range map[string]struct {
		cfg     sluice.Config
		timeout time.Duration
		between func(g *sluice.Gate) // the attempt and the end of its backoff of 2 s
		why     error
		retryAt time.Duration
	}{
		"hopeless": {sluice.Config{Rate: perMinute}, 30 * time.Second, func(*sluice.Gate) {}, context.DeadlineExceeded, time.Minute},
		"paused":   {sluice.Config{}, 30 * time.Second, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(99*time.Second), "") }, context.DeadlineExceeded, 100 * time.Second},
		"full": {sluice.Config{Rate: perMinute, MaxWaiting: 1}, time.Hour, func(g *sluice.Gate) {
			go g.Acquire(bg, 1)
		}, limits.ErrQueueFull, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(bg, c.timeout)
				defer cancel()
				g, s := mustGate(t, c.cfg), newServer(down)
				time.AfterFunc(time.Second, func() { c.between(g) })
				err := sluice.Retry(ctx, g, each(2*time.Second), s.call)
				s.want(t, 0)
				s.wantStop(t, err, stop{last: errDown, why: c.why, attempts: 1, at: 2 * time.Second, elapsed: 2 * time.Second, retryAt: c.retryAt})
				if ctx.Err() != nil {
					t.Error("it waited for the deadline")
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestRetry_CloseEndsBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api"}), synclog.New()
		backsOff, waits, inFlight := newServer(down), newServer(retryAfter(time.Minute)), newServer(after(10*time.Second, down))
		l.Call(0, func() error { return sluice.Retry(bg, g, each(time.Hour/10), inFlight.call) })
		l.Call(1, func() error { return sluice.Retry(bg, g, each(time.Hour/10), backsOff.call) })
		l.Call(2, func() error { return sluice.Retry(bg, g, each(time.Hour/10), waits.call) })
		time.Sleep(4 * time.Second)
		g.Close()
		left := l.Sofar()
		if len(left) != 2 {
			t.Fatalf("at once: %v", left)
		}
		backsOff.wantStop(t, left[0].Err, stop{last: errDown, why: limits.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		waits.wantStop(t, left[1].Err, stop{last: errBusy, why: limits.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		if got, want := left[0].Err.Error(), "sluice: api: gave up after 1 attempt: closed: 503 Service Unavailable"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		time.Sleep(6 * time.Second) // the one in flight comes back
		if left = l.Sofar(); len(left) != 3 {
			t.Fatalf("then: %v", left)
		}
		inFlight.wantStop(t, left[2].Err, stop{last: errDown, why: limits.ErrClosed, attempts: 1, at: 10 * time.Second, elapsed: 10 * time.Second})
		if got := g.Stats().Refused.Closed; got != 3 {
			t.Errorf("%d refused as closed", got)
		}
	})
}

func TestRetry_PanicReleasesThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		for name, p := range map[string]sluice.RetryPolicy{"": {}, " with a timeout": {AttemptTimeout: time.Hour}} {
			for attempt := range 2 {
				s := newServer(append(slices.Repeat([]answer{down}, attempt), func(context.Context) error { panic("mine") })...)
				func() {
					defer func() {
						if got := recover(); got != "mine" {
							t.Errorf("attempt %d%s: the panic did not propagate unchanged: %v", attempt+1, name, got)
						}
					}()
					sluice.Retry(bg, g, p, s.call)
				}()
				if got := g.Stats().InFlight; got != 0 || len(s.attempts()) != attempt+1 {
					t.Errorf("attempt %d%s: %d in flight, %v", attempt+1, name, got, s.attempts())
				}
			}
		}
		left := make(chan bool)
		go func() {
			defer close(left)
			sluice.Retry(bg, g, sluice.RetryPolicy{}, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-left
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, fine); err != nil || g.Stats().InFlight != 0 {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestRetryPolicy_PanicHoldsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]sluice.RetryPolicy{
			"Retry":   {Retryable: func(error) bool { panic("mine") }},
			"Backoff": {Backoff: func(int, time.Duration, float64) time.Duration { panic("mine") }},
		} {
			g := mustGate(t, sluice.Config{Concurrency: 1})
			func() {
				defer func() {
					if got := recover(); got != "mine" {
						t.Errorf("%s: the panic did not propagate unchanged: %v", name, got)
					}
				}()
				sluice.Retry(bg, g, p, down)
			}()
			if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, fine); err != nil || g.Stats().InFlight != 0 {
				t.Errorf("%s: the next call: %v", name, err)
			}
		}
	})
}
