package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// markings are the three ways to mark an error, so that it is retried otherwise
// than any other.
var markings = map[string]func(error) error{
	"Permanent":                 sluice.Permanent,
	"RetryAfter":                func(err error) error { return sluice.ThrottledFor(err, time.Minute) },
	"RetryAfter without a time": func(err error) error { return sluice.ThrottledFor(err, 0) },
	"RetryAt":                   func(err error) error { return sluice.ThrottledFor(err, time.Minute) },
	"RetryAt the zero time":     func(err error) error { return sluice.ThrottledFor(err, time.Until(time.Time{})) },
}

func TestMarkedErrors_NilIsNil(t *testing.T) {
	for name, mark := range markings {
		if err := mark(nil); err != nil {
			t.Errorf("%s(nil) = %#v", name, err)
		}
	}
}

func TestMarkedErrors_UnwrapToTheirCause(t *testing.T) {
	cause := &fs.PathError{Op: "get", Path: "/items/7", Err: fs.ErrNotExist}
	for name, mark := range markings {
		err := mark(cause)
		if err.Error() != cause.Error() {
			t.Errorf("%s changes the message to %q", name, err)
		}
		var path *fs.PathError
		if !errors.Is(err, cause) || !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &path) || path != cause {
			t.Errorf("%s hides the error", name)
		}
		if errors.Unwrap(err) != error(cause) {
			t.Errorf("%s unwraps to %v", name, errors.Unwrap(err))
		}
	}
}

// allReasons are why Retry stops and why a gate refuses.
var allReasons = []error{
	sluice.ErrPermanent, sluice.ErrAttempts, sluice.ErrElapsed, sluice.ErrServerWait, sluice.ErrBudget,
	limits.ErrTooLarge, limits.ErrQueueFull, limits.ErrTimeout, limits.ErrClosed, limits.ErrLeaseLost,
}

func TestErrors_AreDistinct(t *testing.T) {
	for i, a := range allReasons {
		for j, b := range allReasons {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) = %v", a, b, errors.Is(a, b))
			}
		}
	}
}

func TestRetryError_MatchesWhyAndLast(t *testing.T) {
	last := &fs.PathError{Op: "get", Path: "/items/7", Err: errDown}
	for _, why := range append(slices.Clone(allReasons), context.Canceled, context.DeadlineExceeded, &limits.WaitError{Need: 1}) {
		var err error = fmt.Errorf("item 7: %w", &sluice.RetryError{Last: last, Why: why})
		var path *fs.PathError
		if !errors.Is(err, why) || !errors.Is(err, last) || !errors.Is(err, errDown) || !errors.As(err, &path) {
			t.Errorf("%v does not match what it was made of", err)
		}
		if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v matches anything", err)
		}
		for _, other := range allReasons {
			if errors.Is(err, other) != errors.Is(why, other) {
				t.Errorf("%v: matches %v: %v", err, other, errors.Is(err, other))
			}
		}
		if (&sluice.RetryError{Last: last, Why: why}).Error() == "" {
			t.Error("no message")
		}
	}
}

func TestRetryError_Unwrap(t *testing.T) {
	s := &sluice.RetryError{Why: sluice.ErrServerWait}
	if got := s.Unwrap(); !slices.Equal(got, []error{sluice.ErrServerWait}) {
		t.Errorf("Unwrap() = %v", got)
	}
	s.Last = errBusy
	if got := s.Unwrap(); !slices.Equal(got, []error{sluice.ErrServerWait, errBusy}) {
		t.Errorf("Unwrap() = %v, want Why and Last", got)
	}
}

func TestRetryError_Error(t *testing.T) {
	at := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, s := range map[string]sluice.RetryError{
		"sluice: gave up after 4 attempts: no attempts left: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrAttempts, Attempts: 4,
		},
		"sluice: api: gave up after 1 attempt: the error is permanent: 503 Service Unavailable": {
			Gate: "api", Last: sluice.Permanent(errDown), Why: sluice.ErrPermanent, Attempts: 1,
		},
		"sluice: api: gave up after 3 attempts: no time left for another attempt, come back at 2000-01-02T03:04:05Z: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, RetryAt: at, Elapsed: time.Hour,
		},
		// In whole seconds, rounded up.
		"sluice: gave up after 3 attempts: no time left for another attempt, come back at 2000-01-02T03:04:06Z: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, RetryAt: at.Add(1),
		},
		"sluice: gave up after 9 attempts: the server asks for too long a wait, come back at 2000-01-02T05:04:05+02:00: 429 Too Many Requests": {
			Last: errBusy, Why: sluice.ErrServerWait, Attempts: 9, RetryAt: at.In(time.FixedZone("", 2*60*60)),
		},
		"sluice: gave up after 5 attempts: the retry budget is empty: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrBudget, Attempts: 5,
		},
		// The prefix and the name of the gate appear once.
		"sluice: api: gave up after 2 attempts: would have to wait 10s, 2s were allowed: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: &limits.WaitError{By: "api", Need: 10 * time.Second, Have: 2 * time.Second}, Attempts: 2,
		},
		"sluice: host: gave up after 2 attempts: all: would have to wait 10s, 2s were allowed: 503 Service Unavailable": {
			Gate: "host", Last: errDown, Why: &limits.WaitError{By: "all", Need: 10 * time.Second, Have: 2 * time.Second}, Attempts: 2,
		},
		"sluice: api: gave up after 2 attempts: context canceled: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: context.Canceled, Attempts: 2,
		},
		"sluice: api: gave up after 0 attempts: the server asks for too long a wait, come back at 2000-01-02T03:04:05Z": {
			Gate: "api", Why: sluice.ErrServerWait, RetryAt: at,
		},
	} {
		if got := s.Error(); got != want {
			t.Errorf("got\n\t%s\nwant\n\t%s", got, want)
		}
	}
}

