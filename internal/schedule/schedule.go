// Package schedule computes slots: the times at which evenly spaced calls may start. It holds no
// lock, reads no clock and starts nothing.
//
// # How are calls spaced, and what has to be remembered?
//
// The simplest pacer remembers when the last call started and lets the next go T
// later, T being the interval: period ÷ count. It has three flaws.
//
// It loses time. A call that is woken 1 ms after its slot pushes all later
// ones back by 1 ms; at 5,000/s, where T is 0.2 ms, four calls in five never
// happen. So the slot counts, not the departure, and one time is remembered
// instead: the theoretical arrival time, TAT, at which the next call would
// come if all were exactly T apart.
//
//	slot := max(now, TAT − τ)
//	TAT  := max(now, TAT) + n·T
//
// It cannot catch up on idleness, which some APIs allow. That is the tolerance
// τ by which a call may come before its TAT. With B, the burst, calls may go
// together from idle, the first one included:
//
//	B = 1 + τ/T        τ = (B − 1)·T
//
// With T = 100 ms and B = 3 (τ = 200 ms), long idle, five callers together:
//
//	call      1     2     3     4     5
//	TAT       0   100   200   300   400   before it
//	slot      0     0     0   100   200   = max(now, TAT − τ)
//
//	slots  ●●●   ●   ●   ●        B at once, then one each T
//	       0     100 200 300 ms
//
// It forgets the fraction. 3 per second is T = 333,333,333⅓ ns; dropping the
// third of a nanosecond is wrong by 1 ms after 3·10⁶ calls. So TAT is kept as
// whole nanoseconds and a remainder in units of 1/count ns. After k calls it
// is exactly start + k·period/count, rounded down only when it is read.
//
// n is paid afterwards, as in Guava: a call of cost 5 leaves at its slot and
// the next one waits 5·T.
//
// # What if a caller is late?
//
// If the caller itself is late, the time is lost: an interval not used is not saved up beyond τ. If
// this package woke it late, by at most the catch-up C, its call is charged at its slot all the
// same, and those after it follow at the old slots, closer together until the delay is made up. Any
// excess over C is forfeit. A caller that comes back after such a call finds TAT behind now; it is
// charged at TAT as long as the lag is no more than the remaining lateness (credit). If the lag is
// more, the excess is the caller's own lateness, and lost; if the excess is more than the rest, all
// is. So every call is charged at a time v with now − C ≤ v ≤ now, and the v are T apart but for
// the burst. Hence the bound
//
//	permits in any window W  ≤  B + (W + C)/T + n_max − 1
//
// where n_max is the largest cost and T the smallest current interval.
//
// C is 50 ms by default, because machines stall for that long. At 1,000/s 50 calls that start
// together would be a burst that no server expects. So only a lateness of the grain R, at least 1
// ms, is caught up immediately. The rest is caught up at twice the rate: while there is credit,
// calls also follow a second schedule, repay, whose interval is T/2 and which tolerates R + τ. With
// T = 1 ms, woken 4 ms late:
//
//	slot       1   2   3   4   5   6   7   8   9 …
//	leaves at  5   5   5   5½  6   6½  7   8   9 …
//
// Source of the algorithm: the generic cell rate algorithm in its virtual
// scheduling form (ITU-T Recommendation I.371, as secondary literature gives
// it), used to delay instead of to reject; paying afterwards as in Guava's
// SmoothRateLimiter.
package schedule

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// Config describes a schedule. The public packages document the fields.
type Config struct {
	Rate            limits.Rate   // the zero Rate for no limit at all
	MaxCatchUp      time.Duration // C; 0 means DefaultCatchUp, negative none
	TimerResolution time.Duration // R, how late a call may be woken; 0 means DefaultGrain, negative as little as possible
	WarmUp          time.Duration // W, see warmUp; 0 for none
}

// DefaultCatchUp is the amount of our lateness that is caught up by default: virtual
// machines stall for up to 40 ms now and then.
const DefaultCatchUp = 50 * time.Millisecond

// DefaultGrain is the time by which a call may be woken late by default, and the lateness that is
// always caught up immediately: about as much as a Go timer may be late on Linux.
const DefaultGrain = time.Millisecond

