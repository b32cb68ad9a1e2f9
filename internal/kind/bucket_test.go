package kind

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/limits"
)

// must returns the algorithm of a rate.
func must(rate limits.Rate) Bucket { return limits.Must(NewBucket(rate)) }

// A visit asks at a time for n and expects the reply of CL.THROTTLE.
type visit struct {
	at   time.Duration
	n    int64
	cell string
}

func at(seconds float64, n int64, cell string) visit {
	return visit{time.Duration(math.Round(seconds * 1e9)), n, cell}
}

func text(five [5]int64) string { return strings.Trim(fmt.Sprint(five), "[]") }

// The worked vectors were replayed on redis-cell 0.5.0 with a frozen clock;
// the quota is max_burst + 1, count, period.
func TestBucket_TakeAsRedisCell(t *testing.T) {
	for _, v := range []struct {
		name   string
		rate   limits.Rate
		visits []visit
	}{
		{"V1 the README", limits.Rate{Count: 30, Per: 60 * sec, Burst: 16}, []visit{
			at(0, 1, "0 16 15 -1 2"), at(0, 1, "0 16 14 -1 4"),
		}},
		{"V2 five, one per second", limits.Rate{Count: 1, Per: sec, Burst: 5}, []visit{
			at(0, 6, "1 5 5 -1 0"), // more than the limit: never, and the bucket as it is
			at(0, 1, "0 5 4 -1 1"), at(0, 1, "0 5 3 -1 2"), at(0, 1, "0 5 2 -1 3"), at(0, 1, "0 5 1 -1 4"), at(0, 1, "0 5 0 -1 5"),
			at(0, 1, "1 5 0 1 5"),
			at(3, 1, "0 5 2 -1 3"), at(3.1, 1, "0 5 1 -1 4"), at(4, 1, "0 5 1 -1 4"), at(8, 1, "0 5 4 -1 1"),
			at(9.5, 1, "0 5 4 -1 1"), at(9.5, 0, "0 5 4 -1 1"), at(9.5, 2, "0 5 2 -1 3"), at(9.5, 5, "1 5 2 3 3"),
		}},
		{"V3 sixteen, one per two seconds", limits.Rate{Count: 30, Per: 60 * sec, Burst: 16}, []visit{
			at(0, 1, "0 16 15 -1 2"), at(0, 4, "0 16 11 -1 10"), at(0, 11, "0 16 0 -1 32"), at(0, 1, "1 16 0 2 32"),
			at(1.999, 1, "1 16 0 1 31"), at(2, 1, "0 16 0 -1 32"), // exactly when it fits
			at(2, 17, "1 16 0 -1 32"), at(2, 0, "0 16 0 -1 32"),
			at(42, 0, "0 16 16 -1 0"), at(42, 16, "0 16 0 -1 32"), at(42, 1, "1 16 0 2 32"),
		}},
		{"V4 seven per minute, floored to 8,571,428,571 ns", limits.Rate{Count: 7, Per: 60 * sec, Burst: 3}, []visit{
			at(0, 1, "0 3 2 -1 9"), at(0, 1, "0 3 1 -1 18"), at(0, 1, "0 3 0 -1 26"), at(0, 1, "1 3 0 9 26"),
			at(8.571428570, 1, "1 3 0 0 18"), at(8.571428571, 1, "0 3 0 -1 26"),
		}},
		{"V5 less than a millisecond is 0 seconds", limits.Rate{Count: 1, Per: sec, Burst: 1}, []visit{
			at(0, 1, "0 1 0 -1 1"), at(0.9991, 1, "1 1 0 0 0"), at(1, 1, "0 1 0 -1 1"),
		}},
		{"V6 two of one", limits.Rate{Count: 1, Per: sec, Burst: 1}, []visit{at(0, 2, "1 1 1 -1 0")}},
		{"V6 none of one", limits.Rate{Count: 1, Per: sec, Burst: 1}, []visit{at(0, 0, "0 1 1 -1 0")}},
		{"V8 the clock steps back", limits.Rate{Count: 1, Per: sec, Burst: 5}, []visit{
			at(0, 3, "0 5 2 -1 3"), at(-10, 1, "1 5 0 9 13"),
			at(0, 0, "0 5 2 -1 3"), // and comes back: nothing minted, nothing lost
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := must(v.rate)
			tat := time.Duration(0)
			if v.visits[0].at == 0 {
				tat = -sec // a fresh key
			}
			for _, visit := range v.visits {
				var res limits.Result
				tat, res = r.Take(tat, visit.at, visit.n)
				if got := text(oracle.Cell(res)); got != visit.cell {
					t.Errorf("%d at %v: %s, redis-cell said %s", visit.n, visit.at, got, visit.cell)
				}
			}
		})
	}
}

