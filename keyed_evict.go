package sluice

import (
	"cmp"
	"slices"
)

// # Eviction
//
// Refusing the new key would be simplest. But servers pause their gates, so a server with
// many names could fill a Keyed with gates that are not forgotten. Dropping the gate that
// was unused for longest takes a list in the order of use, which is lost when the ring is
// searched for gates to forget. So evict looks at some gates, as Redis does with its keys,
// and drops the one with the least loss. If that is paused, one call leaves too early, and
// the server can throttle it. If it has debt at its rate, more calls leave than the user
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

// A loss is what it costs to lose a gate, least first.
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

// loss returns what it costs to lose e. A gate that may become a parent is in use, too.
func (k *Keyed[K]) loss(e *keyedGate[K]) loss {
	g := e.gate
	remembers := k.remembers(g)
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	switch {
	case k.maybeParent(e) || g.inUse():
		return inUse
	case g.schedule.Paused() > now:
		return isPaused
	case remembers || g.schedule.Wait(now, 0) > 0:
		return owes
	}
	return owesNothing
}
