package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// second is a policy with a constant backoff of 1 s.
var second = sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), Throttled: sluice.Constant(time.Second)}

// The call waits until the given time, or for its backoff if that is longer.
func TestNotBefore_DelaysTheRetry(t *testing.T) {
	for _, tt := range []struct {
		name string
		says answer
		want time.Duration
	}{
		{"longer than the backoff", notBefore(20 * time.Second), 20 * time.Second},
		{"shorter than the backoff", notBefore(100 * time.Millisecond), time.Second},
		{"a time that has passed", notBefore(-time.Hour), time.Second},
		{"the zero time", always(sluice.NotBefore(errDown, time.Time{})), time.Second},
		{"two of them", func(ctx context.Context) error {
			return errors.Join(notBefore(5*time.Second)(ctx), notBefore(7*time.Second)(ctx), notBefore(6*time.Second)(ctx))
		}, 7 * time.Second},
		{"within another error", func(ctx context.Context) error { return fmt.Errorf("get: %w", notBefore(9*time.Second)(ctx)) }, 9 * time.Second},
		{"with a throttle that has a time", func(ctx context.Context) error {
			return sluice.NotBefore(retryAfter(3*time.Second)(ctx), time.Now().Add(9*time.Second))
		}, 3 * time.Second},
		{"with a throttle that has none", func(ctx context.Context) error {
			return sluice.NotBefore(busy(ctx), time.Now().Add(9*time.Second))
		}, 9 * time.Second},
		{"of another gate", func(ctx context.Context) error {
			return &sluice.RetryError{Last: notBefore(time.Minute)(ctx), Why: sluice.ErrAttempts}
		}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(tt.says, fine)
				g, _ := sluice.New(sluice.Config{})
				if err := sluice.Retry(t.Context(), g, second, s.call); err != nil {
					t.Error(err)
				}
				s.want(t, 0, tt.want)
			})
		})
	}
	if sluice.NotBefore(nil, time.Now()) != nil {
		t.Error("NotBefore(nil, t) is not nil")
	}
}

// Other calls go on, in the same gate, in its siblings and in its parent; the call that
// waits holds no permit of any of them.
func TestNotBefore_HoldsItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, _ := sluice.New(sluice.Config{Concurrency: 1})
		g, _ := sluice.New(sluice.Config{Concurrency: 1, Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: parent})
		s := newServer(notBefore(time.Minute), fine)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := sluice.Retry(t.Context(), g, second, s.call); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(30 * time.Second)
		for name, stats := range map[string]sluice.Stats{"gate": g.Stats(), "parent": parent.Stats()} {
			if stats.InFlight != 0 || stats.Waiting != 0 || !stats.PausedUntil.IsZero() {
				t.Errorf("%s: %d in flight, %d wait, paused until %v", name, stats.InFlight, stats.Waiting, stats.PausedUntil)
			}
		}
		wg.Wait()
		s.want(t, 0, time.Second, 2*time.Second, 3*time.Second, time.Minute)
	})
}

func TestNotBefore_IsBounded(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		name    string
		policy  sluice.RetryPolicy
		says    answer
		timeout time.Duration
		why     error
		retryAt time.Duration
	}{
		{"by MaxServerWait", sluice.RetryPolicy{}, notBefore(5*time.Minute + 1), 0, sluice.ErrServerWait, 5*time.Minute + 1},
		{"by a MaxServerWait of one's own", sluice.RetryPolicy{MaxServerWait: s}, notBefore(2 * s), 0, sluice.ErrServerWait, 2 * s},
		{"by MaxElapsed", sluice.RetryPolicy{MaxElapsed: 10 * s}, notBefore(11 * s), 0, sluice.ErrElapsed, 11 * s},
		{"by the deadline", sluice.RetryPolicy{}, notBefore(11 * s), 10 * s, context.DeadlineExceeded, 11 * s},
		{"by Attempts", sluice.RetryPolicy{Attempts: 1}, notBefore(s), 0, sluice.ErrAttempts, 0},
		{"by the end of time", sluice.RetryPolicy{MaxServerWait: -1}, notBefore(math.MaxInt64), 0, sluice.ErrElapsed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				srv := newServer(tt.says, fine)
				g, _ := sluice.New(sluice.Config{})
				err := sluice.Retry(ctx, g, tt.policy, srv.call)
				srv.wantStop(t, err, stop{last: errDown, why: tt.why, attempts: 1, retryAt: tt.retryAt})
			})
		})
	}
}

// NotBefore does not make a permanent failure retryable.
func TestNotBefore_OfAPermanentError(t *testing.T) {
	for _, tt := range []struct {
		policy sluice.RetryPolicy
		says   answer
	}{
		{sluice.RetryPolicy{}, func(ctx context.Context) error { return sluice.Permanent(notBefore(time.Second)(ctx)) }},
		{sluice.RetryPolicy{}, func(ctx context.Context) error {
			return sluice.NotBefore(sluice.Permanent(errDown), time.Now().Add(time.Second))
		}},
		{sluice.RetryPolicy{Retryable: func(error) bool { return false }}, notBefore(time.Second)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(tt.says, fine)
			g, _ := sluice.New(sluice.Config{})
			if err := sluice.Retry(t.Context(), g, tt.policy, s.call); !errors.Is(err, errDown) {
				t.Errorf("ended with %v", err)
			}
			s.want(t, 0)
		})
	}
}

// It is an ordinary failure: charged, counted, and not a throttle.
func TestNotBefore_IsChargedToTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := sluice.New(sluice.Config{RetryBudget: 5})
		s := newServer(notBefore(10 * time.Second))
		err := sluice.Retry(t.Context(), g, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)}, s.call)
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrBudget, attempts: 2, at: 10 * time.Second, elapsed: 10 * time.Second, retryAt: 20 * time.Second})
		if spacing := g.Stats().Spacing; spacing != time.Second {
			t.Errorf("the empty budget spaces calls at %v, want the backoff", spacing)
		}
	})
}

// A cancelled wait ends at once, and so does that of a gate that is closed.
func TestNotBefore_Cancel(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g, _ := sluice.New(sluice.Config{Concurrency: 1})
			why := context.Canceled
			end := cancel
			if closed {
				why, end = limits.ErrClosed, g.Close
			}
			time.AfterFunc(3*time.Second, end)
			s := newServer(notBefore(time.Minute), fine)
			err := sluice.Retry(ctx, g, second, s.call)
			s.wantStop(t, err, stop{last: errDown, why: why, attempts: 1, at: 3 * time.Second, elapsed: 3 * time.Second})
			if n := g.Stats().InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		})
	}
}
