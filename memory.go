package sluice

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/evidence"
	"github.com/sluice-go/sluice/internal/flight"
	"github.com/sluice-go/sluice/internal/strays"
	"github.com/sluice-go/sluice/limits"
)

// A memory is what a gate remembers of the answers to its calls, and the brakes that they put on. It
// decides what an answer means for later calls, and knows nothing of those that wait: it does not
// lock, wait or report. Its methods are called with the gate's queue locked: a listener does that, and
// afterwards wakes the callers that may start earlier.
type memory struct {
	given
	room     *room // of the gate, to look at
	adaptive Adaptive
	catchUp  time.Duration // Config.MaxCatchUp
	clock    time.Duration // since the last full hour, when the gate was made

	brakes
	tally      tally
	evidence   evidence.Judge // of unclear answers
	strikes    strikes
	strays     strays.Counter // of gates that know no limit
	recently   recently
	taught     time.Duration // the wait that the server asked for when the learner began
	forgot     time.Duration // when forget was called last: calls that left before teach nothing
	departures departures
	sharing    sharing // or nil

	// Read by calls that start and end without the lock. They are at the end, next to what such calls
	// read of a Gate: with thousands of gates each line of the cache is a miss.
	hold         flight.Hold
	impaired     atomic.Bool // the budget is not full, or the tally not quiet: successes change them
	answersCount atomic.Bool // see brakes.needAnswers
}

// A sharing shares with other processes what a gate learns: a peering. It is used with the queue locked.
type sharing interface {
	// use notes that a call of n with costs wants to start, and started that it does.
	use(n int64, costs Costs)
	started(n int64, costs Costs)

	// refused notes that the server throttled a call, and settle that one took so much more of unit.
	refused(e *ending)
	settle(unit Unit, delta int64)

	// begin makes controller, which is new, that of the group of unit, if there is one, and scale tells
	// it its part. The unit of the first group is "".
	begin(unit Unit, controller *adaptive.Controller)
	scale(unit Unit, controller *adaptive.Controller)
}

// A given is what a gate was told about the limits of its server.
type given struct {
	rate     Rate // as configured
	rateUnit Unit
	limits   moreLimits
	paced    bool // a parent had a rate or further limits when it was made
}

// any reports whether it was told a limit.
func (k *given) any() bool { return k.rate.Count > 0 || k.paced || k.limits.known() }

// unit returns the unit of the first belief of a new learner: that of the rate, and calls
// if there is none. Cost may be only an estimate, and only some servers limit it.
func (k *given) unit() Unit {
	if k.rate.Count > 0 {
		return k.rateUnit
	}
	return Calls
}

// learn begins to learn when a call of n was throttled.
func (m *memory) learn(here sofar, n int64) {
	m.setLearner(m.newLearner())
	m.learner.weighed = true // until a clear one
	m.takeOver(m.learner, here, n)
}

// newLearner returns a learner that knows nothing, for setLearner.
func (m *memory) newLearner() *learner {
	l := &learner{departures: &m.departures, controllers: m, catchUp: m.catchUp}
	l.belief = belief{controller: adaptive.New(m.config()), unit: m.given.unit()}
	if m.sharing != nil {
		m.sharing.scale("", l.controller)
	}
	return l
}

// further implements controllers: the pace is not bounded by the rate of the gate, and the calls in
// flight are the business of the first controller.
func (m *memory) further(unit Unit) *adaptive.Controller {
	cfg := m.config()
	cfg.Max, cfg.MaxConcurrency, cfg.Unlimited, cfg.Paced = 0, 0, true, true
	controller := adaptive.New(cfg)
	if m.sharing != nil {
		m.sharing.scale(unit, controller)
	}
	return controller
}

// accused implements controllers.
func (m *memory) accused(now time.Duration, unit Unit, s *adaptive.Suspect) *adaptive.Controller {
	controller := m.further(unit)
	if m.sharing != nil {
		m.sharing.begin(unit, controller)
	}
	controller.TakeOver(now, s.Past(m.hold.Mean()))
	return controller
}

