package sluiceredis

import (
	"context"
	"fmt"
	"time"
)

// A pauses is what a reply tells of them, in ns since 1970 by the server's clock.
type pauses struct {
	now, pause, mark int64 // 0: none
}

// voids reports whether a span is worthless by what was heard. FailOpen lets all
// calls through, in a pause too: who reserved anew would be given the same. The lock
// is held.
func (p *Pacer) voids(s *span) bool {
	return !s.open && (s.slot < p.pause || s.mark < p.mark && s.slot < p.mark)
}

// doubts reports whether slots that were reserved in a pause, which may have
// ended since, come without word from the server for so long that we would not
// know: see Resume.
func (p *Pacer) doubts(s *span, looked time.Time) bool { return s.at.Sub(looked) > p.poll+p.poll/2 }

// heard notes what a reply of that time told.
func (p *Pacer) heard(told pauses, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.looked) {
		p.looked = at
	}
	switch {
	case told.mark > p.mark:
		p.mark, p.pause, p.marked = told.mark, told.pause, told.now
	case told.mark < p.mark && p.marked < told.now && told.now < p.mark: // the server has lost it
		p.mark = told.mark
	case told.pause > p.pause && (told.mark == p.mark || told.now >= p.mark): // else it is of before the end
		p.pause = told.pause
	default:
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// pauseHere and resumeHere pause and resume what this process holds.
func (p *Pacer) pauseHere(distance int64) {
	k := p.at()
	p.heard(p.store.local().pausePacer(&k, distance), time.Now())
}

func (p *Pacer) resumeHere() {
	k := p.at()
	p.heard(p.store.local().resumePacer(&k, 2*int64(p.poll)), time.Now())
}

// PauseUntil lets no call leave before t, on any machine. It reaches callers that wait
// within PausePoll and a round trip. Afterwards calls leave one interval apart, the
// first of them at t. A pause can be prolonged but not shortened, see [Pacer.Resume].
// The clocks of the machines need not agree. A pause of more than 52 days is an error.
//
// After an error the pause may not reach other machines. With the policy LocalShare it
// then holds for the share of this one.
func (p *Pacer) PauseUntil(ctx context.Context, t time.Time) error {
	distance := time.Until(t)
	if distance <= 0 {
		return ctx.Err()
	}
	if int64(distance) > longest/2 {
		return fmt.Errorf("sluiceredis: a pause of %v: at most 52 days", distance)
	}
	return p.tell(ctx, int64(distance))
}

// tell pauses the pacer for so many nanoseconds.
func (p *Pacer) tell(ctx context.Context, distance int64) error {
	if p.store.alone {
		p.pauseHere(distance)
		return nil
	}
	reply, err := p.store.askPacer(ctx, "pause", p.at(), distance)
	if _, among := p.store.followed(&p.key); among > 0 && err != nil {
		p.pauseHere(distance)
	}
	if err != nil {
		return err
	}
	p.heard(told(reply), time.Now())
	return nil
}

// told returns what a reply of a pacer says of pauses.
func told(reply []int64) pauses {
	now := reply[6] * 1000
	instant := func(ahead int64) int64 {
		if ahead == 0 {
			return 0
		}
		return now + ahead
	}
	return pauses{now, instant(reply[4]), instant(reply[5])}
}

// # How does Resume move callers up that hold slots behind a pause?
//
// It makes all slots void that were reserved before, and each caller that notices the
// end reserves another one. Until where the void slots reach is kept as a mark, which
// is also what a caller compares: slots with a lower mark are from before the end.
//
//	reserved   ·····pause·····│1│2│3│4│
//	Resume     ····▲│1│2│3│4│         ↑ mark
//
// No call may leave at a void slot, because another caller may have the same by then. A
// caller notices the end within a poll and a half. So a pause is not ended if less than
// two polls are left; and a caller with a slot reserved in a pause that has had no answer
// for so long asks once more, and does not leave without an answer.

// Resume ends a pause now, on all machines; without one it changes nothing. It reaches
// callers that wait within one and a half PausePolls and a round trip. They then leave
// one interval apart, the first of them one interval after Resume. A [Reservation] that
// was made before is void: at its slot another call may leave, too.
//
// A pause that ends within two PausePolls anyway is not changed. After [ErrAmbiguous]
// the pause may have ended.
func (p *Pacer) Resume(ctx context.Context) error {
	if p.store.alone {
		p.resumeHere()
		return nil
	}
	reply, err := p.store.askPacer(ctx, "resume", p.at(), 2*int64(p.poll), p.paced.Load().interval)
	if _, among := p.store.followed(&p.key); among > 0 && err != nil {
		p.resumeHere()
	}
	if err != nil {
		return err
	}
	p.heard(told(reply), time.Now())
	return nil
}
