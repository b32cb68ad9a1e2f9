package sluice

import (
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
