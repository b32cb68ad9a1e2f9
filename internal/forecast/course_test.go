package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A real limit is one of package kind, with the time as an argument.
type real struct {
	wait     func(now time.Duration, n int64) time.Duration // until n fit; it takes nothing
	take     func(now time.Duration, n int64)
	forecast func(now time.Duration) limits.Forecast
	name     string
}

// second is the unit of the times of tests.
const second = time.Second

func realBucket(rate limits.Rate) real {
	rule := limits.Must(kind.NewBucket(rate))
	var tat time.Duration
	return real{
		name: fmt.Sprintf("bucket %v burst %d", rate, rate.Burst),
		wait: func(now time.Duration, n int64) time.Duration {
			_, wait := rule.Fits(max(0, tat-now), n)
			return wait
		},
		take: func(now time.Duration, n int64) { tat, _ = rule.Take(tat, now, n) },
		forecast: func(now time.Duration) limits.Forecast {
			return NewBucket(rule.Capacity(), rule.Interval(), max(0, tat-now))
		},
	}
}

func realFixed(limit int64, window time.Duration, edges bool) real {
	rule := kind.Fixed{Limit: limit, Window: window}
	if edges {
		rule.Edges = func(wall int64) (start, end int64) {
			start = wall - wall%int64(window)
			return start, start + int64(window)
		}
	}
	var s kind.FixedState
	return real{
		name: fmt.Sprintf("fixed %d per %v, edges %v", limit, window, edges),
		wait: func(now time.Duration, n int64) time.Duration {
			s := s
			return rule.Take(&s, now, int64(now), n).RetryAfter
		},
		take: func(now time.Duration, n int64) { rule.Take(&s, now, int64(now), n) },
		forecast: func(now time.Duration) limits.Forecast {
			f := &Fixed{Limit: limit, Window: window}
			if edges {
				f.Edges = func(at time.Duration) (start, end time.Duration) {
					from, to := rule.Edges(int64(at + now))
					return time.Duration(from) - now, time.Duration(to) - now
				}
			}
			if s := s; !rule.Over(&s, now, int64(now)) {
				f.Used, f.End = s.Used, rule.Take(&s, now, int64(now), 0).ResetAfter
			}
			return f
		},
	}
}

func realSliding(limit int64, window time.Duration) real {
	rule := kind.Sliding{Limit: limit, Window: window}
	s := new(kind.SlidingState)
	taken := func() func(func(time.Duration, int64) bool) { return s.All() }
	return real{
		name: fmt.Sprintf("sliding %d per %v", limit, window),
		wait: func(now time.Duration, n int64) time.Duration {
			if n > limit {
				return limits.Never
			}
			used := int64(0)
			for at, n := range taken() {
				if now-at < window {
					used += n
				}
			}
			for at, left := range taken() {
				if used+n <= limit {
					break
				}
				if now-at < window {
					if used -= left; used+n <= limit {
						return at + window - now
					}
				}
			}
			return 0
		},
		take: func(now time.Duration, n int64) { rule.Take(s, now, n) },
		forecast: func(now time.Duration) limits.Forecast {
			return NewSliding(limit, window, func(yield func(time.Duration, int64) bool) {
				for at, n := range s.All() {
					if !yield(at-now, n) {
						return
					}
				}
			})
		},
	}
}

// start lets a call of cost start at now or as soon as all allow it, and returns when; Never if never.
func start(now time.Duration, all []real, cost int64) time.Duration {
	for {
		wait := time.Duration(0)
		for _, r := range all {
			wait = max(wait, r.wait(now, cost))
		}
		if wait == limits.Never {
			return wait
		}
		if now += wait; wait == 0 {
			for _, r := range all {
				r.take(now, cost)
			}
			return now
		}
	}
}

// check compares a forecast for calls with what taking each at the first allowed instant gives.
func check(t *testing.T, all []real, now time.Duration, calls, cost int64, exact bool) {
	t.Helper()
	var foreseen []Limit
	for _, r := range all {
		foreseen = append(foreseen, Limit{r.forecast(now), cost})
	}
	for range 2 { // to look changes nothing
		for _, r := range all {
			f := r.forecast(now)
			f.Next(0, calls, cost)
			f.Take(1, cost, 0, 0)
		}
	}
	var c Course
	first := c.Take(1, foreseen...)
	last := c.Take(calls-1, foreseen...)
	at := now
	for i := range calls {
		at = start(at, all, cost)
		if want := at - now; i == 0 && first != want && at != limits.Never {
			t.Errorf("%s: the first of %d of cost %d after %v, want %v", names(all), calls, cost, first, want)
		}
		if at == limits.Never {
			break
		}
	}
	want := at - now
	if at == limits.Never {
		if last != limits.Never {
			t.Errorf("%s: %d of cost %d after %v, want never", names(all), calls, cost, last)
		}
		return
	}
	tolerance := time.Duration(calls) // each is rounded
	if !exact {
		tolerance += max(want, 0) / 20
	}
	if off := last - want; max(off, -off) > tolerance {
		t.Errorf("%s: %d of cost %d after %v, want %v", names(all), calls, cost, last, want)
	}
}