// A reader looks for the number that was configured, not for one that is some
// nanoseconds less. Two different numbers must not look the same.
func TestWaitError_RoundsForReaders(t *testing.T) {
	for _, tt := range []struct {
		need, have time.Duration
		want       string
	}{
		{59_999_995_401, 4_999_994_898, "1m0s, 5s"},
		{time.Second, 999_999_999, "1s, 999.999999ms"},
		{time.Minute, 999_998_000, "1m0s, 1s"},
		{333_333_333, 99_999_901, "333.33ms, 100ms"},
		{1_234_567, 234_567, "1.23ms, 234.567µs"},
		{5_000_000_100, 5 * time.Second, "5.0000001s, 5s"},
		{5 * time.Second, 5 * time.Second, "5s, 5s"},           // a slot at the deadline is too late
		{math.MaxInt64 - 1, 0, "2562047h47m16.854775807s, 0s"}, // nothing runs over
	} {
		err := &limits.WaitError{Need: tt.need, Have: tt.have}
		if got, want := err.Error(), "sluice: would have to wait "+tt.want+" were allowed"; got != want {
			t.Errorf("%v, %v: %s, want %s", tt.need, tt.have, got, want)
		}
	}
}

func TestRetryError_Timeout(t *testing.T) {
	for _, c := range []struct {
		last, why error
		want      bool
	}{
		{errDown, sluice.ErrAttempts, false},
		{nil, sluice.ErrServerWait, false},
		{context.DeadlineExceeded, sluice.ErrAttempts, true},
		{errDown, &limits.WaitError{}, true},
		{nil, context.DeadlineExceeded, true},
	} {
		if got := (&sluice.RetryError{Last: c.last, Why: c.why}).Timeout(); got != c.want {
			t.Errorf("%v, %v: %v", c.last, c.why, got)
		}
	}
}

// ThrottledFor pauses the gate for all callers, RetryAfter delays one.
func TestThrottledFor_PausesAll_RetryAfter_One(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		mark   func() error
		paused bool
	}{
		"ThrottledFor": {func() error { return sluice.ThrottledFor(failed, time.Minute) }, true},
		"RetryAfter":   {func() error { return sluice.RetryAfter(failed, time.Minute) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := sluice.Must(sluice.New(sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}}))
				start, attempts := time.Now(), 0
				err := sluice.Retry(context.Background(), g, func(context.Context) error {
					if attempts++; attempts > 1 {
						return nil
					}
					return c.mark()
				}, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(time.Minute)})
				if err != nil || attempts != 2 || time.Since(start) != time.Minute {
					t.Errorf("%d attempts, the last after %v: %v", attempts, time.Since(start), err)
				}
				start, attempts = time.Now(), 0
				waits := make(chan time.Duration)
				go sluice.Retry(context.Background(), g, func(context.Context) error {
					if attempts++; attempts > 1 {
						return nil
					}
					return c.mark()
				})
				synctest.Wait()
				go func() {
					waits <- func() time.Duration { g.Wait(context.Background()); return time.Since(start) }()
				}()
				if wait := <-waits; (wait > 0) != c.paused {
					t.Errorf("another call waited for %v", wait)
				}
				time.Sleep(time.Hour) // the first one has ended
			})
		})
	}
	if sluice.Throttled(nil) != nil || sluice.RetryAfter(nil, time.Second) != nil {
		t.Error("marked a success")
	}
}

// # Backoff

// almostOne is the largest u there is.
var almostOne = math.Nextafter(1, 0)

