package sluice

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/limits"
)

const (
	lookAt       = 2  // gates that each use checks
	lookAtIfFull = 16 // the same for a new key without room
)

// forget checks up to n gates that were unused for idle at now and forgets those that it may.
// The others go to the end of the ring, so that the next call checks others. pressed
// reports that there is no room.
func (k *Keyed[K]) forget(n int, idle time.Duration, pressed bool, now time.Time) {
	for ; n > 0; n-- {
		e := k.unused.next
		if e == &k.unused || now.Sub(e.since) < idle {
			return
		}
		e.unlink() // to the end, before Forget is called: if that panics e is still in the ring
		e.link(&k.unused)
		if k.mayForget(e, pressed) && (k.cfg.Forget == nil || k.cfg.Forget(e.gate)) {
			e.unlink()
			k.remove(e)
			k.takeBack(e.gate)
		}
	}
}

// mayForget reports whether e may be forgotten.
func (k *Keyed[K]) mayForget(e *keyedGate[K], pressed bool) bool {
	return !k.maybeParent(e) && !k.remembers(e.gate) && e.asNew(pressed)
}

// maybeParent reports whether the gate of e was used since the start of a newGate that
// still runs: it may be the parent of the gate that newGate makes.
func (k *Keyed[K]) maybeParent(e *keyedGate[K]) bool {
	return len(k.making) > 0 && e.era >= k.making[0].era
}

// asNew reports whether a new gate would let no more calls start than that of e, leaving aside
// Config.Limits.
//
// Half of the retry budget is enough, so that a host that failed once is forgotten at
// once: at most 50 tokens of 100 are lost, 10 retries. A slow start keeps the gate for a
// minute after the last call: a new gate would let all calls start immediately for a server that
// has just refused one. If pressed, neither counts: some more retries do less harm than
// refusing a new key.
func (e *keyedGate[K]) asNew(pressed bool) bool {
	g := e.gate
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	budget := g.budget.at(now)
	return !e.inUse() &&
		g.schedule.Wait(now, 0) == 0 &&
		(pressed || g.brakes.asleep(now, g.schedule.Paused()) && budget.tokens >= min(budget.capacity, budget.capacity/2))
}

// inUse reports whether another gate must not take the place of that of e: a call is in it or
// waits, it is a parent, or it is closed (a new one would be open). The queue must be
// locked.
func (e *keyedGate[K]) inUse() bool {
	g := e.gate
	return g.children.Load() > 0 || g.room.calls.Calls() > 0 || g.queue.Len() > 0 || g.queue.Closed() != nil
}

// A sharedLimiter counts the gates of a Keyed that have one limiter in Config.Limits.
type sharedLimiter struct {
	gates  int
	shared bool // there were two at once, so it is not made for one of them
}

// lend records that k has gate.
func (k *Keyed[K]) lend(gate *Gate) {
	if gate.lent.Add(1) == 1 {
		gate.tie.begin()
	}
	for limiter := range gate.limits.limiters() {
		l := k.limiters[limiter]
		if l == nil {
			l = new(sharedLimiter)
			k.limiters[limiter] = l
		}
		l.gates++
		l.shared = l.shared || l.gates > 1
	}
}

// takeBack undoes lend.
func (k *Keyed[K]) takeBack(gate *Gate) {
	if gate.lent.Add(-1) == 0 {
		gate.tie.end()
		gate.peering.retire()
	}
	for limiter := range gate.limits.limiters() {
		if l := k.limiters[limiter]; l.gates == 1 {
			delete(k.limiters, limiter)
		} else {
			l.gates--
		}
	}
}

// remembers reports whether a limit of gate has state that would be lost with it.
func (k *Keyed[K]) remembers(gate *Gate) bool {
	for _, l := range gate.limits {
		switch l.Limiter.(type) {
		case limits.Remote, keyed.Key: // which have their state elsewhere
			continue
		}
		if reflect.ValueOf(l.Limiter).Comparable() && k.limiters[l.Limiter].shared {
			continue
		}
		if p, ok := l.Limiter.(interface{ Take(n int64) limits.Result }); ok && p.Take(0).ResetAfter == 0 {
			continue
		}
		return true
	}
	return false
}

// # Eviction
//
// Refusing the new key would be simplest. But servers pause their gates, so a server with
// many names could fill a Keyed with gates that are not forgotten. Dropping the gate that
// was unused for longest takes a list in the order of use, which is lost when the ring is
// searched for gates to forget. So evict looks at some gates, as Redis does with its keys,
// and drops the one with the least loss. If that is paused, one call starts too early, and
// the server can throttle it. If it has debt at its rate, more calls start than the user
// configured, so such a gate comes last.

// These bound the search, which holds the lock: most of the gates may have calls in
// flight or have debt. Below MaxKeys, where one gate more does no harm, it is short.
const (
	mostSeen       = 1024
	mostSeenIfSoft = 64
)

// A candidate is a gate that may be evicted.
type candidate[K comparable] struct {
	*keyedGate[K]
	loss loss
}

// A loss is the cost of losing a gate, least first.
type loss int

const (
	isPaused loss = iota
	owesNothing
	owes
	inUse
)

// evict drops a gate that is not in use, if Evict agrees to one.
func (k *Keyed[K]) evict() {
	found := make([]candidate[K], 0, 2*lookAtIfFull)
	cheap := 0
	var first *keyedGate[K]
	most := mostSeenIfSoft
	if k.full() {
		most = mostSeen
	}
	for seen := 0; seen < most && cheap < lookAtIfFull; seen++ {
		e := k.unused.next
		if e == &k.unused || e == first {
			break
		}
		if first == nil {
			first = e
		}
		e.unlink() // to the end, so that the next call looks at others
		e.link(&k.unused)
		switch c := k.loss(e); {
		case c < owes:
			cheap++
			found = append(found, candidate[K]{e, c})
		case c == owes && len(found)-cheap < lookAtIfFull:
			found = append(found, candidate[K]{e, c})
		}
	}
	slices.SortFunc(found, func(a, b candidate[K]) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), a.since.Compare(b.since))
	})
	for range 2 { // Evict may return false once because it has to let go of the gate first
		for _, c := range found {
			if k.cfg.Evict(c.gate, c.loss == owes) {
				c.unlink()
				k.remove(c.keyedGate)
				k.takeBack(c.gate)
				return
			}
		}
	}
}

// loss returns the cost of losing e. A gate that may become a parent is in use, too.
func (k *Keyed[K]) loss(e *keyedGate[K]) loss {
	g := e.gate
	remembers := k.remembers(g)
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	switch {
	case k.maybeParent(e) || e.inUse():
		return inUse
	case g.schedule.Paused() > now:
		return isPaused
	case remembers || g.schedule.Wait(now, 0) > 0:
		return owes
	}
	return owesNothing
}
