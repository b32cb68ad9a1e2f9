package adaptive

import (
	"math"
	"time"
)

// A Suspect is a unit that a server may limit: calls, tokens, bytes. Where calls take of
// several, each unit has a Suspect, and a Controller as soon as it is blamed for a rejection.
//
// # Which limit has rejected a call?
//
// Often the answer does not say. Three things do:
//
//   - Use. A limit rejects calls that take more than it accepts, so the unit is suspect that
//     was used most lately, compared with the rate that it is believed to grant, and with
//     what was accepted in the last minutes.
//   - Size. A limit of tokens rejects calls with many tokens, as a limit of calls does not:
//     what is left is more often too little for a large call. So each rejection of a call that
//     takes m times the mean of a unit makes that unit m times as likely.
//   - The present belief. Where nothing tells, the unit that was blamed last is blamed again.
//
// Blame may be wrong. Then rejections go on although the unit is used less and less, and that
// moves the blame to another one. What was learned of a unit that was probably not to blame
// is forgotten, unless it was certain once.
type Suspect struct {
	began float64
	at    float64
	use   float64 // per second, lately: of the calls that started and were not rejected
	won   float64 // the same of the calls that were accepted, when their answers came
	high  float64 // the most of that; it fades
	mean  float64 // cost of a call
	odds  float64 // how likely its limit rejects calls, as a logarithm
	sure  bool    // it certainly was to blame once

	sent, calls float64 // since it began, without what was rejected
	early, late mark    // checkpoints, 15 s apart or more
	accused     float64 // calls when it was accused and not blamed
	empty       mark    // the last rejection, if calls enough ago
	rate        float64 // granted between the last two rejections, per second
	proved      float64 // the same when the unit was blamed last
}

// A mark is what had started until an instant.
type mark struct{ at, sent, calls float64 }

const (
	lately    = 10. // seconds that use is a mean of
	fading    = 60. // seconds in which high falls to a third
	pressed   = 4.  // weight of use: at 0.8 of the bound, one is half as likely
	leastUse  = -3. // of the logarithm
	mostUse   = 3.  // likewise
	mostOdds  = 1.  // of the evidence of earlier rejections
	mostCycle = .5  // of the evidence of one cycle
	soon      = 25  // calls within which a second accusation counts
	enough    = 12  // calls of a cycle
	certainly = 1.2 // evidence by size that a unit is to blame
	memory    = .97 // of that evidence, per rejection
	again     = .3  // the advantage of the unit that was blamed last
	tiny      = .1  // as likely as a call of no size is to be rejected by a limit of sizes
	inMean    = .05 // weight of a call in the mean
	unmet     = 8   // calls before that says something
)

// pass lets time pass until t.
func (s *Suspect) pass(t float64) {
	if s.calls == 0 {
		s.began, s.at, s.early.at, s.late.at = t, t, t, t
	}
	if d := t - s.at; d > 0 {
		fade := math.Exp(-d / lately)
		s.use *= fade
		s.won *= fade
		s.high = max(s.won, s.high*math.Exp(-d/fading))
		s.at = t
	}
}

// Started records that a call of cost starts.
func (s *Suspect) Started(now time.Duration, cost float64) {
	t := now.Seconds()
	s.pass(t)
	if t-s.late.at > 15 {
		s.early, s.late = s.late, mark{t, s.sent, s.calls}
	}
	s.use += cost / lately
	s.sent += cost
	s.calls++
	average(&s.mean, cost, inMean)
}

// Granted records that a call of cost was accepted.
func (s *Suspect) Granted(now time.Duration, cost float64) {
	s.pass(now.Seconds())
	s.won += cost / lately
	s.high = max(s.high, s.won)
}

// Denied records that a call of cost was rejected.
func (s *Suspect) Denied(now time.Duration, cost float64) {
	s.pass(now.Seconds())
	s.use = max(0, s.use-cost/lately)
	s.sent -= cost
	s.calls--
}

// Settle adds delta to the cost of a call.
func (s *Suspect) Settle(delta float64) {
	s.use = max(0, s.use+delta/lately)
	s.won = max(0, s.won+delta/lately)
	s.sent += delta
}

// Restore sets a rate that was accepted when the unit was blamed last.
func (s *Suspect) Restore(rate float64) { s.proved = rate }

// recent returns use without the time before it began.
func (s *Suspect) recent(now time.Duration) float64 {
	s.pass(now.Seconds())
	return s.use / (1 - math.Exp(-max(1, s.at-s.began)/lately))
}

// Past returns what a controller must know that begins now.
func (s *Suspect) Past(answer time.Duration) Past {
	p := Past{
		Since: duration(s.early.at), Calls: s.calls - s.early.calls, Cost: max(0, s.sent-s.early.sent),
		Answer: answer,
	}
	return p
}

// size notes that a call was rejected that takes s.Cost.
func (s *Candidate) size() {
	s.odds *= memory
	if s.calls >= unmet {
		s.odds += math.Log(tiny + (1-tiny)*s.Cost/s.mean)
	}
}