func TestBucket_TakeIsExact(t *testing.T) {
	r := must(limits.Rate{Count: 1, Per: sec, Burst: 5})
	var tat time.Duration
	for range 5 {
		tat, _ = r.Take(tat, 0, 1)
	}
	tat, _ = r.Take(tat, 3*sec, 1)
	tat, res := r.Take(tat, 3100*time.Millisecond, 1)
	if res.ResetAfter != 3900*time.Millisecond || tat != 7*sec {
		t.Errorf("reset after %v, empty at %v; want 3.9s, 7s", res.ResetAfter, tat)
	}
}

// Debt is time: redis-cell keeps it when the quota of a key changes.
func TestBucket_FitsAfterChangesOfRateAsInRedisCell(t *testing.T) {
	before, smaller, faster := must(limits.Rate{Count: 30, Per: 60 * sec, Burst: 16}), must(limits.Rate{Count: 30, Per: 60 * sec, Burst: 4}), must(limits.Rate{Count: 300, Per: 60 * sec, Burst: 16})
	tat, _ := before.Take(0, 0, 16)
	for _, v := range []struct {
		rule *Bucket
		n    int64
		cell string
	}{
		{&before, 0, "0 16 0 -1 32"},
		{&smaller, 1, "1 4 0 26 32"},
		{&smaller, 0, "1 4 0 24 32"}, // even nothing does not fit
		{&faster, 1, "1 16 0 29 32"},
	} {
		res := v.rule.Result(v.rule.Fits(tat, v.n))
		if got := text(oracle.Cell(res)); got != v.cell {
			t.Errorf("%d of %d at %v: %s, redis-cell said %s", v.n, v.rule.Capacity(), v.rule.Interval(), got, v.cell)
		}
	}
}

// The transcript that the tutorials copy from each other was made with
// redis-cell ≤ 0.3.0, which floors seconds; the times are not in it, but
// these fit, and 0.3.0 replied exactly this.
func TestBucket_TakeAsInTheTutorials(t *testing.T) {
	r := must(limits.Rate{Count: 30, Per: 60 * sec, Burst: 16})
	var now, tat time.Duration
	for i, v := range []struct {
		pause  float64
		n      int64
		legacy string
		cell   string
	}{
		{0, 1, "0 16 15 -1 2", "0 16 15 -1 2"},
		{5, 4, "0 16 12 -1 8", "0 16 12 -1 8"},
		{1.5, 4, "0 16 8 -1 14", "0 16 8 -1 15"},
		{2, 4, "0 16 5 -1 20", "0 16 5 -1 21"},
		{1, 4, "0 16 2 -1 27", "0 16 2 -1 28"},
		{1, 4, "1 16 2 2 26", "1 16 2 3 27"},
		{3, 4, "0 16 0 -1 31", "0 16 0 -1 32"},
		{3, 17, "1 16 1 -1 28", "1 16 1 -1 29"},
		{30, 17, "1 16 16 -1 0", "1 16 16 -1 0"},
	} {
		now += time.Duration(v.pause * 1e9)
		var res limits.Result
		tat, res = r.Take(tat, now, v.n)
		if got := text(oracle.CellLegacy(res)); got != v.legacy {
			t.Errorf("call %d: %s, the transcript says %s", i+1, got, v.legacy)
		}
		if got := text(oracle.Cell(res)); got != v.cell {
			t.Errorf("call %d, current rounding: %s, want %s", i+1, got, v.cell)
		}
	}
}

