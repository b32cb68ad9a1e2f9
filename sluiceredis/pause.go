package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// voids reports whether a span is known to be void. FailOpen lets all
// calls through, in a pause too: another reservation would get the same. The lock
// is held.
func (p *Pacer) voids(s *span) bool {
	return !s.open && (s.slot < p.pause || s.mark < p.mark && s.slot < p.mark)
}

// doubts reports whether slots that were reserved in a pause, which may have
// ended since, come without word from the server for so long that we would not
// know: see Resume.
func (p *Pacer) doubts(s *span, looked time.Time) bool { return s.at.Sub(looked) > p.poll+p.poll/2 }

// learn records the pauses in a reply of that time.
func (p *Pacer) learn(got kinds.Pauses, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.looked) {
		p.looked = at
	}
	switch {
	case got.Mark > p.mark:
		p.mark, p.pause, p.marked = got.Mark, got.Pause, got.Now
	case got.Mark < p.mark && p.marked < got.Now && got.Now < p.mark: // the server has lost it
		p.mark = got.Mark
	case got.Pause > p.pause && (got.Mark == p.mark || got.Now >= p.mark): // else it is of before the end
		p.pause = got.Pause
	default:
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// here changes the pause of this process's state.
func (p *Pacer) here(change func(*kinds.PaceHeld)) {
	a := p.at()
	p.store.onPacer(a, a.Rule, func(h *kinds.PaceHeld) {
		change(h)
		p.learn(h.Pauses(), time.Now())
	})
}

// PauseUntil lets no call start before t, on any machine. It reaches waiting callers within
// PausePollInterval and a round trip. Then calls start one interval apart, the first at t. A pause
// can be prolonged but not shortened, see [Pacer.Resume]. A pause of more than 52 days is an error.
// After an error the pause may not reach other machines.
func (p *Pacer) PauseUntil(ctx context.Context, t time.Time) error {
	distance := time.Until(t)
	if distance <= 0 {
		return ctx.Err()
	}
	if int64(distance) > kinds.Longest/2 {
		return fmt.Errorf("sluiceredis: a pause of %v: at most 52 days", distance)
	}
	return p.prolong(ctx, int64(distance))
}

// prolong pauses the pacer for so many nanoseconds.
func (p *Pacer) prolong(ctx context.Context, distance int64) error {
	return p.change(ctx, func(h *kinds.PaceHeld) { h.Prolong(distance) }, "pause", distance)
}

// change has the server change the pause or, without a server and for the share of one
// that does not answer, this process by here.
func (p *Pacer) change(ctx context.Context, here func(*kinds.PaceHeld), what string, args ...int64) error {
	if p.store.alone {
		p.here(here)
		return nil
	}
	reply, err := p.store.askPacer(ctx, what, p.at(), args...)
	if err != nil {
		if _, among := p.store.followed(p.paced.Load().limit); among > 0 {
			p.here(here)
		}
		return err
	}
	p.learn(pausesIn(reply), time.Now())
	return nil
}

// pausesIn returns the pauses in a reply of a pacer.
func pausesIn(reply []int64) kinds.Pauses {
	now := reply[6] * 1000
	instant := func(ahead int64) int64 {
		if ahead == 0 {
			return 0
		}
		return now + ahead
	}
	return kinds.Pauses{Now: now, Pause: instant(reply[4]), Mark: instant(reply[5])}
}

// # How does Resume move callers up that hold slots behind a pause?
//
// It makes all slots void that were reserved before, and each caller that notices the end reserves
// another one. Until where the void slots reach is kept as a mark, which a caller also compares:
// slots with a lower mark are from before the end.
//
//	reserved   ·····pause·····│1│2│3│4│
//	Resume     ····▲│1│2│3│4│         ↑ mark
//
// No call may start at a void slot, because another caller may have the same by then. A
// caller notices the end within a poll and a half. So a pause is not ended if less than
// two polls are left; and a caller with a slot reserved in a pause that has had no answer
// for so long asks once more, and does not leave without an answer.

// Resume ends a pause now, on all machines; without one it changes nothing. It reaches waiting
// callers within one and a half PausePollIntervals and a round trip. They then start one
// interval apart, the first one interval after Resume. An earlier [Reservation] is void: at its
// slot another call may start as well.
//
// A pause that ends within two PausePollIntervals is not changed. After [ErrAmbiguous] the
// pause may have ended.
func (p *Pacer) Resume(ctx context.Context) error {
	least := 2 * int64(p.poll)
	return p.change(ctx, func(h *kinds.PaceHeld) { h.Resume(least) }, "resume", least, p.paced.Load().interval)
}
