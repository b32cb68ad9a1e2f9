package sat

import (
	"math"
	"math/big"
	"testing"
	"time"
)

var edges = []int64{
	math.MinInt64, math.MinInt64 + 1, -1e18, -3, -1, 0, 1, 2, 3, 7, 1e9, 1e18, math.MaxInt64 - 1, math.MaxInt64,
}

// clamp is what Add and Sub must return for an exact result.
func clamp(x *big.Int) time.Duration {
	switch {
	case x.IsInt64():
		return time.Duration(x.Int64())
	case x.Sign() > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}

func TestAdd_Sub_Saturate(t *testing.T) {
	for _, a := range edges {
		for _, b := range edges {
			sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
			if got, want := Add(time.Duration(a), time.Duration(b)), clamp(sum); got != want {
				t.Errorf("Add(%d, %d) = %d, want %d", a, b, got, want)
			}
			diff := new(big.Int).Sub(big.NewInt(a), big.NewInt(b))
			if got, want := Sub(time.Duration(a), time.Duration(b)), clamp(diff); got != want {
				t.Errorf("Sub(%d, %d) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func FuzzMulDiv(f *testing.F) {
	f.Add(int64(3), int64(1e9), int64(2), int64(7))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(1))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b, c, d int64) {
		if a < 0 || b < 0 || c < 0 || d <= 0 {
			t.Skip("outside the domain")
		}
		num := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		num.Add(num, big.NewInt(c))
		wantQuo, wantRem := new(big.Int).QuoRem(num, big.NewInt(d), new(big.Int))
		quo, rem, ok := MulDiv(a, b, c, d)
		if ok != wantQuo.IsInt64() {
			t.Fatalf("MulDiv(%d, %d, %d, %d): ok = %v, quotient %s", a, b, c, d, ok, wantQuo)
		}
		if ok && (quo != wantQuo.Int64() || rem != wantRem.Int64()) {
			t.Fatalf("MulDiv(%d, %d, %d, %d) = %d, %d; want %s, %s", a, b, c, d, quo, rem, wantQuo, wantRem)
		}
	})
}
