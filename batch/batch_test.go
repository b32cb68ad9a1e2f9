package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

func newGate(t testing.TB, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	gate, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// count is an input of 0 to n-1.
func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// endless is an input without an end, and notes how far it was read.
func endless(read *int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; ; *read++ {
			if !yield(*read) {
				return
			}
		}
	}
}

// history writes results as "item@time:outcome", in the order in which they
// came, and the reason why the batch ended. If they came unordered, those of
// one time are in the order of the items: the scheduler has its own.
func history[Out any](ordered bool, results iter.Seq2[Result[int, Out], error]) string {
	type event struct {
		at   time.Duration
		item int
		text string
	}
	var all []event
	start := time.Now()
	for r, err := range results {
		e := event{time.Since(start), r.In, "ok"}
		switch {
		case err != nil:
			e.item, e.text = math.MaxInt, err.Error()
		case errors.Is(r.Err, ErrUnfinished):
			e.text = "unfinished"
		case r.Err != nil:
			e.text = "failed"
		}
		all = append(all, e)
	}
	if !ordered {
		slices.SortStableFunc(all, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.item, b.item)) })
	}
	var b strings.Builder
	for _, e := range all {
		name := strconv.Itoa(e.item)
		if e.item == math.MaxInt {
			name = "end"
		}
		fmt.Fprintf(&b, " %s@%v:%s", name, e.at, e.text)
	}
	return strings.TrimPrefix(b.String(), " ")
}

// takes returns a function that takes as many seconds as said for the item.
func takes(seconds ...int) func(ctx context.Context, item int) (struct{}, error) {
	return func(ctx context.Context, item int) (struct{}, error) {
		select {
		case <-time.After(time.Duration(seconds[item%len(seconds)]) * time.Second):
			return struct{}{}, nil
		case <-ctx.Done():
			return struct{}{}, ctx.Err()
		}
	}
}

// Calls start at the pace, and come back as they are completed or in order.
func TestMap_Order(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config[int]
		want string
	}{
		{"as completed", Config[int]{}, "1@2s:ok 2@3s:ok 3@4s:ok 0@5s:ok 4@9s:ok"},
		{"ordered", Config[int]{Ordered: true}, "0@5s:ok 1@5s:ok 2@5s:ok 3@5s:ok 4@9s:ok"},
		// 3 can only be read when 0 is done with.
		{"ordered, few ahead", Config[int]{Ordered: true, ReadAhead: 3}, "0@5s:ok 1@5s:ok 2@5s:ok 3@6s:ok 4@11s:ok"},
		{"one by one", Config[int]{ReadAhead: 1}, "0@5s:ok 1@6s:ok 2@7s:ok 3@8s:ok 4@13s:ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
				got := history(tt.cfg.Ordered, Map(t.Context(), gate, count(5), takes(5, 1, 1, 1, 5), tt.cfg))
				if got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// The input is read only as far as there is room, and the room is that of the
// loop: what it is not done with counts.
func TestMap_Ahead(t *testing.T) {
	for _, tt := range []struct {
		concurrency int64
		ahead, want int
	}{{3, 0, 6}, {3, 4, 4}, {0, 7, 7}, {0, 0, 1000}, {1, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate(t, sluice.Config{Concurrency: tt.concurrency})
			read, seen := 0, 0
			for _, err := range Map(t.Context(), gate, endless(&read), takes(0), Config[int]{ReadAhead: tt.ahead}) {
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // everything else blocks
				// endless counts an item when the next one is asked for, so
				// those that were read and taken up are all but the last.
				if out := read + 1 - seen; out != tt.want {
					t.Fatalf("%+v: after %d results %d items are out", tt, seen, out)
				}
				if seen++; seen == 10 {
					break
				}
			}
			if seen != 10 {
				t.Errorf("%d results", seen)
			}
		})
	}
}

// An empty input is no mistake.
func TestMap_EmptyInput(t *testing.T) {
	if got := history(false, Map(t.Context(), newGate(t, sluice.Config{}), count(0), takes(0), Config[int]{})); got != "" {
		t.Errorf("got %s", got)
	}
}

// A break cancels what is in flight, waits for it, and leaves nothing behind.
func TestMap_Break(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Concurrency: 4})
		start := time.Now()
		read := 0
		var cleaned atomic.Int64
		for r, err := range Map(t.Context(), gate, endless(&read), func(ctx context.Context, item int) (int, error) {
			if item == 2 {
				time.Sleep(time.Second)
				return 0, nil
			}
			<-ctx.Done()
			time.Sleep(time.Minute) // to clean up
			cleaned.Add(1)
			return 0, ctx.Err()
		}, Config[int]{ReadAhead: 3}) {
			if r.In != 2 || r.Err != nil || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
			break
		}
		if took := time.Since(start); took != time.Second+time.Minute {
			t.Errorf("the break took %v", took)
		}
		if s := gate.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("left in the gate: %+v", s)
		}
		if cleaned.Load() != 2 {
			t.Errorf("%d calls had cleaned up, want 2", cleaned.Load())
		}
	})
}

