package sluicehttp

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # What follows for a gate from what an answer says?
//
//	throttled, and until when         paused until then, whoever was told
//	another failure, and until when   nothing: see judge
//	nothing remains of a window       paused until its reset, before the 429 comes
//	nothing remains of a bucket       of requests: paused until there is one more;
//	                                  of tokens: nothing, a small call may pass
//	little remains (Config.Spread)    what remains and is refilled, evenly until
//	                                  the reset
//	a policy (Config.FromPolicy)      the slowest of them is the rate
//	something remains                 nothing: 10,000 with a reset in 10 s are
//	                                  no permission for 1,000 per second
//
// Pauses end up to a second later than told, at random, so that many clients who
// were told the same do not come back at the same instant; never earlier.
//
// A later source, such as a rate learnt from throttles alone, would be one more
// case of state.pace.

// A state is what a transport keeps beside a gate: what its servers said, and who
// is still reading.
type state struct {
	t    *Transport
	gate *sluice.Gate
	key  key

	users atomic.Int64  // that have entered
	turn  atomic.Uint32 // how often that was tried
	gone  atomic.Bool   // nobody may enter

	server   atomic.Pointer[key] // that the last request went to
	inFlight atomic.Int64        // attempts without an answer; only counted to spread
	spread   atomic.Int64        // until when the pace is spread, since the epoch of t; 0 if it is not

	mu   sync.Mutex
	held hold // ring of permits that are out

	configured sluice.Rate // the pace without a server's say
	policy     sluice.Rate // what a server publishes, zero if nothing
	spreadRate sluice.Rate // in force until spread
	inForce    sluice.Rate // what the gate was told

	own           bool  // the gate has a concurrency of its own
	places        int64 // what a server publishes, 0 for nothing
	placesInForce int64 // 1 until the first answer

	// A throttle without a time, for which there is a floor: the waits double
	// until a call is let through.
	floorUntil time.Time
	floors     atomic.Int64 // written under mu

	refills  map[string]refill // by the name of the limit
	limits   []ratelimit.Limit
	seen     time.Time
	warnings uint64
	warning  ratelimit.Warning
}

// newState returns the state of a gate that was just made.
func newState(t *Transport, key key, gate *sluice.Gate) *state {
	st := &state{t: t, gate: gate, key: key}
	st.held.prev, st.held.next = &st.held, &st.held
	now := gate.Stats()
	st.configured, st.inForce = now.Rate, now.Rate
	st.own = now.Concurrency > 0
	if st.fromPolicy() && !st.own {
		st.placesInForce = 1
		st.mustSet(gate.SetConcurrency(1))
	}
	return st
}

// oftenEnough is how many uses of a state are without asking for its gate, for
// each with it.
const oftenEnough = 64

// enter keeps st from being retired until users is lowered again, and reports
// whether it has.
func (st *state) enter() bool {
	if st.turn.Add(1)%oftenEnough == 0 {
		return false
	}
	st.users.Add(1)
	if st.gone.Load() {
		st.users.Add(-1)
		return false
	}
	return true
}

// retire reports whether no request uses st, and then none will. One may have come
// and gone since the gate was seen to be unused, and its answer is still being read.
func (st *state) retire() bool {
	st.gone.Store(true)
	if st.users.Load() > 0 || st.gate.Stats().InFlight > 0 {
		st.gone.Store(false)
		return false
	}
	return true
}

// fromPolicy reports whether the gate takes its limits from the server.
func (st *state) fromPolicy() bool {
	return st.t.cfg.FromPolicy && st.configured == sluice.Rate{}
}

// mustSet checks that a change was accepted which cannot be wrong.
func (st *state) mustSet(err error) {
	if err != nil {
		panic("sluicehttp: " + err.Error())
	}
}

// read returns what resp says that came at now. An Inspector waits for its body for
// patience at most.
func (st *state) read(resp *http.Response, now time.Time, patience time.Duration) ratelimit.Snapshot {
	said, warnings := st.t.cfg.Headers.Parse(resp.StatusCode, resp.Header, now)
	if inspect := st.inspector(resp); inspect != nil {
		seen, header := said, said // copies, so that only those who inspect pay for allocations
		inspect(resp, st.peeker(resp, &header, now, patience), &seen)
		if seen.Throttled && !said.Throttled && seen.RetryAt.IsZero() {
			// What ran out has refused it, as if the status had said so.
			seen.RetryAt, seen.RetrySource = said.PauseUntil()
		}
		said = seen
	}
	if !said.RetryAt.IsZero() {
		said.RetryAt = st.cut(said.RetryAt, now, said.RetrySource)
	}
	if said.Throttled {
		st.when(&said, now)
	}
	if len(warnings) > 0 {
		st.mu.Lock()
		st.warnings += uint64(len(warnings))
		st.warning = warnings[len(warnings)-1]
		st.mu.Unlock()
	}
	return said
}