// The field's classic slip is by one: the burst of redis-cell does not include
// the first call, our capacity does.
func TestBucket_CapacityIncludesTheFirst(t *testing.T) {
	r := must(limits.Rate{Count: 1, Per: sec, Burst: 3})
	var tat time.Duration
	var allowed []bool
	for range 4 {
		var res limits.Result
		tat, res = r.Take(tat, 0, 1)
		allowed = append(allowed, res.Allowed())
	}
	if got := fmt.Sprint(allowed); got != "[true true true false]" {
		t.Errorf("capacity 3, four at once: %s", got)
	}
}

func TestCell_Rounding(t *testing.T) {
	for _, v := range []struct {
		d              time.Duration
		legacy, rounds int64
	}{
		{1, 0, 0},
		{time.Millisecond - 1, 0, 0},
		{time.Millisecond, 0, 1},
		{sec - 1, 0, 1},
		{sec, 1, 1},
		{2*sec + 999*time.Microsecond, 2, 2}, // cut to milliseconds first
		{2*sec + time.Millisecond, 2, 3},
		{42_595_199*sec + 999_999_999, 42_595_199, 42_595_200}, // redis-cell, in floats, says …201
		{math.MaxInt64 - 1, 9_223_372_036, 9_223_372_037},
	} {
		res := limits.Result{RetryAfter: v.d, ResetAfter: v.d}
		if c, l := oracle.Cell(res), oracle.CellLegacy(res); c[3] != v.rounds || c[4] != v.rounds || l[3] != v.legacy || l[4] != v.legacy {
			t.Errorf("%v: %v and %v, want %d and %d", v.d, c, l, v.rounds, v.legacy)
		}
	}
}

func TestBucket_EndOfTheRange(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	second := must(limits.Rate{Count: 1, Per: sec})
	huge := must(limits.Rate{Count: 1, Per: time.Microsecond, Burst: 1 << 62 / 1000})
	tat, res := huge.Take(0, sec, huge.Capacity())
	if !res.Allowed() || tat != sec+huge.depth || res.ResetAfter != huge.depth {
		t.Errorf("a full huge bucket: %+v, empty at %v", res, tat)
	}
	if after, res := huge.Take(tat, sec, 1); res.Allowed() || after != tat || res.RetryAfter != time.Microsecond {
		t.Errorf("one more: %+v", res)
	}
	if _, res := huge.Take(tat, sec, math.MaxInt64); res.Err() != limits.ErrTooLarge {
		t.Errorf("as many as there are: %+v", res)
	}
	if got := second.Adjust(sec, 2*sec, math.MaxInt64); got != forever {
		t.Errorf("added too much: empty at %v", got)
	}
	if got := second.Adjust(forever, 0, 1); got != forever {
		t.Errorf("added to the end: empty at %v", got)
	}
	for _, n := range []int64{math.MinInt64, -math.MaxInt64, -3} {
		if got := second.Adjust(2*sec, 0, n); got != 0 {
			t.Errorf("adjusted by %d: empty at %v", n, got)
		}
	}
	if _, res := huge.Take(forever, sec, 1); res.Allowed() || res.Remaining != 0 || res.RetryAfter <= 0 {
		t.Errorf("overdrawn for ever: %+v", res)
	}
}

