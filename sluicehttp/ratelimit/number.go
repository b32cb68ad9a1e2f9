package ratelimit

import (
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// A number is a decimal number ≥ 0. Its parts are integers because as a float64
// 1795262490.123 s would be 94 ns short.
type number struct {
	whole int64
	nano  int32 // billionths, < 1e9
}

const (
	longestNumber = 64 // bytes
	longestWhole  = 18 // digits: fits an int64
)

// Why a value is not a number.
const (
	whyNoNumber = "not a number"
	whyNoTime   = "not a time"
	whyRange    = "out of range"
)

// parseNumber reads digits with an optional decimal point. Leading zeros count as digits;
// decimals after the ninth are dropped. If s is not a number, it returns why, and numeric
// reports whether s looks like one.
func parseNumber(s string) (n number, numeric bool, why string) {
	i := 0
	for ; i < len(s) && s[i]-'0' < 10; i++ {
		n.whole = 10*n.whole + int64(s[i]-'0') // wraps if there are too many
	}
	if 0 < i && i == len(s) && i <= longestWhole {
		return n, true, ""
	}
	return parseDecimal(s, i, n.whole)
}

// parseDecimal is parseNumber for an s that begins with i digits, of the value whole, and
// may be too long.
func parseDecimal(s string, i int, whole int64) (n number, numeric bool, why string) {
	if i == 0 {
		return number{}, false, whyNoNumber
	}
	end := i
	if i < len(s) && s[i] == '.' {
		end = i + 1 + digits(s[i+1:])
		if end == i+1 {
			return number{}, false, whyNoNumber
		}
	}
	switch {
	case end < len(s):
		return number{}, false, whyNoNumber
	case len(s) > longestNumber:
		return number{}, true, whyNoNumber
	case i > longestWhole:
		return number{}, true, whyRange
	}
	n.whole = whole
	for place := range 9 {
		n.nano *= 10
		if at := i + 1 + place; at < end {
			n.nano += int32(s[at] - '0')
		}
	}
	return n, true, ""
}

// digits returns the number of digits at the beginning of s.
func digits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}

// of returns n units, or the longest duration.
func (n number) of(unit time.Duration) time.Duration {
	hi, lo := bits.Mul64(uint64(n.whole), uint64(unit))
	if hi > 0 || lo > uint64(sat.Max) {
		return sat.Max
	}
	part, _, _ := sat.MulDiv(int64(n.nano), int64(unit), 0, 1e9) // < unit
	return sat.Add(time.Duration(lo), time.Duration(part))
}

// plus returns n + m. It does not overflow: both have at most 18 digits.
func (n number) plus(m number) number {
	sum := number{n.whole + m.whole, n.nano + m.nano}
	if sum.nano >= 1e9 {
		sum.whole++
		sum.nano -= 1e9
	}
	return sum
}

// minus returns n − m, or 0 if that is less.
func (n number) minus(m number) number {
	if n.less(m) {
		return number{}
	}
	diff := number{n.whole - m.whole, n.nano - m.nano}
	if diff.nano < 0 {
		diff.whole--
		diff.nano += 1e9
	}
	return diff
}

func (n number) less(m number) bool {
	return n.whole < m.whole || n.whole == m.whole && n.nano < m.nano
}

// String returns n without zeros at the end of its decimals.
func (n number) String() string {
	s := strconv.FormatInt(n.whole, 10)
	if n.nano == 0 {
		return s
	}
	nano := strconv.Itoa(int(n.nano))
	return s + "." + strings.Repeat("0", 9-len(nano)) + strings.TrimRight(nano, "0")
}
