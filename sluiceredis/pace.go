package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A pace is a pacer as it is asked. As a member its slots are taken when they have come,
// and not ahead.
type pace struct {
	spot
	missed, horizon int64 // ns
	interval        int64 // ns
}

func (p *pace) kind() limitKind       { return paceKind }
func (p *pace) limit() int64          { return 1 + p.missed/p.interval }
func (p *pace) most() int64           { return p.horizon / p.interval }
func (p *pace) unit() int64           { return p.interval }
func (p *pace) counts() time.Duration { return 2 * time.Duration(p.horizon) }
func (p *pace) args(string) []string  { return []string{format(p.missed), format(p.horizon)} }

func (p *pace) state(found []int64, now int64) state {
	return &paceState{pace: p, free: found[1], now: now * 1000}
}

func (p *pace) correction(delta int64, _ time.Duration, end int64) (add, arg int64, err error) {
	switch {
	case delta > p.most():
		return 0, 0, limits.ErrTooLarge
	case delta < 0 && end == 0:
		return 0, 0, ErrStranded // which slots they were is not known
	}
	return delta * p.interval, end, nil
}

// share returns the share of one of m: its slots are m intervals apart. It has as many
// of them in its horizon.
func (p *pace) share(m int64) member {
	if m < 1 {
		return nil
	}
	share := *p
	share.interval *= m
	share.horizon *= m
	return &share
}

// A paceState is when the next slot is free, from now: negative if it could have
// been used before.
type paceState struct {
	pace *pace
	free int64 // ns
	now  int64 // ns since 1970, by the server's clock
}

func (s *paceState) wait(n int64) time.Duration {
	switch {
	case n > s.pace.most():
		return limits.Never
	case n == 0:
		return 0
	}
	return time.Duration(max(0, s.free))
}

func (s *paceState) take(n int64) (end int64) {
	if n == 0 {
		return 0
	}
	s.free += n * s.pace.interval
	return s.now + s.free
}

func (s *paceState) add(delta int64, _ time.Duration, end int64) (made int64, err error) {
	switch {
	case delta > s.pace.most():
		return 0, limits.ErrTooLarge
	case delta < 0 && (end == 0 || end != s.now+s.free):
		return 0, ErrStranded // others were reserved after them, or which they were is not known
	}
	s.free += delta * s.pace.interval
	return max(delta, -delta), nil
}

// holds says how many calls of 1 could leave now, and how many after idleness. One
// call may be larger, and pays afterwards.
func (s *paceState) holds() (remaining, limit int64, reset time.Duration) {
	if s.free <= 0 {
		remaining = 1 - s.free/s.pace.interval
	}
	return remaining, s.pace.limit(), time.Duration(max(0, s.free+s.pace.missed))
}

func (s *paceState) follow(found state, granted, m int64) {
	whole, ok := found.(*paceState)
	if !ok || granted == 0 {
		return
	}
	// The last slots that the server gave are as long as those of a share.
	slot := whole.now + whole.free - granted*whole.pace.interval
	s.free = max(s.free, slot+granted*s.pace.interval-s.now)
}

func (s *paceState) owes(units, m int64) (held, add int64) {
	// A slot is told of as a whole, lest the next follow too closely.
	held = min(units, ceil(max(0, s.free), s.pace.interval))
	return held, held * (s.pace.interval / m)
}

func (p *pace) local(m *memory, decide func(state) (asked bool)) {
	m.updatePace(p, func(s *spaced, clock int64) bool {
		st := paceState{pace: p, free: s.free(p, clock), now: clock}
		before := st.free
		if decide(&st); st.free == before {
			return false
		}
		s.next = clock + st.free
		return true
	})
}

// A spaced is a pacer in this process, as lua/pace.lua keeps it.
type spaced struct {
	next, pause int64 // the next free slot and the end of the pause, ns since 1970
	mark        int64 // until where void slots reach; see Resume
}

// updatePace has f change a pacer. f returns whether it has.
func (m *memory) updatePace(p *pace, f func(s *spaced, clock int64) bool) {
	m.update(p.key, func(e *entry, now time.Duration) {
		s, _ := e.value.(*spaced)
		if s == nil {
			s = new(spaced)
		}
		// Slots that were missed may be caught up for a while.
		if clock := m.nanos(); f(s, clock) {
			e.value, e.until = s, now+time.Duration(max(0, s.next-clock, s.pause-clock, s.mark-clock)+p.missed)
		}
	})
}

