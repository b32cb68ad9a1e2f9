package sluice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/rates"
)

// Adaptive says how a gate finds the limit of its server by itself: [Config].Adaptive.
//
// The zero Adaptive is for a limit that is not known. A gate without a rate lets every call start
// until the server throttles some, except that it sends its first burst in steps: see
// Config.Concurrency. Then it keeps its calls a little below the rate that the server
// accepts, and follows its changes: see docs/adaptive.md.
//
// A rate and a concurrency that are configured are maxima. A gate with a rate keeps to it until
// throttled calls come again and again, and then finds out how much less is right.
//
// The gate learns only from calls whose end it sees: those of [Gate.Do], [RetryValue], [RetryLoop],
// [Permit.Done], and of packages sluicehttp and sluicegrpc. A call is throttled if its error is
// marked with [ThrottledFor], or Config.IsThrottle says so. A throttled call
// without a time to wait may be chance: 3 of the last 16 calls must be throttled before the gate
// adapts.
//
// While the gate learns, a throttled call waits in the gate, without a backoff: see [RetryValue].
type Adaptive struct {
	// Disabled keeps the gate to its configuration. After a throttled call it then pauses only
	// as long as the server requests, and starts slowly (see PauseUntil) if it has no rate.
	Disabled bool

	// Search begins with the pace Start and doubles it until the server throttles, or until
	// responses to package sluicehttp show how fast a bucket refills.
	Search bool

	// AvoidThrottling says that the server punishes throttled calls, for example with a ban: the
	// gate then searches slowly and keeps a distance from the throttled rate. It implies Search.
	AvoidThrottling bool

	// Start is the pace at which a search begins, half of it after a first burst of throttled calls. 0
	// means 20 per second, or 5 with AvoidThrottling.
	Start Rate

	// Min is the slowest pace. 0 means one per minute.
	Min Rate

	// ProbeShare is the share of the calls that may be throttled to find the limit, more than 0
	// and less than 1. 0 means 0.02.
	ProbeShare float64

	// Children says that one limit applies to all gates below this one, such as the tenants of one
	// account: those whose Parent it is, and their children. This gate finds the limit, pauses for
	// all of them, and pays their retries. If a child is told to wait for longer than any wait that
	// applied to all, others pause for a second and then find out whether it applies to them. Only a
	// child whose calls are throttled far more often than others finds its own limit. Without
	// Children, each child does so alone, and the parent does not.
	Children bool

	// Peers, if set, lets the gates of one Name in several processes share one limit: an update of
	// one reaches all, and each takes its share (Learned.Share). A sluiceredis.Store is a
	// peers.Store.
	//
	// If calls have Costs, each unit is shared separately, among the gates whose calls take it.
	// Gates of one name should all have the same RateUnit. Set AvoidThrottling in all of them or in
	// none, or all may use only half of the limit for hours.
	//
	// No call waits for Peers. While it does not answer, the gate learns alone, starting from its
	// share. A goroutine reports two to four times a second for each unit, and ends a second after
	// the last call, or after Close, which makes the share available immediately.
	Peers peers.Store
}

// searches reports whether a gate begins with a search.
func (a *Adaptive) searches() bool { return !a.Disabled && (a.Search || a.AvoidThrottling) }

func (a *Adaptive) check() error {
	for _, r := range []Rate{a.Start, a.Min} {
		if r == (Rate{}) {
			continue
		}
		if err := rates.Check(r.Count, r.Per, r.Burst); err != nil {
			return fmt.Errorf("Adaptive: %w", err)
		}
	}
	if !(a.ProbeShare >= 0 && a.ProbeShare < 1) {
		return fmt.Errorf("Adaptive: the price %v is not from 0 to less than 1", a.ProbeShare)
	}
	return nil
}

// Learned is the estimate of a gate with [Adaptive]: Stats.Learned. Rates are per second, in
// the unit of the rate: calls, or cost if RateUnit is Cost or the gate has no rate. If calls
// take several units (their cost is not 1, or they have [Costs]), the gate learns the limit of
// each separately, and Unit is the one that the last throttled call is attributed to.
type Learned struct {
	Unit  Unit      // empty if all calls take 1, and nothing else
	Units []Learned // of each unit that caused a throttled call, if there are several

	// Phase is the activity of the gate: "searching" (the pace doubles), "tracking" (it stays near
	// the measured rate), "bounding" (between two bounds), "windowed" (a number per window),
	// "slowed" (a slow server) or "capped" (calls in flight).
	Phase string

	Pace          float64 // at which calls start; 0: something else than a pace limits them
	Rate          float64 // estimate of the rate that the server accepts; 0: unknown
	AcceptedRate  float64 // a lower bound of Rate: accepted between throttled calls; 0: none
	ThrottledRate float64 // an upper bound of Rate: throttled; 0: none

	// Share is the share of the limit that the gate may use, and Peers the number of gates that
	// share it, if Adaptive.Peers is set: then Pace applies to this gate, and the other rates
	// to all. Share is 0 if nothing is shared, and Peers while Adaptive.Peers does not answer.
	Share float64
	Peers int64

	Concurrency int64 // the bound of the calls in flight; 0: none
	Window      Rate  // that the server accepts, if it counts in windows

	Blocked      bool          // the last call was throttled, and none has been accepted since
	ThrottleCost time.Duration // the cost of a throttled call; 0 if calls are accepted again immediately

	Throttled uint64 // throttled calls
	Ignored   uint64 // of them, those treated as chance
	Updates   uint64 // the number of times that the gate has updated its estimate,
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
