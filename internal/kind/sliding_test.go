package kind

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

const sec = time.Second

// A step is one Take at a time and what is to be answered.
type step struct {
	at, wait int // seconds; the wait of a rejection, -1 for never
	n        int64
	allowed  bool
	left     int64 // remaining
	reset    int   // seconds
}

func check(t *testing.T, name string, s step, got limits.Result, limit int64) {
	t.Helper()
	want := limits.Result{Limit: limit, Remaining: s.left, RetryAfter: time.Duration(s.wait) * sec, ResetAfter: time.Duration(s.reset) * sec}
	if s.wait < 0 {
		want.RetryAfter = limits.Never
	}
	if got != want || got.Allowed() != s.allowed {
		t.Errorf("%s: take %d at %d s: %+v, want %+v", name, s.n, s.at, got, want)
	}
}

func TestSliding_Take(t *testing.T) {
	for name, steps := range map[string][]step{
		"the design comment": {
			{at: 0, n: 1, allowed: true, left: 2, reset: 10},
			{at: 4, n: 1, allowed: true, left: 1, reset: 10},
			{at: 4, n: 1, allowed: true, left: 0, reset: 10},
			{at: 7, n: 1, wait: 3, reset: 7},
			{at: 9, n: 1, wait: 1, reset: 5},
			{at: 10, n: 1, allowed: true, reset: 10}, // the call at 0 has just left: windows are half open
			{at: 13, n: 1, wait: 1, reset: 7},
			{at: 14, n: 1, allowed: true, left: 1, reset: 10}, // two leave at 14
		},
		"weights": {
			{at: 0, n: 2, allowed: true, left: 1, reset: 10},
			{at: 1, n: 1, allowed: true, left: 0, reset: 10},
			{at: 2, n: 1, wait: 8, reset: 9},
			{at: 2, n: 2, wait: 8, reset: 9}, // the two at 0 leave together
			{at: 2, n: 3, wait: 9, reset: 9},
			{at: 2, n: 4, wait: -1, reset: 9}, // never
			{at: 2, n: 0, allowed: true, reset: 9},
			{at: 10, n: 3, wait: 1, left: 2, reset: 1},
			{at: 10, n: 2, allowed: true, reset: 10},
		},
		"idle": {
			{at: 0, n: 0, allowed: true, left: 3}, // leaves no trace
			{at: 0, n: 4, wait: -1, left: 3},
			{at: 5, n: 3, allowed: true, reset: 10},
			{at: 1000, n: 0, allowed: true, left: 3},
			{at: 1000, n: 3, allowed: true, reset: 10},
		},
		"the clock steps back: nothing minted, nothing lost": {
			{at: 100, n: 2, allowed: true, left: 1, reset: 10},
			{at: 50, n: 1, allowed: true, left: 0, reset: 10}, // at 100
			{at: 50, n: 1, wait: 10, reset: 10},
			{at: 0, n: 0, allowed: true, reset: 10},
			{at: 109, n: 1, wait: 1, reset: 1},
			{at: 110, n: 3, allowed: true, reset: 10},
			{at: 125, n: 0, allowed: true, left: 3},
			{at: 115, n: 3, allowed: true, reset: 10}, // at 125
			{at: 126, n: 1, wait: 9, reset: 9},
		},
	} {
		var h SlidingState
		for _, s := range steps {
			check(t, name, s, Sliding{3, 10 * sec}.Take(&h, time.Duration(s.at)*sec, s.n), 3)
		}
	}
}

