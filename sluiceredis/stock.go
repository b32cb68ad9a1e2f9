package sluiceredis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/gather"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// # How do the callers of a gate share round trips?
//
// A gate asks for one call after the other, so that none is overtaken. If each had a round trip
// of its own, a server 5 ms away would let no more than 200 calls a second through, however
// high the limit.
//
// So the first caller takes for those that wait behind it as well, in the same script: as many
// calls like its own as fit. What it does not need itself is the stock, from which those behind
// it take without asking, as soon as they are the first:
//
//	caller  1            2 3 4 5            6 7 …
//	        │            │ │ │ │            │
//	server  ├─ 1 to 5 ───┤─┴─┴─┴── 6 to 13 ─┤
//
// Units in stock are missing on other machines. So a request is for calls that wait, and not
// for more of them than the gate lets start soon: it may have a rate or a cap of its own. That
// is learned: if the stock is used up within half a round trip, the next request is for twice
// as many, and if some is left after a whole one, the rest is returned, and the next request is
// for as many as were used. Only units of calls and of cost are taken ahead, because nobody knows
// what else a call behind will take, and none of a [Pacer], which has its own way; see prefetch.go.

// A stock is units taken ahead for one gate, or for the children of one.
type stock struct {
	mu    sync.Mutex
	units []int64       // in stock, of each limit
	ends  []int64       // what Correction needs to return exactly these, or 0
	since time.Duration // when the oldest of them were asked for, since the store was made
	until time.Time     // then they are returned
	timer *time.Timer   // calls expire

	asking int // requests under way: their callers, who need more than there is, use it first

	// Of the last request that was admitted:
	came  time.Time     // its answer
	took  time.Duration // its round trip, or a little more
	calls int64         // it took for so many calls
	used  int64         // and so many of them have come

	most int64 // the next request may take for so many calls
}

// shortestStock is the time for which units stay in stock at least: the callers behind have to wake.
const shortestStock = time.Millisecond

// use takes n from the stock and reports whether that was possible.
func (k *stock) use(n []int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, n := range n {
		if k.units == nil || k.units[i] < n {
			return false
		}
	}
	for i, n := range n {
		k.units[i] -= n
	}
	k.used++
	return true
}

// next returns the number of calls for which the next request may take.
func (k *stock) next() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch since := time.Since(k.came); {
	case since < k.took/2:
		k.most = max(k.most, 2*k.calls)
	case since > k.took:
		k.most = min(k.most, 2*k.calls) // the rest was not asked for, or there was no room for it
	}
	k.most = min(max(1, k.most), gather.Most)
	return k.most
}

// begin notes that a request is under way.
func (k *stock) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asking++
}

// end notes that a request, which was sent then, has ended, and keeps what it took for calls behind its
// own if r is not nil.
func (k *stock) end(r *request, sent time.Time, expire func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asking--
	if r != nil {
		k.came, k.calls, k.used = time.Now(), r.admitted, 1
		k.took = k.came.Sub(sent)
		k.add(r)
	}
	if k.empty() {
		return
	}
	keep := max(k.took, shortestStock)
	k.until = time.Now().Add(keep)
	if k.timer == nil {
		k.timer = time.AfterFunc(keep, expire)
	} else {
		k.timer.Reset(keep)
	}
}

// add adds what r took for calls behind its own.
func (k *stock) add(r *request) {
	if r.admitted == 1 {
		return
	}
	if k.units == nil {
		k.units, k.ends = make([]int64, len(r.parts)), make([]int64, len(r.parts))
	}
	if k.empty() {
		k.since = r.sent
	}
	for i := range r.parts {
		p := &r.parts[i]
		if k.ends[i] = p.end; k.units[i] > 0 {
			k.ends[i] = 0
		}
		k.units[i] += p.n * (r.admitted - 1)
	}
}

// put puts back what a call took that does not start after all, and reports whether that was
// possible. The timer returns it if no other call takes it.
func (k *stock) put(delta []int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	takes := slices.ContainsFunc(delta, func(d int64) bool { return d > 0 }) // as for a call that cost more
	if takes || k.units == nil || !time.Now().Before(k.until) {
		return false
	}
	for i, d := range delta {
		k.units[i] -= d
		k.ends[i] = 0
	}
	return true
}

func (k *stock) empty() bool {
	return !slices.ContainsFunc(k.units, func(n int64) bool { return n > 0 })
}

// expire returns what is left in stock.
func (t *joint) expire() {
	k := &t.stock
	k.mu.Lock()
	if k.empty() || k.asking > 0 || time.Now().Before(k.until) {
		k.mu.Unlock()
		return
	}
	k.most = k.used
	all := make([]correction, len(k.units))
	for i, a := range t.form().spots {
		all[i] = correction{spot: a, delta: -k.units[i], age: t.store.elapsed() - k.since, end: k.ends[i]}
		k.units[i] = 0
	}
	k.mu.Unlock()
	t.store.adjust(context.Background(), all) // counted if it fails
}

// ahead returns the number of calls of n for which a request may take, if behind waits.
func (t *joint) ahead(n, behind []int64) int64 {
	f := t.form()
	if t.store.alone || t.store.isAway(f.sign.key) { // there is no round trip to be saved
		return 1
	}
	more := int64(gather.Most)
	for i, a := range f.spots {
		switch {
		case n[i] == 0:
			continue
		case a.Kind().ByEnd():
			return 1
		case a.AtOnce() == kinds.SlidingAtOnce:
			more = min(more, kinds.SlidingAtOnce/n[i]-1)
		}
		more = min(more, behind[i]/n[i])
	}
	if more <= 0 {
		return 1
	}
	return min(1+more, t.stock.next())
}
