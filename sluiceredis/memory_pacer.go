package sluiceredis

import "time"

// A spaced is a pacer in memory, as pacer_reserve.lua keeps it.
type spaced struct {
	next, pause int64         // the next free slot and the end of the pause, ns since 1970
	mark        int64         // until where void slots reach; see Resume
	until       time.Duration // when all have passed, since its map was made
}

func (s spaced) over(now time.Duration) bool { return s.until <= now }

// kept returns s with the time until which it counts. Slots that were missed may
// be caught up for a while.
func (s spaced) kept(k paceKey, clock int64, now time.Duration) spaced {
	s.until = now + time.Duration(max(0, s.next-clock, s.pause-clock, s.mark-clock)+k.missed)
	return s
}

// nanos returns the clock in nanoseconds.
func (m *memory) nanos() int64 { return m.clock() * 1000 }

// free returns the first slot as its distance from now.
func (s spaced) free(k paceKey, clock int64) int64 {
	free := max(s.next-clock, -k.missed)
	if s.pause > clock {
		free = max(free, s.pause-clock)
	}
	return free
}

// pauses returns what is to be told of them.
func (s spaced) pauses(clock int64) pauses {
	p := pauses{now: clock}
	if s.pause > clock {
		p.pause = s.pause
	}
	if s.mark > clock {
		p.mark = s.mark
	}
	return p
}

// reserveSlots has requests for slots answered, in order. Of one that was
// answered, slots are times as long.
func (m *memory) reserveSlots(k paceKey, times int64, requests []*pacing) error {
	clock, at := m.nanos(), time.Now()
	return m.pacers.Update(k.key, func(s spaced, now time.Duration) spaced {
		free := s.free(k, clock)
		granted := false
		for _, r := range requests {
			r.at, r.wait, r.slot, r.pauses = at, time.Duration(max(0, free)), clock+free, s.pauses(clock)
			if r.ok = r.takes > 0 && free <= r.patience; r.ok {
				r.takes *= times
				free += r.takes
				granted = true
			}
		}
		if !granted {
			return s
		}
		s.next = clock + free
		return s.kept(k, clock, now)
	})
}

// cancelSlots gives slots back, which end at that instant and were reserved under
// that mark, and reports whether no others were reserved after them.
func (m *memory) cancelSlots(k paceKey, end, takes, mark int64) (back bool) {
	clock := m.nanos()
	_ = m.pacers.Update(k.key, func(s spaced, now time.Duration) spaced { // never a new key
		if back = s.next == end && s.pauses(clock).mark == mark; back {
			s.next -= takes
			return s.kept(k, clock, now)
		}
		return s
	})
	return back
}

// pausePacer prolongs the pause of a pacer, and returns what is to be told.
func (m *memory) pausePacer(k paceKey, distance int64) (told pauses, err error) {
	clock := m.nanos()
	err = m.pacers.Update(k.key, func(s spaced, now time.Duration) spaced {
		if clock+distance > s.pause {
			s.pause = clock + distance
			s.next = max(s.next, s.pause)
		}
		told = s.pauses(clock)
		return s.kept(k, clock, now)
	})
	return told, err
}

// resumePacer ends a pause that is not over within least anyway, as
// pacer_resume.lua does, and returns what is to be told.
func (m *memory) resumePacer(k paceKey, least int64) (told pauses, err error) {
	clock := m.nanos()
	err = m.pacers.Update(k.key, func(s spaced, now time.Duration) spaced {
		if s.pause-clock > least {
			mark := max(s.next, s.pauses(clock).mark+1)
			s = spaced{next: clock + k.interval, mark: mark}.kept(k, clock, now)
		}
		told = s.pauses(clock)
		return s
	})
	return told, err
}
