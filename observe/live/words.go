package live

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
)

// pace writes a frequency with three digits, by the unit that suits it, as sluice.Rate does:
// 19.4/s, 5/m.
func pace(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0/s"
	case perSecond >= 1:
		return number(perSecond) + "/s"
	case perSecond*60 >= 1:
		return number(perSecond*60) + "/m"
	}
	return number(perSecond*3600) + "/h"
}

// number writes x with three digits, or as a whole number if that has more.
func number(x float64) string {
	if x >= 1000 {
		return grouped(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// count writes a whole number.
func count[T int64 | uint64 | int](n T) string { return grouped(fmt.Sprint(n)) }

// grouped puts a comma before each group of three digits.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rough writes a time to be glanced at: 1.6 s, 42 s, 2 min 5 s, 1 h 5 min.
func rough(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", max(1, d.Microseconds()))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Truncate(time.Second).Seconds())
	case d < time.Hour:
		return parts(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return parts(d, time.Hour, "h", time.Minute, "min")
	}
	return parts(d, 24*time.Hour, "days", time.Hour, "h")
}

func parts(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// perSecond returns how often calls may leave by r; 0 for no limit.
func perSecond(r sluice.Rate) float64 {
	if r.Count <= 0 || r.Per <= 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// list joins what is not empty.
func list(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, ", ")
}
