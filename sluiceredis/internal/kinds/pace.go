package kinds

import (
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Pace is the slots of a pacer. Decided with other limits, slots are taken when they
// have come, and not ahead.
type Pace struct {
	interval        int64 // ns
	missed, horizon int64 // ns
	tag             string
	args            [2]string
}

// NewPace returns slots that are one interval apart. missed is the time for which slots that were
// not used may be caught up for.
func NewPace(interval, missed, horizon time.Duration) *Pace {
	p := &Pace{interval: int64(interval), missed: int64(missed), horizon: int64(horizon)}
	p.args = [2]string{Format(p.missed), Format(p.horizon)}
	p.tag = Format(p.interval) + " " + p.args[0] + " " + p.args[1]
	return p
}

func (p *Pace) Kind() Kind            { return PaceKind }
func (p *Pace) Tag() string           { return p.tag }
func (p *Pace) Limit() int64          { return 1 + p.missed/p.interval }
func (p *Pace) Most() int64           { return p.horizon / p.interval }
func (p *Pace) AtOnce() int64         { return unlimited }
func (p *Pace) Each() int64           { return p.interval }
func (p *Pace) Cost(n int64) string   { return Format(n * p.interval) }
func (p *Pace) Counts() time.Duration { return 2 * time.Duration(p.horizon) }

func (p *Pace) Args(args []string, _ string) []string { return append(args, p.args[:]...) }

func (p *Pace) State(found []int64, now int64, _ *Room) State {
	return &PaceState{pace: p, free: found[1], now: now * 1000}
}

func (p *Pace) Correction(delta int64, _ time.Duration, end int64) (add, arg int64, err error) {
	switch {
	case delta > p.Most():
		return 0, 0, limits.ErrTooLarge
	case delta < 0 && end == 0:
		return 0, 0, ErrStranded // which slots they were is not known
	}
	return delta * p.interval, end, nil
}

// Share has slots that are m intervals apart, and as many of them in its horizon.
func (p *Pace) Share(m int64) Rule {
	if m < 1 {
		return nil
	}
	share := *p
	share.interval *= m
	share.horizon *= m
	return &share
}

// A PaceState is when the next slot is free, from now: negative if it could have
// been used before.
type PaceState struct {
	pace *Pace
	free int64 // ns
	now  int64 // ns since 1970, by the server's clock
}

func (s *PaceState) Wait(n int64) time.Duration {
	switch {
	case n > s.pace.Most():
		return limits.Never
	case n == 0:
		return 0
	}
	return time.Duration(max(0, s.free))
}

func (s *PaceState) Take(n int64) (end int64) {
	s.free += n * s.pace.interval
	return s.now + s.free
}

// Holds returns the number of calls of 1 that could start now, and after idleness. One
// call may be larger, and pays afterwards.
func (s *PaceState) Holds() (remaining, limit int64, reset time.Duration) {
	if s.free <= 0 {
		remaining = 1 - s.free/s.pace.interval
	}
	return remaining, s.pace.Limit(), time.Duration(max(0, s.free+s.pace.missed))
}

// A PaceHeld is a pacer in a process, as lua/pace.lua keeps it.
type PaceHeld struct {
	PaceState
	next, pause int64 // the next free slot and the end of the pause, ns since 1970
	mark        int64 // until where void slots reach; see Resume
	at, until   time.Duration
	before      int64 // free when it was opened
	changed     bool
}

func (p *Pace) Open(old Held, now time.Duration, c *Clock) Held {
	h, _ := old.(*PaceHeld)
	if h == nil {
		h = new(PaceHeld)
	}
	clock := c.Server() * 1000
	// Slots that were missed may be caught up for a while.
	free := max(h.next-clock, -p.missed)
	if h.pause > clock {
		free = max(free, h.pause-clock)
	}
	h.PaceState, h.at, h.before, h.changed = PaceState{p, free, clock}, now, free, false
	return h
}

func (h *PaceHeld) Close(bool) (keep bool) {
	if h.free != h.before {
		h.next, h.changed = h.now+h.free, true
	}
	if h.changed {
		h.until = h.at + time.Duration(max(0, h.next-h.now, h.pause-h.now, h.mark-h.now)+h.pace.missed)
	}
	return h.changed
}

func (h *PaceHeld) Until() time.Duration { return h.until }

func (h *PaceHeld) Add(delta int64, _ time.Duration, end int64) (made int64, err error) {
	switch {
	case delta > h.pace.Most():
		return 0, limits.ErrTooLarge
	case delta < 0 && (end == 0 || end != h.now+h.free):
		return 0, ErrStranded // others were reserved after them, or which they were is not known
	}
	h.free += delta * h.pace.interval
	return max(delta, -delta), nil
}

func (h *PaceHeld) Follow(found State, granted, m int64) {
	whole, ok := found.(*PaceState)
	if !ok || granted == 0 {
		return
	}
	// The last slots that the server gave are as long as those of a share.
	slot := whole.now + whole.free - granted*whole.pace.interval
	h.free = max(h.free, slot+granted*h.pace.interval-h.now)
}

func (h *PaceHeld) Owes(units, m int64) (held, add int64) {
	// A slot is added as a whole, so that the next does not follow too closely.
	held = min(units, Ceil(max(0, h.free), h.pace.interval))
	return held, held * (h.pace.interval / m)
}

// Pauses are the known pauses of a pacer, in ns since 1970 by the server's clock.
type Pauses struct {
	Now, Pause, Mark int64 // 0: none
}

// Pauses returns the pauses that have not ended.
func (h *PaceHeld) Pauses() Pauses {
	p := Pauses{Now: h.now}
	if h.pause > h.now {
		p.Pause = h.pause
	}
	if h.mark > h.now {
		p.Mark = h.mark
	}
	return p
}

// Free returns the first free slot: its distance from now, and its time.
func (h *PaceHeld) Free() (distance, slot int64) { return h.free, h.now + h.free }

// Reserve takes slots of that length from the first free one.
func (h *PaceHeld) Reserve(takes int64) { h.free += takes }

// Cancel returns slots, which end at that time and were reserved under
// that mark, and reports whether no others were reserved after them.
func (h *PaceHeld) Cancel(end, takes, mark int64) (back bool) {
	// A slot that is void ends at a mark or before it, so once all marks have passed no
	// slot of the future is void.
	passed := max(h.mark, mark) <= h.now && end > h.now
	if back = h.next == end && (passed || h.Pauses().Mark == mark); back {
		h.next -= takes
		h.changed = true
	}
	return back
}

// Prolong prolongs the pause to that distance from now.
func (h *PaceHeld) Prolong(distance int64) {
	if h.now+distance > h.pause {
		h.pause = h.now + distance
		h.next = max(h.next, h.pause)
	}
	h.changed = true
}

// Resume ends a pause that does not end within least anyway, as pacer.lua does.
func (h *PaceHeld) Resume(least int64) {
	if h.pause-h.now <= least {
		return
	}
	mark := max(h.next, h.Pauses().Mark+1)
	h.next, h.pause, h.mark, h.changed = h.now+h.pace.interval, 0, mark, true
}

// Sync brings a share up to date with the units that the server has admitted, or with a pause that
// it reports: slots end at next at least.
func (h *PaceHeld) Sync(next, pause int64) {
	h.next, h.pause, h.changed = max(h.next, next), max(h.pause, pause), true
}

func (h *PaceHeld) Reset() { *h = PaceHeld{} }