// A panic of the loop flies on, after the same.
func TestMap_LoopPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, sluice.Config{Concurrency: 4})
		read := 0
		defer func() {
			if p := recover(); p != "the loop" {
				t.Errorf("recovered %v", p)
			}
			if s := gate.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("left in the gate: %+v", s)
			}
		}()
		for range Map(t.Context(), gate, endless(&read), takes(0, 10), Config[int]{}) {
			panic("the loop")
		}
	})
}

// Each way for a batch to end, with what is in flight, in a retry and ahead.
// Item 0 is ok after 1 s; 1 fails at 1 s and for good at 3 s; the others take 5 s. The
// gate lets two of them in.
func TestMap_EndsEarly(t *testing.T) {
	errBroken := errors.New("broken")
	f := func(ctx context.Context, item int) (int, error) {
		_, err := takes(1, 1, 5, 5, 5, 5)(ctx, item)
		if item == 1 && err == nil {
			err = errBroken
		}
		return 0, err
	}
	policy := sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(time.Second)}
	tests := []struct {
		name string
		gate sluice.Config
		cfg  Config[int]
		act  func(gate *sluice.Gate, cancel, stop func()) // in a goroutine
		want string
	}{
		{name: "all of it",
			want: "0@1s:ok 1@3s:failed 2@5s:ok 3@5s:ok 4@5s:ok 5@5s:ok"},
		{name: "soon after the first failure", cfg: Config[int]{Halt: Halt{Fails: 1}},
			want: "0@1s:ok 1@3s:failed 2@5s:ok 3@5s:ok 4@5s:ok 5@5s:ok end@5s:batch: halted: 1 of 2 items failed"},
		{name: "now after the first failure", cfg: Config[int]{Halt: Halt{Now: true, Fails: 1}},
			want: "0@1s:ok 1@3s:failed 2@3s:unfinished 3@3s:unfinished 4@3s:unfinished 5@3s:unfinished end@3s:batch: halted: 1 of 2 items failed"},
		{name: "soon after a success", cfg: Config[int]{Halt: Halt{Successes: 1}},
			want: "0@1s:ok 1@1s:unfinished 2@5s:ok 3@5s:ok 4@5s:ok 5@5s:ok end@5s:batch: halted: 1 item is ok"},
		{name: "now after a success", cfg: Config[int]{Halt: Halt{Now: true, Successes: 1}},
			want: "0@1s:ok 1@1s:unfinished 2@1s:unfinished 3@1s:unfinished 4@1s:unfinished 5@1s:unfinished end@1s:batch: halted: 1 item is ok"},
		{name: "stop in a retry", act: func(_ *sluice.Gate, _, stop func()) { time.Sleep(1500 * time.Millisecond); stop() },
			want: "0@1s:ok 1@1.5s:unfinished 2@5s:ok 3@5s:ok 4@5s:ok 5@5s:ok end@5s:batch: stopped"},
		{name: "stop before a failure", act: func(_ *sluice.Gate, _, stop func()) { time.Sleep(500 * time.Millisecond); stop() },
			want: "0@1s:ok 1@1s:unfinished 2@5s:ok 3@5s:ok 4@5s:ok 5@5s:ok end@5s:batch: stopped"},
		{name: "stop with some ahead", gate: sluice.Config{Concurrency: 1},
			act:  func(_ *sluice.Gate, _, stop func()) { time.Sleep(500 * time.Millisecond); stop() },
			want: "1@500ms:unfinished 0@1s:ok end@1s:batch: stopped"},
		{name: "stop, then cancel", act: func(_ *sluice.Gate, cancel, stop func()) {
			time.Sleep(1500 * time.Millisecond)
			stop()
			time.Sleep(time.Second)
			cancel()
		}, want: "0@1s:ok 1@1.5s:unfinished 2@2.5s:unfinished 3@2.5s:unfinished 4@2.5s:unfinished 5@2.5s:unfinished end@2.5s:batch: stopped"},
		{name: "cancel", act: func(_ *sluice.Gate, cancel, _ func()) { time.Sleep(2500 * time.Millisecond); cancel() },
			want: "0@1s:ok 1@2.5s:unfinished 2@2.5s:unfinished 3@2.5s:unfinished 4@2.5s:unfinished 5@2.5s:unfinished end@2.5s:context canceled"},
		{name: "the gate is closed", gate: sluice.Config{Concurrency: 2},
			act:  func(gate *sluice.Gate, _, _ func()) { time.Sleep(500 * time.Millisecond); gate.Close() },
			want: "2@500ms:unfinished 3@500ms:unfinished 0@1s:ok 1@1s:unfinished end@1s:sluice: closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				tt.cfg.Stop, tt.cfg.Retry = stop, policy
				gate := newGate(t, tt.gate)
				if tt.act != nil {
					go tt.act(gate, cancel, func() { close(stop) })
				}
				got := history(false, Map(ctx, gate, count(6), f, tt.cfg))
				if got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				if s := gate.Stats(); s.InFlight != 0 || s.Waiting != 0 {
					t.Errorf("left in the gate: %+v", s)
				}
			})
		})
	}
}

