package sluiceredis

import (
	"sync"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A held is what this machine holds of one bucket and knows about it. Its
// methods want the lock, but for lock itself and those that say so; times are those of
// Blocks.now.
type held struct {
	blocks *Blocks
	key    string // of the caller
	quoted *quoted
	cell   cell        // of that
	timer  *time.Timer // runs tick

	mu    sync.Mutex
	dead  bool   // there is another one for the key, or none
	asked bool   // since the last tick
	busy  int    // calls made for it that are not over
	local uint64 // requests answered since the last tick

	lots [2]lot // units to be spent, those first that were taken first
	old  []lot  // units that were held too long

	known bool          // whether the level is
	level int64         // of the bucket, ns, in the last reply
	at    time.Duration // when that was asked for, or a little earlier

	use   usage
	block int64 // units to be held at most
	away  bool  // the last call failed: the next one is made when it must be

	last  lot           // that which was spent from last
	since time.Duration // when that was begun
}

// A lot is units that were taken in one call.
type lot struct {
	n     int64
	sent  time.Duration // when they were asked for, or a little earlier
	until time.Duration // from when on they may have leaked, or a little earlier

	deadline int64 // the same by the server's clock, in µs
}

// A lookup is how a request is answered.
type lookup int

const (
	miss    lookup = iota // by the server
	hit                   // by what is held
	refused               // by what is known
)

func newHeld(b *Blocks, key string) *held {
	h := &held{blocks: b, key: key}
	h.cell = b.leaky.at(h.cell, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requote()
	h.timer = time.AfterFunc(b.hold, h.tick)
	return h
}

// lock locks h and reports whether it is in use; if not it does not.
func (h *held) lock() bool {
	h.mu.Lock()
	if h.dead {
		h.mu.Unlock()
		return false
	}
	if h.quoted != h.blocks.leaky.quoted.Load() {
		h.requote()
	}
	return true
}

// requote changes to the present quota. What is known is the bucket of the one before,
// and what is held had another price.
func (h *held) requote() {
	key, away := h.cell.key, h.cell.away
	h.quoted = h.blocks.leaky.quoted.Load()
	h.cell = h.quoted.cell
	h.cell.key, h.cell.away = key, away
	h.known, h.block = false, 0
	for _, l := range []*lot{&h.lots[0], &h.lots[1], &h.last} {
		l.until = 0
	}
}

// have returns how many units may be spent.
func (h *held) have() int64 { return h.lots[0].n + h.lots[1].n }

// sweep ends what was held too long.
func (h *held) sweep(now time.Duration) {
	for h.lots[0].n > 0 && now-h.lots[0].sent >= h.blocks.hold {
		h.old = append(h.old, h.lots[0])
		h.lots[0], h.lots[1] = h.lots[1], lot{}
	}
}

// decide answers a request for n, 0 < n ≤ capacity, if it can be answered here.
func (h *held) decide(now time.Duration, n int64) (limits.Result, lookup) {
	h.asked = true
	h.sweep(now)
	have := h.have()
	if have >= n {
		h.spend(now, n)
		h.use.add(now, h.blocks.hold, n)
		h.local++
		return h.result(now, have-n), hit
	}
	// What was in the bucket can at most have leaked since.
	if h.known && now-h.at < h.blocks.hold {
		if lack := (n-have)*h.cell.interval - h.room(now); lack > 0 {
			h.local++
			res := h.result(now, have)
			res.RetryAfter = time.Duration(lack)
			return res, refused
		}
	}
	return limits.Result{}, miss
}

// room returns how much may be free in the bucket at most, in nanoseconds.
func (h *held) room(now time.Duration) int64 {
	return min(h.cell.depth(), h.cell.depth()-h.level+int64(now-h.at))
}

// result is what is answered to a request that leaves so many units here.
func (h *held) result(now time.Duration, have int64) limits.Result {
	room := h.room(now)
	return limits.Result{
		Limit:      h.cell.capacity,
		Remaining:  min(h.cell.capacity, max(0, room)/h.cell.interval+have),
		ResetAfter: time.Duration(h.cell.depth() - room),
	}
}

// spend spends n units of those that are held, the oldest first.
func (h *held) spend(now time.Duration, n int64) {
	for n > 0 {
		l := &h.lots[0]
		if h.last.sent != l.sent || h.last.n == 0 {
			h.last, h.since = *l, now
		}
		k := min(n, l.n)
		l.n, n = l.n-k, n-k
		if l.n == 0 {
			h.lots[0], h.lots[1] = h.lots[1], lot{}
		}
	}
}

// unspend puts −delta units back that were granted age ago, if they can only be of
// the lot that is being spent, and reports whether they are. If not they are to be
// given back to the server. It takes the lock.
func (h *held) unspend(now time.Duration, delta int64, age time.Duration) bool {
	if !h.lock() {
		return false
	}
	defer h.mu.Unlock()
	if h.last.n < -delta || now-max(0, age) < h.since || now-h.last.sent >= h.blocks.hold {
		h.returned(min(-delta, h.cell.capacity))
		return false
	}
	l := h.last
	l.n = -delta
	h.credit(l)
	h.use.add(now, h.blocks.hold, delta)
	return true
}

// credit adds a lot to what may be spent. Where a third one would be needed it is
// counted to the younger, with those times of both that are more cautious.
func (h *held) credit(l lot) {
	a, b := &h.lots[0], &h.lots[1]
	switch {
	case a.n == 0:
		*a = l
		return
	case a.sent == l.sent:
		a.add(l)
		return
	case b.n == 0:
		*b = l
	default:
		b.add(l)
	}
	if b.sent < a.sent {
		*a, *b = *b, *a
	}
}

// add adds the units of another lot.
func (l *lot) add(other lot) {
	l.n += other.n
	l.sent, l.until, l.deadline = min(l.sent, other.sent), min(l.until, other.until), min(l.deadline, other.deadline)
}

// returned notes that n units are given back to the server that others hold:
// the rest may have leaked so much earlier.
func (h *held) returned(n int64) {
	ns := n * h.cell.interval
	h.level -= ns // also if it is not known whether they arrive
	for _, l := range []*lot{&h.lots[0], &h.lots[1], &h.last} {
		l.until -= time.Duration(ns)
		l.deadline -= ns/int64(time.Microsecond) + 1
	}
}

// size returns how many units to hold: 1 if the bucket may be near its limit, or
// nothing is known of it.
func (h *held) size(now time.Duration) int64 {
	c, m := &h.cell, h.blocks.machines
	n := max(1, min(h.use.rate(now, h.blocks.hold), (c.capacity+2*m-1)/(2*m)))
	if !h.known || h.room(now)/c.interval < m*n {
		return 1
	}
	return n
}

// fewest is how large a block must be to be taken before it is asked for. Of a
// smaller one half would be for nobody.
const fewest = 4

// wantsMore reports whether it is time for the next block.
func (h *held) wantsMore() bool {
	return h.block >= fewest && 2*h.have() < h.block && h.busy == 0 && !h.away
}

// A plan is what is asked of the server for those who wait.
type plan struct {
	cell  cell
	who   []*taking // who is granted what is asked for
	ask   []*taking // for each of them, and for the block behind them
	first []lot     // what the first of them gets of what is held
}

// plan answers those requests that can be answered here, and plans what to ask
// for the rest of them and for the next block.
func (h *held) plan(now time.Duration, requests []*taking) plan {
	p := plan{cell: h.cell}
	asked := int64(0)
	for _, t := range requests {
		if t.n == 0 { // who takes a block
			continue
		}
		var v lookup
		if t.result, v = h.decide(now, t.n); v != miss {
			if v == hit {
				t.granted, t.sent = t.n, h.blocks.began.Add(h.last.sent)
			}
			continue
		}
		ask := &taking{n: t.n - h.have()}
		for _, l := range h.lots {
			if l.n > 0 {
				p.first = append(p.first, l)
			}
		}
		h.lots = [2]lot{}
		asked += ask.n
		p.who, p.ask = append(p.who, t), append(p.ask, ask)
	}
	h.block = h.size(now)
	if more := h.block - h.have() - asked; more > 0 && (len(p.ask) > 0 || h.block >= fewest) {
		p.ask = append(p.ask, &taking{n: more, upTo: true})
	}
	return p
}

// settle notes what became of a plan, which was made at that time.
func (h *held) settle(sent time.Duration, requests []*taking, p plan, err error) {
	if h.away = err != nil; h.away {
		for _, t := range requests { // all of them are told the error
			if t.granted > 0 {
				h.credit(lot{n: t.granted, sent: t.sent.Sub(h.blocks.began)})
				t.granted = 0
			}
		}
		h.creditAll(p.first)
		return
	}
	last := p.ask[len(p.ask)-1]
	if p.cell == h.cell { // else the quota has changed meanwhile
		h.known, h.level, h.at = true, int64(last.result.ResetAfter), sent
	}
	for i, t := range p.who {
		ask := p.ask[i]
		t.result, t.now, t.sent = ask.result, ask.now, h.blocks.began.Add(sent)
		if ask.granted > 0 {
			t.granted = t.n
			h.use.add(sent, h.blocks.hold, t.n)
			h.last = lot{} // they were not in one
		}
		if i > 0 || len(p.first) == 0 {
			continue
		}
		if ask.granted > 0 {
			t.sent = h.blocks.began.Add(p.first[0].sent)
		} else {
			h.creditAll(p.first)
		}
	}
	if last.upTo && last.granted > 0 {
		leaks := last.granted * p.cell.interval
		l := lot{last.granted, sent, sent + time.Duration(leaks), last.now + leaks/int64(time.Microsecond)}
		if p.cell != h.cell {
			l.until = 0
		}
		h.credit(l)
	}
}

func (h *held) creditAll(lots []lot) {
	for _, l := range lots {
		h.credit(l)
	}
}

// A usage is how many units were used in the present span of time, and in the
// one before.
type usage struct {
	began       time.Duration
	now, before int64
}

// turn begins a new span when the present one is over.
func (u *usage) turn(now, span time.Duration) {
	switch since := now - u.began; {
	case since >= 2*span:
		*u = usage{began: now}
	case since >= span:
		*u = usage{began: u.began + span, before: u.now}
	}
}

// add notes that n units were used.
func (u *usage) add(now, span time.Duration, n int64) {
	u.turn(now, span)
	u.now += n
}

// rate returns how many units are used in a span: as many as in the last one,
// or in this one if those are more already.
func (u *usage) rate(now, span time.Duration) int64 {
	u.turn(now, span)
	return max(u.now, u.before)
}
