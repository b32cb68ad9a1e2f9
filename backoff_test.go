package sluice_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// almostOne is the largest u there is.
var almostOne = math.Nextafter(1, 0)

func TestCurves(t *testing.T) {
	const base, longest = 500 * ms, 30 * time.Second
	var (
		exponential  = sluice.Exponential(base, longest)
		full         = sluice.FullJitter(base, longest)
		equal        = sluice.EqualJitter(base, longest)
		decorrelated = sluice.DecorrelatedJitter(base, longest)
		constant     = sluice.Constant(7 * time.Second)
	)
	for _, c := range []struct {
		name  string
		curve sluice.Backoff
		retry int
		prev  time.Duration
		want  [3]time.Duration // at u = 0, 0.5 and just below 1
	}{
		{"exponential", exponential, 1, 0, [3]time.Duration{500 * ms, 500 * ms, 500 * ms}},
		{"exponential", exponential, 2, 0, [3]time.Duration{1000 * ms, 1000 * ms, 1000 * ms}},
		{"exponential", exponential, 3, 0, [3]time.Duration{2000 * ms, 2000 * ms, 2000 * ms}},
		{"exponential", exponential, 6, 0, [3]time.Duration{16000 * ms, 16000 * ms, 16000 * ms}},
		{"exponential", exponential, 7, 0, [3]time.Duration{longest, longest, longest}}, // not 32 s
		{"exponential", exponential, 8, 0, [3]time.Duration{longest, longest, longest}},
		{"exponential", exponential, 2, time.Hour, [3]time.Duration{1000 * ms, 1000 * ms, 1000 * ms}}, // prev is nothing to it

		{"full", full, 1, 0, [3]time.Duration{0, 250 * ms, 500*ms - 1}},
		{"full", full, 2, 0, [3]time.Duration{0, 500 * ms, 1000*ms - 1}},
		{"full", full, 6, 0, [3]time.Duration{0, 8 * time.Second, 16*time.Second - 1}},
		// The cap comes before the jitter, so that the waits of long outages
		// are spread over all of it and not piled up at its end.
		{"full", full, 7, 0, [3]time.Duration{0, 15 * time.Second, longest - 1}},
		{"full", full, 8, time.Hour, [3]time.Duration{0, 15 * time.Second, longest - 1}},

		{"equal", equal, 1, 0, [3]time.Duration{250 * ms, 375 * ms, 500*ms - 1}},
		{"equal", equal, 2, 0, [3]time.Duration{500 * ms, 750 * ms, 1000*ms - 1}},
		{"equal", equal, 7, time.Hour, [3]time.Duration{15 * time.Second, 22500 * ms, longest - 1}},

		{"decorrelated", decorrelated, 1, 0, [3]time.Duration{base, 1000 * ms, 1500*ms - 1}},
		{"decorrelated", decorrelated, 2, base, [3]time.Duration{base, 1000 * ms, 1500*ms - 1}},
		{"decorrelated", decorrelated, 2, base / 2, [3]time.Duration{base, 1000 * ms, 1500*ms - 1}},
		{"decorrelated", decorrelated, 2, time.Second, [3]time.Duration{base, 1750 * ms, 3*time.Second - 1}},
		{"decorrelated", decorrelated, 99, time.Second, [3]time.Duration{base, 1750 * ms, 3*time.Second - 1}}, // nor is retry
		{"decorrelated", decorrelated, 2, 10 * time.Second, [3]time.Duration{base, 15250 * ms, longest - 1}},
		{"decorrelated", decorrelated, 2, longest, [3]time.Duration{base, 15250 * ms, longest - 1}}, // spread over all there is

		{"constant", constant, 1, 0, [3]time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{"constant", constant, 99, time.Hour, [3]time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{"constant 0", sluice.Constant(0), 1, 0, [3]time.Duration{}},

		{"full, base = longest", sluice.FullJitter(base, base), 1, 0, [3]time.Duration{0, 250 * ms, 500*ms - 1}},
		{"equal, 1 ns", sluice.EqualJitter(1, 1), 1, 0, [3]time.Duration{0, 0, 0}},
		{"full, 1 ns", sluice.FullJitter(1, 1), 1, 0, [3]time.Duration{0, 0, 0}},
		{"decorrelated, base = longest", sluice.DecorrelatedJitter(base, base), 3, base, [3]time.Duration{base, base, base}},
	} {
		for i, u := range []float64{0, 0.5, almostOne} {
			if got := c.curve(c.retry, c.prev, u); got != c.want[i] {
				t.Errorf("%s: retry %d after %v with u = %v: %v, want %v", c.name, c.retry, c.prev, u, got, c.want[i])
			}
		}
	}
}

func TestCurvesDoNotOverflow(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		base, longest time.Duration
		retry         int
		want          time.Duration // of Exponential
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
		if got := sluice.Exponential(c.base, c.longest)(c.retry, 0, 0); got != c.want {
			t.Errorf("Exponential(%d, %d), retry %d: %d, want %d", c.base, c.longest, c.retry, got, c.want)
		}
		for name, curve := range map[string]sluice.Backoff{
			"FullJitter":         sluice.FullJitter(c.base, c.longest),
			"EqualJitter":        sluice.EqualJitter(c.base, c.longest),
			"DecorrelatedJitter": sluice.DecorrelatedJitter(c.base, c.longest),
		} {
			for _, u := range []float64{0, 0.5, almostOne} {
				if got := curve(c.retry, c.longest, u); got < 0 || got > c.longest {
					t.Errorf("%s(%d, %d), retry %d, u = %v: %d", name, c.base, c.longest, c.retry, u, got)
				}
			}
		}
	}
}

func TestConstructorsOfCurvesPanic(t *testing.T) {
	for name, curve := range map[string]func(base, longest time.Duration) sluice.Backoff{
		"Exponential":        sluice.Exponential,
		"FullJitter":         sluice.FullJitter,
		"EqualJitter":        sluice.EqualJitter,
		"DecorrelatedJitter": sluice.DecorrelatedJitter,
		"Constant":           func(base, _ time.Duration) sluice.Backoff { return sluice.Constant(base) },
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
		{"Exponential", sluice.Exponential, func(base, longest, _ time.Duration, retry int) (from, to *big.Rat) {
			return doubled(base, longest, retry), doubled(base, longest, retry)
		}},
		{"FullJitter", sluice.FullJitter, func(base, longest, _ time.Duration, retry int) (from, to *big.Rat) {
			return new(big.Rat), doubled(base, longest, retry)
		}},
		{"EqualJitter", sluice.EqualJitter, func(base, longest, _ time.Duration, retry int) (from, to *big.Rat) {
			x := doubled(base, longest, retry)
			return new(big.Rat).Quo(x, big.NewRat(2, 1)), x
		}},
		{"DecorrelatedJitter", sluice.DecorrelatedJitter, func(base, longest, prev time.Duration, _ int) (from, to *big.Rat) {
			x := exact(max(prev, base))
			return exact(base), atMost(x.Mul(x, big.NewRat(3, 1)), longest)
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
			var smaller time.Duration // the wait for the u before, which is no larger
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

// The waits before the first eight retries, from the smallest to the largest
// random number. What DecorrelatedJitter makes of it depends on the wait
// before, here always the longest there can be.
func ExampleBackoff() {
	const base, longest = 500 * time.Millisecond, 30 * time.Second
	const u0, u1 = 0, 1 - 1e-9
	between := func(b sluice.Backoff, retry int, prev time.Duration) string {
		from := b(retry, prev, u0).Round(time.Millisecond)
		to := b(retry, prev, u1).Round(time.Millisecond)
		return fmt.Sprintf("%v to %v", from, to)
	}
	full := sluice.FullJitter(base, longest)
	equal := sluice.EqualJitter(base, longest)
	decorrelated := sluice.DecorrelatedJitter(base, longest)

	const row = "%5v %11v %11v %14v %18v\n"
	fmt.Printf(row, "retry", "Exponential", "FullJitter", "EqualJitter", "DecorrelatedJitter")
	var prev time.Duration
	for retry := 1; retry <= 8; retry++ {
		fmt.Printf(row, retry,
			sluice.Exponential(base, longest)(retry, 0, 0),
			between(full, retry, 0),
			between(equal, retry, 0),
			between(decorrelated, retry, prev))
		prev = decorrelated(retry, prev, u1)
	}
	// Output:
	// retry Exponential  FullJitter    EqualJitter DecorrelatedJitter
	//     1       500ms 0s to 500ms 250ms to 500ms      500ms to 1.5s
	//     2          1s    0s to 1s    500ms to 1s      500ms to 4.5s
	//     3          2s    0s to 2s       1s to 2s     500ms to 13.5s
	//     4          4s    0s to 4s       2s to 4s       500ms to 30s
	//     5          8s    0s to 8s       4s to 8s       500ms to 30s
	//     6         16s   0s to 16s      8s to 16s       500ms to 30s
	//     7         30s   0s to 30s     15s to 30s       500ms to 30s
	//     8         30s   0s to 30s     15s to 30s       500ms to 30s
}
