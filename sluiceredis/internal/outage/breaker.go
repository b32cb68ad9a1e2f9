// Package outage knows which servers are unavailable.
package outage

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// # When is a server away, and when is it back?
//
// A server that does not answer costs each call its deadline. After some failures
// in a row, of whatever call, it is taken to be away and not asked: calls are
// decided immediately, by another rule. After a while the next call is a probe: it is sent,
// and the others still follow that rule until it was answered. Then all are sent again;
// else the while is twice as long, up to a longest one.
//
//	         failures                              answered
//	Asking ────────────→ Away ──────────→ Probing ───────────→ Asking
//	                      ↑   a call, after a │
//	                      └────── while ──────┘ failed
//
// Nothing runs in between: it is a call that finds that it is time. A probe whose
// caller starts says nothing, and the next call is one.
//
// A server that hangs is silent, and to wait for failures would cost each caller its
// deadline. So it is unavailable as soon as one caller has left because of the silence, see Hangs.
// The calls that such callers have left are still under way, and an answer to any of them
// ends the outage, as that of a probe does.
//
// Of several servers each is unavailable on its own.

// ShortestRetry is the time for which a server is left alone at first.
const ShortestRetry = 50 * time.Millisecond

// A Mode is the state of a server, and so determines who decides.
type Mode int

const (
	Asking  Mode = iota // the server decides
	Away                // no call is sent
	Probing             // as Away, while one call tests the server
)

// A Verdict is the conclusion from the end of a call about the server.
type Verdict int

const (
	Nothing    Verdict = iota // its caller left too soon
	Answered                  // it can be asked
	Unanswered                // it cannot
	Silent                    // it cannot, and it does not say so
	NotThese                  // it can, but not for these keys: they are on their way to another one, or forbidden
)

// A Breaker remembers which servers are unavailable. While none is, and none has just
// failed, a call costs it one atomic load.
type Breaker struct {
	failures int           // as many in a row, and a server is unavailable
	longest  time.Duration // between probes

	trouble atomic.Int64 // len(places)
	mu      sync.Mutex
	places  map[string]*Place
	outages uint64 // the number of outages
	probes  uint64
	swept   time.Time
	events  events
}

// A Place is a server that has failed.
type Place struct {
	name     string
	mode     Mode
	hangs    bool // it is unavailable because it was silent
	failures int
	since    time.Time     // it was first away
	next     time.Time     // it is left alone until then
	wait     time.Duration // which is that long, before jitter
	asked    time.Time     // when a call last wanted it
	cause    error         // of the last failure
}

// New returns a breaker. After so many failures in a row a server is unavailable; longest is the
// longest time between two probes. notify, if not nil, is called for the begin of each
// outage, with its cause, and for its end, with nil: one call after the other, in its own goroutine.
func New(failures int, longest time.Duration, notify func(server string, err error)) *Breaker {
	return &Breaker{failures: failures, longest: longest, places: map[string]*Place{}, events: events{notify: notify}}
}

// A Refusal is why a call may not be sent.
type Refusal struct {
	Since time.Duration // the time since the server became unavailable
	Retry time.Duration // when it is worth asking again
	Cause error         // the last failure
}

// Enter reports whether a call may be sent to the server at name, and whether it
// is a probe. If it may, the caller must call Leave, with the probe.
func (b *Breaker) Enter(name string) (probe *Place, no *Refusal) {
	if b.trouble.Load() == 0 {
		return nil, nil
	}
	defer b.events.flush() // also of a server that was removed
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.sweep(now)
	p := b.places[name]
	if p == nil {
		return nil, nil
	}
	p.asked = now
	switch {
	case p.mode == Asking:
		return nil, nil
	case p.mode == Away && !now.Before(p.next):
		b.probes++
		b.change(p, Probing, nil)
		return p, nil
	}
	return nil, &Refusal{now.Sub(p.since), max(time.Millisecond, p.next.Sub(now)), p.cause}
}

