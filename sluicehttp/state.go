package sluicehttp

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A state is the record of a transport for a key in addition to its gate: the statements of
// servers, and the permits that are out.
type state struct {
	t    *Transport
	gate *sluice.Gate
	key  key

	attempts sluice.RetryLoop // of a call, before the first; each call has a copy

	published *published // limits of the gate; nil without Config.Cost
	scopes    *scopes    // nil unless the key is a server

	lengths lengths // of brief responses

	pausedByUser atomic.Pointer[pause] // by Transport.PauseUntil; nil if it was not

	pins atomic.Uint64 // see pin
	gone atomic.Bool   // its gate was forgotten

	server   atomic.Pointer[key]      // destination of the last request; key if that is one
	inFlight atomic.Int64             // attempts without a response; counted only if watched
	watched  atomic.Bool              // it matters when calls are sent: a server publishes limits, or they are spread
	sent     atomic.Uint32            // attempts since watched
	unseen   atomic.Int64             // attempts from before, without a response
	last     atomic.Pointer[lastCall] // the call after which others wait; nil if none is known
	spaced   atomic.Bool              // there is a windowRate, or was until now
	spread   atomic.Int64             // until when the pace is spread, since t.epoch; 0 if it is not

	mu   sync.Mutex
	held hold // ring of the permits that are out

	configured sluice.Rate // the rate without published limits
	policy     sluice.Rate // the rate that a server publishes, or zero
	spreadRate sluice.Rate // the rate until spread
	windowRate sluice.Rate // the rate of a limit with short windows, or zero
	unsaid     int         // responses in a row that show no limit with short windows, see noteWindows
	fresh      bool        // a window of it has just begun
	outdated   outdated    // what the gate has learned of that limit
	inForce    sluice.Rate // the rate of the gate

	own           bool  // the gate has a configured concurrency
	places        int64 // the concurrency that a server publishes, or 0
	placesInForce int64 // the concurrency of the gate if it is not configured

	// After throttles without a time the waits double until a call succeeds.
	floorUntil time.Time
	floors     atomic.Int64 // written under mu

	claimed  []*claim
	excuse   excuse
	replies  int64 // with limits
	limits   []ratelimit.Limit
	seen     time.Time
	warnings uint64
	warning  ratelimit.Warning
}

// newState returns the state of a new gate.
func newState(t *Transport, key key, gate *sluice.Gate, published *published) *state {
	st := &state{t: t, gate: gate, key: key, published: published}
	st.held.prev, st.held.next = &st.held, &st.held
	st.watched.Store(t.cfg.Published.Spread > 0)
	if st.scopes = newScopes(st); st.scopes != nil {
		st.server.Store(&st.key)
	} else if key.scheme != "" {
		server := st.key
		server.route = ""
		st.server.Store(&server)
	}
	policy := t.cfg.Retry
	policy.Retryable = nil // called by final
	st.attempts = sluice.NewRetryLoop(gate, policy)
	now := gate.Stats()
	st.configured, st.inForce = now.Rate, now.Rate
	st.own = now.Concurrency > 0
	if st.fromPolicy() && !st.own {
		st.placesInForce = 1
		st.mustSet(gate.SetConcurrency(1))
	}
	return st
}

// The word of state.pins, which is one so that a request changes it only twice:
//
//	bits 0 … 30    requests that use st without a pin of Keyed
//	bit 31         retired: pin fails
//	bits 32 … 63   calls of pin, which wrap
const (
	onePin  = 1
	retired = 1 << 31
	pinned  = retired - 1
	oneUse  = 1 << 32

	// keyedEvery is how often pin makes a request go through Keyed, which forgets other
	// gates only when it is used.
	keyedEvery = 64
)

// pin keeps st from being retired until unpin is called, and reports whether it succeeded.
// It replaces the lock and the map of Keyed for the key that was used last, which saves an
// eighth of the cost of a transport.
func (st *state) pin() bool {
	if w := st.pins.Add(oneUse + onePin); w&retired != 0 || w/oneUse%keyedEvery == 0 {
		st.unpin()
		return false
	}
	return true
}

func (st *state) unpin() { st.pins.Add(^uint64(onePin - 1)) }

// retire makes pin fail from now on and reports true, unless st is in use. A request may
// have come and gone since Keyed saw the gate unused, and its response may still be read.
func (st *state) retire() bool {
	if w := st.pins.Or(retired); w&pinned > 0 || st.gate.Stats().InFlight > 0 {
		st.revive()
		return false
	}
	return true
}

// revive undoes retire.
func (st *state) revive() { st.pins.And(^uint64(retired)) }

// dispensable reports whether a new gate would behave the same.
func (st *state) dispensable(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	until := time.Duration(st.spread.Load())
	return (until == 0 || now.Sub(st.t.epoch) >= until) && !now.Before(st.floorUntil)
}

// slowed reports whether the rate that applies is a server's and slower than configured.
func (st *state) slowed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.inForce != st.configured && slower(st.inForce, st.configured)
}

// mustSet panics if a change fails that cannot fail.
func (st *state) mustSet(err error) {
	if err != nil {
		panic("sluicehttp: " + err.Error())
	}
}

// add adds h to the permits that are out since now, or since this moment if that is zero.
func (st *state) add(h *hold, now time.Time) {
	var since time.Duration
	if now.IsZero() {
		since = time.Since(st.t.epoch) // half of the cost of time.Now
	} else {
		since = now.Sub(st.t.epoch)
	}
	st.mu.Lock()
	h.since = since
	h.prev, h.next = st.held.prev, &st.held
	h.prev.next, st.held.prev = h, h
	st.mu.Unlock()
}

// remove removes h from the permits that are out.
func (st *state) remove(h *hold) {
	st.mu.Lock()
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
	st.mu.Unlock()
}

// said returns the limits of the last response that had any.
func (st *state) said() []ratelimit.Limit {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.limits)
}

// stats returns the Stats of the key, without those of the gate.
func (st *state) stats(now time.Time) Stats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := Stats{
		Limits: slices.Clone(st.limits), SeenAt: st.seen,
		Published: st.inForce != st.configured || st.places > 0 && !st.own,
		Warnings:  st.warnings, Warning: st.warning,
	}
	for h := st.held.next; h != &st.held; h = h.next {
		d := now.Sub(st.t.epoch) - h.since
		s.Held++
		if d >= st.t.cfg.LeakThreshold {
			s.HeldLong++
		}
		s.HeldLongest = max(s.HeldLongest, d)
	}
	return s
}