// free returns the first slot as its distance from now.
func (s *spaced) free(p *pace, clock int64) int64 {
	free := max(s.next-clock, -p.missed)
	if s.pause > clock {
		free = max(free, s.pause-clock)
	}
	return free
}

// pauses returns what is to be told of them.
func (s *spaced) pauses(clock int64) pauses {
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
func (m *memory) reserveSlots(p *pace, times int64, requests []*pacing) {
	at := time.Now()
	m.updatePace(p, func(s *spaced, clock int64) (granted bool) {
		free := s.free(p, clock)
		for _, r := range requests {
			r.at, r.wait, r.slot, r.pauses = at, time.Duration(max(0, free)), clock+free, s.pauses(clock)
			if r.ok = r.takes > 0 && free <= r.patience; r.ok {
				r.takes *= times
				free += r.takes
				granted = true
			}
		}
		if granted {
			s.next = clock + free
		}
		return granted
	})
}

// cancelSlots gives slots back, which end at that instant and were reserved under
// that mark, and reports whether no others were reserved after them.
func (m *memory) cancelSlots(p *pace, end, takes, mark int64) (back bool) {
	m.updatePace(p, func(s *spaced, clock int64) bool {
		if back = s.next == end && s.pauses(clock).mark == mark; back {
			s.next -= takes
		}
		return back
	})
	return back
}

// pausePacer prolongs the pause of a pacer, and returns what is to be told.
func (m *memory) pausePacer(p *pace, distance int64) (told pauses) {
	m.updatePace(p, func(s *spaced, clock int64) bool {
		if clock+distance > s.pause {
			s.pause = clock + distance
			s.next = max(s.next, s.pause)
		}
		told = s.pauses(clock)
		return true
	})
	return told
}

// resumePacer ends a pause that is not over within least anyway, as
// pace_resume.lua does, and returns what is to be told.
func (m *memory) resumePacer(p *pace, least int64) (told pauses) {
	m.updatePace(p, func(s *spaced, clock int64) (changed bool) {
		if changed = s.pause-clock > least; changed {
			*s = spaced{next: clock + p.interval, mark: max(s.next, s.pauses(clock).mark+1)}
		}
		told = s.pauses(clock)
		return changed
	})
	return told
}

// pacerHere has requests for slots decided while the server is away.
func pacerHere(s *Store, k pace, requests []*pacing, away *outageError) error {
	asked := uint64(0) // others only look
	for _, r := range requests {
		if r.here = r.takes > 0; r.here {
			asked++
		}
	}
	var err error
	switch s.policy(k.away) {
	case FailOpen:
		for _, r := range requests {
			r.ok, r.open, r.at, r.wait, r.slot, r.pauses = r.takes > 0, true, time.Now(), 0, s.local().nanos(), pauses{}
		}
		s.local().note(k.key, 0, k.counts()) // so that nothing of it is given back to the server
		s.stats.open.Add(asked)
		return nil
	case LocalShare:
		if _, err = s.shareOf(&k, away); err == nil {
			slots := make([]int64, len(requests))
			for i, r := range requests {
				slots[i] = r.takes / k.interval
			}
			s.local().reserveSlots(&k, s.instances.Load(), requests)
			for i, r := range requests {
				if r.ok {
					s.local().note(k.key, slots[i], k.counts())
				}
			}
			s.stats.local.Add(asked)
			return nil
		}
	default:
		err = away
	}
	s.stats.refused.Add(asked)
	return err
}

// keepPacer keeps the share of a pacer up to date: this is what the server said.
func (s *Store) keepPacer(k pace, requests []*pacing, now int64) {
	_, among := s.followed(&k)
	if among == 0 {
		return
	}
	s.local().heard(now)
	s.local().updatePace(&k, func(p *spaced, _ int64) bool {
		for _, r := range requests {
			if r.ok {
				p.next = max(p.next, r.slot+r.takes*among)
			}
			p.pause = max(p.pause, r.pause)
		}
		return true
	})
}
