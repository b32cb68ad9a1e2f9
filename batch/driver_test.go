package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// Items start in the order of the input, and only one of them waits at the
// gate, so that other callers need not wait for all of them.
func TestMap_ItemsLeaveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Concurrency: 20})
		var left []int
		err := ForEach(t.Context(), gate, count(50), func(_ context.Context, item int) error {
			left = append(left, item) // one every second
			if w := gate.Stats().Waiting + gate.Stats().Pacing; w > 1 {
				t.Errorf("%d wait at the gate", w)
			}
			time.Sleep(10 * time.Second)
			return nil
		}, Config[int]{ReadAhead: 30})
		if err != nil || !slices.IsSorted(left) || len(left) != 50 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

// An outcome is counted before the permit is returned: were it the other way
// round, the next item could leave after the one that ended the batch.
func TestMap_OutcomesAreCountedBeforeTheRelease(t *testing.T) {
	for _, err := range []error{nil, errors.New("bad")} {
		var tally Tally
		var released atomic.Int64
		gate := newGate(t, sluice.Config{Concurrency: 1, Observer: func(e sluice.Event) {
			if e.Kind != sluice.EventReleased {
				return
			}
			n := released.Add(1)
			if s := tally.Stats(); s.OK+s.Failed < n {
				t.Errorf("%d released, %d counted", n, s.OK+s.Failed)
			}
		}})
		_ = ForEach(t.Context(), gate, count(5), func(context.Context, int) error { return err },
			Config[int]{Retry: sluice.RetryPolicy{Attempts: 1}, Tally: &tally})
		if n := released.Load(); n != 5 {
			t.Errorf("%d released", n)
		}
	}
}

// What the gate says no to is unfinished, ends the batch, and is the reason.
func TestMap_GateRefuses(t *testing.T) {
	f := func(_ context.Context, item int) (int, error) {
		if item == 2 {
			return 0, sluice.ThrottledFor(errors.New("429"), time.Hour)
		}
		return 0, nil
	}
	t.Run("the deadline is too near", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			gate := newGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 1, Per: time.Second}})
			start := time.Now()
			var wait *limits.WaitError
			err := ForEach(ctx, gate, count(9), func(context.Context, int) error { return nil }, Config[int]{})
			if !errors.As(err, &wait) || time.Since(start) != time.Second || ctx.Err() != nil {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	})
	t.Run("the server asks for too long a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
			start := time.Now()
			var last error
			unfinished := 0
			for r, err := range Map(t.Context(), gate, count(9), f, Config[int]{}) {
				if err != nil {
					last = err
				} else if errors.Is(r.Err, ErrUnfinished) {
					unfinished++
				}
			}
			var stopped *sluice.RetryError
			if !errors.As(last, &stopped) || !errors.Is(last, sluice.ErrServerWait) {
				t.Fatalf("ended with %v", last)
			}
			if want := start.Add(2*time.Second + time.Hour); !stopped.RetryAt.Equal(want) {
				t.Errorf("come back at %v, want %v", stopped.RetryAt, want)
			}
			if time.Since(start) != 2*time.Second || unfinished < 1 || unfinished > 3 {
				t.Errorf("%d unfinished after %v", unfinished, time.Since(start))
			}
		})
	})
	t.Run("there is no room in its queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate(t, sluice.Config{Concurrency: 1, MaxWaiting: 1})
			permit, err := gate.Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			go gate.Acquire(t.Context(), 1) // and keeps it
			synctest.Wait()
			if err := ForEach(t.Context(), gate, count(9), func(context.Context, int) error { return nil }, Config[int]{}); !errors.Is(err, limits.ErrQueueFull) {
				t.Error(err)
			}
			permit.Release()
		})
	})
}

