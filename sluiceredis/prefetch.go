package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// # How does a gate let calls start evenly without asking for each?
//
// It reserves several slots in one call, one after the other, and lets its calls start at slot +
// i·T, which is exactly as even. But a slot that is reserved and not used stays empty if others
// were reserved behind it. So slots are reserved for calls that wait, and no more than twice as many
// as were used of the last ones; with Prefetch also as many as were used in the last Prefetch, if no call
// waits yet. As soon as one has passed unused, the rest is returned, which helps as far as it is at the
// tail.
//
// While the next slots are being asked for none is used. So they are reserved for tripsAhead round trips,
// or for Prefetch if that is longer, of which one is lost.

// tripsAhead is the number of round trips for which slots are reserved ahead: others wait for as long.
const tripsAhead = 8

// A prefetched is the slots that a Pacer holds for the gate whose limit it is.
type prefetched struct {
	ahead time.Duration
	began time.Time     // for use
	turn  chan struct{} // of capacity 1; held to change the fields below
	held  span          // for the next Admit
	last  span          // by which Admit has let a call through
	each  int64         // interval of those that are held, ns
	use   usage         // slots
	timer *time.Timer   // returns unused slots

	// Of the last reservation:
	took       time.Duration // its round trip
	most, used int64         // slots, and those of them that were
	single     bool          // it was for one call
}

func (m *prefetched) init(ahead time.Duration) {
	m.ahead, m.began, m.turn = ahead, time.Now(), make(chan struct{}, 1)
}

// forward moves the beginning of a span by so many nanoseconds, or back.
func (s *span) forward(ns int64) {
	s.slot, s.takes, s.at = s.slot+ns, s.takes-ns, s.at.Add(time.Duration(ns))
}

// Admit implements limits.Limiter. It allows n now and returns 0, or reserves a slot for the next
// Admit with the same n and returns the time to wait for it. The slot is lost if that does not come
// in time. It may also reserve slots for the next calls, see [PacerConfig.Prefetch]. It returns the
// errors of [Pacer.Reserve]. It panics if n < 0.
func (p *Pacer) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return p.admit(ctx, n, 0)
}

// A lone is a Pacer as a Joint of one limit, which is told the slots for which calls wait.
type lone struct{ *Pacer }

// AdmitAll implements limits.Joint.
func (l lone) AdmitAll(ctx context.Context, n, behind []int64) (wait time.Duration, which int, err error) {
	if behind == nil {
		behind = []int64{0}
	}
	mustBeNumbers(n, 1)
	mustBeNumbers(behind, 1)
	wait, err = l.admit(ctx, n[0], behind[0])
	return wait, 0, err
}

// AdjustAll implements limits.Joint.
func (l lone) AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error {
	if err := l.Adjust(ctx, delta[0], age); err != nil {
		return []error{err}
	}
	return nil
}

// admit is Admit for a call behind which others wait for so many slots.
func (p *Pacer) admit(ctx context.Context, n, behind int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if n == 0 {
		return 0, ctx.Err()
	}
	m := &p.ahead
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	// The deadline of ctx is the gate's affair: the slot may be for another caller.
	ctx = undated{ctx}
	if wait, ok, err := p.admitHeld(ctx, n); ok || err != nil {
		return wait, err
	}
	interval := p.paced.Load().interval
	if n > p.horizon/interval {
		return 0, limits.ErrTooLarge
	}
	slots, sent := p.next(n, behind), time.Now()
	m.held, err = p.reserve(ctx, slots*interval, p.horizon)
	m.took, m.most, m.used, m.single = time.Since(sent), slots, 0, slots == n
	m.each = m.held.takes / slots // more than an interval if they are of a local share
	if no, ok := err.(*limits.WaitError); ok {
		return no.Need, nil
	}
	if err != nil {
		return 0, err
	}
	if wait = max(0, time.Until(m.held.at)); wait == 0 {
		p.useHeld(n)
	}
	p.keep()
	return wait, nil
}

// next returns the number of slots to reserve for a call of n.
func (p *Pacer) next(n, behind int64) int64 {
	m, interval := &p.ahead, p.paced.Load().interval
	if m.used < m.most { // some have passed unused
		behind = min(behind, m.used-n)
	}
	wanted := n + min(behind, 2*max(m.most, n)-n)
	if m.ahead > 0 {
		wanted = max(wanted, m.use.rate(time.Since(m.began), m.ahead))
	}
	return max(n, min(wanted, int64(max(m.ahead, tripsAhead*m.took))/interval))
}

