package live

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe/live/internal/sentence"
)

// pace writes a frequency with three digits, by the unit that suits it: 19.4/s, 0.955/s, 5/m.
func pace(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0/s"
	case perSecond >= 0.1: // a pace about 1/s must not change its unit all the time
		return number(perSecond) + "/s"
	case perSecond*60 >= 0.1:
		return number(perSecond*60) + "/m"
	}
	return number(perSecond*3600) + "/h"
}

// paceAs writes a frequency by the unit of r, next to which it stands, if that suits it.
func paceAs(perSecond float64, r sluice.Rate) string {
	for unit, per := range map[string]time.Duration{"/s": time.Second, "/m": time.Minute, "/h": time.Hour} {
		if n := perSecond * per.Seconds(); r.Per == per && n >= 0.1 {
			return number(n) + unit
		}
	}
	return pace(perSecond)
}

// number writes x with three digits, or as a whole number if that has more.
func number(x float64) string {
	if x >= 1000 {
		return sentence.Grouped(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// count writes a whole number.
func count[T int64 | uint64 | int](n T) string { return sentence.Grouped(fmt.Sprint(n)) }

// rough writes a time to be glanced at.
func rough(d time.Duration) string { return sentence.Rough(d) }

// perSecond returns the number of calls that r lets start in a second; 0 for no limit.
func perSecond(r sluice.Rate) float64 {
	if r.Count <= 0 || r.Per <= 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// list joins its non-empty arguments.
func list(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, ", ")
}
