package sluiceredis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/limits"
)

// # How does a machine decide a million times a second by a bucket far away?
//
// It takes a block: several units in one script, before anybody has asked for
// them, and spends them on its own. They are charged when they are taken, so
// over time not one more is admitted. But what was charged earlier may be spent
// later, all at once, and on several machines at once. That is bounded twice: by
// how long a unit may be held, and by how many are held:
//
//	charged in any window W ≤ capacity + r·W
//	spent in it  ≤ charged in W + hold          = capacity + r·W + r·hold
//	             ≤ charged in W + held before it = capacity + r·W + M·b
//
// A block is as large as what this machine used in the time that it may be held,
// for more would only be given back; and no larger than the half of the bucket
// shared by all machines, ⌈capacity ÷ 2M⌉. When fewer than M such blocks are left in the
// bucket nothing is taken ahead: there one unit held here is one that is missed
// elsewhere, and accuracy counts for more than a round trip.
//
//	held ↑
//	   b ┤\      \ ·
//	     │ \     |\ ·      at half a block the next call leaves, and its reply
//	 b/2 ┤──\────┤ \···    is there before the rest is spent
//	     │   \···┘  \
//	     └─────────────→ time
//
// A unit that is held too long is not spent any more. It is given back as
// long as that is exact. The g units of one call take g intervals to leak, so the
// bucket cannot have drained before that, and without those that come back it
// would be just that much emptier. Later it may have: they are as good as used,
// and lapse.

// usualHold is how long units are held if nothing else is said.
const usualHold = 50 * time.Millisecond

// Blocks is buckets of a [Bucket] of which this machine takes units ahead, to
// decide most calls without a round trip. The buckets and the quota are the same,
// and callers who ask the Leaky itself, on this machine or others, take from them
// as ever.
//
// The price is accuracy within a short time. For M machines that take blocks of at
// most b units and hold them for at most hold, the units admitted for a key in
// any window W are at most
//
//	capacity + r·W + min(r·hold, M·b)    r = Count ÷ Per, b ≤ ⌈capacity ÷ 2M⌉
//
// where without blocks they are at most capacity + r·W. Over long times no more
// are admitted than without. A machine that dies takes with it what it holds, at
// most b; that has leaked as if it had been used.
//
// How many are taken ahead follows what was used: as many as within the last
// hold. A key that is asked less than twice in that time costs a round trip
// each time, and so does one of which fewer than M blocks are left. Refusals are
// answered here, too, until what is known to be in the bucket can have leaked far
// enough, but for no longer than hold: what others give back is noticed after
// that at the latest.
//
// A unit that was not used in time is given back if that is exact, and lapses
// otherwise. Stats counts both, as Refunded and as Stranded, and those who were
// answered here as Local.
//
// A key takes up some 400 bytes while it is asked, and nothing is kept of one
// that was not asked for two holds. A Blocks is safe for use by multiple
// goroutines and must be made by [Bucket.Blocks]. While keys are asked it has a timer
// for each, which ends with them; so it need not be closed.
type Blocks struct {
	leaky    *Bucket
	hold     time.Duration
	machines int64
	began    time.Time
	keys     *keyed.Map[string, *held]
	fills    commit[*held, *taking]
}

// mostMachines keeps the arithmetic from running over.
const mostMachines = 1 << 20

// Blocks returns the buckets of l with units taken ahead, held for at most hold; 0
// means 50 ms. machines is how many do so, of those that share the buckets, at
// most: M in the bound. If there are more of them, M·b is exceeded, r·hold is not.
// It returns an error if machines is not from 1 to 1,048,576, or hold is negative
// or more than 52 days.
//
// A program needs one for all keys of a Leaky. Two of them hold units on their
// own, as two machines do.
func (l *Bucket) Blocks(machines int64, hold time.Duration) (*Blocks, error) {
	switch {
	case machines <= 0 || machines > mostMachines:
		return nil, fmt.Errorf("sluiceredis: blocks for %d machines: 1 to %d are possible", machines, mostMachines)
	case hold < 0 || hold > time.Duration(longest/2):
		return nil, fmt.Errorf("sluiceredis: blocks held for %v: 0 to 52 days are possible", hold)
	}
	b := &Blocks{leaky: l, hold: or(hold, usualHold), machines: machines, began: time.Now()}
	b.keys = keyed.New[string](keyed.Most, func(h *held, _ time.Duration) bool { return h == nil })
	b.fills.init(l.store, fill, putBack)
	b.fills.name, b.fills.here = func(h *held) string { return l.at(cell{}, h.key).key }, fillHere
	return b, nil
}

// now returns the time by which what is held is too old.
func (b *Blocks) now() time.Duration { return time.Since(b.began) }

// Take is [Bucket.Take], with units taken ahead. What Result says to be left is
// what is held here and what the last reply said, leaked since: others may have
// taken from it meanwhile. Of a refusal RetryAfter is never too long, except for
// what others give back, and at most a round trip too short. n = 0, and an n beyond the
// capacity, is answered by the server.
func (b *Blocks) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return b.take(ctx, key, nil, n)
}

// On returns the bucket of key as a meter, for a sluice.Gate or sluice.NewQueue. It
// finds what is held for the key faster than Take does.
func (b *Blocks) On(key string) *BlockMeter { return &BlockMeter{blocks: b, key: key} }

