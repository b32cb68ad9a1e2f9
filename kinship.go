package sluice

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
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
//
// That compares how often they are throttled, since the first throttled call of the child. Others that were
// throttled then, as in a first burst, hide it for long: a tenant of five with a limit of 1/s kept all of them
// to 1/s, since once the account had slowed down its calls were the only ones throttled, one in 30 s. So
// throttled calls of one child in a row count as well, without one of another child in between: they are
// chance with a probability of sⁿ, if the child makes a share s of the calls.
//
// # Whom does a long wait concern?
//
// A tenant whose quota of the day is used up is told to wait for hours. If that paused all of them, nothing would
// start that could show that the wait is its own: each time its call was the first again, and throttled again. So
// others are asked. The child pauses for as long as the server wants, and the parent for askAfter only. Then calls
// of other children start. If one of them is told about as long a wait, it concerns all. Afterwards a wait of up to
// twice that is believed immediately, unless the same child is throttled again next. Before another child has made
// a call none can be asked. Where a throttled call may mean a ban (AvoidThrottling), the parent learns only from the
// others: a ban of one would keep all slow for an hour. Claimants of a gate are not asked about: they share its limit.
//
//	tenant 0 is told to wait 10 min           all
//	 0 s    tenant 0 pauses for 10 min         pause for 1 s
//	 1 s    tenants 1 2 3 … are accepted       go on
//	        tenant 1 is told to wait 10 min    pause for 10 min

// askAfter is for how long all children pause because of a wait that may be that of one of them.
const askAfter = time.Second

// A wait is believed to concern all if it is at most asksUpTo times one that has.
const asksUpTo = 2

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
	row              row
	turns            int           // times in a row that it was throttled after its last wait
	until            time.Duration // when that ends
}

// A row is throttled calls of one child in a row: none of another child is throttled in between.
type row struct {
	throttled, granted, all int64 // as in kinship; all is that of the tally
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
		*k = kinship{began: [2]int64{t.granted, t.refused}, last: k.last, row: k.row, turns: k.turns, until: k.until}
	case k.granted+k.refused >= mostAnswers:
		granted, refused := k.others(t)
		k.granted, k.refused, k.told = k.granted/2, k.refused/2, k.told/2
		k.began = [2]int64{t.granted - k.granted - granted/2, t.refused - k.told - refused/2}
	}
	if t.throttled != k {
		t.throttled, k.row = k, row{all: t.granted}
	}
	later := since > k.last
	if k.row.throttled == 0 || later && t.grantedSince > k.last {
		k.row.throttled++
	}
	if k.refused == 0 || later {
		k.refused++
		k.last = now
	}
}

// asks reports whether others are to be asked about a wait of the child at now, which a call that left at since was told.
// It is called before refuse. others reports whether other children have made calls.
func (k *kinship) asks(t *tally, now, since, wait time.Duration, others bool) bool {
	last := t.throttled
	if last != k || since >= k.until { // the calls that were in flight with it count once
		if last != k {
			k.turns = 0
		}
		k.turns++
	}
	k.until = max(k.until, sat.Add(now, wait))
	together := last != nil && last != k && t.grantedSince <= t.throttledAt && wait/asksUpTo <= t.wait
	t.throttledAt, t.wait = now, wait
	switch {
	case !others || wait <= askAfter:
		return false
	case together:
		t.longest = max(t.longest, wait)
		return false
	}
	return k.turns > 1 || wait/asksUpTo > t.longest
}

// grant notes that a call of the child was accepted.
func (k *kinship) grant() {
	k.granted++
	k.row.granted++
}

// own reports whether the row is improbable.
func (r *row) own(t *tally) bool {
	all := t.granted - r.all
	if all <= r.granted {
		return false
	}
	share := float64(r.granted+r.throttled) / float64(all+r.throttled)
	return math.Pow(share, float64(r.throttled)) < unlikely
}

// own reports whether calls of the child are throttled for another reason than those of other children.
func (k *kinship) own(t *tally) bool {
	if k.row.own(t) {
		return true
	}
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