func TestBackoff_Curves(t *testing.T) {
	const base, longest = 500 * ms, 30 * time.Second
	var (
		full     = sluice.FullJitter(base, longest)
		constant = sluice.Constant(7 * time.Second)
	)
	for _, c := range []struct {
		name  string
		curve sluice.Backoff
		retry int
		prev  time.Duration
		want  [3]time.Duration // at u = 0, 0.5 and just below 1
	}{

		{"full", full, 1, 0, [3]time.Duration{0, 250 * ms, 500*ms - 1}},
		{"full", full, 2, 0, [3]time.Duration{0, 500 * ms, 1000*ms - 1}},
		{"full", full, 6, 0, [3]time.Duration{0, 8 * time.Second, 16*time.Second - 1}},
		// The cap comes before the jitter, so that the waits of long outages
		// are spread over all of it and not piled up at its end.
		{"full", full, 7, 0, [3]time.Duration{0, 15 * time.Second, longest - 1}},
		{"full", full, 8, time.Hour, [3]time.Duration{0, 15 * time.Second, longest - 1}},

		{"constant", constant, 1, 0, [3]time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{"constant", constant, 99, time.Hour, [3]time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{"constant 0", sluice.Constant(0), 1, 0, [3]time.Duration{}},

		{"full, base = longest", sluice.FullJitter(base, base), 1, 0, [3]time.Duration{0, 250 * ms, 500*ms - 1}},
		{"full, 1 ns", sluice.FullJitter(1, 1), 1, 0, [3]time.Duration{0, 0, 0}},
	} {
		for i, u := range []float64{0, 0.5, almostOne} {
			if got := c.curve(c.retry, c.prev, u); got != c.want[i] {
				t.Errorf("%s: retry %d after %v with u = %v: %v, want %v", c.name, c.retry, c.prev, u, got, c.want[i])
			}
		}
	}
}

func TestBackoff_CurvesDoNotOverflow(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		base, longest time.Duration
		retry         int
		want          time.Duration // the range of FullJitter
	}{
		{1, most, 63, 1 << 62},
		{1, most, 64, most}, // 2⁶³ is one too many
		{1, most, 65, most},
		{1, most, math.MaxInt, most},
		{1, 1 << 62, 63, 1 << 62},
		{1, 1<<62 - 1, 63, 1<<62 - 1},
		{3, most, 62, 3 << 61},
		{3, most, 63, most},
		{most, most, 1, most},
		{most, most, 2, most},
		{1 << 62, most, 2, most},
		{500 * ms, 30 * time.Second, 62, 30 * time.Second},
		{500 * ms, 30 * time.Second, 1 << 30, 30 * time.Second},
		{500 * ms, 30 * time.Second, math.MaxInt, 30 * time.Second},
	} {
		curve := sluice.FullJitter(c.base, c.longest)
		if got, tolerance := curve(c.retry, 0, almostOne), c.want>>50; got > c.want || got < c.want-1-tolerance {
			t.Errorf("FullJitter(%d, %d), retry %d: %d, want almost %d", c.base, c.longest, c.retry, got, c.want)
		}
		for _, u := range []float64{0, 0.5, almostOne} {
			if got := curve(c.retry, c.longest, u); got < 0 || got > c.longest {
				t.Errorf("FullJitter(%d, %d), retry %d, u = %v: %d", c.base, c.longest, c.retry, u, got)
			}
		}
	}
}

func TestBackoff_ConstructorsPanic(t *testing.T) {
	for name, curve := range map[string]func(base, longest time.Duration) sluice.Backoff{
		"FullJitter": sluice.FullJitter,
		"Constant":   func(base, _ time.Duration) sluice.Backoff { return sluice.Constant(base) },
	} {
		for _, c := range []struct {
			base, longest time.Duration
			constant      bool // Constant takes it
		}{
			{0, time.Second, true},
			{0, 0, true},
			{-1, time.Second, false},
			{-time.Second, -time.Second, false},
			{math.MinInt64, math.MaxInt64, false},
			{time.Second + 1, time.Second, true},
			{time.Second, 0, true},
			{time.Second, -time.Second, true},
		} {
			if name == "Constant" && c.constant {
				curve(c.base, c.longest)
				continue
			}
			func() {
				defer func() {
					if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "sluice: ") {
						t.Errorf("%s(%v, %v): want a panic with the package's prefix, got %q", name, c.base, c.longest, msg)
					}
				}()
				curve(c.base, c.longest)
			}()
		}
	}
}

// A curveRange is what the documentation of a curve says, in exact numbers:
// the range that the wait is uniform in. It is from if both are equal.
type curveRange struct {
	name  string
	curve func(base, longest time.Duration) sluice.Backoff
	of    func(base, longest, prev time.Duration, retry int) (from, to *big.Rat)
}

