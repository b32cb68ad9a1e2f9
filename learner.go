package sluice

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A learner is the controller of a gate, package internal/adaptive, with the calls that
// are in flight. A nil learner holds nothing up. It is guarded by the lock of the gate's
// queue.
type learner struct {
	belief              // of the first unit
	more      []*belief // of further units, in their order; nil for nearly all gates
	blamed    *belief   // for the last throttled call; nil if there are no further units
	blamedAt  time.Duration
	gate      *Gate
	weighed   bool // all throttled calls so far were unclear, see Gate.weigh
	catchUp   time.Duration
	blockedAt time.Duration // when the last blockage began
	// askedUntil is until when the last throttled calls asked to wait.
	askedUntil time.Duration
	reported   uint64 // changes
}

// # When does a gate begin to learn?
//
// A gate to which no throttled call is reported must not pay for it, so it begins at one. It then
// knows only how many calls left lately (type recently) and that those in flight belong to
// the time before.
//
// A throttled call may be chance: some servers are overloaded for 1 call in 50, whatever the
// pace. So a gate without a rate begins as a slow start does: when the server asks for a
// wait, or throttles 3 of 16 calls. A gate with a rate, its own or its parent's, or with
// further limits that are known, was told the limit by somebody who should know. It begins at the second
// refusal within 500 calls if the server asks for waits, at the third within 32 if not;
// refusals of calls that were in flight together are one. It stops learning when its rate
// has been accepted for long.
const (
	strikeTold   = 500
	strikeUntold = 32
)

// strikes are the last throttled calls of a gate with a rate.
type strikes struct {
	end     time.Duration // of the last one: calls that left before belong to it
	n       int
	granted [2]uint64 // calls by the gate before the last ones
}

// add records a throttled call and reports whether it is one too many.
func (s *strikes) add(now, since time.Duration, granted uint64, told bool) bool {
	if s.n > 0 && since < s.end {
		return false
	}
	few := s.n >= 2 && granted-s.granted[0] <= strikeUntold
	if told {
		few = s.n >= 1 && granted-s.granted[1] <= strikeTold
	}
	s.granted[0], s.granted[1] = s.granted[1], granted
	s.end = now + 1
	s.n++
	return few
}

// recently is the number of calls that had started at two times, 15 s apart or more. Only calls
// that are measured are noted, see flight.Hold.
type recently struct {
	early, late sofar
	begun       bool
	from        time.Duration // since when calls have left without a long pause
}

// longPause is the time without a call after which earlier accepted calls say nothing any more.
const longPause = time.Minute

type sofar struct {
	at          time.Duration
	calls, cost uint64
}

// note is called when a call ends that left at since.
func (r *recently) note(now, since time.Duration, calls, cost uint64) {
	if !r.begun { // calls that were accepted before, as after Forget, are in early
		first := max(r.early.at, since)
		r.begun = true
		r.early.at, r.late.at, r.from = first, first, first
		return
	}
	if now-r.late.at > longPause {
		r.from = since
	}
	if now-r.late.at > 15*time.Second {
		r.early, r.late = r.late, sofar{now, calls, cost}
	}
}

// suspects records, with the queue locked, a throttled call by the server of a call that left at
// since, and reports whether it is time to learn. weighed says that many calls were throttled lately.
func (g *Gate) suspects(now, since, asked time.Duration, weighed bool) bool {
	if g.rate.Count > 0 || g.paced || g.limits.known() {
		if many := g.strikes.add(now, since, g.granted, asked > 0); many || asked > 0 {
			return many
		}
		g.slowStart(now, since, 0, false)
		return false
	}
	g.ramp = g.ramp.refuse(now, since, asked, false)
	return weighed || asked > 0 || g.ramp.on && g.ramp.began > now
}

// learningUnit returns the unit of the first belief of a new learner: that of the rate, and calls
// if there is none. Cost may be only an estimate, and only some servers limit it.
func (g *Gate) learningUnit() Unit {
	if g.rate.Count > 0 {
		return g.rateUnit
	}
	return Calls
}

// hasRate reports whether g has a rate.
func (g *Gate) hasRate() bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	return g.rate.Count > 0
}

// learn gives g, whose queue is locked, a learner at the throttled call of a call of n.
func (g *Gate) learn(now time.Duration, n int64) {
	g.setLearner(newLearner(g))
	g.learner.weighed = true // until a clear one
	g.learner.takeOver(now, n)
}

// setLearner makes l the learner of g, whose queue is locked.
func (g *Gate) setLearner(l *learner) {
	g.learner, g.ramp = l, nil
	g.answersCount.Store(true)
	g.peering.begin("", l.controller)
	for _, b := range l.more {
		if b.controller != nil {
			g.peering.begin(b.unit, b.controller)
		}
	}
}