// A Schedule is the state: the allowance, and when the next call comes. All
// times are durations since its beginning, at which nothing is stored.
type Schedule struct {
	rate    limits.Rate
	tau     time.Duration
	catchUp time.Duration
	grain   time.Duration

	// The theoretical arrival time is tat + rem/Count ns, 0 ≤ rem < Count.
	tat time.Duration
	rem int64

	// The last call, which SetRate needs: it was charged at last +
	// lastRem/Count ns, when debt was still owed for calls before it, and
	// weighed lastN. So TAT = last + debt + lastN·T.
	last    time.Duration
	lastRem int64
	debt    time.Duration // how much of τ was not stored; 0 without a burst, rounded up
	lastN   int64

	warm *warmUp // nil without a warm-up

	interval time.Duration // T, rounded down to a nanosecond; 0 if there is no limit
	plain    bool          // calls of cost 1 need only that: see Plain

	credit time.Duration // our remaining lateness, 0 ≤ credit ≤ catchUp
	repay  time.Duration // while there is credit, nothing leaves before this + lastN·T/2; 0 without
	pause  time.Duration // nothing leaves before this, and nothing is stored then

	streak streak // see GiveBack
}

// New returns the schedule that cfg describes, or an error if cfg is impossible.
func New(cfg Config) (*Schedule, error) {
	tau, err := tolerance(cfg.Rate, cfg.WarmUp)
	if err != nil {
		return nil, err
	}
	s := &Schedule{rate: cfg.Rate, tau: tau, catchUp: cfg.MaxCatchUp}
	if cfg.WarmUp > 0 {
		s.warm = newWarmUp(cfg.WarmUp, coldFactor, exactInterval(cfg.Rate))
	}
	s.noteInterval()
	switch {
	case cfg.MaxCatchUp == 0:
		s.catchUp = DefaultCatchUp
	case cfg.MaxCatchUp < 0:
		s.catchUp = 0
	}
	if s.grain = max(0, cfg.TimerResolution); cfg.TimerResolution == 0 {
		s.grain = DefaultGrain
	}
	return s, nil
}

// Fine reports whether calls are to be woken more exactly than by a timer, which may be
// 1 ms late: because of the grain, or because that much could not be caught up. It is
// worth while if calls are close together.
func (s *Schedule) Fine() bool {
	exact := s.grain < DefaultGrain || s.catchUp < 2*DefaultGrain
	return exact && s.interval > 0 && s.interval <= 100*time.Millisecond
}

// Hold returns the time after its slot at which a call is to be woken, so that those whose slots
// come until then leave with it. It is part of the grain, and no more than half of the lateness
// that can be caught up.
func (s *Schedule) Hold() time.Duration {
	if s.interval == 0 {
		return 0
	}
	return max(0, min(s.grain, s.catchUp/2)-s.interval)
}

// MaxCatchUp returns the amount of our lateness that is caught up.
func (s *Schedule) CatchUp() time.Duration { return s.catchUp }

// UnitTime returns by how many nanoseconds, but for rounding, Wait grows at most with each unit of
// cost ahead.
func (s *Schedule) UnitTime() float64 {
	if s.warm != nil {
		return s.warm.factor * exactInterval(s.rate)
	}
	return exactInterval(s.rate)
}

// Paused returns the end of the last pause, which may be over.
func (s *Schedule) Paused() time.Duration { return s.pause }

// Slot returns the earliest time for the next call. It may lie in the past;
// sat.Max is never.
func (s *Schedule) Slot() time.Duration { return s.slot(s.repaid()) }

// slot is Slot for what repaid returns.
func (s *Schedule) slot(repaid time.Duration) time.Duration {
	tat, _ := s.lifted()
	if tat == sat.Max {
		return sat.Max
	}
	return max(tat-s.tau, repaid)
}

