package sluiceredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// # When is a server away, and when is it back?
//
// A server that does not answer costs each call its deadline. After some failures
// in a row, of whatever call, it is taken to be away and not asked: calls are
// decided at once, as the [OutagePolicy] of their limit says. After a while the next
// call is a probe: it is sent, and the others still follow the policy until it
// was answered. Then all are sent again; else the while is twice as long, up to
// [Config.Retry].
//
//	         failures                              answered
//	Asking ────────────→ Away ──────────→ Probing ───────────→ isAsking
//	                      ↑   a call, after a │
//	                      └────── while ──────┘ failed
//
// Nothing runs meanwhile: it is a call that finds that it is time. A probe whose
// caller gives up says nothing, and the next call is one.
//
// Of several servers each is away on its own: see [Topology].

// shortestRetry is how long a server is left alone at first.
const shortestRetry = 50 * time.Millisecond

// A mode is the state of a server, and so says what decides.
type mode int

const (
	isAsking  mode = iota // the server decides
	isAway                // the policy of each limit decides; no call is sent
	isProbing             // as isAway, while one call tests the server
)

// A verdict is what the end of a call says about the server.
type verdict int

const (
	nothing    verdict = iota // its caller gave up too soon
	answered                  // it can be asked
	unanswered                // it cannot
	notThese                  // it can, but not for these keys: they are on their way to another one, or forbidden
)

// A breaker remembers which servers are away. While none is, and none has just
// failed, a call costs it one atomic load.
type breaker struct {
	failures int           // as many in a row, and a server is away
	longest  time.Duration // between probes

	trouble atomic.Int64 // len(places)
	mu      sync.Mutex
	places  map[string]*place
	outages uint64 // how often one was away
	probes  uint64
	swept   time.Time
	events  events
}

// A place is a server that has failed.
type place struct {
	name     string
	mode     mode
	failures int
	since    time.Time     // it was first away
	next     time.Time     // it is left alone until then
	wait     time.Duration // which is that long, before jitter
	asked    time.Time     // when a call last wanted it
	cause    error         // of the last failure
}

// enter reports whether a call may be sent to the server at name, and whether it
// is a probe: then it must leave with what is returned.
func (b *breaker) enter(name string) (probe *place, away *outageError) {
	if b.trouble.Load() == 0 {
		return nil, nil
	}
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
	case p.mode == isAsking:
		return nil, nil
	case p.mode == isAway && !now.Before(p.next):
		b.probes++
		b.change(p, isProbing, nil)
		return p, nil
	}
	return nil, &outageError{server: name, since: now.Sub(p.since), retry: max(time.Millisecond, p.next.Sub(now)), cause: p.cause}
}

// away reports whether a call for name would not be sent, or be a probe: it must
// not wait for others, nor others for it.
func (b *breaker) away(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	return p != nil && p.mode != isAsking
}

// leave notes what a call said about the server at name.
func (b *breaker) leave(name string, probe *place, v verdict, cause error) {
	if v == notThese { // which says nothing of the server
		v = nothing
	}
	if probe == nil && (v == nothing || v == answered && b.trouble.Load() == 0) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	switch {
	case probe != nil && p != probe: // swept meanwhile
	case probe != nil && v == nothing:
		p.next = time.Now()
		b.change(p, isAway, p.cause)
	case probe != nil && v == unanswered:
		p.cause, p.wait = cause, min(2*p.wait, b.longest)
		b.alone(p)
	case v == answered:
		if p != nil && (probe != nil || p.mode == isAsking) {
			b.forget(p)
		}
	case p != nil && p.mode != isAsking: // it was sent before the server was away
	default:
		if p == nil {
			p = &place{name: name, asked: time.Now()}
			b.places[name] = p
			b.trouble.Add(1)
		}
		p.failures++
		if p.cause = cause; p.failures >= b.failures {
			b.outages++
			p.since, p.wait = time.Now(), min(shortestRetry, b.longest)
			b.alone(p)
		}
	}
}

// alone leaves p alone for a while, which differs between machines, so that
// they do not all probe at once.
func (b *breaker) alone(p *place) {
	p.next = time.Now().Add(p.wait - rand.N(p.wait/4+1))
	b.change(p, isAway, p.cause)
}

// forget notes that nothing is wrong with p. The lock is held.
func (b *breaker) forget(p *place) {
	delete(b.places, p.name)
	b.trouble.Add(-1)
	if p.mode != isAsking {
		b.change(p, isAsking, nil)
	}
}

// change changes the mode of p. The lock is held.
func (b *breaker) change(p *place, m mode, cause error) {
	if p.mode == isAsking || m == isAsking {
		b.events.add(outageEvent{p.name, cause})
	}
	p.mode = m
}

// sweep forgets servers that no call has wanted for long: after a failover their
// keys are elsewhere. The lock is held.
func (b *breaker) sweep(now time.Time) {
	if now.Sub(b.swept) < b.longest {
		return
	}
	b.swept = now
	for _, p := range b.places {
		if now.Sub(p.asked) > 10*b.longest && p.mode != isProbing {
			b.forget(p)
		}
	}
}

// counts returns how many servers are away, how often one went away, and how many calls
// were probes.
func (b *breaker) counts() (away int64, outages, probes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.places {
		if p.mode != isAsking {
			away++
		}
	}
	return away, b.outages, b.probes
}

// cannot are the error replies of a server that is there and cannot be asked, all
// or for some keys: by their first word.
//
// A server that refuses the credentials counts as away, too. To ask it at every
// call would not help, and costs a connection each time: a client makes a new one
// for each call after a login that failed. The breaker bounds that, and its probes
// find out when the credentials are right again.
var cannot = map[string]verdict{
	"READONLY": unanswered, "LOADING": unanswered, "CLUSTERDOWN": unanswered, "OOM": unanswered,
	"NOREPLICAS": unanswered, "MASTERDOWN": unanswered, "MISCONF": unanswered, "BUSY": unanswered,
	"TRYAGAIN": notThese, "MOVED": notThese, "ASK": notThese,
	"NOAUTH": unanswered, "WRONGPASS": unanswered, "NOPERM": unanswered,
}

// cannotSay are those that have no first word of their own, by how they begin.
var cannotSay = []string{
	"ERR max number of clients",
	"ERR invalid password", "ERR Client sent AUTH", "ERR AUTH ", // up to version 5, or no password is set
	"ERR Protocol error: unauthenticated",     // NOAUTH, for a call of many arguments
	"ERR The user executing the script can't", // NOPERM within a script, from version 7 on
}

// judgeReply returns what an error reply says about the server.
func judgeReply(e *ServerError) verdict {
	v, ok := cannot[e.Code]
	if !ok && slices.ContainsFunc(cannotSay, func(begin string) bool { return strings.HasPrefix(e.Message, begin) }) {
		v, ok = unanswered, true
	}
	switch {
	case !ok:
		return answered
	case (e.Code == "NOPERM" || e.Code == "ERR") && strings.Contains(e.Message, " access "):
		return notThese // the user may not use these keys, but perhaps those of other limits
	}
	return v
}

// judge returns what a call says about its server that ended with err. ctx is
// that of its caller, which may have ended before the server could have answered:
// in less than a tenth of the longest time.
func (s *Store) judge(ctx context.Context, err error, took time.Duration) verdict {
	if err == nil {
		return answered
	}
	var reply *ServerError
	switch {
	case errors.Is(err, ErrNoHistory), errors.Is(err, errRestless):
		return answered
	case errors.As(err, &reply):
		return judgeReply(reply)
	case ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || took < s.timeout/10):
		return nothing
	}
	return unanswered
}
