package sluice

import (
	"math"
	"time"
)

// # Whose limit is it: one gate's, or all gates'?
//
// Fifty gates of one account, each of which is adaptive alone, know nothing of one another: an
// estimate of one is wrong as soon as another one calls more. A parent with Adaptive.Children finds
// the limit in their place, from all of their calls: a throttled call pauses it, its tally and its
// evidence count their answers, and its retry budget pays. Then they are as one gate, and a new
// child begins with that estimate.
//
// It may concern one child alone: a tenant whose key is disabled, or that has a separate limit.
// So the answers to its calls are compared with those to calls of other children since the same time. If
// x of its m calls are throttled, and a share q of theirs, more than q are chance with a probability of at
// most
//
//	exp(−m·(x·ln(x/q) + (1−x)·ln((1−x)/(1−q))))          (Chernoff)
//
// Once that is improbable the child pauses and finds its limit as a gate without a parent, and the parent
// ignores its calls:
//
//	of the child          of other children      the child's own limit
//	throttled of            throttled of
//	1       1             0       1000           not yet: one may be chance
//	3       3             0       30             yes
//	4       8             1       50             yes
//	4       8             25      50             no, the parent explains it

// unlikely is the probability below which it is no chance that calls of one of many children are throttled.
const unlikely = 1e-4

// leastOwn is the number of throttled calls of a child that may be its own.
const leastOwn = 2

// A kinship is how the server has answered the calls of a child lately, and those of all children. It
// is guarded by the lock of the adaptive gate.
type kinship struct {
	granted, refused int64         // of the child; calls in flight together count as one
	told             int64         // all of its calls in the tally that were throttled
	began            [2]int64      // granted and throttled of the tally
	last             time.Duration // when the last one counted
}

// mostAnswers is the number of answers of a child from which on half of them are dropped.
const mostAnswers = 64

// others returns how the server has answered the calls of other children.
func (k *kinship) others(t *tally) (granted, refused int64) {
	return max(0, t.granted-k.began[0]-k.granted), max(0, t.refused-k.began[1]-k.told)
}

// refuse notes that a call of the child that left at since was throttled at now.
func (k *kinship) refuse(t *tally, now, since time.Duration) {
	switch {
	case k.refused == 0:
		*k = kinship{began: [2]int64{t.granted, t.refused}}
	case k.granted+k.refused >= mostAnswers:
		granted, refused := k.others(t)
		k.granted, k.refused, k.told = k.granted/2, k.refused/2, k.told/2
		k.began = [2]int64{t.granted - k.granted - granted/2, t.refused - k.told - refused/2}
	}
	if k.refused == 0 || since > k.last {
		k.refused++
		k.last = now
	}
}

// own reports whether calls of the child are throttled for another reason than those of other children.
func (k *kinship) own(t *tally) bool {
	granted, refused := k.others(t)
	m := float64(k.granted + k.refused)
	x, q := float64(k.refused)/m, (float64(refused)+1)/(float64(granted+refused)+2)
	if k.refused < leastOwn || x <= q {
		return false
	}
	distance := x * math.Log(x/q)
	if x < 1 {
		distance += (1 - x) * math.Log((1-x)/(1-q))
	}
	return math.Exp(-m*distance) < unlikely
}

// learnsIn returns the gate that is adaptive for calls of g: g, or one above with Adaptive.Children.
func (g *Gate) learnsIn() *Gate {
	if g.account != nil {
		return g.account
	}
	return g
}

// of returns the permit of the call of p that g has granted, nil if there is none.
func (p *Permit) of(g *Gate) *Permit {
	for p != nil && p.gate != nil && p.gate != g {
		p = p.up
	}
	return p
}

// explains reports whether a call of child, which left at since by the clock of g, was throttled as all
// are.
func (g *Gate) explains(child *Gate, since time.Duration) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	k, t := &child.kin, &g.tally
	k.refuse(t, g.queue.Now(), since)
	learnt := child.answersCount.Load() // its own limit: it still meets that one
	if k.own(t) || learnt && (t.refused == 0 || since > t.burst) {
		return false
	}
	k.told++
	return true
}

// honorFor is honor for a call that left through child, whose answers g counts. since is by the clock of g,
// p the permit of child.
func (g *Gate) honorFor(child *Gate, err error, throttled *throttledError, since time.Duration, p *Permit) (time.Duration, lesson) {
	switch {
	case child == g || throttled == nil:
		return g.honor(err, throttled, since, p.of(g))
	case g.explains(child, since):
		p.answerBelow(g)
		return g.honor(err, throttled, since, p.of(g))
	}
	if up := p.of(g); up != nil && up.gate != nil {
		g.leaveOut(up)
	}
	return child.honor(err, throttled, since-child.accountAhead, p)
}

// answerBelow records that the call of p says nothing about the gates below g.
func (p *Permit) answerBelow(g *Gate) {
	for ; p != nil && p.gate != nil && p.gate != g; p = p.up {
		p.gate.leaveOut(p)
	}
}

// answeredWellFor is answeredWell for a call that left through child.
func (g *Gate) answeredWellFor(child *Gate, since time.Duration, refund int, unclear bool) {
	if child != g {
		if g.impaired.Load() {
			g.queue.Lock()
			child.kin.granted++
			g.queue.Unlock()
		}
		child.answeredWell(since-child.accountAhead, refund, unclear)
	}
	g.answeredWell(since, refund, unclear)
}
