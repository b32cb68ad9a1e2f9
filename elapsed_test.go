package sluice_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// MaxElapsed and MaxServerWait.

func TestMaxServerWaitAloneIsEnough(t *testing.T) {
	hour := told(time.Hour)
	for name, c := range map[string]struct {
		policy  sluice.RetryPolicy
		answers []answer
		at      []time.Duration // of the attempts
		why     error
	}{
		"an hour":               {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{hour, fine}, []time.Duration{0, time.Hour}, nil},
		"exactly":               {sluice.RetryPolicy{MaxServerWait: time.Hour}, []answer{hour, fine}, []time.Duration{0, time.Hour}, nil},
		"no bound":              {sluice.RetryPolicy{MaxServerWait: -1}, []answer{told(1000 * time.Hour), fine}, []time.Duration{0, 1000 * time.Hour}, nil},
		"again and again":       {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{hour, hour, hour, hour, fine}, []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}, nil},
		"failures beside":       {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(7 * time.Minute)}, []answer{down, hour, down, hour, fine}, []time.Duration{0, 7 * time.Minute, 67 * time.Minute, 74 * time.Minute, 134 * time.Minute}, nil},
		"failures for too long": {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(8 * time.Minute)}, []answer{down, hour, down}, []time.Duration{0, 8 * time.Minute, 68 * time.Minute}, sluice.ErrElapsed},
		"of this call alone":    {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(time.Minute)}, []answer{notBefore(time.Hour), notBefore(time.Hour), down, fine}, []time.Duration{0, time.Hour, 2 * time.Hour, 2*time.Hour + time.Minute}, nil},
		"too long":              {sluice.RetryPolicy{MaxServerWait: 59 * time.Minute}, []answer{hour}, []time.Duration{0}, sluice.ErrServerWait},
		"short ones count":      {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{told(5 * time.Minute)}, []time.Duration{0, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}, sluice.ErrElapsed},
		"shorter than usual":    {sluice.RetryPolicy{MaxServerWait: time.Minute}, []answer{told(time.Minute)}, []time.Duration{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, sluice.ErrElapsed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(c.answers...)
				err := sluice.Retry(bg, g, c.policy, s.call)
				if !errors.Is(err, c.why) {
					t.Errorf("got %v, want %v", err, c.why)
				}
				if name == "shorter than usual" {
					for i := range c.at {
						c.at[i] *= time.Minute
					}
				}
				s.want(t, c.at...)
			})
		})
	}
}

// Those who come back while others have made the gate pause, or who queue behind it.
func TestMaxServerWaitAloneIsEnoughForPausesOfOthers(t *testing.T) {
	long := sluice.RetryPolicy{MaxServerWait: 3 * time.Hour, Backoff: sluice.Constant(time.Minute)}
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, long, newServer(after(30*time.Second, down), fine).call) })
		time.Sleep(45 * time.Second)
		g.PauseUntil(time.Now().Add(time.Hour), "429 of another") // while it waits for its backoff
		time.Sleep(50 * time.Minute)
		g.PauseUntil(time.Now().Add(2*time.Hour), "and once more")
		time.Sleep(24 * time.Hour)
		l.Want(t, synclog.At(0, 45*time.Second+50*time.Minute+2*time.Hour))
	})
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		for i := range 60 { // all refused at first
			l.Call(i, func() error {
				return sluice.Retry(bg, g, long, newServer(after(time.Hour, told(time.Hour)), fine).call)
			})
		}
		time.Sleep(240 * time.Hour)
		for _, left := range l.Sofar() {
			if left.Err != nil {
				t.Error(left)
			}
		}
	})
}

func TestAMaxElapsedThatForbidsWhatMaxServerWaitAllowsSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		policy sluice.RetryPolicy
		told   time.Duration
		want   string
	}{
		"both set": {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, MaxElapsed: 30 * time.Minute}, time.Hour,
			"no time left for another attempt: the wait of 1h0m0s ends after MaxElapsed (30m0s), although MaxServerWait allows 2h0m0s"},
		"no bound": {sluice.RetryPolicy{MaxServerWait: -1, MaxElapsed: 30 * time.Minute}, time.Hour,
			"no time left for another attempt: the wait of 1h0m0s ends after MaxElapsed (30m0s), although MaxServerWait allows any wait"},
		"defaults": {sluice.RetryPolicy{MaxElapsed: time.Minute}, 2 * time.Minute,
			"no time left for another attempt: the wait of 2m0s ends after MaxElapsed (1m0s), although MaxServerWait allows 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(told(c.told))
				err := sluice.Retry(bg, g, c.policy, s.call)
				s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrElapsed, attempts: 1, retryAt: c.told})
				var stopped *sluice.RetryError
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}

				// It is for this call alone.
				g, s = mustGate(t, sluice.Config{}), newServer(notBefore(c.told))
				err = sluice.Retry(bg, g, c.policy, s.call)
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}

				// The pause is that of another call.
				g, s = mustGate(t, sluice.Config{}), newServer(down)
				p := c.policy
				p.Backoff = sluice.Constant(time.Second)
				done := make(chan error)
				go func() { done <- sluice.Retry(bg, g, p, s.call) }()
				synctest.Wait()
				g.PauseUntil(time.Now().Add(c.told+time.Second), "")
				err = <-done
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}
			})
		})
	}
}