func TestSliding_Adjust(t *testing.T) {
	var h SlidingState
	r := Sliding{3, 10 * sec}
	r.Take(&h, 0, 2)
	r.Adjust(&h, 1*sec, 4, 0) // six, three too many
	check(t, "debt", step{at: 2, n: 1, wait: 9, reset: 9}, r.Take(&h, 2*sec, 1), 3)
	r.Adjust(&h, 2*sec, -3, 0) // 2 at 0, 1 at 1
	check(t, "given back", step{at: 2, n: 1, wait: 8, reset: 9}, r.Take(&h, 2*sec, 1), 3)
	r.Adjust(&h, 2*sec, -2, 0) // the one at 1 and one of those at 0
	check(t, "given back from an older run", step{at: 2, n: 1, allowed: true, left: 1, reset: 10}, r.Take(&h, 2*sec, 1), 3)
	r.Adjust(&h, 2*sec, math.MinInt64, 0)
	check(t, "everything", step{at: 2, allowed: true, left: 3}, r.Take(&h, 2*sec, 0), 3)
	r.Adjust(&h, 3*sec, -1, 0)
	r.Adjust(&h, 3*sec, math.MaxInt64, 0)
	r.Adjust(&h, 4*sec, math.MaxInt64, 0)
	r.Adjust(&h, 4*sec, 1, 0)
	check(t, "all there is", step{at: 4, n: 1, wait: 9, reset: 9}, r.Take(&h, 4*sec, 1), 3)
	check(t, "a whole window later", step{at: 14, n: 3, allowed: true, reset: 10}, r.Take(&h, 14*sec, 3), 3)

	// Two runs where there is room for one: merged, not dropped, and not moved
	// to where they would leave too early.
	h = SlidingState{}
	Sliding{1, 10 * sec}.Adjust(&h, 0, 1, 0)
	Sliding{1, 10 * sec}.Adjust(&h, 1*sec, 1, 0)
	Sliding{1, 10 * sec}.Adjust(&h, 1*sec, -1, 0)
	check(t, "merged and given back", step{at: 2, n: 1, wait: 9, reset: 9}, Sliding{1, 10 * sec}.Take(&h, 2*sec, 1), 1)

	huge := Sliding{math.MaxInt64, 10 * sec}
	h = SlidingState{}
	for _, n := range []int64{math.MaxInt64 - 1, 1} {
		if got := huge.Take(&h, 0, n); !got.Allowed() {
			t.Errorf("%d of %d: %+v", n, huge.Limit, got)
		}
	}
	if got := huge.Take(&h, 1, math.MaxInt64); got.RetryAfter != 10*sec-1 || got.Remaining != 0 {
		t.Errorf("all of it once more: %+v", got)
	}
	huge.Take(&h, 10*sec, math.MaxInt64) // the count since the beginning wraps around
	if got := huge.Take(&h, 10*sec, 1); got.RetryAfter != 10*sec {
		t.Errorf("after the count wrapped around: %+v", got)
	}
}

func TestSliding_MemoryIsBounded(t *testing.T) {
	var h SlidingState
	r := Sliding{1000, sec}
	now := time.Duration(0)
	for range 5000 {
		now++
		r.Take(&h, now, 1)
		r.Adjust(&h, now, 1, 0) // far beyond the limit
	}
	if h.n > 1000 || len(h.ring) > 1000 {
		t.Errorf("%d runs in %d places for a limit of 1000", h.n, len(h.ring))
	}
	for range 3 {
		now += sec
		r.Take(&h, now, 1)
	}
	if len(h.ring) > minRing {
		t.Errorf("%d places after an idle window, want at most %d", len(h.ring), minRing)
	}
	Sliding{math.MaxInt64, sec}.Take(&h, now, 1)
	if len(h.ring) > minRing {
		t.Errorf("%d places for one call of many", len(h.ring))
	}
}

// atMost fails unless every window has at most as many of calls as the rule
// says: it is enough to look at the windows that begin with a call.
func atMost(t testing.TB, calls []time.Duration, r Sliding) {
	t.Helper()
	if err := exceeds(calls, r); err != nil {
		t.Error(err)
	}
}

func exceeds(calls []time.Duration, r Sliding) error {
	for _, from := range calls {
		var n int64
		for _, at := range calls {
			if at >= from && at-from < r.Window {
				n++
			}
		}
		if n > r.Limit {
			return fmt.Errorf("%d calls in the %v from %v, limit %d", n, r.Window, from, r.Limit)
		}
	}
	return nil
}

func TestExceeds_CanFail(t *testing.T) {
	r := Sliding{2, 10}
	for _, c := range []struct {
		calls []time.Duration
		bad   bool
	}{
		{[]time.Duration{0, 5, 10, 15}, false},
		{[]time.Duration{0, 5, 9}, true},
		{[]time.Duration{0, 0, 0}, true},
		{[]time.Duration{0, 5, 10, 15, 24, 24}, true},
	} {
		if got := exceeds(c.calls, r); (got != nil) != c.bad {
			t.Errorf("%v: %v", c.calls, got)
		}
	}
}

// No window of length W holds more than N, and none that could hold N more
// holds fewer: a caller that takes whatever it gets, gets N per W.
func TestSliding_NoWindowHoldsMore(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		r := Sliding{1 + rnd.Int64N(20), time.Duration(1 + rnd.Int64N(1000))}
		pace := 1 + rnd.Int64N(2*int64(r.Window)/r.Limit+2)
		var h SlidingState
		var calls []time.Duration
		var now time.Duration
		for range 1000 {
			now += time.Duration(rnd.Int64N(pace))
			n := 1 + rnd.Int64N(min(3, r.Limit))
			res := r.Take(&h, now, n)
			if !res.Allowed() {
				// Not a nanosecond earlier, and then indeed.
				early := h
				early.ring = slices.Clone(h.ring)
				if r.Take(&early, now+res.RetryAfter-1, n).Allowed() {
					t.Fatalf("seed %d: fits before the wait is over", seed)
				}
				if rnd.IntN(2) == 0 {
					continue
				}
				now += res.RetryAfter
				if !r.Take(&h, now, n).Allowed() {
					t.Fatalf("seed %d: does not fit when the wait is over", seed)
				}
			}
			calls = append(calls, slices.Repeat([]time.Duration{now}, int(n))...)
		}
		atMost(t, calls, r)
	}
}

