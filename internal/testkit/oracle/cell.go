package oracle

import (
	"time"

	"github.com/sluice-go/sluice/limits"
)

// Cell returns r as the five integers that CL.THROTTLE of redis-cell replies
// since version 0.3.1: 1 if rejected, the limit, the remaining quota, the seconds until
// a retry (-1 if allowed or hopeless) and the seconds until the reset. Seconds
// are cut to milliseconds and then rounded up, so 0.9 ms are 0 seconds.
func Cell(r limits.Result) [5]int64 { return cell(r, ceilSeconds) }

// CellLegacy returns the reply of redis-cell up to version 0.3.0: Cell, but
// with seconds rounded down.
func CellLegacy(r limits.Result) [5]int64 { return cell(r, floorSeconds) }

func cell(r limits.Result, seconds func(time.Duration) int64) [5]int64 {
	five := [5]int64{0, r.Limit, r.Remaining, -1, seconds(r.ResetAfter)}
	if !r.Allowed() {
		five[0] = 1
	}
	if 0 < r.RetryAfter && r.RetryAfter < limits.Never {
		five[3] = seconds(r.RetryAfter)
	}
	return five
}

func floorSeconds(d time.Duration) int64 { return int64(d / time.Second) }

func ceilSeconds(d time.Duration) int64 {
	s := floorSeconds(d)
	if d%time.Second >= time.Millisecond {
		s++
	}
	return s
}
