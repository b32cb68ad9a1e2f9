package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// kept reports whether the limit was, exactly, and every answer is explained.
func (f *figures) kept() bool {
	return worst(f.granted, f.interval) <= f.burst*f.interval && f.explained == nil && f.other == 0 &&
		f.failed == 0 && len(f.granted) == len(f.departures)+int(f.lost)
}

// delivered returns the number of calls per second that arrived, between the first and the
// last; without the burst, which came together.
func (f *figures) delivered() float64 {
	n := len(f.arrivals)
	if n < 2 {
		return 0
	}
	return float64(int64(n)-f.burst) / time.Duration(f.arrivals[n-1]-f.arrivals[0]).Seconds()
}

// closer returns the time by which calls came closer together, where they arrived, than
// the limit lets them go.
func (f *figures) closer() time.Duration {
	return time.Duration(max(0, worst(f.arrivals, f.interval)-f.burst*f.interval))
}

func (f *figures) text(o options) string {
	var b strings.Builder
	say := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-34s %s\n", what, fmt.Sprintf(format, args...))
	}
	yes := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "NO"
	}
	calls := float64(max(1, len(f.departures)))
	say("calls", "%d left, %d arrived, %d granted, %d slots lost", len(f.departures), len(f.arrivals), len(f.granted), f.lost)
	say("delivered ÷ asked, at the server", "%.2f %% (≥ 99.5 %%: %s)", 100*f.delivered()/float64(o.Rate), yes(f.delivered() >= 0.995*float64(o.Rate)))
	over := worst(f.granted, f.interval) - f.burst*f.interval
	say("kept in all windows of the grants", "%s: at most %d + W ÷ %v, and the worst window is %d ns from that",
		yes(over <= 0), f.burst, time.Duration(f.interval), -over)
	say("where the calls arrived", "at most %v closer together (≤ %v: %s); most in any second %d",
		f.closer().Round(time.Microsecond), o.Tolerance, yes(f.closer() <= o.Tolerance), inAny(f.arrivals, time.Second))
	if f.same {
		say("earliest departure", "%v before it was granted", early(f.departures, f.granted))
	}
	if f.explained != nil {
		say("answers explained by the model", "NO: %v", f.explained)
	} else {
		say("answers explained by the model", "all %d scripts", f.scripts)
	}
	say("round trips", "%d for %d calls: %.2f each; %d requests decided", f.trips, len(f.departures), float64(f.trips)/calls, f.decisions)
	say("unknown or failed", "%d scripts, %d calls %v", f.ambiguous, f.failed, f.errors)
	say("processor time for each call", "%.0f µs in the processes, their HTTP included, %.0f µs in the Redis",
		float64(f.workers.Microseconds())/calls, float64(f.redis.Microseconds())/calls)
	say("the machine stood still", "%d times for %v and more, %v in all, for at most %v",
		len(f.stalls), stall.Least, stall.Total(f.stalls).Round(time.Millisecond), stall.Longest(f.stalls).Round(time.Microsecond))
	if f.other > 0 {
		say("scripts of other kinds", "%d: the record is not whole", f.other)
	}
	return b.String()
}
