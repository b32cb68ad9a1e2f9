package main

import (
	"fmt"
	"strconv"
	"time"
)

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rateText writes calls per second with as many digits as say something.
func rateText(perSecond float64) string {
	switch {
	case perSecond >= 1000:
		return thousands(int64(perSecond+0.5)) + "/s"
	case perSecond >= 10 || perSecond == 0:
		return fmt.Sprintf("%.1f/s", perSecond)
	case perSecond >= 1:
		return fmt.Sprintf("%.2f/s", perSecond)
	default:
		return fmt.Sprintf("%.3g/s", perSecond)
	}
}

// seconds writes a time that may be longer than a Duration can be.
func seconds(s float64) string {
	const tooLong = 1000 * time.Hour
	if s >= tooLong.Seconds() {
		return fmt.Sprintf("%.0f days", s/86400)
	}
	return roughly(time.Duration(s * float64(time.Second)))
}

// roughly writes a time to be glanced at: 9.8s, 1m5s, 2h3m0s.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// millis writes a spacing.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}
