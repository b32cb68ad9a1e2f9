package sluice_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// An inLine is a gate with a rate of 10/s, and the order in which calls leave it.
type inLine struct {
	*synclog.Log
	gate *sluice.Gate

	mu   sync.Mutex
	left []int
}

// call has a caller make a call, whose answers take takes and are answers, one after the other, and
// then successes.
func (l *inLine) call(ctx context.Context, caller int, takes time.Duration, answers ...func() error) {
	l.Call(caller, func() error {
		return sluice.Retry(ctx, l.gate, sluice.RetryPolicy{Backoff: sluice.Constant(ms)}, func(context.Context) (err error) {
			l.mu.Lock()
			l.left = append(l.left, caller)
			l.mu.Unlock()
			time.Sleep(takes)
			if len(answers) > 0 {
				err, answers = answers[0](), answers[1:]
			}
			return err
		})
	})
}

func busyFor(d time.Duration) func() error {
	return func() error { return sluice.RetryAfter(errBusy, d) }
}

func (l *inLine) want(t *testing.T, left ...int) {
	t.Helper()
	time.Sleep(time.Hour)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.left, left) {
		t.Errorf("left in the order\n\t%v, want\n\t%v", l.left, left)
	}
}

// A call that the server has refused goes behind as many as it was refused times, and there among
// the refused ones in the order in which they left first.
func TestRetry_PlaceOfARefusedCall(t *testing.T) {
	busy, fails := busyFor(time.Second), func() error { return errDown }
	for name, c := range map[string]struct {
		calls func(l *inLine)
		want  []int
	}{
		"one": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy)
		}, []int{0, 3, 0, 4, 5, 6, 7, 8}},
		"two, answered in their order": {func(l *inLine) {
			l.call(bg, 0, 150*ms, busy)
			l.call(bg, 1, 150*ms, busy)
		}, []int{0, 1, 3, 0, 1, 4, 5, 6, 7, 8}},
		"two, answered in the other order": {func(l *inLine) {
			l.call(bg, 0, 400*ms, busy)
			l.call(bg, 1, 10*ms, busy)
		}, []int{0, 1, 3, 0, 1, 4, 5, 6, 7, 8}},
		"one, answered late": {func(l *inLine) {
			l.call(bg, 0, 350*ms, busy)
		}, []int{0, 3, 4, 5, 6, 0, 7, 8}},
		"one, three times": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy, busy, busy)
		}, []int{0, 3, 0, 4, 5, 0, 6, 7, 8, 0}},
		"one that also fails": {func(l *inLine) {
			l.call(bg, 0, 50*ms, fails)
		}, []int{0, 3, 4, 5, 6, 7, 8, 0}},
		"one that is refused and then fails": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy, fails)
		}, []int{0, 3, 0, 4, 5, 6, 7, 8, 0}},
	} {
		for level, parent := range map[string]sluice.Config{"": {}, " in a parent": {Rate: tenPerSecond}} {
			t.Run(name+level, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := sluice.Config{Rate: tenPerSecond, Adaptive: sluice.Adaptive{Off: true}}
					if level != "" {
						cfg.Rate, cfg.Parent = sluice.Rate{}, mustGate(t, parent)
					}
					l := &inLine{Log: synclog.New(), gate: mustGate(t, cfg)}
					c.calls(l)
					for caller := 3; caller < 9; caller++ {
						l.call(bg, caller, 10*ms)
					}
					l.want(t, c.want...)
				})
			})
		}
	}
}

// With a deadline a refused call keeps its place. It waited behind all others, and failed with the
// refusal when that would have taken too long.
func TestRetry_ARefusedCallWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		l := &inLine{Log: synclog.New(), gate: fixedGate(t, sluice.Config{Rate: tenPerSecond})}
		for caller := range 600 { // the last slot before the deadline is taken, too
			var answers []func() error
			if caller%100 == 50 {
				answers = []func() error{busyFor(10 * ms)}
			}
			l.call(ctx, caller, ms, answers...)
		}
		time.Sleep(time.Minute)
		for _, left := range l.Sofar() {
			if left.Err != nil && left.Caller%100 == 50 {
				t.Errorf("call %d, which was refused, at %v: %v", left.Caller, left.At, left.Err)
			}
		}
	})
}

// Those that a refused call goes ahead of fail at once if they are too late by that.
func TestRetry_ARefusedCallDelaysOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &inLine{Log: synclog.New(), gate: fixedGate(t, sluice.Config{Rate: tenPerSecond})}
		l.call(bg, 0, 50*ms, busyFor(50*ms)) // its wait is over at its next slot
		l.call(bg, 1, ms)
		l.Call(2, func() error {
			_, err := l.gate.AcquireWithin(bg, 1, 250*ms)
			return err
		})
		l.want(t, 0, 1, 0)
		for _, left := range l.Sofar() {
			if left.Caller == 2 && (left.At != 50*ms || !errors.Is(left.Err, context.DeadlineExceeded)) {
				t.Errorf("the call behind it ended at %v with %v, want at 50ms", left.At, left.Err)
			}
		}
	})
}
