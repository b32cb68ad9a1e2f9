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