// inspector returns what looks at resp, or nil.
func (st *state) inspector(resp *http.Response) Inspector {
	inspect := st.t.cfg.Inspect
	switch {
	case !ofAmazon(resp):
		return inspect
	case inspect == nil:
		return AWS
	}
	return Inspectors(AWS, inspect) // the configured one has the last word
}

// when settles until when a throttle is: never earlier than told.
func (st *state) when(said *ratelimit.Snapshot, now time.Time) {
	if said.RetryAt.IsZero() && said.Floor > 0 {
		said.RetryAt, said.RetrySource = st.floor(said.Floor, now), "its kind"
		return // those of one burst all until the same instant
	}
	said.RetryAt = st.t.later(said.RetryAt, now)
}

// floor returns the end of a wait of least, doubled for each that was over when
// another call was refused.
func (st *state) floor(least time.Duration, now time.Time) time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	if now.Before(st.floorUntil) {
		return st.floorUntil // refused in the same burst
	}
	const most = 24 * time.Hour
	wait := most
	if n := st.floors.Add(1); n < 20 {
		wait = min(least<<(n-1), most)
	}
	st.floorUntil = st.t.later(now.Add(wait), now)
	return st.floorUntil
}

// later returns at, jittered upwards, if it is after now. Because of the jitter no
// wait becomes longer than the longest that is tolerated, and none in any case longer
// than the longest pause.
func (t *Transport) later(at, now time.Time) time.Time {
	wait := at.Sub(now)
	switch {
	case at.IsZero() || wait <= 0:
		return at
	case wait >= t.mostPause:
		return now.Add(t.mostPause)
	}
	most := min(wait/10, time.Second, t.mostPause-wait)
	if tolerated := t.tolerated; wait <= tolerated {
		most = min(most, tolerated-wait)
	}
	return at.Add(time.Duration(t.random() * float64(most)))
}

