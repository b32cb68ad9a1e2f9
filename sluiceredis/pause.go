package sluiceredis

import (
	"context"
	"fmt"
	"time"
)

var (
	pacePause  = script("pace_pause", "instant", "limits", "pace")
	paceResume = script("pace_resume", "instant", "limits", "pace")
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

// PauseUntil lets no call leave before t, on any machine, those that wait
// included: it reaches them within PausePoll and a round trip. When it is over
// calls leave one interval apart, the first of them at t. A pause is only ever
// prolonged. t is converted to a distance from now at the call, so the clocks of
// the machines need not agree; beyond 52 days it is an error. A server that has
// lost a pause is told again by the next who reserves and knows of it.
//
// After an error the other machines may not have heard of the pause. With the policy
// LocalShare it then holds on this machine, for slots of its share.
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
	reply, err := p.store.run(ctx, pacePause, []string{p.key.key}, []string{format(distance), format(p.missed.Load())})
	if err == nil {
		err = expect(pacePause, reply, 6)
	}
	if _, among := p.store.followed(&p.key); among > 0 && err != nil {
		p.pauseHere(distance)
	}
	if err != nil {
		return err
	}
	p.heard(told(reply[1:]), time.Now())
	return nil
}

// told returns what the last five integers of a reply tell of pauses.
func told(reply []int64) pauses {
	now := reply[4] * 1000
	instant := func(s, ns int64) int64 {
		if s == 0 && ns == 0 {
			return 0
		}
		return now + s*int64(time.Second) + ns
	}
	return pauses{now, instant(reply[0], reply[1]), instant(reply[2], reply[3])}
}

// # What becomes of those who hold slots behind a pause that ends early?
//
// In memory they move up, and here they do, too: who holds a slot and hears of
// the end reserves another one, from the end on. So Resume makes all slots void that
// were reserved before. Until where they reach is kept as a mark, which is also
// what a caller compares: slots under a lower mark are of before the end.
//
//	reserved   ·····pause·····│1│2│3│4│
//	Resume     ····▲│1│2│3│4│         ↑ mark
//
// Nobody may leave at a void slot: another caller may have the same by then. A
// caller hears of the end within a poll and a half. So a pause is not ended
// whose end is less than two away; and who holds a slot reserved in a pause and
// could not ask for so long asks once more before he leaves, and does not leave if
// there is no answer.

// Resume ends a pause now, on all machines; without one it changes nothing. The
// callers who wait hear of it within PausePoll, half of that more if another one
// of their machine has just asked, and a round trip. They then leave one interval
// apart, the first of them one interval after Resume, in the order in which they
// hear of it: those who hold slots behind the pause move up. A [Reservation] does
// not: what was reserved before is void, and to leave by it may be to leave along with
// another call.
//
// A pause that is over within two PausePolls anyway is left to that. The error says
// that the server could not be asked; after [ErrAmbiguous] the pause may have
// ended.
func (p *Pacer) Resume(ctx context.Context) error {
	if p.store.alone {
		p.resumeHere()
		return nil
	}
	reply, err := p.store.run(ctx, paceResume, []string{p.key.key}, []string{format(2 * int64(p.poll)), format(p.interval.Load()), format(p.missed.Load())})
	if err == nil {
		err = expect(paceResume, reply, 6)
	}
	if _, among := p.store.followed(&p.key); among > 0 && err != nil {
		p.resumeHere()
	}
	if err != nil {
		return err
	}
	p.heard(told(reply[1:]), time.Now())
	return nil
}
