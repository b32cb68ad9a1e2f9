package sluice

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # Is it the server that throttles, or are a few calls throttled for their own sake?
//
// After the first throttled call nothing is known. Its next attempt can tell (see refusals.go), but only if others
// were accepted in between. If it comes earlier, it pauses all calls again. Five bad URLs of 205, one after the
// other, took turns at that: the others were done after 12 s instead of 1.3, and after minutes if 30 of them had come
// first.
//
// So from the first throttled call on a gate is in doubt, until one is accepted or found to be alone. Meanwhile a
// call that the server has asked to wait lets others start first, until so many of them are accepted that
// another throttle would be no chance. Then it is the probe. A throttled probe pauses nothing yet: by then the pace
// has risen, and may be too high. The next two calls decide. If both are accepted, the probe is alone. If one
// is throttled, it pauses all calls, and the doubt goes on.
//
//	bad: a b c d e
//	 0 s    a 1 b 2 c 3 d 4    four are throttled: all calls pause for a second
//	 1 s    e                  is throttled, and they pause again
//	 2 s    5 6 7 …            13 are accepted: a is the probe, and is throttled
//	        18 19              are accepted: a is alone
//
// Only calls that left after the first throttle count here. Those in flight with it say how large a burst the server
// accepts, and nothing about the pace that follows.
//
//	later calls
//	accepted    throttled    the probe starts
//	       6            0    now
//	      13            1    now
//	      13            4    after 21 more are accepted
//
// When one is found to be alone, and none was accepted on a later attempt, all of them are thought to be alone, and
// so are new ones: the gate forgets what it has learned from them. The first that is accepted ends that.
//
// More than fewRefused throttled calls are many, and none of this applies. A gate that was told a rate or a limit
// lets no others go first: there the pace does not rise, and throttled calls keep their place.
//
// The others may take long, or many of them may also be bad. So after a while a call is the probe as soon as one other
// was accepted since the last probe. Each such probe that is throttled makes the next one count for more, as in
// refusals.go. Later the calls take their turn.
const (
	deciding = 2                // accepted calls that show that a probe is alone
	letTimes = 7                // so many times the wait that the server asked for,
	letMost  = 10 * time.Second // and so long at most, each while lasts, the first one after that wait

	letLook = 100 * time.Millisecond // so often a call looks whether there are others: some end without an answer
)

// A doubt is how the server has answered calls since the first was throttled. It is part of a tally.
type doubt struct {
	began            time.Duration // when the first was throttled
	granted, refused int64         // answers to calls that left later and were not throttled before
	healed           int           // throttled calls that were accepted on a later attempt

	rounds int           // how often calls were throttled again, although others were accepted after the round before
	round  time.Duration // when that was last

	probing   bool          // one call is the probe
	tried     time.Duration // when a throttled probe left; 0: none, or the next calls have decided
	seem      int           // calls that were throttled as probes since then, and may be alone
	passed    int           // accepted calls that left later
	confirmed time.Duration // the last tried whose probes are alone

	letting int64         // calls that let others go first
	news    chan struct{} // closed when an answer comes; nil if no call waits for it
}

// counts reports whether calls wait for further answers, or a probe does.
func (d *doubt) counts() bool { return d.news != nil || d.tried > 0 }

// tell wakes the calls that let others go first.
func (d *doubt) tell() {
	if d.news != nil {
		close(d.news)
		d.news = nil
	}
}

// try records that a probe, which left at since, was throttled. It returns when the first probe left
// about which the next calls decide.
func (d *doubt) try(since time.Duration) time.Duration {
	if d.tried == 0 {
		d.tried = since
	}
	d.seem++
	return d.tried
}

// decides reports whether a call that left at since decides about a probe.
func (d *doubt) decides(since time.Duration) bool { return d.tried > 0 && since > d.tried }

// decided lets another call be the probe.
func (d *doubt) decided() { d.probing, d.tried, d.seem, d.passed = false, 0, 0, 0 }

// grant counts an accepted call that left at since, and returns how many calls it shows to be alone.
func (d *doubt) grant(since time.Duration) (alone int) {
	if since > d.began {
		d.granted++
	}
	if d.decides(since) {
		if d.passed++; d.passed == deciding {
			d.confirmed, alone = d.tried, d.seem
			d.decided()
		}
	}
	d.tell()
	return alone
}

// refuse counts a call that left at since and was throttled for the first time.
func (d *doubt) refuse(since time.Duration) {
	if since > d.began {
		d.refused++
	}
	if d.decides(since) {
		d.decided()
	}
	d.tell()
}

