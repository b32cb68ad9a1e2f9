package sluice

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/limits"
)

// A prospect is calls that are to start.
type prospect struct {
	now      time.Duration
	calls    int64
	inFlight int64         // other calls
	hold     time.Duration // for how long they stay in flight; 0 if that is not known
	each     ExpectedCall
}

// An outlook is what a brake knows about when they start.
type outlook struct {
	limits  []foreseen    // that hold them up
	last    time.Duration // when the last one starts, but an answer may make that much shorter: it is named, and does not count
	unclear bool          // it may also take longer
}

// A foreseen is a limit of a gate, or the like, with its forecast.
type foreseen struct {
	limits.Forecast
	by   limits.Cause
	unit Unit
}

// add adds a forecast to o.
func (o *outlook) add(f limits.Forecast, by limits.Cause, unit Unit) {
	o.limits = append(o.limits, foreseen{f, by, unit})
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
		// Throttled calls and a wait follow a pace that is too high. One that has lasted is not.
		if low := known.Proven * share; 0 < low && low < pace && p.now-known.Changed < known.Pause {
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