// share notes, if what is learned is shared, that a call took delta more of unit.
func (m *memory) share(unit Unit, delta int64) {
	if m.sharing != nil {
		m.sharing.settle(unit, delta)
	}
}

// settle records that a call that left at since, has ended and was not throttled took delta more of unit than was
// known.
func (m *memory) settle(now, since time.Duration, unit Unit, delta int64) {
	if since >= m.forgot {
		m.learner.settle(now, since, unit, delta)
	}
}

// setLearner makes l the learner.
func (m *memory) setLearner(l *learner) {
	m.learner, m.ramp, m.opening = l, nil, nil
	m.strays.Forget() // not this one
	m.answersCount.Store(true)
	if m.sharing == nil {
		return
	}
	m.sharing.begin("", l.controller)
	for _, b := range l.more {
		if b.controller != nil {
			m.sharing.begin(b.unit, b.controller)
		}
	}
}

// search begins to learn if it is configured to search.
func (m *memory) search() {
	if m.adaptive.searches() {
		m.setLearner(m.newLearner())
		m.learner.weighed = true
	}
}

// takeOver tells the controller of the first unit of l, which is new, of the calls before. One of
// them was of n.
func (m *memory) takeOver(l *learner, here sofar, n int64) {
	early, here := m.recently.early, m.recently.accepted(here)
	past := adaptive.Past{
		Since: early.at, Calls: float64(here.calls - early.calls), Cost: float64(here.cost - early.cost),
		Answer: m.hold.Mean(), Rate: hertz(m.rate), Good: max(0, early.at-m.recently.from),
	}
	past.Other = past.Calls != past.Cost
	if past.Calls <= 0 || past.Cost <= 0 { // all have left before the last 15 s, or were throttled elsewhere
		past.Calls, past.Cost = 1, float64(n)
	}
	if l.unit == Calls {
		past.Cost = past.Calls
	}
	l.controller.TakeOver(here.at, past)
}

// config returns the configuration of a controller. Rates are in units per second.
func (m *memory) config() adaptive.Config {
	a := m.adaptive
	return adaptive.Config{
		Start: hertz(a.Start), Min: hertz(a.Min), Max: hertz(m.rate), MaxCost: m.rateUnit == Cost, Price: a.ProbeShare, Costly: a.AvoidThrottling,
		Unlimited:      !a.searches() && m.rate.Count == 0,
		Clock:          m.clock,
		MaxConcurrency: m.room.mostCalls(),
	}
}

// setRate records that the rate is another one now.
func (m *memory) setRate(now time.Duration, rate Rate) {
	m.rate = rate
	if rate.Count > 0 { // which paces the calls from now on
		m.ramp = nil
		m.endOpening()
	}
	m.bound(now)
}

// endOpening ends the bounds of the first burst.
func (m *memory) endOpening() {
	m.opening = nil
	m.answersCount.Store(m.needAnswers())
}

// bound tells the learner the rate and the concurrency that are configured now.
func (m *memory) bound(now time.Duration) {
	if m.learner == nil {
		return
	}
	rate := hertz(m.rate)
	if m.learner.unit != m.rateUnit { // it began without a rate, and counts calls
		rate = 0
	}
	m.learner.controller.Bound(now, rate, m.room.mostCalls())
}