// undated is a context without its deadline.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// admitHeld is Admit by a slot that is held; ok is false if there is none for n.
func (p *Pacer) admitHeld(ctx context.Context, n int64) (wait time.Duration, ok bool, err error) {
	m := &p.ahead
	for m.held.takes > 0 {
		p.mu.Lock()
		void, looked := p.voids(&m.held), p.looked
		p.mu.Unlock()
		if void {
			break
		}
		most := p.late.most()
		if late := time.Since(m.held.at); late >= 0 && m.ahead == 0 && m.single { // the head of the queue has waited for this slot
			p.late.note(late)
		}
		p.miss(most)
		switch late := time.Since(m.held.at); {
		case m.held.takes == 0:
		case m.held.takes < n*m.each || m.single && m.ahead == 0 && m.held.takes != n*m.each:
			p.cancel(ctx, m.held, m.held.takes/m.each)
			m.held = span{}
		case late < 0:
			return -late, true, nil
		case time.Since(looked) > p.poll || m.held.paused && p.doubts(&m.held, looked):
			if err := p.look(ctx); err != nil && (m.held.paused || ctx.Err() != nil) {
				return 0, false, err
			} else if err != nil { // reserved units count, until known otherwise
				p.useHeld(n)
				p.keep()
				return 0, true, nil
			}
		default:
			p.useHeld(n)
			p.keep()
			return 0, true, nil
		}
	}
	m.held = span{}
	return 0, false, nil
}

// miss counts those held slots as lost that came more than most ago.
func (p *Pacer) miss(most time.Duration) {
	m := &p.ahead
	if late := time.Since(m.held.at) - most; late > 0 {
		lost := min(m.held.takes/m.each, (int64(late)+m.each-1)/m.each)
		m.held.forward(lost * m.each)
		p.store.stats.lost.Add(uint64(lost))
	}
}

// useHeld lets a call of n start by the slots that are held.
func (p *Pacer) useHeld(n int64) {
	m := &p.ahead
	m.last = m.held
	m.last.takes = n * m.each
	m.held.forward(m.last.takes)
	m.used += n
	m.use.add(time.Since(m.began), max(1, m.ahead), n)
}

// keep has the held slots returned when no call comes for the first slot in time.
func (p *Pacer) keep() {
	m := &p.ahead
	switch {
	case m.single && m.ahead == 0:
	case m.held.takes == 0 && m.timer != nil:
		m.timer.Stop()
	case m.held.takes == 0:
	case m.timer == nil:
		m.timer = time.AfterFunc(time.Until(m.held.at)+p.late.most()+1, p.expire)
	default:
		m.timer.Reset(time.Until(m.held.at) + p.late.most() + 1)
	}
}

// expire returns the held slots if no call came for its first slot.
func (p *Pacer) expire() {
	m := &p.ahead
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	before := m.held.takes
	if before == 0 {
		return
	}
	if p.miss(p.late.most()); m.held.takes == before {
		p.keep() // a call came at the last moment
		return
	}
	p.mu.Lock()
	void := p.voids(&m.held)
	p.mu.Unlock()
	if m.held.takes > 0 && !void {
		p.cancel(context.Background(), m.held, m.held.takes/m.each)
	}
	m.held = span{}
}

// Adjust takes delta more slots, or returns those of the last call that Admit allowed; for
// other calls, and if others came after it, it returns an error.
func (p *Pacer) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	interval := p.paced.Load().interval
	if delta >= 0 {
		if delta > p.horizon/interval {
			return limits.ErrTooLarge
		}
		return p.store.reserve(context.WithoutCancel(ctx), p.at(), &pacing{takes: delta * interval, patience: kinds.Longest})
	}
	m := &p.ahead
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	last := m.last
	m.last = span{}
	if last.takes == 0 || last.takes != -delta*m.each || age > time.Duration(last.takes) {
		return p.store.strand(-delta)
	}
	// Its slot has come, but the caller did not leave: the next may have it.
	switch {
	case m.held.takes == 0 && time.Since(last.at) <= p.late.most():
		m.held = last
	case m.held.takes > 0 && m.held.slot == last.slot+last.takes:
		m.held.forward(-last.takes)
	default:
		return p.store.strand(-delta)
	}
	m.use.add(time.Since(m.began), max(1, m.ahead), delta)
	p.keep()
	return nil
}

var _ limits.Limiter = (*Pacer)(nil)

// A usage is the number of units used in the current span of time, and in the
// one before.
type usage struct {
	began       time.Duration
	now, before int64
}

// turn begins a new span when the current one has ended.
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

// rate returns the number of units used in a span: as many as in the last one,
// or in this one if those are more already.
func (u *usage) rate(now, span time.Duration) int64 {
	u.turn(now, span)
	return max(u.now, u.before)
}
