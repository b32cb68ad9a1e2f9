package sluice

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # What holds a call up in its own gate
//
// Its room in flight, and its slot at the rate, or a pause: package schedule. And, while they are
// on, brakes, which the answers to calls put on: a slow start, what the gate has learned, and the
// spacing of an empty retry budget. Admission, forecasts, causes, Stats and Keyed ask all brakes
// alike, so a further one is one more line in brakes.on.

// A brake holds calls up until answers say otherwise. It is used with the queue locked.
type brake interface {
	// demand returns how long a call that wants w has to wait, if nothing is answered meanwhile.
	// That it wants to start may count.
	demand(now time.Duration, w want) time.Duration

	// peek is demand for somebody who only looks. It changes nothing.
	peek(now time.Duration, inFlight int64) time.Duration

	// started records that a call that wanted w starts, which could have at due.
	started(now, due time.Duration, w want)

	// forecast says when the last of so many calls will start. Calls stay in flight for hold.
	forecast(now time.Duration, calls, inFlight int64, hold time.Duration) forecast

	// asleep reports whether it may be forgotten: the last call, and the last pause, which ended at
	// paused, were long ago.
	asleep(now, paused time.Duration) bool

	// cause is what the calls wait for that it holds up.
	cause() limits.Cause
}

// A want is what a call that is to start takes.
type want struct {
	n        int64
	costs    Costs
	inFlight int64 // other calls
}

// A forecast is how long it takes until a call starts, as far as a brake knows.
type forecast struct {
	last     time.Duration
	sure     bool // otherwise an answer may make it much shorter: it is named, but does not count
	shortest bool // it may also be longer
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

// peek returns how long the next call would have to wait for the brakes, and for what.
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
