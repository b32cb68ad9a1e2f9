package sluice

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A brake holds calls up until answers say otherwise. It is used with the queue locked.
type brake interface {
	// demand returns how long a call that wants w has to wait, if nothing is answered meanwhile.
	// That it wants to start may count.
	demand(now time.Duration, w want) time.Duration

	// peek is demand for somebody who only looks. It changes nothing.
	peek(now time.Duration, inFlight int64) time.Duration

	// started records that a call that wanted w starts, which could have at due.
	started(now, due time.Duration, w want)

	// forecast says what is known about when calls will start.
	forecast(p prospect) outlook

	// asleep reports whether it may be forgotten: the last call, and the last pause, which ended at
	// paused, were long ago.
	asleep(now, paused time.Duration) bool

	// cause is the reason for which the calls that it delays wait.
	cause() limits.Cause
}

// A want is the amounts of a call that is to start.
type want struct {
	n        int64
	costs    Costs
	inFlight int64 // other calls
}

// amount returns the amount of unit in w.
func (w want) amount(unit Unit) int64 { return w.costs.amount(unit, w.n) }

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

// brakes are all brakes of a gate.
type brakes struct {
	ramp    *ramp    // or nil
	learner *learner // or nil
	budget  budget   // a brake while it spaces calls
}

// on appends to to those that are on, first those whose cause is named if several hold a call up for
// equally long. A caller has room in to for mostBrakes.
func (s *brakes) on(to []brake) []brake {
	if s.ramp != nil {
		to = append(to, s.ramp)
	}
	if s.learner != nil {
		to = append(to, s.learner)
	}
	if s.budget.spacing > 0 {
		to = append(to, &s.budget)
	}
	return to
}

const mostBrakes = 3

// any reports whether a brake is on. None is in a gate that was never refused anything.
func (s *brakes) any() bool { return s.ramp != nil || s.learner != nil || s.budget.spacing > 0 }

// demand returns how long a call that wants w has to wait for the brakes.
func (s *brakes) demand(now time.Duration, w want) (wait time.Duration) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		wait = max(wait, b.demand(now, w))
	}
	return wait
}

// peek returns how long the next call would have to wait for the brakes, and the brake.
func (s *brakes) peek(now time.Duration, inFlight int64) (wait time.Duration, cause limits.Cause) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		if w := b.peek(now, inFlight); w > wait {
			wait, cause = w, b.cause()
		}
	}
	return wait, cause
}

// started tells the brakes that a call that wanted w starts.
func (s *brakes) started(now, due time.Duration, w want) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		b.started(now, due, w)
	}
}

// asleep reports whether all brakes may be forgotten.
func (s *brakes) asleep(now, paused time.Duration) bool {
	var on [mostBrakes]brake
	return !slices.ContainsFunc(s.on(on[:0]), func(b brake) bool { return !b.asleep(now, paused) })
}