// Wait returns the time from now that a call would wait that has ahead others
// before it, ahead being the sum of their costs, if those leave as soon as
// they may; sat.Max is never.
func (s *Schedule) Wait(now time.Duration, ahead int64) time.Duration {
	if ahead == 0 {
		return until(now, s.Slot())
	}
	tat, rem := s.charge(now, false)
	repaid, half := s.repaid(), s.halves(ahead)
	if s.warm != nil {
		fresh, rest := s.warm.cost(s.warm.at(s.tat, tat, exactInterval(s.rate)), ahead, exactInterval(s.rate))
		half = sat.Add(s.halves(fresh), max(0, rest/2-time.Duration(ahead))) // each is rounded down
		tat, ahead = sat.Add(tat, rest), fresh
	}
	switch from := max(repaid, s.tolerated(now)); {
	case half == 0:
	case s.tau == 0:
		repaid = sat.Add(from, half)
	case from > tat: // only until nothing is left to catch up on: then a burst may follow
		t := s.interval
		repaid = sat.Add(from, min(half, s.halves(1+int64((from-tat-1)/(t-t/2+1)))))
	}
	tat, _ = s.plus(tat, rem, ahead)
	if tat == sat.Max {
		return sat.Max
	}
	return max(0, max(tat-s.tau, repaid)-now)
}

// Forecast returns a forecast of the rate, nil if there is none. It expects that all callers are woken
// in time.
func (s *Schedule) Forecast(now time.Duration) limits.Forecast {
	if s.rate.Count == 0 {
		return nil
	}
	tat, rem := s.charge(now, false)
	return &forecast.Pace{TAT: sat.Sub(tat, now), Rem: rem, Per: s.rate.Per, Count: s.rate.Count, Tolerance: s.tau}
}

// until returns the time from now until slot, which sat.Max never comes.
func until(now, slot time.Duration) time.Duration {
	if slot == sat.Max {
		return sat.Max
	}
	return max(0, slot-now)
}

// repaid returns the earliest time for the next call as far as it is for catching up on lateness.
func (s *Schedule) repaid() time.Duration {
	if s.credit == 0 {
		return noPause
	}
	return sat.Add(s.repay, s.halves(s.lastN))
}

// tolerated returns the distance by which repay may be behind now.
func (s *Schedule) tolerated(now time.Duration) time.Duration {
	return now - max(s.grain, DefaultGrain) - s.tau
}

// halves returns n times T/2. T/2 is rounded down to a nanosecond, so that adding it n
// times gives the same.
func (s *Schedule) halves(n int64) time.Duration {
	d, _, ok := sat.MulDiv(n, int64(s.interval/2), 0, 1)
	if !ok {
		return sat.Max
	}
	return time.Duration(d)
}

// charge returns when a call that starts at now is charged: at TAT, or later if our
// lateness does not explain how long ago that was. If late, we woke it too late just now;
// then it is charged as much before now as that explains. Otherwise the caller is late by
// the rest, which it loses; if that is more than the rest, the caller was away, and
// nothing remains.
func (s *Schedule) charge(now time.Duration, late bool) (tat time.Duration, rem int64) {
	tat, rem = s.lifted()
	switch own := now - tat - s.credit; {
	case own <= 0:
		return tat, rem
	case late, own < s.credit:
		return now - s.credit, 0 // any excess over catchUp is forfeit
	}
	return now, 0
}

// Admit lets n start at now and returns 0 if the slot has come. Otherwise it
// changes nothing and returns the time until it comes. due ≤ now is when the
// caller was to be woken; now − due is our lateness.
func (s *Schedule) Admit(now, due time.Duration, n int64) time.Duration {
	late := due < now
	if n == 1 && !late {
		if next, interval, ok := s.Plain(); ok { // the same as below, but without divisions
			if now >= next {
				s.Took(now + interval)
			}
			return max(0, next-now)
		}
	}
	repaid := s.repaid()
	slot := s.slot(repaid)
	if slot > now {
		return until(now, slot)
	}
	if late {
		s.credit = min(s.catchUp, now-s.ideal(due, slot))
	}
	tat, rem := s.charge(now, late)
	s.streak.follow(now, tat, s.tat, s.catchUp)
	s.credit, s.repay = max(0, now-tat), 0 // a slot that was not needed now is not owed later
	if s.credit > 0 {
		s.repay = max(repaid, s.tolerated(now))
	}
	if s.tau == 0 {
		s.last, s.lastRem, s.debt = tat, rem, 0
	} else {
		s.last, s.lastRem, s.debt = now, 0, max(0, tat-now)
		if rem > 0 {
			s.debt++
		}
	}
	var rest time.Duration
	if s.warm != nil {
		n, rest = s.warm.take(s.tat, tat, n, exactInterval(s.rate))
		s.debt = rest
		if s.credit > 0 {
			s.repay = sat.Add(s.repay, rest/2)
		}
	}
	s.lastN = n
	s.tat, s.rem = s.plus(sat.Add(tat, rest), rem, n)
	return 0
}