func names(all []real) (text string) {
	for _, r := range all {
		text += r.name + "; "
	}
	return text
}

// someReal returns a limit, and lets rnd choose which.
func someReal(rnd *rand.Rand) real {
	limit := 1 + rnd.Int64N(30)
	window := time.Duration(1+rnd.Int64N(200)) * second / 10
	switch rnd.IntN(4) {
	case 0:
		return realBucket(limits.Rate{Count: 1 + rnd.Int64N(20), Per: window, Burst: limit})
	case 1:
		return realFixed(limit, window, false)
	case 2:
		return realFixed(limit, window, true)
	}
	return realSliding(limit, window)
}

// FuzzCourse: what is foreseen for one limit, whatever was taken before, is what taking in a loop gives,
// and for several it is within 5 %.
func FuzzCourse(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var all []real
		for range 1 + rnd.IntN(3) {
			all = append(all, someReal(rnd))
		}
		now := time.Duration(0)
		for range rnd.IntN(20) { // what was before
			now += time.Duration(rnd.Int64N(int64(2 * second)))
			for _, r := range all {
				if n := 1 + rnd.Int64N(4); r.wait(now, n) == 0 {
					r.take(now, n)
				}
			}
		}
		check(t, all, now, 1+rnd.Int64N(300), 1+rnd.Int64N(6), len(all) == 1)
	})
}

// What cannot be computed is Never, and nothing wraps around.
func TestCourse_Saturates(t *testing.T) {
	for _, r := range []real{
		realBucket(limits.Rate{Count: 1, Per: second, Burst: 10}),
		realFixed(10, second, false), realFixed(10, second, true), realSliding(10, second),
	} {
		for _, v := range []struct {
			calls, cost int64
			least       time.Duration
		}{
			{1, 11, limits.Never},
			{1, math.MaxInt64, limits.Never},
			{math.MaxInt64, 1, math.MaxInt64 / 11},
			{math.MaxInt64, 10, limits.Never / 2},
			{math.MaxInt64, math.MaxInt64, limits.Never},
		} {
			var c Course
			if got := c.Take(v.calls, Limit{r.forecast(0), v.cost}, Limit{PerSecond(1e9), 1}); got < v.least {
				t.Errorf("%s: %d of %d after %v", r.name, v.calls, v.cost, got)
			}
		}
	}
	for _, rate := range []float64{1e-300, math.SmallestNonzeroFloat64, 1e300} {
		var c Course
		if got := c.Take(3, Limit{PerSecond(rate), math.MaxInt64}); got < 0 {
			t.Errorf("%v per second: %v", rate, got)
		}
	}
}

// Calls that take nothing of a limit do not wait for it, and no calls take no time.
func TestCourse_TakesNothing(t *testing.T) {
	var c Course
	full := &Fixed{Limit: 1, Window: second, Used: 1, End: second}
	if got := c.Take(5, Limit{full, 0}); got != 0 {
		t.Errorf("%v", got)
	}
	if got := c.Take(0, Limit{full, 1}); got != 0 {
		t.Errorf("%v", got)
	}
	if got := c.Take(2, Limit{full, 1}, Limit{Pause(3 * second), 1}); got != 4*second {
		t.Errorf("%v", got)
	}
}

// FuzzTake: calls that are taken together leave the same as those taken one by one.
func FuzzTake(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := someReal(rnd)
		together, single := r.forecast(0), r.forecast(0)
		n, cost := 1+rnd.Int64N(60), 1+rnd.Int64N(3)
		some, first, last := together.Next(0, n, cost)
		if first == limits.Never {
			return
		}
		n = min(n, some)
		every := max(1, (last-first)/time.Duration(max(1, n-1))) + time.Duration(rnd.Int64N(int64(3*second)))
		if rnd.IntN(2) == 0 {
			every = every / second * second // windows end at a call
		}
		last = max(last, first+every*time.Duration(n-1))
		if n > 1 {
			every = (last - first) / time.Duration(n-1)
			last = first + every*time.Duration(n-1)
		}
		together.Take(n, cost, first, last)
		for i := range n {
			at := first + every*time.Duration(i)
			if _, at2, _ := single.Next(at, 1, cost); at2 > at {
				return // the limit would not let them start so
			}
			single.Take(1, cost, at, at)
		}
		for cost := range int64(30) {
			_, a, _ := together.Next(last, 1, cost+1)
			_, b, _ := single.Next(last, 1, cost+1)
			if off := a - b; max(off, -off) > 1 {
				t.Errorf("%s: after %d of %d every %v from %v on, %d more after %v, want %v", r.name, n, cost, every, first, cost+1, a, b)
			}
		}
	})
}

// What is extrapolated after mostSteps is within 5 %, too.
func TestCourse_Extrapolates(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		all := []real{someReal(rnd), someReal(rnd), someReal(rnd)}
		check(t, all, 0, 8*mostSteps, 1, false)
	}
}