// What a call gave up for is failed or unfinished: see the table of the package.
func TestDriver_StateOf(t *testing.T) {
	errBroken := errors.New("broken")
	for _, tt := range []struct {
		err  error
		want state
	}{
		{nil, done},
		{&sluice.RetryError{Last: errBroken, Why: sluice.ErrPermanent}, failed},
		{&sluice.RetryError{Last: errBroken, Why: sluice.ErrAttempts}, failed},
		{&sluice.RetryError{Last: errBroken, Why: sluice.ErrElapsed}, failed},
		{&sluice.RetryError{Last: errBroken, Why: sluice.ErrBudget}, failed},
		{&sluice.RetryError{Last: errBroken, Why: sluice.ErrServerWait}, unfinished},
		{&sluice.RetryError{Last: errBroken, Why: context.Canceled}, unfinished},
		{&sluice.RetryError{Last: errBroken, Why: limits.ErrClosed}, unfinished},
		{&sluice.RetryError{Last: errBroken, Why: &limits.WaitError{}}, unfinished},
		{sluice.Permanent(errBroken), failed}, // at the first attempt
		{fmt.Errorf("Get: %w", sluice.Permanent(errBroken)), failed},
		{&sluice.RetryError{Last: errBroken, Why: fmt.Errorf("after 3 s: %w", sluice.ErrElapsed)}, failed},
		{&sluice.RetryError{Last: sluice.Permanent(errBroken), Why: context.Canceled}, unfinished},
		{limits.ErrClosed, unfinished},
		{limits.ErrTooLarge, unfinished},
		{context.DeadlineExceeded, unfinished},
		// The inner call gave up because of its own gate; ours did for its attempts.
		{&sluice.RetryError{Last: &sluice.RetryError{Why: limits.ErrClosed}, Why: sluice.ErrAttempts}, failed},
	} {
		d := driver{}
		if got := d.stateOf(&call{d: &d, ctx: t.Context()}, tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want state
	}{
		{t.Context(), errBroken, failed},
		{t.Context(), context.Canceled, failed}, // not by us
		{t.Context(), fmt.Errorf("Get: %w", &sluice.RetryError{Why: sluice.ErrServerWait}), unfinished},
		{t.Context(), fmt.Errorf("Get: %w", &limits.WaitError{}), unfinished},
		{t.Context(), fmt.Errorf("Get: %w", limits.ErrClosed), unfinished},
		{t.Context(), nil, done},
		{cancelled, errBroken, unfinished},
		{cancelled, sluice.Permanent(errBroken), failed},
		{cancelled, &sluice.RetryError{Last: sluice.Permanent(errBroken), Why: context.Canceled}, unfinished},
		{cancelled, fmt.Errorf("Get: %w", &sluice.RetryError{Last: errBroken, Why: sluice.ErrAttempts}), failed},
		{cancelled, &sluice.RetryError{Last: errBroken, Why: context.Canceled}, unfinished},
		{cancelled, nil, done},
	} {
		d := driver{paced: true}
		if got := d.stateOf(&call{d: &d, ctx: tt.ctx}, tt.err); got != tt.want {
			t.Errorf("paced, %v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// The server stalls for 10 s. The call it stalls is the only one that takes
// long, but those that could not start meanwhile are as late as they are.
func TestTimes_AfterAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Concurrency: 1})
		start := time.Now()
		var tally Tally
		var got []string
		for r, err := range Map(t.Context(), gate, count(5), takesMillis(100, 10_100, 100, 100, 100), Config[int]{Ordered: true, Tally: &tally}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(r.Intended.Sub(start), " ", r.Sent.Sub(start), " ", r.Done.Sub(start), " ", max(0, r.Sent.Sub(r.Intended)), " ", r.Service))
		}
		want := []string{
			"0s 0s 100ms 0s 100ms",
			"1s 1s 11.1s 0s 10.1s",
			"2s 11.1s 11.2s 9.1s 100ms",
			"3s 12.1s 12.2s 9.1s 100ms",
			"4s 13.1s 13.2s 9.1s 100ms",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		s := tally.Stats()
		if s.Queued[0] != 2 || s.Queued[bucket(9100*time.Millisecond)] != 3 || s.Queued.Count() != 5 {
			t.Errorf("queued %v", s.Queued)
		}
		if s.Service[bucket(100*time.Millisecond)] != 4 || s.Service[bucket(10100*time.Millisecond)] != 1 || s.Service.Count() != 5 {
			t.Errorf("service %v", s.Service)
		}
	})
}

func takesMillis(millis ...int) func(ctx context.Context, item int) (struct{}, error) {
	return func(_ context.Context, item int) (struct{}, error) {
		time.Sleep(time.Duration(millis[item]) * time.Millisecond)
		return struct{}{}, nil
	}
}

// Retries: the service is that of all attempts, without the backoff.
func TestTimes_Retries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{})
		start := time.Now()
		var tally Tally
		attempts := 0
		for r, err := range Map(t.Context(), gate, count(1), func(context.Context, int) (string, error) {
			time.Sleep(time.Second)
			if attempts++; attempts < 3 {
				return "no", errors.New("503")
			}
			return "yes", nil
		}, Config[int]{Tally: &tally, Retry: sluice.RetryPolicy{Backoff: sluice.Constant(10 * time.Second)}}) {
			if err != nil || r.Err != nil || r.Out != "yes" {
				t.Fatalf("%+v, %v", r, err)
			}
			if r.Attempts != 3 || r.Service != 3*time.Second || !r.Sent.Equal(start) || r.Done.Sub(start) != 23*time.Second || r.Sent.After(r.Intended) {
				t.Errorf("%+v", r)
			}
		}
		if s := tally.Stats(); s.Retries != 2 || s.OK != 1 || s.Queued.Count() != 1 || s.Service.Count() != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// A function that passes its gates on its own reports when it leaves. When the batch ends
