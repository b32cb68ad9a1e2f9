package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// Eight calls in flight see one overload, not eight.
func TestConfig_RetryBudget_BurstOfThrottlesIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   [2]int // after the first burst and after the second
	}{
		"throttle":  {busy, [2]int{95, 90}},
		"with time": {retryAfter(10 * time.Second), [2]int{95, 90}},
		"plain":     {down, [2]int{60, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := fixedGate(t, sluice.Config{Rate: herd}), synclog.New()
				for i := range 8 {
					// All leave at 0 and fail from 1 s to 1.7 s, leave again
					// by 11.7 s and fail from 12 s on.
					s := newServer(after(time.Second+time.Duration(i)*100*ms, c.answer), after(2*time.Second, c.answer), after(time.Second, gone))
					l.Call(i, func() error { return sluice.Retry(bg, g, each(10*time.Second), s.call) })
				}
				time.Sleep(5 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[0] {
					t.Errorf("%d tokens after the first burst, want %d", got, c.want[0])
				}
				time.Sleep(15 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[1] {
					t.Errorf("%d tokens after the second burst, want %d", got, c.want[1])
				}
				time.Sleep(time.Minute)
				if got := l.Sofar(); len(got) != 8 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// When a call left decides whether its failure belongs to a burst: a call that left
// after the burst was charged is charged itself, however soon it fails.
func TestConfig_RetryBudget_ThrottleAfterTheBurstIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: herd}), synclog.New()
		for i, c := range []struct {
			leaves, fails time.Duration
			answer        answer
		}{
			{0, 1000 * ms, busy},
			{999 * ms, 1500 * ms, busy},    // of the burst
			{1001 * ms, 2000 * ms, busy},   // not of the burst
			{1999 * ms, 60000 * ms, busy},  // of the second one, and long in flight
			{2000 * ms, 60000 * ms, late},  // a timeout is not a throttle
			{50000 * ms, 60000 * ms, busy}, // a third one
			{70000 * ms, 80000 * ms, down}, // nor is a failure
			{70000 * ms, 80001 * ms, busy}, // and makes no burst
		} {
			s := newServer(after(c.fails-c.leaves, c.answer), gone)
			l.Call(i, func() error {
				time.Sleep(c.leaves)
				return sluice.Retry(bg, g, each(time.Hour/10), s.call)
			})
		}
		for _, c := range []struct {
			at   time.Duration
			want int
		}{{999 * ms, 100}, {1001 * ms, 95}, {1600 * ms, 95}, {2001 * ms, 90}, {31999 * ms, 90},
			{32000 * ms, 95}, {59999 * ms, 95}, {60001 * ms, 80}, {80002 * ms, 70}} { // 5 for 30 s of quiet
			time.Sleep(c.at - time.Since(l.Start))
			if got := g.Stats().RetryTokens; got != c.want {
				t.Errorf("%d tokens at %v, want %d", got, c.at, c.want)
			}
		}
		time.Sleep(time.Hour)
	})
}

// A burst that could not be charged to the budget retries no call for free.
func TestConfig_RetryBudget_BurstThatCannotBePaidIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		l := synclog.New()
		var want []synclog.Left
		for i := range 8 {
			at := time.Second + time.Duration(i)*100*ms
			l.Call(i, func() error { return sluice.Retry(bg, g, each(time.Second), after(at, busy)) })
			want = append(want, synclog.Failed(i, at, sluice.ErrBudget))
		}
		time.Sleep(time.Minute)
		l.Want(t, want...)
	})
}

func TestConfig_RetryBudget_BurstRefusedAtOnceIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		answer answer
		begin  time.Duration
	}{
		"at the beginning":     {sluice.Config{}, busy, 0},
		"later":                {sluice.Config{}, busy, time.Second},
		"with time":            {sluice.Config{}, retryAfter(10 * time.Second), 0},
		"one after the other":  {sluice.Config{Concurrency: 1}, busy, 0},
		"some after the other": {sluice.Config{Concurrency: 8}, busy, time.Second},
		"parent":               {sluice.Config{Parent: fixedGate(t, sluice.Config{})}, busy, 0},
		"quota":                {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, busy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.cfg.Parent != nil {
					c.cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g := fixedGate(t, c.cfg)
				time.Sleep(c.begin)
				burst := func(want int) {
					t.Helper()
					for range 64 {
						go sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 2, Throttled: sluice.Constant(time.Hour), MaxElapsed: -1, MaxServerWait: -1}, c.answer)
					}
					synctest.Wait()
					if got := g.Stats().RetryTokens; got != want {
						t.Errorf("%d tokens, want %d", got, want)
					}
				}
				burst(95)
				time.Sleep(10 * time.Second)
				burst(90) // another one
				g.Close()
			})
		})
	}
}

// On the real clock: a call that leaves after the throttle was charged is charged again.
func TestConfig_RetryBudget_SuccessiveThrottlesAreChargedEach(t *testing.T) {
	g := fixedGate(t, sluice.Config{})
	for i := range 5 {
		sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 2, Throttled: sluice.Constant(ms)}, newServer(busy, gone).call)
		if got, want := g.Stats().RetryTokens, 95-5*i; got != want {
			t.Errorf("%d tokens after throttle %d, want %d", got, i+1, want)
		}
	}
}