// OnStop is called once, immediately, with the reason: then an input that blocks can give up.
func TestConfig_Ending(t *testing.T) {
	type ended struct {
		why string
		at  time.Duration
	}
	for name, tt := range map[string]struct {
		halt Halt
		act  func(cancel, stop func())
		left bool // whether the loop is left at the first result
		want []ended
	}{
		"halted":        {halt: Halt{Successes: 1}, want: []ended{{"batch: halted: 1 item is ok", time.Second}}},
		"halted, twice": {halt: Halt{Successes: 1}, act: func(cancel, _ func()) { time.Sleep(2 * time.Second); cancel() }, want: []ended{{"batch: halted: 1 item is ok", time.Second}}},
		"stopped":       {act: func(_, stop func()) { time.Sleep(time.Minute); stop() }, want: []ended{{"batch: stopped", time.Minute}}},
		"cancelled":     {act: func(cancel, _ func()) { time.Sleep(time.Minute); cancel() }, want: []ended{{"context canceled", time.Minute}}},
		"left":          {left: true, want: []ended{{"batch: the loop was left", time.Second}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop, ending := make(chan struct{}), make(chan struct{})
			if tt.act != nil {
				go tt.act(cancel, func() { close(stop) })
			}
			start := time.Now()
			var got []ended
			blocks := func(yield func(int) bool) {
				if yield(0) && yield(1) {
					<-ending // as from a pipe without a writer
				}
			}
			for range Map(ctx, newGate(t, sluice.Config{}), blocks, takes(1, 5), Config[int]{
				Halt: tt.halt, Stop: stop,
				OnStop: func(why error) {
					got = append(got, ended{why.Error(), time.Since(start)})
					close(ending)
				},
			}) {
				if tt.left {
					break
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: got %v, want %v", name, got, tt.want)
			}
		})
	}
	// A batch that comes to its end does not end early.
	if err := ForEach(t.Context(), newGate(t, sluice.Config{}), count(3), func(context.Context, int) error { return nil },
		Config[int]{OnStop: func(why error) { t.Errorf("ended for %v", why) }}); err != nil {
		t.Error(err)
	}
}

// The context is done before the batch begins: nothing is read.
func TestMap_ContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := func(func(int) bool) { t.Error("read") }
	synctest.Test(t, func(t *testing.T) {
		if got := history(false, Map(ctx, newGate(t, sluice.Config{}), in, takes(0), Config[int]{})); got != "end@0s:context canceled" {
			t.Errorf("got %s", got)
		}
	})
}

// ForEach says which of the two it was: items failed, or the batch ended early.
func TestForEach_Errors(t *testing.T) {
	gate := newGate(t, sluice.Config{})
	errOdd := errors.New("odd")
	odd := func(_ context.Context, i int) error {
		if i%2 == 1 {
			return sluice.Permanent(fmt.Errorf("%d: %w", i, errOdd))
		}
		return nil
	}
	err := ForEach(t.Context(), gate, count(5), odd, Config[int]{ReadAhead: 1})
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), ": 2 of 5, the first") || !errors.Is(err, errOdd) || errors.Is(err, ErrHalted) {
		t.Errorf("%v", err)
	}
	if !strings.HasSuffix(err.Error(), ": 1: odd") {
		t.Errorf("not the first one: %v", err)
	}
	err = ForEach(t.Context(), gate, count(5), odd, Config[int]{ReadAhead: 1, Halt: Halt{Fails: 1}})
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), ": 1 of 2, the first") || !errors.Is(err, ErrHalted) {
		t.Errorf("%v", err)
	}
	err = ForEach(t.Context(), gate, count(9), odd, Config[int]{ReadAhead: 1, Halt: Halt{Successes: 1}})
	if errors.Is(err, ErrFailed) || !errors.Is(err, ErrHalted) {
		t.Errorf("%v", err)
	}
	if err := ForEach(t.Context(), gate, count(1), odd, Config[int]{}); err != nil {
		t.Error(err)
	}
}

func TestMap_BadConfig(t *testing.T) {
	gate := newGate(t, sluice.Config{})
	for name, cfg := range map[string]Config[int]{
		"negative Ahead": {ReadAhead: -1},
		"negative Fails": {Halt: Halt{Fails: -1}},
		"needs a Key":    {Log: new(Log)},
	} {
		in := func(func(int) bool) { t.Error("read") }
		if err := ForEach(t.Context(), gate, in, func(context.Context, int) error { return nil }, cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMap_PanicsForNil(t *testing.T) {
	var nilContext context.Context
	gate := newGate(t, sluice.Config{})
	f := func(context.Context, int) (int, error) { return 0, nil }
	for want, call := range map[string]func(){
		"batch: nil context":  func() { Map(nilContext, gate, count(1), f, Config[int]{}) },
		"batch: nil gate":     func() { Map(t.Context(), nil, count(1), f, Config[int]{}) },
		"batch: nil input":    func() { Map(t.Context(), gate, nil, f, Config[int]{}) },
		"batch: nil function": func() { Map[int, int](t.Context(), gate, count(1), nil, Config[int]{}) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panicked with %v, want %s", got, want)
				}
			}()
			call()
		}()
	}
}