// takeOver tells the controller of the first unit, which is new, of the calls before. One of them
// was of n.
func (l *learner) takeOver(now time.Duration, n int64) {
	g := l.gate
	early := g.recently.early
	past := adaptive.Past{
		Since: early.at, Calls: float64(g.granted - early.calls), Cost: float64(g.sent - early.cost),
		Answer: g.hold.Mean(), Rate: hertz(g.rate), Good: max(0, early.at-g.recently.from),
	}
	if past.Calls == 0 { // all have left before the last 15 s
		past.Calls, past.Cost = 1, float64(n)
	}
	if l.unit == Calls {
		past.Cost = past.Calls
	}
	l.controller.TakeOver(now, past)
}

// opens returns when a gate that learns asks the server again.
func (g *Gate) opens() time.Duration {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	wait, _ := g.brakes.peek(now, g.room.calls.Calls())
	return sat.Add(now, wait)
}

// forgetLearned makes g, whose queue is locked, an ordinary gate again if its own rate has
// been accepted for long.
func (g *Gate) forgetLearned() {
	if g.rate.Count > 0 && !g.adaptive.searches() && g.learner.controller.AtMax() && !g.learner.several() {
		g.learner, g.strikes = nil, strikes{}
	}
}

// beginToLearn gives a new gate a learner if it is to search from the start.
func (g *Gate) beginToLearn() {
	if g.adaptive.searches() {
		g.queue.Lock() // calls that leave without the lock are not seen
		defer g.queue.Unlock()
		g.search()
	}
}

// search gives g, whose queue is locked, a learner that searches if it is configured so.
func (g *Gate) search() {
	if g.adaptive.searches() {
		g.setLearner(newLearner(g))
		g.learner.weighed = true
	}
}

// Forget makes the gate forget all that it has learned from throttled calls, so that it goes on as
// a new one would. Use it if you know that the server has changed, or that an incident has ended:
// estimates also expire on their own, but not immediately. The rate and the concurrency that are
// configured stay, and so does a pause, which Resume ends. Calls in flight teach the gate nothing
// of the time before. A gate with [Adaptive].Peers may learn it again from the others.
func (g *Gate) Forget() {
	g.queue.Change(func(now time.Duration) {
		g.learner, g.ramp, g.strikes = nil, nil, strikes{}
		g.answersCount.Store(false)
		here := sofar{now, g.granted, g.sent}
		g.recently = recently{early: here, late: here, from: now}
		g.search()
	})
}

// learningConfig returns the configuration of a controller for g. Rates are in units per second.
func (g *Gate) learningConfig() adaptive.Config {
	a, begin := g.adaptive, g.queue.Time(0)
	cfg := adaptive.Config{
		Start: hertz(a.Start), Min: hertz(a.Min), Max: hertz(g.rate), MaxCost: g.rateUnit == Cost, Price: a.ProbeShare, Costly: a.AvoidThrottling,
		Unlimited: !a.searches() && g.rate.Count == 0,
		Clock:     begin.Sub(begin.Truncate(time.Hour)),
	}
	cfg.MaxConcurrency = g.room.mostCalls()
	return cfg
}