// hertz returns r in units per second, 0 if there is no rate.
func hertz(r Rate) float64 {
	if r.Count == 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// forget forgets everything that was learned from throttled calls.
func (m *memory) forget(here sofar) {
	m.forgetRefusals()
	m.recently = recently{early: here, late: here, from: here.at}
	m.forgot = here.at
	m.search()
}

// forgetLearned stops learning if the rate that is configured has been accepted for long.
func (m *memory) forgetLearned() {
	if m.rate.Count > 0 && !m.adaptive.searches() && m.learner.controller.AtMax() && !m.learner.several() {
		m.learner, m.strikes = nil, strikes{}
	}
}

// forgetRefusals makes the memory that of a gate without a throttled call.
func (m *memory) forgetRefusals() {
	m.learner, m.ramp, m.strikes = nil, nil, strikes{}
	m.tally.learned = 0
	m.answersCount.Store(m.needAnswers())
}

// forgetWeighed forgets everything that is known only from evidence, and reports whether that was
// anything.
func (m *memory) forgetWeighed() bool {
	switch {
	case m.learner != nil && m.learner.weighed:
		m.forgetRefusals()
		m.search()
		return true
	case m.learner == nil && m.ramp != nil && m.ramp.weighed:
		m.forgetRefusals()
		return true
	}
	return false
}

// weigh weighs the evidence for an unclear answer to a call that left at since. It reports whether
// the server throttled the call; if not, whether calls that were in flight at the same time got
// such an answer before; and whether callers may start earlier.
func (m *memory) weigh(here sofar, since time.Duration) (refused, together, wake bool) {
	m.impaired.Store(true) // so that accepted calls count
	early := here.calls-m.room.calls.Calls() < earlyAnswers
	verdict, together := m.evidence.Unclear(here.at, since, early)
	switch verdict {
	case evidence.Crowded:
		m.slowStart(here.at, since, 0, true)
	case evidence.Mistaken:
		wake = m.forgetWeighed()
	}
	if verdict != evidence.Refusal && m.learner != nil && !m.evidence.Deaf(here.at) {
		m.learner.controller.Doubted()
	}
	return verdict == evidence.Refusal, together, wake
}

// earlyAnswers are the first ones of a server. A slow start there costs little.
const earlyAnswers = 64

// endRecord ends the record of call, with which it completes call.
func (m *memory) endRecord(call *ending) {
	call.inFlight = m.room.calls.Calls() - 1
	call.charges = m.departures.end(call.departure)
}

// A lesson is the conclusion of an adaptive gate from a throttled call. It is zero if the gate does not
// learn.
type lesson struct {
	learned bool
	alone   bool          // it concerns only the call
	blocked time.Duration // for how long the server has accepted nothing
}

// count counts call, which the server throttled. weighed says that only the evidence says so.
func (m *memory) count(call *ending, weighed bool) {
	m.tally.refuse(call.now, call.since, call.repeated)
	if !weighed {
		m.evidence.Rejected(call.now)
	}
	m.impaired.Store(true) // so that accepted calls count
}

// throttled records that the server throttled call and asked for a wait of asked, 0 if it set no
// time. weighed says that only the evidence says so. named is the unit that the server named, if any.
func (m *memory) throttled(here sofar, call *ending, asked time.Duration, weighed bool, named Unit) lesson {
	m.endRecord(call)
	m.count(call, weighed)
	m.opening.leaveOut()
	if call.since < m.forgot {
		return lesson{}
	}
	m.tally.learned++
	m.ramp.leaveOut(call.since) // it has its answer, whatever that means for others
	m.ramp.published(false)
	switch {
	case m.learner == nil && (m.adaptive.Disabled || !m.suspects(here, call.since, asked, weighed)):
		if m.adaptive.Disabled || asked > 0 {
			m.slowStart(call.now, call.since, asked, false)
		}
		m.answersCount.Store(m.needAnswers())
		m.recently.refuse(call.n)
		return lesson{}
	case m.learner != nil && !m.limited() && asked > 0 && m.stray(call.since):
		m.learner.ended(call, adaptive.Reply{Outcome: adaptive.Unknown})
		return lesson{}
	case m.learner == nil:
		m.learn(here, call.n)
		m.taught = asked
		if !weighed {
			m.strays.Teach(call.since)
		}
	case !m.limited() && asked > 0: // those without a time may mean a cap on calls in flight
		m.strays.Teach(call.since)
	}
	m.learner.weighed = m.learner.weighed && weighed
	m.learner.controller.Losing(m.learner.weighed)
	if m.strays.Known() && !m.adaptive.AvoidThrottling {
		m.learner.controller.Strays()
	}
	ignored := m.learner.refused(call, asked, named)
	return lesson{true, ignored, m.learner.blockedFor(call.now)}
}

// stray reports whether a call that left at since and was throttled is a stray, see package strays.
func (m *memory) stray(since time.Duration) bool {
	return m.strays.Few(since) && (m.given.any() || m.adaptive.Disabled || m.strays.Settled()) && !m.usedUp()
}

// usedUp reports whether a search has used up an allowance of the server, as it did before.
func (m *memory) usedUp() bool { return m.adaptive.Search && m.strays.Regular() }

// limited reports whether a limit has shown, from which the gate learns. A gate that searches learns before, but
// where throttled calls are expensive the first one shows a limit.
func (m *memory) limited() bool {
	searches := m.adaptive.Search && !m.adaptive.AvoidThrottling
	return m.learner != nil && !(searches && m.learner.searches())
}

// suspects records that a call that left at since was throttled, and reports whether it is time to
// learn. weighed says that many calls were throttled lately.
func (m *memory) suspects(here sofar, since, asked time.Duration, weighed bool) bool {
	now := here.at
	if !weighed && m.stray(since) && (asked > 0 || !m.given.any()) {
		return false
	}
	if m.given.any() {
		if many := m.strikes.add(now, since, here.calls, asked > 0); many || asked > 0 {
			if !many {
				m.recently.pause(asked)
			}
			return many
		}
		m.slowStart(now, since, 0, false)
		return false
	}
	m.ramp = m.ramp.refuse(now, since, asked, false)
	return weighed || asked > 0 || m.ramp.on && m.ramp.began > now
}

// slowStart records for the slow start that the server throttled a call that left at since and asked
// for a wait of asked. Without one, asked = 0, the call counts if it is one of many, as far as is known,
// or surely is. A gate with a rate needs no slow start, one that learns decides by itself, and one whose
// server publishes how fast its limits refill starts as they do after a pause.
func (m *memory) slowStart(now, since, asked time.Duration, surely bool) {
	if asked > 0 && m.limits.refill() || m.stray(since) && !surely {
		return
	}
	if m.rate.Count == 0 && m.learner == nil {
		m.ramp = m.ramp.refuse(now, since, asked, surely)
		m.answersCount.Store(true)
	}
}

// startSlowly records for the slow start a pause of left, because of a call that left at since, Forever if there
// is none.
func (m *memory) startSlowly(now, since, left time.Duration, kind pauseKind) {
	switch kind {
	case byDoubt, byChild:
		return
	case byOthers:
		if m.ramp != nil && m.ramp.on { // it is no throttle, and measures nothing
			m.ramp.restart(now)
			return
		}
	}
	m.slowStart(now, since, left, false)
	if kind == byWindow {
		m.ramp.published(true)
	}
}

// answered records how a call ended that was not throttled.
func (m *memory) answered(call *ending, outcome adaptive.Outcome) {
	m.endRecord(call)
	m.opening = m.opening.answer(outcome == adaptive.Granted)
	switch {
	case call.since < m.forgot:
		return
	case m.learner != nil:
	case outcome == adaptive.Elsewhere:
		m.ramp.leaveOut(call.since)
		return
	default:
		m.ramp = m.ramp.answer(call.since, outcome == adaptive.Granted, m.room.places())
		return
	}
	m.learner.ended(call, adaptive.Reply{Outcome: outcome})
	m.forgetLearned()
}

// answeredFree records the end of a call that left when no answer counted, and was not throttled.
func (m *memory) answeredFree() {
	m.ramp = m.ramp.answeredFree()
	m.answersCount.Store(m.needAnswers())
}

// pay pays for a retry of a call that left at left. If the budget cannot pay, it spaces calls out by
// at least backoff, and pay returns false.
func (m *memory) pay(now time.Duration, kind failure, left, backoff time.Duration) bool {
	cost := retryCost
	switch {
	case kind == learned || kind == alone || kind == crowd:
		cost = 0
	case kind == throttle && m.budget.throttled >= 0 && left < m.budget.throttled+minBackoff:
		// Not "left before": in a bubble calls start, are throttled and pay at one
		// instant, or a nanosecond apart if there is a slow start, and each of 64 paid.
		// No retry comes sooner than minBackoff, so no call is free again and again.
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	m.impaired.Store(true)
	m.failed(now)
	if !m.budget.pay(cost) {
		// This wakes no caller: those that wait see the longer wait when they wake.
		m.budget.empty(backoff)
		return false
	}
	if kind == throttle && cost > 0 {
		m.budget.throttled = now
	}
	return true
}

// failed records that a call failed.
func (m *memory) failed(now time.Duration) {
	m.budget = m.budget.at(now)
	m.budget.since = now
	m.budget.note(false)
}

// answeredWell records that a server that is well has answered a call that left at since, see
// listener.answeredWell, and reports whether callers may start earlier. Calls are interval apart anyway.
func (m *memory) answeredWell(now, since time.Duration, refund int, unclear bool, interval time.Duration) (wake bool) {
	if m.tally.grant(since) && m.tally.allAreAlone() && !m.adaptive.searches() {
		m.forgetRefusals()
		wake = true
	}
	if !unclear && m.evidence.Granted(now, since) {
		wake = m.forgetWeighed() || wake
	}
	if m.learner != nil && m.strays.Mistaken(since) && !m.usedUp() {
		m.recently.pause(m.taught) // which says nothing of the rate
		m.forgetRefusals()
		m.search()
		wake = true
	}
	b := m.budget.at(now)
	b.refund(refund)
	b.note(true)
	if m.budget.spacing > 0 {
		// The release of the permit would wake those that wait, too, but may come much later.
		b.halve(interval)
		wake = true
	}
	m.budget = b
	m.impaired.Store(!b.recovered() || !m.tally.quiet() || !m.evidence.Quiet())
	return wake
}

// brakes are all brakes of a gate.
type brakes struct {
	opening *opening // of a gate that has not learned yet, or nil
	ramp    *ramp    // or nil
	learner *learner // or nil
	budget  budget   // a brake while it spaces calls
}

// on appends to to those that are on, first those whose cause is named if several hold a call up for
// equally long. A caller has room in to for mostBrakes.
func (s *brakes) on(to []brake) []brake {
	if s.opening != nil {
		to = append(to, s.opening)
	}
	if s.ramp != nil {
		to = append(to, s.ramp)
	}
	if s.learner != nil {
		to = append(to, s.learner)
	}
	if s.budget.spacing > 0 {
		to = append(to, &s.budget)
	}
	return to
}

const mostBrakes = 4

// needAnswers reports whether a brake depends on how each call ends.
func (s *brakes) needAnswers() bool { return s.opening != nil || s.ramp != nil || s.learner != nil }

// any reports whether a brake is on. None is in a gate that was never refused anything, after its first burst.
func (s *brakes) any() bool {
	return s.opening != nil || s.ramp != nil || s.learner != nil || s.budget.spacing > 0
}

// demand returns how long a call that wants w has to wait for the brakes.
func (s *brakes) demand(now time.Duration, w want) (wait time.Duration) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		wait = max(wait, b.demand(now, w))
	}
	return wait
}

// peek returns how long the next call would have to wait for the brakes, and the brake.
func (s *brakes) peek(now time.Duration, inFlight int64) (wait time.Duration, cause limits.Cause) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		if w := b.peek(now, inFlight); w > wait {
			wait, cause = w, b.cause()
		}
	}
	return wait, cause
}

// started tells the brakes that a call that wanted w starts.
func (s *brakes) started(now, due time.Duration, w want) {
	var on [mostBrakes]brake
	for _, b := range s.on(on[:0]) {
		b.started(now, due, w)
	}
}

// asleep reports whether all brakes may be forgotten.
func (s *brakes) asleep(now, paused time.Duration) bool {
	var on [mostBrakes]brake
	return !slices.ContainsFunc(s.on(on[:0]), func(b brake) bool { return !b.asleep(now, paused) })
}
