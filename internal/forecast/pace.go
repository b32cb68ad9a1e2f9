package forecast

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Pace foresees limits that let one unit pass every Per/Count, and some more after an idle time.
type Pace struct {
	// TAT is the theoretical arrival time: see packages internal/schedule and internal/kind. Rem/Count
	// ns are added to it.
	TAT time.Duration
	Rem int64

	Per   time.Duration // positive
	Count int64         // positive

	// Tolerance is by how much a call may start before the TAT. If Fits is set, it is the time
	// for which a full bucket drains, into which a call must fit.
	Tolerance time.Duration
	Fits      bool

	at time.Duration // of the last call
}

// NewBucket returns a Pace for a bucket that holds capacity units, one of which leaks every interval,
// and that will be empty after level.
func NewBucket(capacity int64, interval, level time.Duration) *Pace {
	return &Pace{TAT: level, Per: interval, Count: 1, Tolerance: time.Duration(capacity) * interval, Fits: true}
}

// Next implements limits.Forecast.
func (p *Pace) Next(at time.Duration, calls, cost int64) (n int64, first, last time.Duration) {
	early := p.Tolerance
	if p.Fits {
		if cost > int64(p.Tolerance/p.Per) {
			return calls, limits.Never, limits.Never
		}
		early -= time.Duration(cost) * p.Per
	}
	at = max(at, p.at)
	tat, rem := p.TAT, p.Rem
	if tat < at {
		tat, rem = at, 0
	}
	if tat == limits.Never {
		return calls, limits.Never, limits.Never
	}
	if slot := tat - early; slot >= at {
		end, _ := p.plus(tat, rem, calls-1, cost)
		if end != limits.Never {
			end = max(slot, end-early)
		}
		return calls, slot, end
	}
	n = 1
	if more, _, ok := sat.MulDiv(int64(at+early-tat), p.Count, 0, 1); ok {
		more, _, _ = p.units(more, rem, cost)
		n = min(calls, 1+more)
	}
	return n, at, at
}

// units returns how many calls of cost are paid for by time·Count − rem.
func (p *Pace) units(paid, rem, cost int64) (n, _ int64, ok bool) {
	each, _, ok := sat.MulDiv(int64(p.Per), cost, 0, 1)
	if !ok {
		return 0, 0, false
	}
	return max(0, paid-rem) / each, 0, true
}

// plus returns tat + rem/Count ns + the time for calls of cost, Never if that is too large.
func (p *Pace) plus(tat time.Duration, rem, calls, cost int64) (time.Duration, int64) {
	units, _, ok := sat.MulDiv(calls, cost, 0, 1)
	if !ok {
		return limits.Never, 0
	}
	d, rem, ok := sat.MulDiv(units, int64(p.Per), rem, p.Count)
	if !ok {
		return limits.Never, 0
	}
	return sat.Add(tat, time.Duration(d)), rem
}

// Take implements limits.Forecast.
func (p *Pace) Take(calls, cost int64, first, last time.Duration) {
	tat, rem := p.TAT, p.Rem
	if tat < first {
		tat, rem = first, 0
	}
	// Evenly: it is linear in the number of calls that are counted from a later instant on.
	p.TAT, p.Rem = p.plus(tat, rem, calls, cost)
	if end, left := p.plus(last, 0, 1, cost); end > p.TAT {
		p.TAT, p.Rem = end, left
	}
	p.at = max(p.at, last)
}

// endures implements enduring.
func (p *Pace) endures(_ time.Duration, cost int64, every time.Duration) bool {
	need, _, ok := sat.MulDiv(cost, int64(p.Per), p.Count-1, p.Count)
	return ok && time.Duration(need) <= every
}

// PerSecond returns a Pace of a rate in units per second that begins now.
func PerSecond(rate float64) *Pace {
	const count = 1 << 10 // so that the rounding of the interval is a fraction of a nanosecond
	per := min(count*1e9/rate, math.MaxInt64/2)
	return &Pace{Per: max(1, time.Duration(per)), Count: count}
}

// A Pause foresees that nothing starts before it has ended.
type Pause time.Duration

// Next implements limits.Forecast.
func (p Pause) Next(at time.Duration, calls, _ int64) (n int64, first, last time.Duration) {
	first = max(at, time.Duration(p))
	return calls, first, first
}

// Take implements limits.Forecast.
func (p Pause) Take(_, _ int64, _, _ time.Duration) {}