// heal counts a throttled call that was accepted on a later attempt.
func (d *doubt) heal() {
	d.healed++
	d.tell()
}

// again counts a call that left at since and was throttled again at now. accepted is when the last call left that was
// accepted.
func (d *doubt) again(now, since, accepted time.Duration) {
	if since > d.round && accepted > d.round {
		d.rounds++
		d.round = now
	}
}

// chance returns the probability that throttled calls are throttled again in all rounds and one more, if the server
// throttles them as often as the others.
func (d *doubt) chance() float64 {
	return math.Pow(float64(d.refused+1)/float64(d.granted+d.refused+2), float64(d.rounds+1))
}

// doubts reports whether few calls were throttled, and none was accepted on a later attempt.
func (t *tally) doubts() bool {
	return t.doubt.healed == 0 && t.calls <= fewRefused && t.refused-t.refusedAgain <= fewRefused
}

// inDoubt reports whether nothing is known of the throttled calls.
func (t *tally) inDoubt() bool { return t.alone == 0 && t.doubts() }

// knowsAlone reports whether all that is known of the throttled calls is that some are alone.
func (t *tally) knowsAlone() bool { return t.alone > 0 && t.doubts() }

// lets returns nil if the call of c need not let others go first, because there are none or it is the probe.
// Otherwise it returns a channel that is closed when that may have changed. late says that the call has let others go
// first for a while.
func (s *listener) lets(c *refusedCall, late bool) <-chan struct{} {
	s.queue.Lock()
	defer s.queue.Unlock()
	d := &s.tally.doubt
	others := s.room.calls.Calls() > 1 || s.queue.HasNew()
	if !c.plain() || !others || !s.tally.inDoubt() || s.given.any() {
		return nil
	}
	tells := !c.concernsOthers(&s.tally) || late && s.tally.grantedSince > d.round // if it is throttled again
	if c.probe = tells && d.tried == 0 && (c.probe || !d.probing); c.probe {
		d.probing = true
		return nil
	}
	if d.news == nil {
		d.news = make(chan struct{})
		s.impaired.Store(true) // so that accepted calls count
	}
	return d.news
}

// countLetting counts a call that begins to let others go first, or with -1 one that ends.
func (s *listener) countLetting(n int64) {
	s.queue.Lock()
	s.tally.doubt.letting += n
	s.queue.Unlock()
}

// passOn lets another call be the probe if that was c, which ends without an answer that says anything.
func (s *listener) passOn(c *refusedCall) {
	if !c.probe {
		return
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	c.probe, s.tally.doubt.probing = false, false
	s.tally.doubt.tell()
}

// letOthers waits while the call lets others go first, for half of the time that it has left at most.
func (a *RetryLoop) letOthers(ctx context.Context) {
	told := a.told
	if a.told = 0; told == 0 {
		return
	}
	longer := min(letTimes*min(told, letMost), letMost)
	first := sat.Add(told, longer)
	part := func(left time.Duration) { first, longer = min(first, left/4), min(longer, left/4) }
	if a.policy.MaxElapsed != limits.Never {
		part(a.policy.MaxElapsed - a.elapsed(a.gate.queue.Now()))
	}
	if deadline, ok := ctx.Deadline(); ok {
		part(time.Until(deadline))
	}
	var timer *time.Timer
	var look *time.Ticker
	late := false
	for news := a.gate.lets(&a.refused, late); news != nil && a.patient(); news = a.gate.lets(&a.refused, late) {
		if timer == nil {
			timer = time.NewTimer(first)
			defer timer.Stop()
			look = time.NewTicker(letLook)
			defer look.Stop()
			a.gate.countLetting(1)
			defer a.gate.countLetting(-1)
		}
		select {
		case <-news:
		case <-look.C:
		case <-timer.C:
			if late {
				return
			}
			late = true
			timer.Reset(longer)
		case <-ctx.Done():
			return
		case <-a.through.life.Done():
			return
		}
	}
}

// patient reports whether none of the gates of the call is paused for longer than the call waits for a server.
func (a *RetryLoop) patient() bool {
	for g := a.through; g != nil; g = g.parent {
		if g.exhausts(a.policy.MaxServerWait) {
			return false
		}
	}
	return true
}

// exhausts reports whether a call with so much patience stops waiting for the gate.
func (s *listener) exhausts(patience time.Duration) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	return admitter{&s.turnstile}.giveUp(s.queue.Now(), patience) != nil
}