func curveRanges() []curveRange {
	exact := func(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }
	atMost := func(x *big.Rat, longest time.Duration) *big.Rat {
		if limit := exact(longest); x.Cmp(limit) > 0 {
			return limit
		}
		return x
	}
	doubled := func(base, longest time.Duration, retry int) *big.Rat {
		x := big.NewInt(int64(base))
		x.Lsh(x, uint(min(retry-1, 64))) // base ≥ 1, so 64 doublings are more than any limit
		return atMost(new(big.Rat).SetInt(x), longest)
	}
	return []curveRange{
		{"FullJitter", sluice.FullJitter, func(base, longest, _ time.Duration, retry int) (from, to *big.Rat) {
			return new(big.Rat), doubled(base, longest, retry)
		}},
	}
}

// FuzzBackoff: whatever the numbers, a wait is never negative and never above
// the longest, it grows with u, and it is what the documentation says.
func FuzzBackoff(f *testing.F) {
	f.Add(int64(500*ms), int64(30*time.Second), 1, int64(0), uint64(0), uint64(1<<52))
	f.Add(int64(500*ms), int64(30*time.Second), 7, int64(10*time.Second), uint64(1<<52), uint64(1<<53-1))
	f.Add(int64(500*ms), int64(30*time.Second), 8, int64(20*time.Second), uint64(1<<52), uint64(1<<53-1))
	f.Add(int64(time.Second), int64(time.Second), 3, int64(time.Second), uint64(1), uint64(2))
	f.Add(int64(1), int64(1<<62), 63, int64(1<<62), uint64(1<<53-1), uint64(1<<53-1))
	f.Add(int64(1), int64(math.MaxInt64), 63, int64(math.MaxInt64), uint64(1<<52), uint64(1<<53-1)) // 3·prev overflows
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), 2, int64(0), uint64(1<<52), uint64(1<<53-1))
	f.Add(int64(1), int64(math.MaxInt64>>1), math.MaxInt, int64(math.MaxInt64), uint64(1<<52), uint64(1<<53-1))
	f.Add(int64(1<<53+1), int64(1<<60), 5, int64(1<<55+1), uint64(1<<53-1), uint64(1<<53-1))
	ranges := curveRanges()
	f.Fuzz(func(t *testing.T, b, l int64, retry int, p int64, u1, u2 uint64) {
		// Bent into the domain, so that no input is wasted.
		b, l, p = max(1, b, -b), max(1, l, -l), max(0, p, -p)
		base, longest, retry := time.Duration(min(b, l)), time.Duration(max(b, l)), max(1, retry)
		prev := min(time.Duration(p), longest)
		// Parts are rounded to a nanosecond, and u·d is computed in 53 bits.
		tolerance := new(big.Rat).SetInt64(2 + int64(longest>>51))
		for _, r := range ranges {
			curve := r.curve(base, longest)
			from, to := r.of(base, longest, prev, retry)
			var smaller time.Duration // the wait for the previous, smaller u
			for _, k := range []uint64{0, min(u1%(1<<53), u2%(1<<53)), max(u1%(1<<53), u2%(1<<53)), 1<<53 - 1} {
				u := new(big.Rat).SetFrac64(int64(k), 1<<53)
				got := curve(retry, prev, float64(k)/(1<<53))
				wait := new(big.Rat).SetInt64(int64(got))

				want := new(big.Rat).Sub(to, from)
				want.Mul(want, u).Add(want, from)
				off := new(big.Rat).Sub(wait, want)
				switch {
				case got < smaller:
					t.Errorf("less than the %d of a smaller u", smaller)
				case got > longest:
					t.Errorf("more than the longest")
				case off.Abs(off).Cmp(tolerance) > 0:
					t.Errorf("want %s", want.FloatString(1))
				case from.Cmp(to) < 0 && to.Cmp(new(big.Rat).SetInt64(int64(longest))) < 0 && wait.Cmp(to) >= 0:
					t.Errorf("not below %s", to.FloatString(0))
				}
				if t.Failed() {
					t.Fatalf("%s(%d, %d): %d before retry %d, %d before the one before it, u = %d/2⁵³", r.name, base, longest, got, retry, prev, k)
				}
				smaller = got
			}
		}
	})
}

// The waits before the first eight retries, from the smallest to the largest random
// number.
func ExampleBackoff() {
	full := sluice.FullJitter(500*time.Millisecond, 30*time.Second)
	for retry := 1; retry <= 8; retry++ {
		from, to := full(retry, 0, 0), full(retry, 0, 1-1e-9)
		fmt.Printf("%d: %v to %v\n", retry, from, to.Round(time.Millisecond))
	}
	// Output:
	// 1: 0s to 500ms
	// 2: 0s to 1s
	// 3: 0s to 2s
	// 4: 0s to 4s
	// 5: 0s to 8s
	// 6: 0s to 16s
	// 7: 0s to 30s
	// 8: 0s to 30s
}