// What units computes by multiplying is the quotient, for every interval.
func TestBucket_UnitsIsTheQuotient(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	intervals := []time.Duration{1000, 1001, 1024, 65536, 333333333, time.Second, time.Hour, 1 << 62, math.MaxInt64}
	for range 1000 {
		intervals = append(intervals, 1000+time.Duration(rnd.Int64()>>rnd.IntN(53)))
	}
	for _, interval := range intervals {
		r := newBucket(1, interval)
		check := func(d time.Duration) {
			if d < 0 || d > deepest {
				return
			}
			if got, want := r.units(d), int64(d/interval); got != want {
				t.Fatalf("%d / %d = %d, want %d", d, interval, got, want)
			}
		}
		for range 100 {
			d := time.Duration(rnd.Int64() >> rnd.IntN(63))
			check(d)
			multiple := d / interval * interval
			for _, d := range []time.Duration{multiple - 1, multiple, multiple + 1, deepest / interval * interval, deepest} {
				check(d)
			}
		}
	}
}

func TestBucket_Share(t *testing.T) {
	whole := must(limits.Rate{Count: 2, Per: sec, Burst: 16})
	for _, v := range []struct {
		m        int64
		capacity int64 // 0: no share
		interval time.Duration
	}{
		{-1, 0, 0}, {0, 0, 0}, {1, 16, sec / 2}, {3, 5, 3 * sec / 2}, {16, 1, 8 * sec}, {17, 0, 0},
	} {
		part, ok := whole.Share(v.m)
		if ok != (v.capacity > 0) || part.Capacity() != v.capacity || part.Interval() != v.interval || part.Depth() != v.interval*time.Duration(v.capacity) {
			t.Errorf("one of %d: %d at %v, %v deep, %v", v.m, part.Capacity(), part.Interval(), part.Depth(), ok)
		}
	}
	if whole.Capacity() != 16 || whole.Interval() != sec/2 || whole.Depth() != 8*sec {
		t.Errorf("the whole: %d at %v, %v deep", whole.Capacity(), whole.Interval(), whole.Depth())
	}
}

func TestNewBucket(t *testing.T) {
	for _, v := range []struct {
		rate limits.Rate
		ok   bool
	}{
		{limits.Rate{}, false},
		{limits.Rate{Count: 1, Per: sec}, true}, // a burst of 1
		{limits.Rate{Count: 1, Per: sec, Burst: -1}, false},
		{limits.Rate{Count: 1_000_000, Per: sec}, true},
		{limits.Rate{Count: 1_000_001, Per: sec}, false},
		{limits.Rate{Count: 1, Per: deepest}, true},
		{limits.Rate{Count: 1, Per: deepest + 1}, false},
		{limits.Rate{Count: 1, Per: time.Microsecond, Burst: int64(deepest / time.Microsecond)}, true},
		{limits.Rate{Count: 1, Per: time.Microsecond, Burst: int64(deepest/time.Microsecond) + 1}, false},
	} {
		r, err := NewBucket(v.rate)
		if (err == nil) != v.ok || v.ok && r.Capacity() != max(1, v.rate.Burst) {
			t.Errorf("%v: %+v, %v", v.rate, r, err)
		}
	}
	if deepest != 1<<62 {
		t.Errorf("the deepest bucket drains in %v", deepest)
	}
}

func TestBucket_Adjust(t *testing.T) {
	r := must(limits.Rate{Count: 1, Per: sec, Burst: 5})
	for _, v := range []struct {
		tat, now time.Duration
		delta    int64
		want     time.Duration
	}{
		{0, 10 * sec, 2, 12 * sec}, // from now on, not from when it was empty
		{12 * sec, 10 * sec, 2, 14 * sec},
		{12 * sec, 10 * sec, 7, 19 * sec}, // beyond the capacity
		{12 * sec, 10 * sec, -1, 11 * sec},
		{12 * sec, 10 * sec, -20, 0},
		{12 * sec, 10 * sec, 0, 12 * sec},
	} {
		if got := r.Adjust(v.tat, v.now, v.delta); got != v.want {
			t.Errorf("empty at %v, adjusted by %d at %v: empty at %v, want %v", v.tat, v.delta, v.now, got, v.want)
		}
	}
	if tat, res := r.Take(19*sec, 10*sec, 0); tat != 19*sec || !res.Allowed() || res.ResetAfter != 9*sec {
		t.Errorf("nothing of an overdrawn bucket: %+v, empty at %v", res, tat)
	}
}