// learn notes what an answer said, and pauses the gate if nothing remains of a limit.
// A throttle pauses it later, see call.fail. The new pace and concurrency come after
// that, see adjust.
func (st *state) learn(said *ratelimit.Snapshot, now time.Time) {
	spreading := st.spread.Load() != 0
	if !said.Throttled && len(said.Limits) == 0 && said.RetryAt.IsZero() &&
		said.Rate == (sluice.Rate{}) && !spreading && st.floors.Load() == 0 && !st.t.cfg.FromPolicy {
		return // the way of nearly all answers of servers that say nothing
	}
	if at, source := st.emptyUntil(said, now); at.After(now) {
		st.gate.PauseUntil(st.t.later(st.cut(at, now, source), now), source+": nothing remains")
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(said.Limits) > 0 {
		st.limits, st.seen = said.Limits, now
	}
	if !said.Throttled && !now.Before(st.floorUntil) {
		st.floors.Store(0)
	}
	if st.fromPolicy() {
		st.heedPolicy(said)
	}
	if st.t.cfg.Spread > 0 {
		st.heedRemaining(said, now)
	}
}

// adjust tells the gate the pace and the concurrency that follow from what servers
// said. To do it in learn was simpler, but then those who waited for the first answer,
// or at a slower pace, left after a throttle and before its pause.
func (st *state) adjust() {
	if !st.t.cfg.FromPolicy && st.t.cfg.Spread == 0 {
		return // neither is ever changed
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.pace()
	if st.fromPolicy() {
		st.place()
	}
}

// heedPolicy notes the limits that a server publishes: of several rates the
// slowest, for each of them holds.
func (st *state) heedPolicy(said *ratelimit.Snapshot) {
	slowest := said.Rate
	for i := range said.Limits {
		l := &said.Limits[i]
		switch quota := l.Quota.Int(); {
		case quota <= 0 || quota > math.MaxInt32:
		case l.Concurrent():
			st.places = quota
		case l.Window > 0 && countsCalls(l) && int64(l.Window) >= quota:
			if r := (sluice.Rate{Count: quota, Per: l.Window}); slowest.Count == 0 || slower(r, slowest) {
				slowest = r
			}
		}
	}
	if slowest.Count > 0 {
		st.policy = st.cutRate(slowest, "the policy")
	}
}

// place tells the gate its concurrency, with st.mu held. It comes after pace: those
// who waited for the first answer must not leave before there is a pace.
func (st *state) place() {
	if !st.own && st.placesInForce != st.places {
		st.placesInForce = st.places
		st.mustSet(st.gate.SetConcurrency(st.places))
	}
}

// heedRemaining notes at which pace what remains lasts until the reset: of
// several limits the slowest.
func (st *state) heedRemaining(said *ratelimit.Snapshot, now time.Time) {
	var slowest sluice.Rate
	var until time.Time
	for i := range said.Limits {
		l := &said.Limits[i]
		left := l.ResetAt.Sub(now)
		if l.ResetAt.IsZero() || left <= 0 || l.Concurrent() || !countsCalls(l) || !l.Remaining.Known() || l.Remaining.Zero() {
			continue
		}
		if st.t.cfg.Spread < 1 && !(l.Remaining.Float() < st.t.cfg.Spread*l.Quota.Float()) {
			continue
		}
		remaining := l.Remaining.Int()
		if !l.NextAt.IsZero() {
			// Until it is full a bucket gets what is missing: with what
			// remains that is all of it.
			remaining = l.Quota.Int()
		}
		// Those on their way will be taken from it, too.
		remaining = max(1, remaining-st.inFlight.Load())
		r := sluice.Rate{Count: min(remaining, int64(left)), Per: left}
		if slowest.Count == 0 || slower(r, slowest) {
			slowest, until = r, l.ResetAt
		}
	}
	if slowest.Count > 0 {
		st.spreadRate = st.cutRate(slowest, "the spread of what remains")
		if most := st.t.mostPause; until.Sub(now) > most {
			until = now.Add(most) // the next answer says it again
		}
		st.spread.Store(int64(until.Sub(st.t.epoch)))
	} else if len(said.Limits) > 0 {
		st.spread.Store(0)
	}
}

// pace tells the gate its rate, with st.mu held. A pace that was spread ends with
// the first answer after the reset. There is no timer: the first call after it does
// not wait for longer than until then.
func (st *state) pace() {
	rate := st.unspread()
	until := time.Duration(st.spread.Load())
	switch {
	case until == 0:
	case time.Since(st.t.epoch) >= until:
		st.spread.Store(0)
	case rate.Count == 0 || slower(st.spreadRate, rate):
		rate = st.spreadRate
	}
	if rate.Count > 0 {
		rate.Burst = st.configured.Burst
	}
	if rate != st.inForce && st.gate.SetRate(rate) == nil {
		st.inForce = rate
	}
}

// unspread returns the pace without spreading, with st.mu held.
func (st *state) unspread() sluice.Rate {
	if st.policy.Count > 0 {
		return st.policy
	}
	return st.configured
}

// dispensable reports whether a new gate would know as much as that of st.
func (st *state) dispensable(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	until := time.Duration(st.spread.Load())
	return (until == 0 || now.Sub(st.t.epoch) >= until) && !now.Before(st.floorUntil)
}

// slowed reports whether the pace is a server's and slower than configured.
func (st *state) slowed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.inForce != st.configured && (st.configured.Count == 0 || slower(st.inForce, st.configured))
}

// countsCalls reports whether l counts requests, as far as is said.
func countsCalls(l *ratelimit.Limit) bool { return l.Unit == "" || l.Unit == "requests" }

func slower(a, b sluice.Rate) bool { return perSecond(a) < perSecond(b) }

func perSecond(r sluice.Rate) float64 { return float64(r.Count) / r.Per.Seconds() }

// add puts h into the list of permits that are out.
func (st *state) add(h *hold, now time.Time) {
	st.mu.Lock()
	h.since = now
	h.prev, h.next = st.held.prev, &st.held
	h.prev.next, st.held.prev = h, h
	st.mu.Unlock()
}

// remove takes h out of it.
func (st *state) remove(h *hold) {
	st.mu.Lock()
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
	st.mu.Unlock()
}

// learnt returns what st knows, for Stats.
func (st *state) learnt(now time.Time) Stats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := Stats{
		Limits: slices.Clone(st.limits), SeenAt: st.seen,
		FromPolicy: st.policy.Count > 0 || st.places > 0 && !st.own,
		Spread:     st.spread.Load() != 0 && st.inForce != st.unspread(),
		Warnings:   st.warnings, Warning: st.warning,
	}
	for h := st.held.next; h != &st.held; h = h.next {
		d := now.Sub(h.since)
		s.Held++
		if d >= st.t.cfg.LongHeld {
			s.HeldLong++
		}
		s.HeldLongest = max(s.HeldLongest, d)
	}
	return s
}
