package queue

import (
	"math"
	"sort"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// # Which waits has a change made hopeless?
//
// Those for which the forecast is later than their bound: the admitter forecasts the wait of an
// entry from the cost that is queued ahead of it. The simplest way is to walk through the queue, to
// add up the costs, and to ask for a forecast for each entry. With 100,000 of them that takes 2 to
// 4 ms, in which no call starts, and nearly always the answer is: none.
//
// So the listed entries have a tree above them, in the order of the queue. A node has the
// cost and the earliest bound of all below it. More cost ahead never makes a wait shorter, so
// nothing below a node is hopeless if its earliest bound is later than the forecast for the
// end of the node:
//
//	                cost 200, bound 9 s                 forecast for 200: 2 s, and
//	              ┌─────────┴─────────┐                 no caller below is looked at
//	      cost 100, 14 s       cost 100, 9 s
//	       ┌──┬──┬──┐            ┌──┬──┬──┐
//	gap    1  33 33 33           25 25 25 25
//	bound  20 14 20 20 s         20 9  20 20 s
//
// If most bounds are hardly later than the slots, as of callers that all wait for as long as they
// can, the forecast for the end of a node is later than its earliest bound, although no caller
// below is hopeless. So a node also has the latest forecast for its start with which none is: the
// least of bound − cost ahead within the node × the Unit of the admitter.
//
// Entries come only at the end and leave mostly at the front. So the tree is slices: slots, fan of
// them in a chunk, nodes above the chunks, nodes above those, each at the place that its number
// gives it. To add a slot changes one node of each level. An entry that leaves at the front changes
// none, but adds to gone: its cost stays in the gaps, also in one that comes later.
//
// Entries that are not listed have no slot. Their cost is in the gap of the next slot behind
// them. When one starts from the middle, that slot is found by its number in the queue.
//
// The bound of a node may be that of an entry that has left; then it is looked at in vain,
// once.
type index struct {
	chunks []*[fan]slot
	nodes  [levels][]node // the first are those above the chunks

	first, next uint64 // the numbers of the first slot in chunks, and of the next one to be added
	live        uint64 // all slots before have left

	sum, gone total
	spare     *[fan]slot // or nil
}

const (
	shift  = 6
	fan    = 1 << shift
	levels = 3 // each node of the last is above 262,144 slots
)

// A slot is the place of a listed entry.
type slot struct {
	w     *Waiter       // nil: it has left
	bound time.Duration // of w
	gap   total         // the cost of the entries before it, from the one in the slot before on
	seq   uint32        // of w, also when it has left
}

// A node sums up the slots below it.
type node struct {
	sum             total         // of the gaps
	bound, patience time.Duration // none of those waiting is less

	// None is hopeless if the first leaves before start, and while a unit of cost takes no more
	// than unitTime.
	start    time.Duration
	unitTime float64
}

// latestStart returns when the first of some entries must start for the last to leave at bound,
// with that cost in between.
func latestStart(bound time.Duration, cost total, unit float64) time.Duration {
	if bound == Forever {
		return Forever
	}
	span := (float64(cost.hi)*(1<<64)+float64(cost.lo))*unit*(1+1e-14) + 2 // not rounded down
	if span >= math.MaxInt64/4 {
		return math.MinInt64 / 2
	}
	return bound - time.Duration(span)
}

// slot returns the slot of a number.
func (x *index) slot(number uint64) *slot {
	return &x.chunks[(number-x.first)>>shift][number%fan]
}

// node returns the node of a level that is above the slot of a number.
func (x *index) node(level int, number uint64) *node {
	return &x.nodes[level][x.place(level, number)]
}

// place returns where in its level the node is that is above the slot of a number.
func (x *index) place(level int, number uint64) int {
	s := shift * (level + 1)
	return int(number>>s - x.first>>s)
}

// add adds w, with that cost ahead of it.
func (x *index) add(w *Waiter, ahead total, unit float64) {
	number := x.next
	if x.next++; number%fan == 0 {
		x.chunks = append(x.chunks, x.newChunk())
	}
	gap := ahead
	gap.plus(x.gone)
	gap.minus(x.sum)
	x.sum.plus(gap)
	bound, patience := w.bound(), w.patience()
	s := x.slot(number)
	s.w, s.bound, s.gap, s.seq = w, bound, gap, w.seq
	for level := range x.nodes {
		nodes := x.nodes[level]
		i := x.place(level, number)
		if i == len(nodes) {
			x.nodes[level] = append(nodes, node{gap, bound, patience, latestStart(bound, gap, unit), unit})
			continue
		}
		n := &nodes[i]
		n.sum.plus(gap)
		n.bound, n.patience = min(n.bound, bound), min(n.patience, patience)
		n.start, n.unitTime = min(n.start, latestStart(bound, n.sum, unit)), min(n.unitTime, unit)
	}
}

// newChunk returns a chunk that is empty.
func (x *index) newChunk() *[fan]slot {
	c := x.spare
	if x.spare = nil; c == nil {
		return new([fan]slot)
	}
	*c = [fan]slot{}
	return c
}

// reset makes x empty.
func (x *index) reset() {
	spare := x.chunks[len(x.chunks)-1]
	clear(x.chunks)
	*x = index{chunks: x.chunks[:0], spare: spare}
}

// setBound notes the bound of w, which has a slot and had none.
func (x *index) setBound(w *Waiter) {
	number, bound := x.behind(w)-1, w.bound()
	x.slot(number).bound = bound
	for level := range x.nodes {
		n := x.node(level, number)
		n.bound, n.start = min(n.bound, bound), min(n.start, latestStart(bound, n.sum, n.unitTime))
	}
}

// behind returns the number of the first slot behind w.
func (x *index) behind(w *Waiter) uint64 {
	return x.live + uint64(sort.Search(int(x.next-x.live), func(i int) bool {
		return int32(x.slot(x.live+uint64(i)).seq-w.seq) > 0
	}))
}

// remove is called for w, of that cost, before it leaves the queue, listed or not.
func (x *index) remove(w *Waiter, cost int64) {
	if w.prev == nil {
		if w.listed && !w.early {
			for x.slot(x.live).w != w { // those have left before
				x.live++
			}
			x.slot(x.live).clear()
			x.live++
		}
		x.gone.add(cost)
		return
	}
	number := x.behind(w)
	if w.listed && !w.early {
		x.slot(number - 1).clear()
	}
	if number < x.next {
		x.slot(number).gap.sub(cost)
		for level := range x.nodes {
			x.node(level, number).sum.sub(cost)
		}
		x.sum.sub(cost)
	}
}

// insert is called for w, of that cost, which has come between others and has no slot.
func (x *index) insert(w *Waiter, cost int64) {
	number := x.behind(w)
	if number == x.next {
		return // it will be in the gap of the next slot
	}
	x.slot(number).gap.add(cost)
	for level := range x.nodes {
		n := x.node(level, number)
		n.sum.add(cost)
		n.start = latestStart(n.start, total{lo: uint64(cost)}, n.unitTime)
	}
	x.sum.add(cost)
}

func (s *slot) clear() { s.w, s.bound = nil, Forever }

// trim drops the chunks ahead of front, the first entry of the queue.
func (x *index) trim(front *Waiter) {
	for len(x.chunks) > 1 && int32(front.seq-x.chunks[0][fan-1].seq) > 0 {
		left := x.nodes[0][0].sum
		x.sum.minus(left)
		x.gone.minus(left)
		x.spare, x.chunks[0] = x.chunks[0], nil
		x.chunks = x.chunks[1:]
		for level := range x.nodes {
			x.nodes[level][0].sum.minus(left)
			if x.place(level, x.first+fan) > 0 {
				x.nodes[level] = x.nodes[level][1:]
			}
		}
		x.first += fan
		x.live = max(x.live, x.first)
	}
}

// compact rebuilds x if fewer than a quarter of its slots are those of n that wait.
// Otherwise it would grow while the first entry waits and those behind it come and go.
func (x *index) compact(n int, unit float64) {
	if len(x.chunks) <= 4+n*4/fan {
		return
	}
	var fresh index
	var sum total
	for number := x.first; number < x.next; number++ {
		s := x.slot(number)
		if sum.plus(s.gap); s.w != nil {
			ahead := sum
			ahead.minus(x.gone)
			fresh.add(s.w, ahead, unit)
		}
	}
	*x = fresh
}

// below returns which nodes of the level below the i-th node of a level is above.
func (x *index) below(level, i int) (from, to int) {
	of := x.first>>(shift*(level+1)) + uint64(i) // its number in its level
	start := x.first >> (shift * level)
	return int(max(of<<shift, start) - start), min(int((of+1)<<shift-start), len(x.nodes[level-1]))
}

// soonest returns the earliest bound if that is before t, and otherwise one that is not.
func (x *index) soonest(t time.Duration) time.Duration {
	soonest := time.Duration(Forever)
	for i := range x.nodes[levels-1] {
		soonest = min(soonest, x.refresh(levels-1, i, t))
	}
	return soonest
}

// refresh is soonest for the entries below the i-th node of a level.
func (x *index) refresh(level, i int, t time.Duration) time.Duration {
	n := &x.nodes[level][i]
	if n.bound >= t {
		return n.bound
	}
	n.bound = Forever
	if level == 0 {
		for j := range x.chunks[i] {
			if s := &x.chunks[i][j]; s.w != nil {
				n.bound = min(n.bound, s.bound)
			}
		}
		return n.bound
	}
	from, to := x.below(level, i)
	for i := from; i < to; i++ {
		n.bound = min(n.bound, x.refresh(level-1, i, t))
	}
	return n.bound
}

// A pass ends the waits that are hopeless at now, in the order of the queue.
type pass struct {
	*index
	q        *Queue
	now      time.Duration
	sure     time.Duration // see Queue.surely
	unitTime float64
	ahead    total // the sum of the gaps so far
}

// node ends those below the i-th node of a level. It reports false if no entry is listed any
// more.
func (p *pass) node(level, i int) (more bool) {
	n := &p.nodes[level][i]
	end := p.ahead
	end.plus(n.sum)
	impatient := p.q.cfg.GiveUp != nil && n.patience != Forever && p.q.cfg.GiveUp(p.now, n.patience) != nil
	latest := Forever // a bound after that is late enough
	if n.bound != Forever {
		latest = max(p.sure, sat.Add(p.now, p.q.admitter.Forecast(p.now, end.beyond(p.gone))))
	}
	if !impatient && (n.bound == Forever || n.bound > latest || p.unitTime > 0 && p.unitTime <= n.unitTime && n.bound > p.sure &&
		sat.Add(p.now, p.q.admitter.Forecast(p.now, p.ahead.beyond(p.gone))) < n.start) {
		p.ahead = end
		return true
	}
	n.bound, n.start, n.unitTime = Forever, Forever, p.unitTime
	if impatient {
		n.patience = Forever
	}
	if level == 0 {
		return p.chunk(i, n, latest, impatient)
	}
	var before total // in n
	from, to := p.below(level, i)
	for i := from; i < to; i++ {
		if !p.node(level-1, i) {
			return false
		}
		child := &p.nodes[level-1][i]
		n.bound, n.patience = min(n.bound, child.bound), min(n.patience, child.patience)
		start := child.start
		if child.unitTime < p.unitTime { // it was not looked at
			start = latestStart(child.bound, child.sum, p.unitTime)
		}
		n.start = min(n.start, latestStart(start, before, p.unitTime))
		before.plus(child.sum)
	}
	return true
}

// chunk ends those of the i-th chunk, which is below n.
func (p *pass) chunk(i int, n *node, latest time.Duration, impatient bool) (more bool) {
	var before total // in the chunk, and of s
	for j := range p.chunks[i] {
		s := &p.chunks[i][j]
		p.ahead.plus(s.gap)
		before.plus(s.gap)
		if s.w == nil {
			continue
		}
		if s.bound <= latest && s.bound != Forever || impatient {
			if err := p.q.hopeless(p.now, s.w, p.ahead.beyond(p.gone)); err != nil {
				if p.q.fail(s.w, err); p.q.bounds.n == 0 {
					return false
				}
				continue
			}
			n.patience = min(n.patience, s.w.patience())
		}
		n.bound, n.start = min(n.bound, s.bound), min(n.start, latestStart(s.bound, before, p.unitTime))
	}
	return true
}