// early, waiting calls are canceled, and calls in flight are not.
func TestConfig_Paced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		start := time.Now()
		stop := make(chan struct{})
		time.AfterFunc(2500*time.Millisecond, func() { close(stop) })
		var got []string
		for r, err := range Map(t.Context(), gate, count(5), func(ctx context.Context, item int) (int, error) {
			for range 2 {
				if err := gate.Do(ctx, func(ctx context.Context) error {
					defer StartAttempt(ctx)()
					time.Sleep(700 * time.Millisecond)
					return ctx.Err()
				}); err != nil {
					return 0, err
				}
			}
			return item, nil
		}, Config[int]{ExternalGate: true, Stop: stop, ReadAhead: 2}) {
			if err != nil {
				got = append(got, fmt.Sprint("end ", err, " ", time.Since(start)))
				continue
			}
			got = append(got, fmt.Sprint(r.Err == nil, " ", errors.Is(r.Err, ErrUnfinished), " ", r.Attempts, " ", r.Service, " ", time.Since(start)))
		}
		slices.Sort(got)
		// One of them leaves at 0 and 2 s, the other at 1 s, and waits for 3 s
		// when the batch ends.
		want := []string{
			"end batch: stopped 2.7s",
			"false true 1 700ms 2.5s",
			"true false 2 1.4s 2.7s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// One that waits elsewhere, for a host that is paused, does not delay others.
func TestConfig_PacedItemsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := history(false, Map(t.Context(), newGate(t, sluice.Config{}), count(3), func(ctx context.Context, item int) (int, error) {
			if item == 0 {
				time.Sleep(time.Hour) // at its gate
			}
			defer StartAttempt(ctx)()
			return 0, nil
		}, Config[int]{ExternalGate: true}))
		if want := "1@0s:ok 2@0s:ok 0@1h0m0s:ok"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// An attempt that is not noted to be over is so when the next one starts, or
// the function has returned.
func TestDepart_WithoutArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for r, err := range Map(t.Context(), newGate(t, sluice.Config{}), count(1), func(ctx context.Context, item int) (int, error) {
			StartAttempt(ctx)
			time.Sleep(time.Second)
			StartAttempt(ctx)
			time.Sleep(2 * time.Second)
			return 0, nil
		}, Config[int]{ExternalGate: true}) {
			if err != nil || r.Attempts != 2 || r.Service != 3*time.Second || r.Done.Sub(r.Sent) != 3*time.Second {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// Elsewhere StartAttempt does nothing.
func TestDepart_OtherContext(t *testing.T) {
	StartAttempt(t.Context())()
	for r := range Map(t.Context(), newGate(t, sluice.Config{}), count(1), func(ctx context.Context, item int) (int, error) {
		StartAttempt(ctx)()
		return 0, nil
	}, Config[int]{}) {
		if r.Attempts != 1 {
			t.Errorf("%d attempts", r.Attempts)
		}
	}
}

// A function that ends its goroutine, as t.FailNow does, ends the batch; the
// loop does not wait for it.
func TestMap_Goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Concurrency: 1})
		var tally Tally
		got := history(false, Map(t.Context(), gate, count(2), func(context.Context, int) (int, error) {
			runtime.Goexit()
			return 0, nil
		}, Config[int]{ReadAhead: 1, Tally: &tally}))
		if want := "0@0s:unfinished end@0s:batch: the function called runtime.Goexit"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if s := gate.Stats(); s.InFlight != 0 || tally.Stats().Unfinished != 1 {
			t.Errorf("%+v, %+v", s, tally.Stats())
		}
	})
}

// A Stop that is closed before the batch begins lets nothing begin.
func TestConfig_StopIsClosedBefore(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	in := func(func(int) bool) { t.Error("read") }
	err := ForEach(t.Context(), newGate(t, sluice.Config{}), in, func(context.Context, int) error { return nil }, Config[int]{Stop: stop})
	if !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}

// What the input gives after the end is unfinished immediately, and does not wait
// for its turn.
func TestMap_InputReadsAfterTheEnd(t *testing.T) {
	for _, paced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}})
			stop := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(stop) })
			slow := func(yield func(int) bool) {
				if yield(0) {
					time.Sleep(time.Minute)
					yield(1)
				}
			}
			got := history(false, Map(t.Context(), gate, slow, func(ctx context.Context, item int) (int, error) {
				if !paced {
					return 0, nil
				}
				return 0, gate.Do(ctx, func(context.Context) error { return nil })
			}, Config[int]{Stop: stop, ExternalGate: paced}))
			if want := "0@0s:ok 1@1m0s:unfinished end@1m0s:batch: stopped"; got != want {
				t.Errorf("paced %v: got  %s\nwant %s", paced, got, want)
			}
		})
	}
}

// A call that the gate let through at the time at which the batch ended
// does not leave.
func TestDepart_AfterTheEnd(t *testing.T) {
	d := driver{tally: new(Tally), items: newScheduler(Suspend{}, false, false, 1, 2)}
	d.begin(t.Context())
	defer d.cancel()
	var c *call
	p := new(place)
	p.start = func(time.Time) { c = d.newCall(p, time.Now()) }
	d.items.add(time.Now(), "", p)
	d.advance()
	defer c.close()
	d.stop(ErrStopped, false)
	if c.depart() || c.times.Attempts != 0 || c.ctx.Err() == nil {
		t.Errorf("left: %+v, its context: %v", c.times, c.ctx.Err())
	}
}