// hertz returns r in units per second, 0 if there is no rate.
func hertz(r Rate) float64 {
	if r.Count == 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// newLearner returns a learner that knows nothing, for setLearner.
func newLearner(g *Gate) *learner {
	l := &learner{gate: g, catchUp: g.schedule.CatchUp()}
	l.belief = belief{controller: adaptive.New(g.learningConfig())}
	l.unit = g.learningUnit()
	g.peering.scale("", l.controller)
	return l
}

// demand implements brake. It is Never until a call ends.
func (l *learner) demand(now time.Duration, w want) time.Duration {
	if l.more != nil {
		return l.demandAll(now, w)
	}
	return until(now, l.controller.Demand(now, int(w.inFlight)))
}

// peek implements brake.
func (l *learner) peek(now time.Duration, inFlight int64) time.Duration {
	wait := until(now, l.controller.Peek(now, int(inFlight)))
	for _, b := range l.more {
		if b.controller != nil {
			wait = max(wait, until(now, b.controller.Peek(now, int(inFlight))))
		}
	}
	return wait
}

func until(now, at time.Duration) time.Duration {
	if at == adaptive.Never {
		return limits.Never
	}
	return max(0, at-now)
}

// started implements brake.
func (l *learner) started(now, due time.Duration, w want) {
	d := l.gate.departures.add()
	late := min(max(0, now-due), l.catchUp)
	l.belief.started(d, now, late, w)
	if w.n > 1 || w.costs != nil {
		l.meet(w.n, w.costs)
	}
	if l.more != nil {
		l.startedMore(d, now, late, w)
	}
}

// ended records how a call ended that was not throttled. If it was settled, its actual amount
// matters from now on.
func (l *learner) ended(e *ending, reply adaptive.Reply) {
	if e.delta != 0 {
		l.add(Cost)
	}
	if l.more == nil {
		l.belief.ended(e, reply)
		return
	}
	l.each(func(b *belief) {
		if took := b.ended(e, reply); took > 0 && reply.Outcome == adaptive.Granted {
			b.suspect.Granted(e.now, took)
		}
	})
}

// refused records that the server throttled a call, and asked for a wait of asked. It may have
// named the unit whose limit was exhausted.
func (l *learner) refused(e *ending, asked time.Duration, named Unit) {
	if !l.isBlocked() || e.since > l.askedUntil+forgottenBlockage {
		l.blockedAt = e.now
	}
	l.askedUntil = max(l.askedUntil, e.now+asked)
	reply := adaptive.Reply{Outcome: adaptive.Refused, RetryAfter: asked}
	if l.more == nil {
		call, _ := l.charged(e)
		l.controller.Ended(e.now, call, reply)
		return
	}
	l.refusedBy(l.blame(e, named, asked > 0), e, reply)
}

// isBlocked reports whether the last call was throttled because of some unit.
func (l *learner) isBlocked() (blocked bool) {
	blocked = l.controller.Blocked()
	for _, b := range l.more {
		blocked = blocked || b.controller != nil && b.controller.Blocked()
	}
	return blocked
}

// forgottenBlockage is after how long without a call a blockage is over, as far as its length
// counts: a program that makes a call an hour must not be told that the server has throttled all of
// them for an hour.
const forgottenBlockage = 5 * time.Minute

// blockedFor returns for how long the server has clearly accepted nothing, the time included for which
// it asked.
func (l *learner) blockedFor(now time.Duration) time.Duration {
	if l == nil || l.weighed || !l.isBlocked() {
		return 0
	}
	return max(0, now-l.blockedAt)
}

// bound tells l that the rate or the concurrency of its gate has changed.
func (l *learner) bound(now time.Duration) {
	if l == nil {
		return
	}
	rate := hertz(l.gate.rate)
	if l.unit != l.gate.rateUnit { // it began without a rate, and counts calls
		rate = 0
	}
	l.controller.Bound(now, rate, l.gate.room.mostCalls())
}

// resume ends the pause that the server asked for.
func (l *learner) resume(now time.Duration) {
	if l == nil {
		return
	}
	l.each(func(b *belief) {
		if b.controller != nil {
			b.controller.Resume(now)
		}
	})
}

// changes returns how often a belief has changed.
func (l *learner) changes() (n uint64) {
	n = l.controller.Changes()
	for _, b := range l.more {
		if b.controller != nil {
			n += b.controller.Changes()
		}
	}
	return n
}

// asleep implements brake.
func (l *learner) asleep(now, _ time.Duration) bool { return l.controller.Asleep(now, learnedFor) }

// cause implements brake.
func (l *learner) cause() limits.Cause { return limits.ByLearned }

// learnedFor is how long an unused gate of a Keyed is kept because of its estimate.
const learnedFor = time.Hour

// news returns the event of a change of mind, or nil if there was none or nobody observes g.
func (l *learner) news(g *Gate) *Event {
	if l == nil || g.observer == nil || l.changes() == l.reported {
		return nil
	}
	l.reported = l.changes()
	now := l.learned(&g.queue)
	return &Event{Kind: EventLearned, Reason: now.Why, Why: now.String()}
}

// learned returns the estimates of l, nil if there are none: of the unit that was blamed
// last, and of all units if there are several.
func (l *learner) learned(q interface {
	Time(time.Duration) time.Time
}) *Learned {
	if l == nil {
		return nil
	}
	if l.blamed == nil {
		s := l.belief.learned(q)
		return &s
	}
	s := l.blamed.learned(q)
	s.Unit = l.blamed.unit
	if l.several() {
		l.each(func(b *belief) {
			if b == l.blamed || b.limited() {
				one := b.learned(q)
				one.Unit = b.unit
				s.Units = append(s.Units, one)
			}
		})
	}
	return &s
}

func (b *belief) learned(q interface {
	Time(time.Duration) time.Time
}) Learned {
	now := b.controller.Belief()
	s := Learned{
		Phase: now.Phase.String(), Pace: now.Pace, Rate: now.Rate, AcceptedRate: now.Proven, ThrottledRate: now.Refuted,
		Concurrency: int64(now.Concurrency), Blocked: now.Blocked, ThrottleCost: now.Pause,
		Share: now.Share, Peers: now.Peers,
		Throttled: now.Refusals, Ignored: now.Ignored, Updates: now.Changes, Why: now.Why.String(),
	}
	if now.Changes > 0 {
		s.UpdatedAt = q.Time(now.Changed)
	}
	if now.Window > 0 {
		s.Window = Rate{Count: max(1, int64(math.Round(now.Count))), Per: now.Window}
	}
	return s
}
