package batch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// host is the group of an item such as "a7".
func host(item string) string { return item[:1] }

// A web has a gate for each host, and calls those through it, as an HTTP client with
// retries does.
type web struct {
	gate  *sluice.Gate // of all
	gates map[string]*sluice.Gate
	call  func(ctx context.Context, item string) error
	retry sluice.RetryPolicy
	start time.Time

	readEvery time.Duration
}

func newWeb(t *testing.T, concurrency int64, names string, call func(ctx context.Context, item string) error) *web {
	w := &web{gate: newGate(t, sluice.Config{Concurrency: concurrency}), gates: make(map[string]*sluice.Gate), call: call, start: time.Now()}
	for _, name := range names {
		w.gates[string(name)] = newGate(t, sluice.Config{Name: string(name), Parent: w.gate, RetryBudget: -1})
	}
	w.retry = sluice.RetryPolicy{Attempts: 4, Backoff: sluice.Constant(time.Second)}
	return w
}

func (w *web) do(ctx context.Context, item string) (string, error) {
	return item, sluice.Retry(ctx, w.gates[host(item)], func(ctx context.Context) error {
		defer StartAttempt(ctx)()
		return w.call(ctx, item)
	}, w.retry)
}

// run runs a batch and returns when each item of each host ended, in seconds, and why the
// batch ended early.
func (w *web) run(ctx context.Context, items []string, cfg Config[string]) (ended map[string][]float64, why error) {
	cfg.ExternalGate, cfg.Group = true, host
	ended = make(map[string][]float64)
	in := func(yield func(string) bool) {
		for _, item := range items {
			time.Sleep(w.readEvery)
			if !yield(item) {
				return
			}
		}
	}
	for r, err := range Map(ctx, w.gate, in, w.do, cfg) {
		if err != nil {
			why = err
			break
		}
		what := host(r.In)
		switch {
		case errors.Is(r.Err, ErrUnfinished):
			what += " unfinished"
		case errors.Is(r.Err, ErrSuspended):
			what += " aside"
		case r.Err != nil:
			what += " failed"
		}
		ended[what] = append(ended[what], math.Round(1000*time.Since(w.start).Seconds())/1000)
	}
	return ended, why
}

// mixed returns n items of each host, alternately.
func mixed(n int, names string) (all []string) {
	for i := range n {
		for _, name := range names {
			all = append(all, fmt.Sprint(string(name), i))
		}
	}
	return all
}

// summary writes how many items ended how, and from when to when.
func summary(ended map[string][]float64) string {
	var all []string
	for what, at := range ended {
		all = append(all, fmt.Sprintf("%s %d from %v to %v", what, len(at), at[0], at[len(at)-1]))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

var errDown = errors.New("down")

// Calls take a second. One host pauses for a minute after its first call, which takes half a
// second. Before, each had one of the two places, then the other one has both: at once, or after
// its next call, if an item of the paused host had started to wait.
func TestConfig_Group_APausedHostHoldsUpOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttled atomic.Bool
		w := newWeb(t, 2, "ab", func(_ context.Context, item string) error {
			if item == "a0" && !throttled.Swap(true) {
				time.Sleep(time.Second / 2)
				return sluice.ThrottledFor(errDown, time.Minute)
			}
			time.Sleep(time.Second)
			return nil
		})
		ended, why := w.run(t.Context(), mixed(100, "ab"), Config[string]{Suspend: Suspend{After: -1}})
		if why != nil {
			t.Error(why)
		}
		if a := ended["a"]; len(a) != 100 || a[1] < 61 { // another call may have been in flight with the first one
			t.Errorf("a: %v", a)
		}
		if b := ended["b"]; len(b) != 100 || b[99] > 51 {
			t.Errorf("b: %v", b)
		}
	})
}

// A host that does not answer has at most half of the calls in flight. In one run of 50, with -race, two calls end at one
// instant in another order: then it has a third or fourth place until the first of its calls ends.
func TestConfig_Group_ASlowHostHasHalf(t *testing.T) {
	const want = "a 40 from 3601 to 36030; b 40 from 1 to 20"
	got := ""
	for range 4 {
		synctest.Test(t, func(t *testing.T) {
			w := newWeb(t, 4, "ab", func(_ context.Context, item string) error {
				if host(item) == "a" {
					time.Sleep(time.Hour)
				}
				time.Sleep(time.Second)
				return nil
			})
			ended, why := w.run(t.Context(), mixed(40, "ab"), Config[string]{})
			if why != nil {
				t.Error(why)
			}
			got = summary(ended)
		})
		if got == want {
			return
		}
	}
	wantText(t, got, want)
}

// A host of which all items are in flight takes no more than their places.
func TestConfig_Group_AHostWithOneItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, 4, "ab", func(_ context.Context, item string) error {
			if item == "a0" {
				time.Sleep(time.Hour)
			}
			time.Sleep(time.Second)
			return nil
		})
		ended, why := w.run(t.Context(), append([]string{"a0"}, mixed(30, "b")...), Config[string]{})
		if why != nil {
			t.Error(why)
		}
		wantText(t, summary(ended), "a 1 from 3601 to 3601; b 30 from 1 to 10")
	})
}

