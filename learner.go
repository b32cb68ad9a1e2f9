package sluice

import (
	"cmp"
	"encoding/json"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// A learner is the controller of a gate, package internal/adaptive, with the calls that
// are in flight. A nil learner holds nothing up. It is guarded by the lock of the gate's
// queue.
type learner struct {
	belief                // of the first unit
	more        []*belief // of further units, in their order; nil for nearly all gates
	blamed      *belief   // for the last throttled call; nil if there are no further units
	blamedAt    time.Duration
	departures  *departures
	controllers controllers
	catchUp     time.Duration // Config.MaxCatchUp
	weighed     bool          // all throttled calls so far were unclear, see listener.weigh
	blockedAt   time.Duration // when the last blockage began
	// askedUntil is until when the last throttled calls asked to wait.
	askedUntil time.Duration
	reported   uint64 // changes
}

// controllers make the controllers of units that are not the first of a learner.
type controllers interface {
	// further returns a controller for unit that knows nothing.
	further(unit Unit) *adaptive.Controller

	// accused returns a controller for unit, whose limit is s, that knows what s knows. If other
	// processes share the limits, that unit is shared from now on.
	accused(now time.Duration, unit Unit, s *adaptive.Suspect) *adaptive.Controller
}

// demand implements brake. It is Never until a call ends.
func (l *learner) demand(now time.Duration, w want) time.Duration {
	if l.more != nil {
		return l.demandAll(now, w)
	}
	return until(now, l.controller.Demand(now, int(w.inFlight)))
}

// peek implements brake.
func (l *learner) peek(now time.Duration, inFlight int64) time.Duration {
	wait := until(now, l.controller.Peek(now, int(inFlight)))
	for _, b := range l.more {
		if b.controller != nil {
			wait = max(wait, until(now, b.controller.Peek(now, int(inFlight))))
		}
	}
	return wait
}

func until(now, at time.Duration) time.Duration {
	if at == adaptive.Never {
		return limits.Never
	}
	return max(0, at-now)
}

// started implements brake.
func (l *learner) started(now, due time.Duration, w want) {
	d := l.departures.add()
	late := min(max(0, now-due), l.catchUp)
	l.belief.started(d, now, late, w)
	if w.n > 1 || w.costs != nil {
		l.meet(w.n, w.costs)
	}
	if l.more != nil {
		l.startedMore(d, now, late, w)
	}
}

// ended records how a call ended that was not throttled. If it was settled, its actual amount
// matters from now on.
func (l *learner) ended(e *ending, reply adaptive.Reply) {
	if e.delta != 0 {
		l.add(Cost)
	}
	if l.more == nil {
		l.belief.ended(e, reply)
		return
	}
	l.each(func(b *belief) {
		if took := b.ended(e, reply); took > 0 && reply.Outcome == adaptive.Granted {
			b.suspect.Granted(e.now, took)
		}
	})
}

// refused records that the server throttled a call, and asked for a wait of asked. It may have
// named the unit whose limit was exhausted. It reports whether that is thought to be chance.
func (l *learner) refused(e *ending, asked time.Duration, named Unit) (ignored bool) {
	if !l.isBlocked() || e.since > l.askedUntil+forgottenBlockage {
		l.blockedAt = e.now
	}
	l.askedUntil = max(l.askedUntil, e.now+asked)
	reply := adaptive.Reply{Outcome: adaptive.Refused, RetryAfter: asked, AtOnce: e.atOnce}
	if l.more == nil {
		call, _ := l.charged(e)
		return l.controller.Ended(e.now, call, reply)
	}
	l.refusedBy(l.blame(e, named, asked > 0), e, reply)
	return false
}

// searches reports whether no limit has shown yet.
func (l *learner) searches() bool {
	return l.more == nil && l.controller.Belief().Phase == adaptive.Searching
}

// isBlocked reports whether the last call was throttled because of some unit.
func (l *learner) isBlocked() (blocked bool) {
	blocked = l.controller.Blocked()
	for _, b := range l.more {
		blocked = blocked || b.controller != nil && b.controller.Blocked()
	}
	return blocked
}

// forgottenBlockage is after how long without a call a blockage is over, as far as its length
// counts: a program that makes a call an hour must not be told that the server has throttled all of
// them for an hour.
const forgottenBlockage = 5 * time.Minute

// blockedFor returns for how long the server has clearly accepted nothing, the time included for which
// it asked.
func (l *learner) blockedFor(now time.Duration) time.Duration {
	if l == nil || l.weighed || !l.isBlocked() {
		return 0
	}
	return max(0, now-l.blockedAt)
}

// resume ends the pause that the server asked for.
func (l *learner) resume(now time.Duration) {
	if l == nil {
		return
	}
	l.each(func(b *belief) {
		if b.controller != nil {
			b.controller.Resume(now)
		}
	})
}

// changes returns how often a belief has changed.
func (l *learner) changes() (n uint64) {
	n = l.controller.Changes()
	for _, b := range l.more {
		if b.controller != nil {
			n += b.controller.Changes()
		}
	}
	return n
}

// asleep implements brake.
func (l *learner) asleep(now, _ time.Duration) bool { return l.controller.Asleep(now, learnedFor) }

// cause implements brake.
func (l *learner) cause() limits.Cause { return limits.ByLearned }

// learnedFor is how long an unused gate of a Keyed is kept because of its estimate.
const learnedFor = time.Hour

// news returns the event of a change of mind since the last one, or nil if there was none.
func (l *learner) news(q timeline) *Event {
	if l == nil || l.changes() == l.reported {
		return nil
	}
	l.reported = l.changes()
	now := l.learned(q)
	return &Event{Kind: EventLearned, Reason: now.Why, Why: now.String()}
}

// A timeline says which time an instant of a queue is.
type timeline interface {
	Time(time.Duration) time.Time
}

// learned returns the estimates of l, nil if there are none: of the unit that was blamed
// last, and of all units if there are several.
func (l *learner) learned(q timeline) *Learned {
	if l == nil {
		return nil
	}
	if l.blamed == nil {
		s := l.belief.learned(q)
		return &s
	}
	s := l.blamed.learned(q)
	s.Unit = l.blamed.unit
	if l.several() {
		l.each(func(b *belief) {
			if b == l.blamed || b.limited() {
				one := b.learned(q)
				one.Unit = b.unit
				s.Units = append(s.Units, one)
			}
		})
	}
	return &s
}

func (b *belief) learned(q timeline) Learned {
	now := b.controller.Belief()
	s := Learned{
		Phase: now.Phase.String(), Pace: now.Pace, Rate: now.Rate, AcceptedRate: now.Proven, ThrottledRate: now.Refuted,
		Concurrency: int64(now.Concurrency), Blocked: now.Blocked, ThrottleCost: now.Pause,
		Share: now.Share, Peers: now.Peers,
		Throttled: now.Refusals, Ignored: now.Ignored, Updates: now.Changes, Why: now.Why.String(),
	}
	if now.Changes > 0 {
		s.UpdatedAt = q.Time(now.Changed)
	}
	if now.Window > 0 {
		s.Window = Rate{Count: max(1, int64(math.Round(now.Count))), Per: now.Window}
	}
	return s
}

// forecast implements brake, at the present pace.
func (l *learner) forecast(p prospect) (o outlook) {
	known, inFlight := l.controller.Belief(), p.inFlight
	if places := int64(known.Concurrency); places > 0 && p.hold > 0 {
		if known.Phase != adaptive.Slowed || known.Proven == 0 { // otherwise calls stay for less long than before
			o.add(inFlightFor(p.hold, places, inFlight), limits.ByLearned, Calls)
		}
		inFlight = min(inFlight, places-1) // the others have ended by then
	}
	first := l.peek(p.now, inFlight)
	if first == limits.Never { // an answer must come first
		return outlook{last: first, unclear: true}
	}
	o.unclear = l.isBlocked() || cmp.Or(l.blamed, &l.belief).controller.Belief().Phase == adaptive.Searching
	if first > 0 {
		o.add(forecast.Pause(first), limits.ByLearned, Calls)
	}
	l.each(func(b *belief) {
		if b.controller != nil {
			b.forecast(p, &o)
		}
	})
	return o
}

// boundingLasts is the part of the difference between a new pace and the proven one that lasts. It is
// measured: at servers with windows of 10 s, estimates were wrong by up to 20 % with none of it, by
// 17 % with a half, and by 13 % with a third.
const boundingLasts = 1. / 3

// nearlyThrottled is the share of a pace that was throttled from which one does not last.
const nearlyThrottled = .95

// forecast adds the limits of one unit to o.
func (b *belief) forecast(p prospect, o *outlook) {
	known := b.controller.Belief()
	unit, each := b.unit, b.usual.factor()
	if _, given := p.each.Costs[unit]; !given && unit != Calls && known.Pace > 0 && (unit != Cost || p.each.Costs == nil && b.callsPerSecond() < known.Pace) {
		// The amounts are not known, but the mean of earlier calls is.
		unit, each = Calls, known.Pace/b.callsPerSecond()
	}
	pace, share := known.Pace, cmp.Or(known.Share, 1)
	switch known.Phase {
	case adaptive.Tracking:
		if known.Rate > 0 {
			pace = min(pace, known.Rate*share) // a faster one is for a moment
		}
	case adaptive.Bounding:
		// Throttled calls and a wait follow a pace that is too high. One that has lasted is not, unless it has
		// risen to what was throttled before.
		if low := known.Proven * share; 0 < low && low < pace && (p.now-known.Changed < known.Pause || pace > nearlyThrottled*known.Refuted*share) {
			pace = low + (pace-low)*boundingLasts
		}
	case adaptive.Slowed:
		pace = known.Proven * share
	}
	if pace == 0 {
		return
	}
	o.add(forecast.PerSecond(pace/each), limits.ByLearned, unit)
	if known.Window > 0 {
		share /= each
		count := math.Round(known.Count * share)
		o.add(&forecast.Fixed{
			Limit: max(int64(count), p.each.amount(unit)),
			Edges: func(at time.Duration) (start, end time.Duration) {
				start = (at + p.now - known.Since).Truncate(known.Window) + known.Since - p.now
				return start, start + known.Window
			},
			Used: int64(math.Round(known.Used * share)),
			End:  known.Since + known.Window - p.now,
		}, limits.ByLearned, unit)
	}
}

// A snapshot of a gate of one unit is that of its controller. Otherwise it has the snapshots of all
// controllers, by unit.
type unitSnapshot struct {
	Unit    Unit            `json:"unit"`
	Learned json.RawMessage `json:"rule"`
}

const unitsKind = "units"

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