// A BlockMeter is one bucket of a Blocks, as a limits.Limiter.
type BlockMeter struct {
	blocks *Blocks
	key    string
	held   atomic.Pointer[held] // where it was last
}

var _ limits.Limiter = (*BlockMeter)(nil)

// Admit is [BucketLimiter.Admit], with units taken ahead.
func (m *BlockMeter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.blocks.take(ctx, m.key, &m.held, n))
}

// Adjust is [BucketLimiter.Adjust]. What is given back of a block that is still
// held goes there, if that is known, and to the server if not.
func (m *BlockMeter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	b := m.blocks
	if delta < 0 {
		if h, _ := b.keys.Get(m.key); h != nil && h.unspend(b.now(), delta, age) {
			return nil
		}
	}
	return b.leaky.On(m.key).Adjust(ctx, delta, age)
}

// take is Take. If where is not nil, what is held may be found there.
func (b *Blocks) take(ctx context.Context, key string, where *atomic.Pointer[held], n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return limits.Result{}, err
	}
	if n == 0 || b.leaky.store.alone || n > b.leaky.quoted.Load().cell.capacity {
		return b.leaky.Take(ctx, key, n)
	}
	h := b.find(key, where)
	res, v := h.decide(b.now(), n)
	more := v == hit && h.wantsMore()
	if v == miss || more {
		h.busy++
	}
	h.mu.Unlock()
	switch {
	case more:
		go h.ahead()
		return res, nil
	case v != miss:
		return res, nil
	}
	defer h.done()
	t := taking{n: n}
	if err := b.fills.do(ctx, h, &t); err != nil {
		return limits.Result{}, err
	}
	return t.result, nil
}

// find returns what is held for key, locked.
func (b *Blocks) find(key string, where *atomic.Pointer[held]) *held {
	if where != nil {
		if h := where.Load(); h != nil && h.lock() {
			return h
		}
	}
	for {
		h, _ := b.keys.Get(key)
		if h == nil {
			// There is room: so many would not fit into memory.
			_ = b.keys.Update(key, func(old *held, _ time.Duration) *held {
				if h = old; h == nil {
					h = newHeld(b, key)
				}
				return h
			})
		}
		if h.lock() {
			if where != nil {
				where.Store(h)
			}
			return h
		}
	}
}

// fill has those requests answered that what is held for their key does not
// suffice for, and takes the next block along.
func fill(s *Store, ctx context.Context, h *held, requests []*taking) error {
	h.mu.Lock()
	sent := h.blocks.now()
	p := h.plan(sent, requests)
	s.stats.local.Add(h.local)
	h.local = 0
	h.mu.Unlock()
	if len(p.ask) == 0 {
		return nil
	}
	err := takeFromBucket(s, ctx, p.cell, p.ask)
	h.mu.Lock()
	h.settle(sent, requests, p, err)
	h.mu.Unlock()
	return err
}

// fillHere has requests answered by the policy of the bucket. What they had been
// granted of what is held was put back there.
func fillHere(s *Store, h *held, requests []*taking, away *AwayError) error {
	var asked []*taking
	for _, t := range requests {
		if t.n > 0 { // who takes a block only does so on the server
			*t = taking{n: t.n}
			asked = append(asked, t)
		}
	}
	if len(asked) == 0 {
		return away
	}
	l := h.blocks.leaky
	return bucketHere(s, l.at(l.quoted.Load().cell, h.key), asked, away)
}

// putBack puts back what callers were granted who had gone.
func putBack(s *Store, h *held, requests []*taking) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range requests {
		if t.granted > 0 {
			h.credit(lot{n: t.granted, sent: t.sent.Sub(h.blocks.began)}) // they lapse if nobody wants them
		}
	}
}

// ahead takes the next block. The time for that is the Store's.
func (h *held) ahead() {
	defer h.done()
	_ = h.blocks.fills.do(context.Background(), h, &taking{}) // who needs it is told what is wrong
}

// done notes that a call for h is over.
func (h *held) done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy--
}

// tick ends what was held too long, and forgets h if nobody asks for it.
func (h *held) tick() {
	b := h.blocks
	h.mu.Lock()
	now := b.now()
	h.sweep(now)
	old, local := h.old, h.local
	h.old, h.local = nil, 0
	if h.asked || h.busy > 0 || h.lots[0].n > 0 {
		h.asked = false
		next := b.hold
		if h.lots[0].n > 0 {
			next = min(next, h.lots[0].sent+b.hold-now)
		}
		h.timer.Reset(next)
	} else {
		// Who finds it dead looks it up again, and must not find it: nobody
		// locks what is held with the lock of the map held.
		h.dead = true
		b.keys.Delete(h.key)
	}
	for _, l := range old {
		if now < l.until {
			h.level -= l.n * h.cell.interval // as in returned
		}
	}
	c := h.cell
	h.mu.Unlock()
	s := b.leaky.store
	s.stats.local.Add(local)
	for _, l := range old {
		if now >= l.until {
			_ = s.strand(l.n)
		} else {
			s.giveBackLot(c, l)
		}
	}
}

// giveBackLot gives units back that were held too long, if it arrives before
// they may have leaked.
func (s *Store) giveBackLot(c cell, l lot) {
	s.adjust(context.Background(), []correction{{member: &c, delta: -l.n, end: l.deadline}})
}