// Results come in the order of the input, but the calls are made when they can.
func TestConfig_Group_Ordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Duration // when b19 left
		start := time.Now()
		w := newWeb(t, 4, "ab", func(_ context.Context, item string) error {
			if item == "b19" {
				last = time.Since(start)
			}
			if item == "a0" {
				time.Sleep(time.Minute)
			}
			time.Sleep(time.Second)
			return nil
		})
		var got []string
		for r, err := range Map(t.Context(), w.gate, slices.Values(mixed(20, "ab")), w.do, Config[string]{ExternalGate: true, Group: host, Ordered: true}) {
			if err != nil || r.Err != nil || time.Since(start) < time.Minute {
				t.Error(err, r.Err, time.Since(start))
			}
			got = append(got, r.In)
		}
		if !slices.Equal(got, mixed(20, "ab")) || last > 10*time.Second {
			t.Errorf("%v; the last b left after %v", got, last)
		}
	})
}

// A host is down for ever, or for a while. Its calls take 100 ms, those of another 71 ms, so
// that no two things happen at the same time. Each has one place.
func TestAside(t *testing.T) {
	down := func(string, time.Duration) bool { return false }
	for _, tt := range []struct {
		name  string
		aside Suspend
		names string
		up    func(name string, at time.Duration) bool
		want  string
		why   error
	}{
		{"another host works", Suspend{}, "ab", func(name string, _ time.Duration) bool { return name == "b" },
			"a 1.173s, a 3.29s failing, a aside 86 from 3.29 to 3.29; a failed 14 from 0.101 to 3.29; b 100 from 0.073 to 4.284", nil},
		{"wait", Suspend{Wait: true}, "ab", func(name string, at time.Duration) bool { return name == "b" || at > time.Minute },
			"a 1.173s, a 3.29s, a 7.39s, a 15.49s, a 31.59s, a 1m3.69s back, a 83 from 63.69 to 67.79; a failed 17 from 0.101 to 31.59; b 100 from 0.073 to 4.284", nil},
		{"nothing works", Suspend{}, "a", down,
			"a 1.201s, a failed 14 from 0.101 to 3.301; a unfinished 86 from 3.301 to 3.301", ErrHalted},
		{"it worked, and is back in time", Suspend{}, "a", func(_ string, at time.Duration) bool { return at < time.Second || at > 10*time.Second },
			"a 2.101s, a 4.201s, a 8.301s, a 16.401s back, a 85 from 0.101 to 23.901; a failed 15 from 1.001 to 8.301", nil},
		{"it worked, and is not back", Suspend{}, "a", func(_ string, at time.Duration) bool { return at < time.Second },
			"a 2.101s, a 4.201s, a 8.301s, a 9 from 0.101 to 0.901; a failed 16 from 1.001 to 16.401; a unfinished 75 from 16.401 to 16.401", ErrHalted},
		{"after 3", Suspend{After: 3}, "a", down,
			"a 301ms, a failed 5 from 0.101 to 2.401; a unfinished 95 from 2.401 to 2.401", ErrHalted},
		{"never", Suspend{After: -1}, "a", down,
			"a failed 100 from 0.101 to 10.001", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, int64(len(tt.names)), tt.names, nil)
				w.call = func(_ context.Context, item string) error {
					if host(item) == "b" {
						time.Sleep(71 * time.Millisecond)
					} else {
						time.Sleep(100 * time.Millisecond)
					}
					if tt.up(host(item), time.Since(w.start)) {
						return nil
					}
					return errDown
				}
				w.retry.Attempts = 1
				w.readEvery = 1037 * time.Microsecond
				var got strings.Builder
				tt.aside.Changed = func(s GroupState) {
					fmt.Fprintf(&got, "%s %v", s.Group, time.Since(w.start).Round(time.Millisecond))
					switch {
					case s.Why == nil:
						got.WriteString(" back")
					case s.Failing:
						got.WriteString(" failing")
					}
					got.WriteString(", ")
				}
				ended, why := w.run(t.Context(), mixed(100, tt.names), Config[string]{Suspend: tt.aside})
				if !errors.Is(why, tt.why) || tt.why == nil && why != nil {
					t.Error(why)
				}
				wantText(t, got.String()+summary(ended), tt.want)
			})
		})
	}
}

// While a host waits, only Ahead items are read.
func TestConfig_Group_AheadBoundsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, 2, "a", func(context.Context, string) error { return errDown })
		w.retry.Attempts = 1
		stop := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(stop) })
		read, unfinished := 0, 0
		in := func(yield func(string) bool) {
			for yield("a") {
				read++
			}
		}
		var why error
		for r, err := range Map(t.Context(), w.gate, in, w.do, Config[string]{ExternalGate: true, Group: host, ReadAhead: 50, Stop: stop, Suspend: Suspend{Wait: true}}) {
			why = err
			if errors.Is(r.Err, ErrUnfinished) {
				unfinished++
			}
		}
		// 12 failed, and then one every minute: probes at 2, 6, 14, 30, 62, 122 s and so on.
		if why != ErrStopped || unfinished != 50 || read > 130 {
			t.Errorf("%v, %d unfinished of %d", why, unfinished, read)
		}
	})
}

