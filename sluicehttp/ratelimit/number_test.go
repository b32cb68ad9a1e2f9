package ratelimit

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

func TestParseNumber(t *testing.T) {
	for _, tt := range []struct {
		in      string
		want    number
		numeric bool
		why     string
	}{
		{"0", number{}, true, ""},
		{"5", number{5, 0}, true, ""},
		{"007", number{7, 0}, true, ""},
		{"0.5", number{0, 500_000_000}, true, ""},
		{"999.0", number{999, 0}, true, ""},
		{"1795262490.123", number{1795262490, 123_000_000}, true, ""},
		{"1.0000000019", number{1, 1}, true, ""}, // cut off, not rounded
		{"999999999999999999", number{999999999999999999, 0}, true, ""},
		{"1000000000000000000", number{}, true, whyRange}, // would fit an int64, has 19 digits
		{"0000000000000000001", number{}, true, whyRange}, // so has this
		{strings.Repeat("9", 65), number{}, true, whyNoNumber},
		{"5." + strings.Repeat("0", 62), number{5, 0}, true, ""},
		{"5." + strings.Repeat("0", 63), number{}, true, whyNoNumber},
		{"", number{}, false, whyNoNumber},
		{".5", number{}, false, whyNoNumber},
		{"5.", number{}, false, whyNoNumber},
		{"1.2.3", number{}, false, whyNoNumber},
		{"-1", number{}, false, whyNoNumber},
		{"+1", number{}, false, whyNoNumber},
		{"1e3", number{}, false, whyNoNumber},
		{"0x10", number{}, false, whyNoNumber},
		{"1_000", number{}, false, whyNoNumber},
		{"1,5", number{}, false, whyNoNumber},
		{" 1", number{}, false, whyNoNumber},
		{"١", number{}, false, whyNoNumber}, // a digit, but not of ASCII
	} {
		n, numeric, why := parseNumber(tt.in)
		if n != tt.want || numeric != tt.numeric || why != tt.why {
			t.Errorf("parseNumber(%q) = %v, %v, %q; want %v, %v, %q", tt.in, n, numeric, why, tt.want, tt.numeric, tt.why)
		}
	}
}

func TestNumber_Of(t *testing.T) {
	for _, tt := range []struct {
		n    number
		unit time.Duration
		want time.Duration
	}{
		{number{0, 0}, time.Hour, 0},
		{number{0, 1}, time.Nanosecond, 0},
		{number{0, 999_999_999}, time.Second, 999_999_999},
		{number{1, 500_000_000}, time.Hour, 90 * time.Minute},
		{number{9223372036, 854_775_807}, time.Second, sat.Max},
		{number{9223372036, 854_775_806}, time.Second, sat.Max - 1},
		{number{9223372036, 854_775_808}, time.Second, sat.Max},
		{number{9223372037, 0}, time.Second, sat.Max},
		{number{999999999999999999, 0}, time.Hour, sat.Max},
	} {
		if got := tt.n.of(tt.unit); got != tt.want {
			t.Errorf("%v of %v = %d, want %d", tt.n, tt.unit, got, tt.want)
		}
	}
}

func TestAmount(t *testing.T) {
	of := func(s string) Amount {
		n, _, why := parseNumber(s)
		if why != "" {
			t.Fatal(why)
		}
		return n.amount()
	}
	for _, tt := range []struct {
		a     Amount
		known bool
		zero  bool
		f     float64
		s     string
	}{
		{Amount{}, false, false, 0, "unknown"},
		{amountOf(0), true, true, 0, "0"},
		{amountOf(5), true, false, 5, "5"},
		{amountOf(math.MaxInt64), true, false, math.MaxInt64, "9223372036854775807"},
		{of("999.0"), true, false, 999, "999"},
		{of("0.5"), true, false, 0.5, "0.5"},
		{of("12.000000001"), true, false, 12.000000001, "12.000000001"},
		{of("0.0"), true, true, 0, "0"},
	} {
		if f, known := tt.a.Value(); f != tt.f || known != tt.known || tt.a.isZero() != tt.zero || tt.a.String() != tt.s {
			t.Errorf("got %v %v %v %q, want %+v", f, known, tt.a.isZero(), tt.a.String(), tt)
		}
	}
}

func TestNumber_Arithmetic(t *testing.T) {
	half, most := number{0, 500_000_000}, number{999999999999999999, 999_999_999}
	for _, tt := range []struct{ a, b, plus, minus number }{
		{number{1, 0}, half, number{1, 500_000_000}, half},
		{half, half, number{1, 0}, number{}},
		{half, number{1, 0}, number{1, 500_000_000}, number{}}, // less than 0 is 0
		{most, most, number{1999999999999999999, 999_999_998}, number{}},
	} {
		if plus, minus := tt.a.plus(tt.b), tt.a.minus(tt.b); plus != tt.plus || minus != tt.minus {
			t.Errorf("%v and %v: got %v, %v; want %v, %v", tt.a, tt.b, plus, minus, tt.plus, tt.minus)
		}
	}
}

func TestPerSecond(t *testing.T) {
	for _, tt := range []struct {
		n    number
		want limits.Rate
	}{
		{number{5, 0}, limits.Rate{Count: 5, Per: time.Second}},
		{number{0, 500_000_000}, limits.Rate{Count: 1, Per: 2 * time.Second}},
		{number{0, 16_700_000}, limits.Rate{Count: 167, Per: 10000 * time.Second}},
		{number{2, 250_000_000}, limits.Rate{Count: 9, Per: 4 * time.Second}},
		{number{0, 1}, limits.Rate{Count: 1, Per: 1e9 * time.Second}},
		{number{999_999_999, 999_999_999}, limits.Rate{Count: 999_999_999_999_999_999, Per: 1e9 * time.Second}},
		{number{1e9, 999_999_999}, limits.Rate{Count: 1e9, Per: time.Second}},
	} {
		if got := perSecond(tt.n); got != tt.want {
			t.Errorf("perSecond(%v) = %v, want %v", tt.n, got, tt.want)
		}
	}
}