// cycle returns by how much, as a logarithm, what was accepted per second since the last
// refusal differs from what was accepted before that, and the least that it can be known to.
func (s *Suspect) cycle(t float64) (differs, error float64, ok bool) {
	calls := s.calls - s.empty.calls
	if calls < enough || t <= s.empty.at {
		return 0, 0, false
	}
	rate, before := (s.sent-s.empty.sent)/(t-s.empty.at), s.rate
	first := s.empty == mark{}
	s.empty = mark{t, s.sent, s.calls}
	if first || rate <= 0 {
		return 0, 0, false
	}
	s.rate = rate
	if before == 0 {
		return 0, 0, false
	}
	return math.Log(rate / before), .02 + 2/calls, true
}

// pressure returns how much was used lately, compared with what was accepted, as a logarithm.
func (s *Candidate) pressure() float64 {
	bound := max(s.proved, s.high)
	if bound == 0 || s.use == 0 {
		return 0
	}
	return max(leastUse, min(mostUse, pressed*math.Log(s.use/bound)))
}

// A Candidate may be to blame for the rejection of a call. Controller is nil if the unit was never
// blamed, and Cost is what the call took of it.
type Candidate struct {
	*Suspect
	Controller *Controller
	Cost       float64
}

// Blame returns which of the candidates has rejected a call at now. last is the one that was blamed
// last.
func Blame(now time.Duration, all []Candidate, last int) int {
	compare(now, all)
	blamed, most := last, math.Inf(-1)
	for i := range all {
		s := &all[i]
		s.pass(now.Seconds())
		if s.Cost == 0 {
			continue
		}
		s.size()
		s.odds = max(-mostOdds, min(mostOdds, s.odds))
		x := s.pressure() + s.odds
		if i == last {
			x += again
		}
		if x > most {
			blamed, most = i, x
		}
	}
	all[blamed].proved = all[blamed].rate
	convict(now, all, blamed)
	return blamed
}

// compare finds the units of which the server has accepted the same from one rejection to the
// next. The limit of one unit rejects calls at a constant rate of that unit; the rates of
// other units differ as the calls do.
func compare(now time.Duration, all []Candidate) {
	var mean, n float64
	squares := make([]float64, len(all))
	for i, s := range all {
		squares[i] = -1
		if differs, error, ok := s.cycle(now.Seconds()); ok {
			squares[i] = differs * differs / (2 * error * error)
			mean += squares[i]
			n++
		}
	}
	for i, s := range all {
		if squares[i] >= 0 {
			s.odds += max(-mostCycle, min(mostCycle, mean/n-squares[i]))
		}
	}
}

// convict forgets the estimate of other units than blamed if that is certainly to blame,
// and they never were.
func convict(now time.Duration, all []Candidate, blamed int) {
	b := all[blamed]
	for i, s := range all {
		if i != blamed && s.Cost > 0 && b.odds-s.odds < certainly {
			return
		}
	}
	b.sure = true
	for i, s := range all {
		if i != blamed && s.Controller != nil && !s.sure {
			s.Controller.acquit(now)
		}
	}
}

// acquit forgets the rate: no limit of this unit has rejected anything.
func (c *Controller) acquit(now time.Duration) {
	if !c.paced() || c.phase == Searching {
		return
	}
	c.pace = pace{}
	c.pace.init(c.cfg)
	c.pace.now *= c.meanCost
	c.blockage.end()
	c.costly = costly{start: c.costly.start}
	c.window = window{}
	c.enter(Unlimited, now.Seconds(), Acquitted)
}

// Accuse prepares a controller without a pace for its first rejection, and reports whether it is to
// get it. Calls started at a pace of another unit, so the limit is near what they took of this
// one, or what was accepted before. If the server did not ask for a wait, the first accusation
// may be chance.
func (s *Candidate) Accuse(now time.Duration, told bool) bool {
	c := s.Controller
	if c.phase != Unlimited {
		return true
	}
	if !told && (s.accused == 0 || s.calls > s.accused+soon) {
		s.accused = s.calls
		return false
	}
	s.accused = 0
	if rate := max(s.recent(now), s.rate); rate > 0 {
		c.assume(Tracking, c.sharing.whole(rate))
	}
	c.chance.suspect = 0 // this is the second one
	return true
}

// Elsewhere records that call was rejected because of a limit of another unit.
func (c *Controller) Elsewhere(now time.Duration, call Call) {
	t := now.Seconds()
	c.at = t
	c.latency.ended(c, max(0, t-call.sent), call, false)
	c.ledger.refuse(call)
	c.blockage.from.without(call)
	c.costly.start.without(call)
	c.blockage.forget(call)
	if call.sent >= c.window.from {
		c.window.used -= call.cost
	}
	c.charge(t, -call.cost) // its slot is free again
}

// Accused returns call, which started when c had no pace, as if it had started at the pace of Accuse.
func (c *Controller) Accused(call Call) Call {
	if c.phase == Tracking && c.pace.calls == 0 && c.chance.suspect == 0 {
		call.pace, call.epoch = c.pace.now, c.epoch
	}
	return call
}

// CallsPerSecond returns the pace in calls, 0 if there is none.
func (c *Controller) CallsPerSecond() float64 {
	if !c.paced() || c.meanCost == 0 {
		return 0
	}
	return c.bounded() / c.meanCost
}