// ideal returns when a call that was due at due would have left, had nobody been late.
func (s *Schedule) ideal(due, slot time.Duration) time.Duration {
	ideal := max(due, slot)
	if tat, _ := s.lifted(); ideal-tat <= s.credit {
		// Then it would have been charged at TAT, for the rest of an earlier lateness. To
		// count only the new one forgot that: calls admitted some µs after they came caught up
		// on T at most.
		return tat
	}
	return ideal
}

// Plain returns when the next call may start and the time from one call to the
// next, if that is all there is to know: a call of cost 1 at now then leaves
// if next ≤ now, and makes next now + interval; without a limit that is 0. It is
// not if there is a burst or a warm-up, the interval is no whole number of
// nanoseconds, or some of our lateness is not caught up yet.
func (s *Schedule) Plain() (next, interval time.Duration, ok bool) {
	if !s.plain || s.credit != 0 {
		return 0, 0, false
	}
	next, rem := s.lifted()
	return next, s.interval, rem == 0 && next != sat.Max
}

// Took notes that calls of cost 1 have left since Plain and that next is when
// another may.
func (s *Schedule) Took(next time.Duration) {
	charged := next - s.interval
	s.streak.follow(charged, charged, s.tat, s.catchUp)
	s.tat, s.rem = next, 0
	s.last, s.lastRem, s.debt, s.lastN = charged, 0, 0, 1
}

// owed returns the theoretical arrival time that the last call left behind.
func (s *Schedule) owed() (tat time.Duration, rem int64) {
	return s.plus(sat.Add(s.last, s.debt), s.lastRem, s.lastN)
}

// Adjust changes the weight of the last calls by delta, once their cost is known. More delays the
// next slot; less brings it forward, at most to the last departure with all that is stored.
func (s *Schedule) Adjust(delta int64) {
	n := s.lastN + delta
	switch {
	case delta > 0 && n < 0: // overflow
		n = math.MaxInt64
	case n < 0:
		back, _ := s.plus(0, 0, -n)
		s.debt, n = max(0, s.debt-back), 0
	}
	s.lastN = n
	s.tat, s.rem = s.owed()
}

// PauseUntil lets nothing start before t. A pause is only ever prolonged. When it ends
// nothing is stored: one call starts at t, the next T later. So the rest of a lateness from
// before it is lost, if the pause delays the next call.
func (s *Schedule) PauseUntil(t time.Duration) {
	s.pause = max(s.pause, t)
	if tat, _ := s.lifted(); tat > s.tat {
		s.credit, s.repay = 0, 0
	}
}

// Resume ends a pause at now.
func (s *Schedule) Resume(now time.Duration) {
	s.pause = min(s.pause, now)
}

// lifted returns the theoretical arrival time, but at least the one that a
// pause leaves: τ after its end, as if that had just been used up.
func (s *Schedule) lifted() (tat time.Duration, rem int64) {
	if s.tat-s.tau >= s.pause {
		return s.tat, s.rem
	}
	return sat.Add(s.pause, s.tau), 0
}

// plus returns tat + rem/Count + n·T.
func (s *Schedule) plus(tat time.Duration, rem, n int64) (time.Duration, int64) {
	if s.rate.Count == 0 || n == 0 {
		return tat, rem
	}
	quo, rem, ok := sat.MulDiv(n, int64(s.rate.Per), rem, s.rate.Count)
	if !ok {
		return sat.Max, 0
	}
	return sat.Add(tat, time.Duration(quo)), rem
}
