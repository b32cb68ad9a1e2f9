package apiserver

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

// at is one arrival and what the bucket must say of it.
type at struct {
	now  time.Duration
	wait time.Duration // 0: let in
}

func TestBucket(t *testing.T) {
	tests := []struct {
		name  string
		count int64
		per   time.Duration
		size  int64
		calls []at
	}{
		{"size at once, then one per step", 100, time.Second, 5, []at{
			{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
			{0, 10 * ms}, {4 * ms, 6 * ms}, {10*ms - 1, 1}, {10 * ms, 0},
			{10 * ms, 10 * ms}, {20 * ms, 0},
		}},
		{"a size of one has no slack at all", 100, time.Second, 1, []at{
			{0, 0}, {0, 10 * ms}, {10*ms - 1, 1}, {10 * ms, 0}, {19 * ms, 1 * ms}, {20 * ms, 0},
		}},
		{"even calls never empty it", 100, time.Second, 1, []at{
			{0, 0}, {10 * ms, 0}, {20 * ms, 0}, {30 * ms, 0}, {40 * ms, 0},
		}},
		{"a late call does not move the next one", 100, time.Second, 2, []at{
			{0, 0}, {17 * ms, 0}, {20 * ms, 0}, {20 * ms, 7 * ms}, {27 * ms, 0},
		}},
		{"a long pause fills it no further than its size", 100, time.Second, 2, []at{
			{0, 0}, {time.Hour, 0}, {time.Hour, 0}, {time.Hour, 10 * ms},
		}},
		{"a refused call costs nothing", 10, time.Second, 1, []at{
			{0, 0}, {50 * ms, 50 * ms}, {60 * ms, 40 * ms}, {70 * ms, 30 * ms}, {100 * ms, 0},
		}},
		{"an instant below zero", 10, time.Second, 1, []at{
			{-time.Second, 0}, {-time.Second, 100 * ms}, {-900 * ms, 0},
		}},
		{"thirds are not rounded away", 3, time.Second, 1, []at{
			{0, 0},
			{333_333_333, 1}, {333_333_334, 0}, // the step ends at …333⅓; the next starts there or later
			{666_666_667, 1}, {666_666_668, 0}, // …334 + …333⅓ = …667⅓
		}},
		{"a step below a nanosecond", 3, 1, 1, []at{
			{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := newBucket(tt.count, tt.per, tt.size)
			if err != nil {
				t.Fatal(err)
			}
			for i, call := range tt.calls {
				if got := b.take(call.now); got != call.wait {
					t.Fatalf("call %d at %v: wait %v, want %v", i, call.now, got, call.wait)
				}
			}
		})
	}
}

// A client that always comes at the first time the bucket allows gets
// exactly count calls per period, however count divides the period.
func TestStanding(t *testing.T) {
	b, err := newBucket(3, time.Second, 5) // one every 333,333,333⅓ ns
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at, next, full time.Duration
		take           int
		left           int64
	}{
		{0, 0, 0, 0, 5},
		{0, 0, 333_333_334, 1, 4},
		{0, 333_333_334, 1_666_666_667, 4, 0},
		{333_333_334, 0, 1_333_333_333, 0, 1},
		{time.Second, 0, 666_666_667, 0, 3},
		{time.Hour, 0, 0, 0, 5},
	} {
		for range step.take {
			if b.take(step.at) != 0 {
				t.Fatalf("at %v: no room", step.at)
			}
		}
		if left, next, full := b.standing(step.at); left != step.left || next != step.next || full != step.full {
			t.Errorf("at %v: %d left, next in %v, full in %v; want %d, %v, %v", step.at, left, next, full, step.left, step.next, step.full)
		}
	}
}

func TestBucketDoesNotDrift(t *testing.T) {
	for _, count := range []int64{1, 3, 7, 999, 1_000_003} {
		b, err := newBucket(count, time.Second, count)
		if err != nil {
			t.Fatal(err)
		}
		for range count { // empty it
			if wait := b.take(0); wait != 0 {
				t.Fatalf("%d/s: the full bucket asked for %v", count, wait)
			}
		}
		// Everything is used up at 0, so it is all back after one second and
		// not a nanosecond earlier.
		if want := (fine{ns: int64(time.Second)}); b.full != want {
			t.Errorf("%d/s: full again at %+v, want %+v", count, b.full, want)
		}
	}
}

func TestNewBucketRefuses(t *testing.T) {
	tests := []struct {
		name  string
		count int64
		per   time.Duration
		size  int64
	}{
		{"no calls", 0, time.Second, 1},
		{"negative calls", -1, time.Second, 1},
		{"no period", 1, 0, 1},
		{"negative period", 1, -time.Second, 1},
		{"no size", 1, time.Second, 0},
		{"overflow", 1, math.MaxInt64 / 4, 5},
	}
	for _, tt := range tests {
		if _, err := newBucket(tt.count, tt.per, tt.size); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
	if _, err := newBucket(1, math.MaxInt64/5, 5); err != nil {
		t.Errorf("the slowest rate that can be counted: %v", err)
	}
}

func TestLimiterConcurrency(t *testing.T) {
	b, err := newBucket(1, time.Second, 3)
	if err != nil {
		t.Fatal(err)
	}
	l := limiter{concurrency: 2, bucket: b}
	arrive := func(now time.Duration, want verdict, wantWait time.Duration) {
		t.Helper()
		if v, wait := l.arrive(now); v != want || wait != wantWait {
			t.Errorf("at %v: verdict %d, wait %v; want %d, %v", now, v, wait, want, wantWait)
		}
	}
	arrive(0, accepted, 0)
	arrive(0, accepted, 0)
	arrive(0, tooMany, 0)
	l.leave()
	arrive(0, accepted, 0) // the rejected call has taken nothing from the bucket
	l.leave()
	arrive(0, tooFast, time.Second)
	arrive(time.Second, accepted, 0) // and one too fast is not in flight
	arrive(time.Second, tooMany, 0)  // the concurrency is judged first
}

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		wait time.Duration
		want int64
	}{
		{0, 1}, {1, 1}, {10 * ms, 1}, {time.Second, 1},
		{time.Second + 1, 2}, {20 * time.Second, 20}, {20*time.Second - 1, 20},
		{math.MaxInt64, 9_223_372_037},
	}
	for _, tt := range tests {
		if got := retryAfter(tt.wait); got != tt.want {
			t.Errorf("retryAfter(%v) = %d, want %d", tt.wait, got, tt.want)
		}
	}
}
