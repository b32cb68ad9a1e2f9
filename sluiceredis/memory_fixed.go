package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/leaky"
)

// A counted is a fixed window in memory, as fixed_take.lua keeps it.
type counted struct {
	start, used int64         // µs since 1970, units
	until       time.Duration // when it is over, since its map was made
}

func (w counted) over(now time.Duration) bool { return w.until <= now }

// at returns the window in force at the instant clock, in microseconds since 1970,
// and now on the clock of the map: w, or an empty one.
func (w counted) at(k fixedKey, clock int64, now time.Duration) counted {
	start := clock
	if k.offset >= 0 {
		start -= (clock - k.offset) % k.window
	}
	// A clock that was put back does not bring the allowance back, and shuts
	// nobody out for longer than a window; of aligned ones the next may have begun.
	ahead := start
	if k.offset >= 0 {
		ahead += k.window
	}
	switch {
	case w.until == 0:
	case w.start > ahead:
		return counted{start, w.used, now + micro(start+k.window-clock)}
	case clock < w.start+k.window:
		return w
	}
	return counted{start, 0, now + micro(start+k.window-clock)}
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// left returns how long w still lasts at that instant.
func (w counted) left(k fixedKey, clock int64) time.Duration {
	return micro(w.start + k.window - clock)
}

// edges returns the clock that windows of k begin and end by.
func (m *memory) edges(k fixedKey) int64 {
	if k.offset >= 0 {
		return m.calendar()
	}
	return m.clock()
}

// takeFromFixed has requests for one window answered, in order.
func (m *memory) takeFromFixed(k fixedKey, requests []*asking) error {
	clock := m.edges(k)
	return m.fixeds.Update(k.key, func(old counted, now time.Duration) counted {
		w := old.at(k, clock, now)
		left, granted := w.left(k, clock), false
		for _, a := range requests {
			a.now, a.sent = clock, time.Now()
			used := w.used
			a.result, w.used = k.decide(w.used, left, a.n)
			granted = granted || w.used > used
		}
		if !granted { // who only looks never writes
			return old
		}
		return w
	})
}

// decide is what becomes of a request for n units in a window of which so many are
// used and so much time is left: what is answered, and how many are used then.
func (k fixedKey) decide(used int64, left time.Duration, n int64) (leaky.Result, int64) {
	res := leaky.Result{Limit: k.limit}
	switch {
	case n == 0:
	case n > k.limit:
		res.RetryAfter = leaky.NoRetry
	case used > k.limit-n:
		res.RetryAfter = left
	default:
		used += n
	}
	res.Remaining = max(0, k.limit-used)
	if used > 0 {
		res.ResetAfter = left
	}
	return res, used
}

// adjustFixed adds to a window without asking, or takes out of it what was
// admitted in it age ago, and returns how many units.
func (m *memory) adjustFixed(k fixedKey, delta int64, age time.Duration) (changed int64, err error) {
	clock := m.edges(k)
	err = m.fixeds.Update(k.key, func(old counted, now time.Duration) counted {
		w := old.at(k, clock, now)
		if delta < 0 && clock-microseconds(age) < w.start {
			return old
		}
		used := min(max(0, w.used+delta), mostInFixed-1)
		changed = max(used-w.used, w.used-used)
		if w.used = used; changed == 0 {
			return old
		}
		return w
	})
	return changed, err
}