// Trouble reports whether any server is unavailable, or has just failed.
func (b *Breaker) Trouble() bool { return b.trouble.Load() > 0 }

// Away reports whether a call for name would not be sent, or would be a probe.
func (b *Breaker) Away(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	return p != nil && p.mode != Asking
}

// Leave records the outcome of a call for the server at name.
func (b *Breaker) Leave(name string, probe *Place, v Verdict, cause error) {
	if v == NotThese { // which says nothing of the server
		v = Nothing
	}
	if probe == nil && (v == Nothing || v == Answered && b.trouble.Load() == 0) {
		return
	}
	defer b.events.flush()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	switch {
	case probe != nil && p != probe: // swept meanwhile
	case probe != nil && v == Nothing:
		p.next = time.Now()
		b.change(p, Away, p.cause)
	case probe != nil && v != Answered:
		p.cause, p.wait = cause, min(2*p.wait, b.longest)
		b.alone(p)
	case v == Answered:
		if p != nil && (probe != nil || p.mode == Asking || p.hangs) {
			b.forget(p)
		}
	case p != nil && p.mode != Asking: // it was sent before the server was unavailable
	default:
		p = b.failed(p, name, cause)
		p.failures++
		if v == Silent || p.failures >= b.failures {
			b.begin(p)
			b.alone(p)
		}
	}
}

// Hangs records that the caller of a call to the server at name, which entered with probe,
// has left because the server is silent. When the call ends, Leave is called without a probe.
func (b *Breaker) Hangs(name string, probe *Place, cause error) {
	defer b.events.flush()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	switch {
	case probe != nil && p == probe:
		p.cause, p.wait = cause, min(2*p.wait, b.longest)
	case probe != nil || p != nil && p.mode != Asking:
		return
	default:
		p = b.failed(p, name, cause)
		b.begin(p)
	}
	b.alone(p)
	p.hangs = true
}

// failed returns p, or the new place of that name if it is nil. The lock is held.
func (b *Breaker) failed(p *Place, name string, cause error) *Place {
	if p == nil {
		p = &Place{name: name, asked: time.Now()}
		b.places[name] = p
		b.trouble.Add(1)
	}
	p.cause = cause
	return p
}

// begin begins an outage of p. The lock is held.
func (b *Breaker) begin(p *Place) {
	b.outages++
	p.since, p.wait = time.Now(), min(ShortestRetry, b.longest)
}

// alone leaves p alone for a while, which differs between machines, so that
// they do not all probe at the same time.
func (b *Breaker) alone(p *Place) {
	p.hangs, p.next = false, time.Now().Add(p.wait-rand.N(p.wait/4+1))
	b.change(p, Away, p.cause)
}

// forget notes that nothing is wrong with p. The lock is held.
func (b *Breaker) forget(p *Place) {
	delete(b.places, p.name)
	b.trouble.Add(-1)
	if p.mode != Asking {
		b.change(p, Asking, nil)
	}
}

// change changes the mode of p. The lock is held.
func (b *Breaker) change(p *Place, m Mode, cause error) {
	if p.mode == Asking || m == Asking {
		b.events.add(event{p.name, cause})
	}
	p.mode = m
}

// sweep removes servers that no call has wanted for long: after a failover their
// keys are elsewhere. The lock is held.
func (b *Breaker) sweep(now time.Time) {
	if now.Sub(b.swept) < b.longest {
		return
	}
	b.swept = now
	for _, p := range b.places {
		if now.Sub(p.asked) > 10*b.longest && p.mode != Probing {
			b.forget(p)
		}
	}
}

// Counts returns the number of unavailable servers, of outages, and of calls that were probes.
func (b *Breaker) Counts() (away int64, outages, probes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.places {
		if p.mode != Asking {
			away++
		}
	}
	return away, b.outages, b.probes
}

// Mode returns the mode of the server that is worst off.
func (b *Breaker) Mode() (worst Mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.places {
		if p.mode == Away || worst == Asking {
			worst = p.mode
		}
	}
	return worst
}