// All items fail, with the defaults of everything: the batch does not go on for hours.
func TestForEach_AllFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 200, Per: time.Second}})
		start := time.Now()
		err := ForEach(t.Context(), gate, count(100_000), func(context.Context, int) error { return errDown }, Config[int]{})
		if !errors.Is(err, ErrHalted) || !errors.Is(err, ErrFailed) || !errors.Is(err, errDown) || time.Since(start) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A definite answer shows that the server is well, and a host that fails now and then is
// not set aside: it takes After attempts in a row.
func TestAside_Well(t *testing.T) {
	for name, call := range map[string]func(i int) error{
		"permanent": func(int) error { return sluice.Permanent(errDown) },
		"11 of 12": func(i int) error {
			if i%12 == 11 {
				return nil
			}
			return errDown
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate(t, sluice.Config{Concurrency: 1, RetryBudget: -1})
			err := ForEach(t.Context(), gate, count(120), func(_ context.Context, i int) error { return call(i) },
				Config[int]{Retry: sluice.RetryPolicy{Attempts: 1}, Suspend: Suspend{Changed: func(s GroupState) { t.Error(name, s) }}})
			if !errors.Is(err, ErrFailed) || errors.Is(err, ErrHalted) {
				t.Error(name, err)
			}
		})
	}
}

// A host that requests too long a wait ends, and the others do not. That is why the batch
// ended, and what to resume is not in the log.
func TestConfig_Group_AHostAsksForTooLongAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "run.jsonl")
		w := newWeb(t, 2, "ab", func(_ context.Context, item string) error {
			if host(item) == "a" {
				time.Sleep(time.Second)
				return sluice.ThrottledFor(errDown, 24*time.Hour)
			}
			// Not at the same instant: a call of b that ended first would let one more of a begin.
			time.Sleep(1500 * time.Millisecond)
			return nil
		})
		log := openLog(t, name, LogConfig{})
		ended, why := w.run(t.Context(), mixed(20, "ab"), Config[string]{Log: log})
		if !errors.Is(why, sluice.ErrServerWait) {
			t.Error(why)
		}
		delete(ended, "b")
		wantText(t, summary(ended), "a unfinished 20 from 1 to 1")
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		log = openLog(t, name, LogConfig{Mode: Resume})
		defer log.Close()
		if ok, failed := log.OK, log.Failed; ok != 20 || failed != 0 {
			t.Errorf("the log has %d ok, %d failed", ok, failed)
		}
	})
}

// Items that were held when the batch ended are unfinished, whatever ended it.
func TestConfig_Group_TheBatchEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		halt Halt
		stop bool // else the context is canceled
		want string
		or   string // with ExternalGate the next item may begin before the outcome of the last one is counted
	}{
		{"stop", Halt{}, true, "a 3 from 1 to 3; a unfinished 97 from 2.5 to 2.5", ""},
		{"cancel", Halt{}, false, "a 2 from 1 to 2; a unfinished 98 from 2.5 to 2.5", ""},
		{"halt", Halt{Successes: 2}, true, "a 2 from 1 to 2; a unfinished 98 from 2 to 2", "a 3 from 1 to 3; a unfinished 97 from 2 to 2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := make(chan struct{})
			timer := time.AfterFunc(2500*time.Millisecond, func() {
				if tt.stop {
					close(stop)
				} else {
					cancel()
				}
			})
			defer timer.Stop()
			w := newWeb(t, 1, "a", func(ctx context.Context, _ string) error {
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			ended, why := w.run(ctx, mixed(100, "a"), Config[string]{Stop: stop, Halt: tt.halt})
			if why == nil {
				t.Error("no error")
			}
			slices.Sort(ended["a unfinished"])
			if got := summary(ended); tt.or == "" || got != tt.or {
				wantText(t, got, tt.want)
			}
		})
	}
}

// When all items of a group fail immediately, a Halt counts them one by one.
func TestConfig_Group_HaltCountsThoseSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, 2, "ab", func(_ context.Context, item string) error {
			time.Sleep(time.Second)
			if host(item) == "a" {
				return errDown
			}
			return nil
		})
		w.retry.Attempts = 1
		ended, why := w.run(t.Context(), mixed(500, "ab"), Config[string]{Halt: Halt{Fails: 100}})
		if n := len(ended["a failed"]) + len(ended["a aside"]); !errors.Is(why, ErrHalted) || n < 100 || n > 102 { // two may be in flight
			t.Errorf("%d failed: %v", n, why)
		}
	})
}
