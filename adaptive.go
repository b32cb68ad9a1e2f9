package sluice

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/snapshot"
)

// Adaptive says how a gate finds the limit of its server by itself: [Config].Adaptive.
//
// The zero Adaptive is for a limit that is not known. A gate without a rate lets every call start
// until the server throttles some. Then it measures the rate that the server accepts between
// throttled calls, and keeps its calls a little below it. It notices when the server becomes faster
// or slower, counts in windows, limits the calls in flight, or becomes slow instead of throttling.
//
// A rate and a concurrency that are configured are maxima. A gate with a rate keeps to it until
// throttled calls come again and again, and then finds out how much less is right.
//
// The gate learns only from calls whose end it sees: those of [Gate.Do], [RetryValue], [RetryLoop],
// [Permit.Done], and of packages sluicehttp and sluicegrpc. A call is throttled if its error is
// marked with [ThrottledFor] or [ThrottledUntil], or Config.IsThrottle says so. A throttled call
// without a time to wait may be chance: 3 of the last 16 calls must be throttled before the gate
// adapts.
//
// While the gate learns, a throttled call has no backoff: it waits in the gate again, unless it is
// throttled again although others were accepted in between. See [RetryValue] and
// RetryPolicy.MaxServerWait.
type Adaptive struct {
	// Disabled keeps the gate to its configuration. After a throttled call it then pauses only
	// as long as the server requests, and starts slowly (see PauseUntil) if it has no rate.
	Disabled bool

	// Search begins with the pace Start and doubles it until the server throttles.
	Search bool

	// AvoidThrottling says that the server punishes throttled calls, for example with a ban: the
	// gate then searches slowly and keeps a distance from the throttled rate. It implies Search.
	AvoidThrottling bool

	// Start is the pace at which a search begins, and of a gate that knows too little. 0 means 5
	// per second.
	Start Rate

	// Min is the slowest pace. 0 means one per minute.
	Min Rate

	// ProbeShare is the share of the calls that may be throttled to find the limit, more than 0
	// and less than 1. 0 means 0.02.
	ProbeShare float64

	// Children says that one limit applies to all gates below this one, such as the tenants of
	// one account: those whose Parent it is, and their children. This gate finds the limit from
	// their calls, pauses for all of them, and pays their retries from its budget. Only a child
	// whose calls are throttled far more often than others pauses and finds its own limit.
	// Without Children, each child does so alone, and the parent does not.
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
		if err := r.Check(); err != nil {
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

	// Phase is the activity of the gate: "searching" (the pace doubles), "tracking" (it stays
	// near the measured rate), "bounding" (throttled calls are costly, so it stays between two
	// bounds), "windowed" (the server accepts a number per window), "slowed" (the server
	// becomes slow, so the calls in flight are limited) or "capped" (the server limits the
	// calls in flight).
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

	Throttled uint64 // refused calls
	Ignored   uint64 // of them, those treated as chance
	Updates   uint64 // how often the gate has updated its estimate,
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

// # When does a gate begin to learn?
//
// Learning costs time, and a gate that is never told of a throttled call must not pay for it. So a gate
// begins at a throttled call. By then it knows only how many calls have started lately (type recently),
// and that those in flight belong to the time before.
//
// A throttled call may be chance: some servers are overloaded for 1 call in 50, whatever the
// pace. So a gate without a rate begins as a slow start does: when the server asks for a
// wait, or throttles 3 of 16 calls. A gate with a rate, its own or its parent's, or with
// further limits that are known, was told the limit by somebody who should know. It begins at the second
// throttled call within 500 if the server asks for waits, and at the third within 32 if not. Calls that
// were in flight at the same time and throttled count as one. The gate stops learning when its rate has
// been accepted for long.
const (
	strikeTold   = 500
	strikeUntold = 32
)

// strikes are the last throttling responses to a gate with a rate.
type strikes struct {
	end     time.Duration // of the last one: calls that left before belong to it
	n       int
	granted [2]int64 // calls by the gate before the last ones
}

// add records a throttling response and reports whether it is one too many.
func (s *strikes) add(now, since time.Duration, granted int64, told bool) bool {
	if s.n > 0 && since < s.end {
		return false
	}
	few := s.n >= 2 && granted-s.granted[0] <= strikeUntold
	if told {
		few = s.n >= 1 && granted-s.granted[1] <= strikeTold
	}
	s.granted[0], s.granted[1] = s.granted[1], granted
	s.end = now + 1
	s.n++
	return few
}

// recently is the number of calls that had started at two times, 15 s apart or more. Only calls
// that are measured are noted, see flight.Hold.
type recently struct {
	early, late sofar
	begun       bool
	from        time.Duration // since when calls have left without a long pause
}

// longPause is the time without a call after which earlier accepted calls say nothing any more.
const longPause = time.Minute

type sofar struct {
	at          time.Duration
	calls, cost int64
}

// note is called when a call ends that left at since.
func (r *recently) note(since time.Duration, here sofar) {
	now := here.at
	if !r.begun { // calls that were accepted before, as after Forget, are in early
		first := max(r.early.at, since)
		r.begun = true
		r.early.at, r.late.at, r.from = first, first, first
		return
	}
	if now-r.late.at > longPause {
		r.from = since
	}
	if now-r.late.at > 15*time.Second {
		r.early, r.late = r.late, here
	}
}

// suspects records that a call that left at since was throttled, and reports whether it is time to
// learn. weighed says that many calls were throttled lately.
func (m *memory) suspects(here sofar, since, asked time.Duration, weighed bool) bool {
	now := here.at
	if m.given.any() {
		if many := m.strikes.add(now, since, here.calls, asked > 0); many || asked > 0 {
			return many
		}
		m.slowStart(now, since, 0, false)
		return false
	}
	m.ramp = m.ramp.refuse(now, since, asked, false)
	return weighed || asked > 0 || m.ramp.on && m.ramp.began > now
}

// slowStart records for the slow start that the server throttled a call that left at since and asked
// for a wait of asked. Without one, asked = 0, the call counts if it is one of many, as far as is known,
// or surely is. A gate with a rate needs no slow start, one that learns decides by itself, and one whose
// server publishes how fast its limits refill starts as they do after a pause.
func (m *memory) slowStart(now, since, asked time.Duration, surely bool) {
	if asked > 0 && m.limits.refill() {
		return
	}
	if m.rate.Count == 0 && m.learner == nil {
		m.ramp = m.ramp.refuse(now, since, asked, surely)
		m.answersCount.Store(true)
	}
}

// A snapshot of a gate of one unit is that of its controller. Otherwise it has the snapshots of all
// controllers, by unit.
type unitSnapshot struct {
	Unit    Unit            `json:"unit"`
	Learned json.RawMessage `json:"rule"`
}

const unitsKind = "units"

// Snapshot returns the estimate of the gate, for Restore: see [Adaptive].
func (g *Gate) Snapshot() []byte {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.learner
	switch {
	case l == nil:
		return adaptive.New(adaptive.Config{}).Snapshot()
	case l.blamed == nil:
		return l.controller.Snapshot()
	}
	var units []unitSnapshot
	l.each(func(b *belief) {
		if b.limited() {
			units = append(units, unitSnapshot{b.unit, b.controller.Snapshot()})
		}
	})
	return snapshot.Seal(unitsKind, units)
}

// Restore adopts the estimates of a Snapshot, such as one of an earlier run of the program. The
// configured rate and concurrency stay maxima. Restore changes nothing if the snapshot has no
// estimates, or if Adaptive is off. It returns an error and changes nothing if data is not a
// snapshot of a gate.
func (g *Gate) Restore(data []byte) error {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.newLearner()
	if err := l.restore(data); err != nil {
		return fmt.Errorf("sluice: restore of gate %q: %w", g.name, err)
	}
	if l.changes() > 0 && !g.adaptive.Disabled {
		if g.rate.Count > 0 && l.controller.Changes() == 0 && !g.adaptive.searches() {
			g.takeOver(l, g.sofar(g.queue.Now()), 1) // its limit was not exhausted: it begins at the rate
		}
		g.setLearner(l)
		g.queue.Recheck()
		g.wake(g.queue.Now())
	}
	return nil
}

// restore restores a new learner.
func (l *learner) restore(data []byte) error {
	units, err := snapshot.Open[[]unitSnapshot](data, unitsKind)
	if err != nil {
		return l.controller.Restore(data)
	}
	for _, u := range units {
		if err := l.restoreUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (l *learner) restoreUnit(u unitSnapshot) error {
	b := &l.belief
	if u.Unit != l.unit {
		if b = l.add(u.Unit); b == nil || b.controller != nil {
			return snapshot.Impossible() // too many, or one of them twice
		}
		b.controller = l.controllers.further(u.Unit)
	}
	if err := b.controller.Restore(u.Learned); err != nil {
		return err
	}
	if known := b.controller.Belief(); known.Changes > 0 {
		b.suspect.Restore(known.Rate)
		l.blamed = b
	}
	return nil
}
