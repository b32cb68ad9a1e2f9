package adaptive

import "math"

// A service is what the server accepted before it began to reject calls.
//
// # Is it an incident, or a limit?
//
// During an incident, such as the replacement of its servers, a server rejects calls that it has
// room for, for a minute. What is measured then is not its limit. A limit that has fallen looks the
// same, but for two things: an incident ends, and it is shorter than the good time before, or it
// were the usual state. So what is told in trouble is respected; but as long as it has not lasted
// longer than the good time before, the pace goes back to what was accepted then, by doubling, each
// time that the trouble has become longer by a part of itself. A limit that has fallen so costs few
// refusals more: their number grows with the logarithm of the time.
type service struct {
	rate   float64 // granted before the trouble,
	phase  Phase   // and what was believed
	bounds costly
	begin  float64 // of the good time
	since  float64 // of the trouble; 0: there is none
	fell   bool    // the pace was less in the trouble
	back   float64 // when it was so much again; 0: it is less
	before float64 // granted until then
	asked  float64 // the longest wait, in seconds, that a rejection of the trouble has asked for
}

const (
	leastGood   = 60.    // seconds of a good time: less may be the burst of a bucket, or a window
	leastBack   = 10.    // seconds for which it must be back: rows of rejections have gaps
	troubleMore = 1. / 3 // after an incident of a minute the next try comes within 20 s
	waitsMore   = 2      // how many times the wait that rejections ask for: at most a third of the time is waited
	nearlyAll   = .9     // of the rate is as good as the rate
	wellEnough  = .5     // of the rate must be accepted while it is back: some rejections are usual
)

// paid notes that a blockage was costly, at t: a good time has none.
func (s *service) paid(c *Controller, t float64) {
	if !s.impaired(c) {
		s.begin, s.since = t, 0
	}
}

// refused notes a rejection that asks for a wait of so many seconds, 0 if it does not say.
func (s *service) refused(asked float64) { s.asked = max(s.asked, asked) }

// trouble notes that a blockage begins at a point.
func (s *service) trouble(c *Controller, at point) {
	if s.since != 0 && c.at-s.since > s.since-s.begin { // it is the usual state now
		s.begin, s.since = s.since, 0
	}
	if s.since != 0 || at.at < s.begin+leastGood {
		return
	}
	s.rate, s.since, s.asked, s.fell, s.back = c.ledger.lately(at.at), at.at, 0, false, 0
	s.phase, s.bounds = c.phase, c.costly
	if s.phase != Tracking && s.phase != Bounding {
		s.phase, s.bounds = Tracking, costly{}
	} else { // what was accepted lately may have been a burst, and a rate may be too new to be accepted
		s.rate = min(s.rate, c.pace.rate)
	}
}

// impaired reports whether there is trouble that may be an incident. If rejections do not say how long
// to wait, they may be a ban.
func (s *service) impaired(c *Controller) bool {
	return s.since != 0 && s.asked > 0 && c.at-s.since <= s.since-s.begin
}

// wait returns for how many seconds to keep to a rate that is set now, before what was accepted in
// the good time is tried again, and notes that the pace has fallen. It is infinite if there was no
// good time, or if that is over.
func (s *service) wait(c *Controller) float64 {
	if !s.impaired(c) || c.pace.rate >= nearlyAll*s.rate {
		return math.Inf(1)
	}
	s.fell = true
	return s.longer(c)
}

// measured notes that the rate has been measured, by a look or in a group. If that is what it was before the trouble, it has
// not fallen, and a return to the bounds before the trouble would undo what was measured. In a group a process believes in a
// lower rate for a moment if its own rejection misleads it.
func (s *service) measured(c *Controller) {
	if c.pace.rate >= nearlyAll*s.rate {
		s.fell = false
	}
}

// longer returns in how many seconds the trouble, if it may be an incident, will have become longer
// by a part of itself.
func (s *service) longer(c *Controller) float64 {
	if !s.impaired(c) {
		return math.Inf(1)
	}
	return max(troubleMore*(c.at-s.since), waitsMore*s.asked)
}

// paced notes that a call starts at t, at the pace. Once that is what was accepted in the good time,
// it is believed again. The trouble is over when that has gone well for a while.
func (s *service) paced(c *Controller, t float64) {
	switch {
	case s.since == 0 || c.blockage.on:
		return
	case c.pace.now < nearlyAll*s.rate:
		s.fell, s.back = true, 0
		return
	case s.back == 0:
		s.back, s.before = t, c.ledger.now(t).granted
		if s.fell {
			c.chance.forgetTimes()
		}
		if s.fell && c.phase == Bounding {
			start := c.costly.start
			c.costly, c.blockage.quiet = s.bounds, 0
			if c.costly.looking { // that look has ended
				c.costly.looking, c.costly.credit = false, 0
			}
			c.costly.start = start
			rate := s.rate
			if c.sharing.peers > 1 { // or each ban that says that it is a little too high is undone
				rate *= belowRefuted
			}
			c.track(s.phase, rate, Incident)
		}
	}
	if took := t - s.back; took > max(leastBack, troubleMore*(s.back-s.since)) {
		// Short waits between rejections leave the pace where it is, and nothing is accepted all the same.
		if got := c.ledger.now(t).granted; got-s.before < wellEnough*s.rate*took {
			s.back, s.before = t, got
			return
		}
		if s.fell {
			s.begin = s.back
			c.chance.forgetTimes() // the incident may have gone on since the pace was back
		}
		s.since, s.back, s.fell = 0, 0, false
	}
}
