package sluice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
)

// Adaptive says how a gate finds the limit of its server by itself: [Config].Adaptive.
//
// The zero Adaptive is for a limit that is not known. A gate without a rate lets every
// call start until the server throttles some. From then on it measures the rate that the
// server accepts from one throttled call to the next, and keeps its calls a little below it. It
// notices when the server becomes faster or slower, grants a number per window, bounds
// the calls in flight, or becomes slow instead of refusing.
//
// A rate and a concurrency that are configured are maxima. A gate with a rate keeps to
// it until throttled calls come again and again, and then finds out how much less is right.
//
// The gate learns only from calls whose end it sees: those of [Gate.Do], [RetryValue],
// [RetryLoop], [Permit.Done], and of packages sluicehttp and sluicegrpc. A call is throttled
// if its error is marked with [ThrottledFor] or [ThrottledUntil], or Config.IsThrottle says so. One
// refusal may be chance: without a time to wait, 3 of the last 16 calls must be throttled.
// Until then the gate behaves as if Adaptive were off.
//
// While the gate learns, a call that is throttled waits in the gate again, has no backoff, and
// does not count as one of RetryPolicy.Attempts. If it is throttled again although others were
// granted in between, that may be its own fault: it counts. If the server has throttled all
// calls for longer than RetryPolicy.MaxServerWait, they end with [ErrServerWait].
type Adaptive struct {
	// Disabled keeps the gate to its configuration. After a throttled call it then pauses only as
	// long as the server asks, and starts slowly (see PauseUntil) if it has no rate.
	Disabled bool

	// Search begins with the pace Start and doubles it until the server throttles. Without
	// it, as many calls start before the first throttled call as callers make.
	Search bool

	// AvoidThrottling says that the server punishes throttled calls, for example with a ban: the
	// gate then searches slowly and keeps a distance from the throttled rate.
	// It implies Search.
	AvoidThrottling bool

	// Start is the pace of a search, and with which a gate begins that knows too little.
	// 0 means 5 per second.
	Start Rate

	// Min is the slowest pace. 0 means one per minute.
	Min Rate

	// ProbeShare is the share of the calls that may be throttled for the sake of finding out,
	// more than 0 and less than 1. 0 means 0.02.
	ProbeShare float64

	// Children says that the limit to be found is one for all gates below this one, such as the
	// tenants of one account: those whose Parent it is, and further below. It finds the limit from
	// their calls in their place, pauses for all of them, and their retries are paid by its budget,
	// so they behave as one gate, and a new one begins with the current estimate. Only if calls of
	// one child are throttled far more often than others does that child pause and find its own
	// limit. Without Children, each gate does so alone, and a Parent does not.
	Children bool

	// Peers, if set, lets the gates of several processes share one limit, such as those of
	// one account: an update of one reaches all, and each takes its share. It is for gates
	// with a Name; those of one name share a limit. A sluiceredis.Store is a peers.Store. See
	// Learned.Share.
	//
	// If calls take of several units, see Costs, each unit is shared apart, among the gates whose
	// calls take of it. Gates of one name must count alike: if one has a RateUnit, all should have
	// it. Set AvoidThrottling in all of them or in none: an estimate of an AvoidThrottling gate
	// makes the others as careful, and all of them may use only half of the limit for hours.
	//
	// No call waits for Peers. While it does not answer, the gate learns alone, from the
	// part that it had. The gate reports twice a second of each unit or, if there is news,
	// up to four times, in a goroutine that ends a second after the last call, or after
	// Close. Close lets the others have the part at once.
	Peers peers.Store
}

// searches reports whether a gate begins with a search.
func (a *Adaptive) searches() bool { return !a.Disabled && (a.Search || a.AvoidThrottling) }

func (a *Adaptive) check() error {
	for _, r := range []Rate{a.Start, a.Min} {
		if r == (Rate{}) {
			continue
		}
		if err := r.Check(); err != nil {
			return fmt.Errorf("Adaptive: %w", err)
		}
	}
	if !(a.ProbeShare >= 0 && a.ProbeShare < 1) {
		return fmt.Errorf("Adaptive: the price %v is not from 0 to less than 1", a.ProbeShare)
	}
	return nil
}

// Learned is the estimate of a gate with [Adaptive]: Stats.Learned. Rates are per second,
// in the unit of the rate: calls, or cost if RateUnit is Cost or the gate has no rate. If calls
// take of several units (their cost is not 1, or they have [Costs]), the gate learns the
// limit of each apart: then Unit is the one that was blamed for the last throttled call.
type Learned struct {
	Unit  Unit      // empty if all calls take 1, and nothing else
	Units []Learned // of each unit that was blamed for a throttled call, if there are several

	// Phase is the activity of the gate: "searching" (the pace doubles), "tracking" (it stays
	// near the measured rate), "bounding" (throttled calls are costly, so the pace stays between
	// two bounds), "windowed" (the server accepts a number per window), "slowed" (the server
	// becomes slow, so the calls in flight are bounded) or "capped" (the server bounds the
	// calls in flight).
	Phase string

	Pace          float64 // at which calls start; 0: something else than a pace limits them
	Rate          float64 // that the server is believed to grant; 0: unknown
	AcceptedRate  float64 // a lower bound of Rate: accepted between throttled calls; 0: none
	ThrottledRate float64 // an upper bound of Rate: throttled; 0: none

	// Share is the part of the limit that the gate may use, and Peers how many gates share
	// it, if Adaptive.Peers is set: then Pace is the pace of this gate, and the other rates are
	// those of all. Share is 0 if nothing is shared, and Peers while the others cannot be
	// reached.
	Share float64
	Peers int64

	Concurrency int64 // the bound of the calls in flight; 0: none
	Window      Rate  // that the server accepts, if it counts in windows

	Blocked      bool          // the last call was throttled, and none has been accepted since
	ThrottleCost time.Duration // the cost of a throttled call; 0 if calls are accepted again immediately

	Throttled uint64 // refused calls
	Ignored   uint64 // of them, those that were taken for chance
	Updates   uint64 // how often the gate has changed its mind,
	UpdatedAt time.Time
	Why       string // and why it did so last
}

// String returns l in one line for people, such as
//
//	tracking: 19.4/s, 18.9/s accepted, 20.3/s throttled (measured between throttled calls)
//
// The form may change.
func (l Learned) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case l.Window != (Rate{}):
		add("%v", l.Window)
	case l.Pace > 0:
		add("%s", perSecond(l.Pace))
	}
	switch {
	case l.Peers > 1:
		add("%.3g%% of what %d share", 100*l.Share, l.Peers)
	case l.Share > 0 && l.Peers == 0:
		add("%.3g%% of a limit, without news of the others", 100*l.Share)
	}
	if l.Concurrency > 0 {
		add("%s in flight", grouped(l.Concurrency))
	}
	if l.AcceptedRate > 0 {
		add("%s accepted", perSecond(l.AcceptedRate))
	}
	if l.ThrottledRate > 0 {
		add("%s throttled", perSecond(l.ThrottledRate))
	}
	if l.Blocked {
		add("blocked")
	}
	line := l.Phase + ": " + strings.Join(parts, ", ") + " (" + l.Why + ")"
	if l.Unit != "" {
		line = string(l.Unit) + " " + line
	}
	for _, other := range l.Units {
		if other.Unit != l.Unit {
			line += "; " + other.String()
		}
	}
	return line
}

// perSecond returns a rate with three digits.
func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'g', 3, 64) + "/s" }

// grouped returns n with a comma before each group of three digits.
func grouped[T int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