// Merging runs beyond the limit is exact: answers are those of a model that
// merges nothing, as long as nothing is returned.
func TestSliding_AdjustMergesExactly(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		r := Sliding{1 + rnd.Int64N(5), 100}
		var h SlidingState
		var m slidingModel
		var now time.Duration
		for range 200 {
			now += time.Duration(rnd.Int64N(30))
			n := rnd.Int64N(6)
			if rnd.IntN(3) == 0 {
				r.Adjust(&h, now, n, 0)
				m.adjust(now, r, n, 0)
				continue
			}
			if got, want := r.Take(&h, now, n), m.take(now, r, n); got != want {
				t.Fatalf("seed %d, limit %d: take %d at %d: %+v, model says %+v", seed, r.Limit, n, int(now), got, want)
			}
		}
	}
}

func TestSliding_ResultErr(t *testing.T) {
	var h SlidingState
	Sliding{3, sec}.Take(&h, 0, 3)
	if err := (Sliding{3, sec}).Take(&h, 0, 4).Err(); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("4 of 3: %v", err)
	}
	if err := (Sliding{3, sec}).Take(&h, 0, 1).Err(); err != nil {
		t.Errorf("a refusal that ends: %v", err)
	}
}

func TestSlidingState_AllAndRecord(t *testing.T) {
	r := Sliding{Limit: 5, Window: 10 * sec}
	var s SlidingState
	for i, n := range []int64{1, 2, 1, 1} {
		r.Take(&s, time.Duration(3*i)*sec, n)
	}
	r.Advance(&s, 10*sec) // the first has left
	var again SlidingState
	r.Advance(&again, 0)
	var all []string
	for at, n := range s.All() {
		all = append(all, fmt.Sprint(at, " ", n))
		r.Record(&again, at-10*sec, n) // as a state that is restored at 0
	}
	if got := fmt.Sprint(all); got != "[3s 2 6s 1 9s 1]" || s.Len() != 3 || again.Len() != 3 {
		t.Errorf("recorded: %s, %d and %d instants", got, s.Len(), again.Len())
	}
	for n := range int64(7) {
		if got, want := r.Take(&again, 0, n), r.Take(&s, 10*sec, n); got != want {
			t.Errorf("%d of the restored state: %+v, want %+v", n, got, want)
		}
	}
	for range s.All() {
		break // an iteration may end early
	}
}

func TestSliding_Idle(t *testing.T) {
	r := Sliding{Limit: 5, Window: 10 * sec}
	s := new(SlidingState)
	if !r.Idle(nil, 0) || !r.Idle(s, 0) {
		t.Error("a new state is not idle")
	}
	r.Take(s, 3*sec, 1)
	r.Take(s, 5*sec, 1)
	if r.Idle(s, 15*sec-1) || !r.Idle(s, 15*sec) {
		t.Error("idle before the newest has left, or not after")
	}
}

// What has left the window before does not matter to what is returned.
func TestSliding_Adjust_AfterSomeHaveLeft(t *testing.T) {
	r := Sliding{Limit: 5, Window: 10 * sec}
	for _, v := range []struct {
		delta int64
		age   time.Duration
		runs  string
	}{
		{-1, 6 * sec, "[4s 1 7s 1 10s 2]"},
		{-2, 6 * sec, "[7s 1 10s 2]"},
		{-3, 6 * sec, "[7s 1 10s 2]"},
		{-2, 3 * sec, "[4s 1 10s 2]"},
		{-1, 0, "[4s 2 7s 1 10s 1]"},
		{-4, 0, "[4s 1]"},
		{-5, 0, "[]"},
		{-100, 0, "[]"},
		{-100, 6 * sec, "[7s 1 10s 2]"},
		{3, 0, "[4s 2 7s 1 10s 5]"},
	} {
		var s SlidingState
		for _, at := range []time.Duration{0, 0, 4, 4, 7, 10, 10} { // those at 0 have left at 10
			if !r.Take(&s, at*sec, 1).Allowed() {
				t.Fatalf("refused at %d", at)
			}
		}
		r.Adjust(&s, 10*sec, v.delta, v.age)
		runs := []string{}
		for at, n := range s.All() {
			runs = append(runs, fmt.Sprint(at, " ", n))
		}
		if got := fmt.Sprint(runs); got != v.runs {
			t.Errorf("%d of %v ago: %s, want %s", v.delta, v.age, got, v.runs)
		}
	}
}
