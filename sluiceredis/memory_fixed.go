package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A counted is a fixed window in memory, as fixed_take.lua keeps it, with those of
// other lengths and offsets that the key was asked by.
type counted struct {
	start, used    int64         // µs since 1970, units
	until          time.Duration // when it is over, since its map was made
	window, offset int64         // of what kind it is
	limit          int64         // the largest that it was asked by
	next           *counted      // is not changed once it is in a map
}

func (w counted) over(now time.Duration) bool {
	return w.until <= now && (w.next == nil || w.next.over(now))
}

// at returns the windows in force at the instant clock, in microseconds since 1970,
// and now on the clock of the map: first that of k, which may be an empty one.
func (w counted) at(k fixedKey, clock int64, now time.Duration) counted {
	own := counted{window: k.window, offset: k.offset}
	var others *counted
	for old := &w; old != nil; old = old.next {
		if old.until == 0 {
			continue
		}
		one, ok := old.inForce(clock, now)
		switch {
		case old.window == k.window && old.offset == k.offset:
			if ok {
				own = one
			}
		case ok:
			one.next, others = others, &one
		}
	}
	if own.until == 0 {
		own.start = own.begins(clock)
		own.until = now + own.left(clock)
		for o := others; o != nil; o = o.next { // whose units are in this one, too
			if o.start >= own.start {
				own.used = max(own.used, o.used)
			}
		}
	}
	own.next = others
	return own
}

// inForce returns w as it is at that instant, and false if it is over.
func (w counted) inForce(clock int64, now time.Duration) (counted, bool) {
	w.next = nil
	start := w.begins(clock)
	// A clock that was put back does not bring the allowance back, and shuts
	// nobody out for longer than a window; of aligned ones the next may have begun.
	ahead := start
	if w.offset >= 0 {
		ahead += w.window
	}
	if w.start > ahead {
		w.start = start
		w.until = now + w.left(clock)
	}
	return w, clock < w.start+w.window
}

// begins returns the start of a window of that kind that would begin now.
func (w counted) begins(clock int64) int64 {
	if w.offset < 0 {
		return clock
	}
	return clock - (clock-w.offset)%w.window
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// left returns how long w still lasts at that instant.
func (w counted) left(clock int64) time.Duration { return micro(w.start + w.window - clock) }

// found returns what a request by a limit finds: how much is used and how long that
// lasts, as lua/fixed.lua replies. The own window is as full as leaves the room that
// the others have.
func (w counted) found(limit, clock int64) (used int64, left time.Duration) {
	used, left = w.used, w.left(clock)
	for o := w.next; o != nil; o = o.next {
		if room := o.limit - o.used; limit-used > room {
			used, left = limit-room, o.left(clock)
		}
	}
	return used, left
}

// plus returns w with so many units more, or fewer that were admitted at an instant at
// the earliest, in all windows of which that is true.
func (w counted) plus(units, admitted int64) counted {
	if units > 0 || admitted >= w.start {
		w.used = min(max(0, w.used+units), mostInFixed)
	}
	if w.next != nil {
		next := w.next.plus(units, admitted)
		w.next = &next
	}
	return w
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
		used, left := w.found(k.limit, clock)
		units, asked := int64(0), false
		for _, a := range requests {
			a.now, a.sent = clock, time.Now()
			before := used
			a.result, used = k.decide(used, left, a.n)
			units, asked = units+used-before, asked || a.n > 0 && a.n <= k.limit
		}
		// A call that only looks never writes. A window that was refused because of others
		// holds those up, too, while it is asked for.
		if units == 0 && (!asked || w.next == nil) {
			return old
		}
		w.limit = max(w.limit, k.limit)
		return w.plus(units, 0)
	})
}

// decide is what becomes of a request for n units in a window of which so many are
// used and so much time is left: what is answered, and how many are used then.
func (k fixedKey) decide(used int64, left time.Duration, n int64) (limits.Result, int64) {
	res := limits.Result{Limit: k.limit}
	switch {
	case n == 0:
	case n > k.limit:
		res.RetryAfter = limits.Never
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
		before := old.at(k, clock, now)
		before.limit = max(before.limit, k.limit)
		after := before.plus(delta, clock-microseconds(age))
		if changed = max(after.used-before.used, before.used-after.used); changed == 0 && before.next == nil {
			return old
		}
		return after
	})
	return changed, err
}
