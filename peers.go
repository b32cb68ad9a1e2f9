package sluice

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/limits"
)

// # Sharing what is learned
//
// A gate with Adaptive.Peers tells other processes what it learns, and takes its part of the
// limit. Package adaptive decides what to report and what to believe. Here is only the
// goroutine that does it: it begins with the first call and ends when no call has left or
// waited for a second, so that unused gates cost the group nothing. Calls never wait for it.

// A peering is what a gate has to do with its group. It is guarded by the lock of the queue.
type peering struct {
	with    limits.Peers
	peer    *adaptive.Peer
	running bool
	denied  uint64 // cost that the server refused, in the unit of the learner
}

const (
	peeringLook    = 250 * time.Millisecond // between two looks whether to report
	peeringTimeout = time.Second            // of one exchange
)

// newPeering returns the peering of a gate, nil if it shares nothing.
func newPeering(a Adaptive) *peering {
	if a.Off || a.Peers == nil {
		return nil
	}
	return &peering{with: a.Peers, peer: adaptive.NewPeer(rand.Text())}
}

// use notes, with the queue locked, that a call wants to leave.
func (p *peering) use(g *Gate) {
	if p != nil && !p.running && g.queue.Closed() == nil {
		p.running = true
		go g.exchange()
	}
}

// refused notes, with the queue locked, that the server refused a call of n.
func (p *peering) refused(g *Gate, n int64) {
	if p != nil {
		p.denied += uint64(g.learningUnit().of(n))
	}
}

// exchange reports and listens, as long as the gate is in use.
func (g *Gate) exchange() {
	ticker := time.NewTicker(peeringLook)
	defer ticker.Stop()
	for g.exchangeOnce() {
		select {
		case <-ticker.C:
		case <-g.life.Done():
		}
	}
}

// exchangeOnce reports if it is time, and reports whether to go on.
func (g *Gate) exchangeOnce() bool {
	p := g.peering
	g.queue.Lock()
	now, rule := g.queue.Now(), g.learningRule()
	if g.queue.Closed() != nil {
		p.running = false
		g.queue.Unlock()
		return false
	}
	if !p.peer.Due(now, rule) {
		g.queue.Unlock()
		return true
	}
	seen := g.granted
	report, used := p.peer.Report(now, rule, g.sentSoFar(), float64(p.denied), g.queue.Len() > 0)
	g.queue.Unlock()

	ctx, cancel := context.WithTimeout(g.life, peeringTimeout)
	defer cancel()
	reply, err := p.with.Exchange(ctx, g.name, report)

	g.queue.Lock()
	if !used {
		// A call that came during the exchange found the goroutine running.
		p.running = g.granted != seen || g.queue.Len() > 0
		defer g.queue.Unlock()
		return p.running
	}
	g.heard(report, reply, err)
	return true
}

// heard takes the reply to a report, with the queue locked, and unlocks it. Callers may leave
// earlier then.
func (g *Gate) heard(report limits.PeerReport, reply limits.PeerReply, err error) {
	peer, now := g.peering.peer, g.queue.Now()
	if err != nil {
		peer.Lost(now, g.learningRule())
		g.queue.Unlock()
		return
	}
	made := g.learner == nil && peer.News(reply)
	if made {
		g.learner = newLearner(g)
	}
	peer.Heard(now, g.learningRule(), report, reply)
	switch {
	case made && g.learner.changes() == 0: // the news were impossible
		g.learner = nil
	case made:
		g.ramp = nil
	}
	g.endAnswer(now)
}

// learningRule returns the rule that the processes share, nil if the gate does not learn. If
// there are several units, it is that of the first one.
func (g *Gate) learningRule() *adaptive.Rule {
	if g.learner == nil {
		return nil
	}
	return g.learner.rule
}

// sentSoFar returns what has left so far, in the unit of the learner.
func (g *Gate) sentSoFar() float64 {
	if g.learningUnit() == Cost {
		return float64(g.sent)
	}
	return float64(g.granted)
}

// learningUnit returns the unit of the first belief of a learner.
func (g *Gate) learningUnit() Unit {
	if g.rate.Count > 0 {
		return g.rateUnit
	}
	return Cost
}
