package sluiceredis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"github.com/sluice-go/sluice/sluiceredis/internal/rates"
)

var pacerScript = strictScript("pacer", "epoch", "instant", "pace")

// PacerConfig configures a [Pacer]. The zero value is usual.
type PacerConfig struct {
	// Horizon is the time for which slots may be reserved ahead. A call that would have to wait
	// longer is rejected immediately. 0 means 1 minute. It must be the same on all machines.
	Horizon time.Duration

	// MaxLateness is the time after its slot at which a call may still start. A call that wakes
	// later reserves another slot. 0 means that it follows the delay with which calls are woken: from
	// 5 ms in an idle process to 50 ms in a busy one.
	MaxLateness time.Duration

	// PausePollInterval is the longest time, in addition to a round trip, until a pause reaches
	// callers on other machines. It must be the same on all machines. 0 means 100 ms.
	PausePollInterval time.Duration

	// Prefetch, at most Horizon, lets a gate reserve slots for that time ahead in one round trip: for
	// the calls that wait, or as many as its calls used within the last Prefetch. If the gate then
	// has no calls, those slots stay empty. 0 means only slots for calls that wait, for up to eight
	// round trips. It has no effect on Acquire and Reserve.
	Prefetch time.Duration

	// OnOutage is the policy for outages. 0 means the value of the store.
	OnOutage OutagePolicy
}

// # How do machines leave one after the other, evenly?
//
// Each asks the server for a slot, and the server hands them out one interval
// apart: slot = max(next, now), next = slot + n·T. Then it waits, on its own
// monotonic clock, for as long as the slot was ahead of the server's clock, from
// when the answer arrived: never too early, too late by no more than the answer
// took to come.
//
//	server   ├ slot 1 ┼ slot 2 ┼ slot 3 ┼ slot 4 ┤
//	a        ask·····▲         ask·····▲
//	b          ask············▲
//
// The round trips of all waiting callers overlap, and those of one machine are shared;
// so the rate does not depend on the duration of a round trip. A slot that was reserved and
// is not used can be returned as long as no other was reserved after it;
// otherwise it stays empty: fewer calls, never more.

// A Pacer lets calls start evenly spaced, on all machines together, in the order in which their
// requests reach the server: each reserves a slot there and waits for it.
//
// By the server's clock slots are exactly one interval apart, which is rounded up to a nanosecond.
// In any window W at most (W + MaxLateness) ÷ interval + n units start, where n is the largest
// cost, and Burst − 1 more after an idle time; a MaxLateness of 0 is at most 50 ms.
type Pacer struct {
	store *Store
	key   string
	away  OutagePolicy
	paced atomic.Pointer[spacing] // changed as one, so that no request mixes two rates

	horizon int64 // ns
	late    lateness
	poll    time.Duration

	ahead prefetched

	mu      sync.Mutex
	pause   int64         // its end, ns since 1970 by the server's clock
	marked  int64         // by the server's clock: when it reported the mark
	mark    int64         // slots before it that were reserved under a lower one are void: see Resume
	looked  time.Time     // when those were last reported
	changed chan struct{} // closed when one changes
}

// A spacing is the rate of a pacer.
type spacing struct {
	*limit
	interval int64 // ns
	missed   int64 // ns of unused slots that may be caught up: the burst
}

// Pacer returns the pacer called name. It returns an error if name is empty, if rate is
// not valid, if an interval is longer than the horizon or a burst longer than 52 days, or if a duration
// in cfg is negative or longer than 52 days.
func (s *Store) Pacer(name string, rate limits.Rate, cfg PacerConfig) (*Pacer, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	for what, d := range map[string]*time.Duration{"Horizon": &cfg.Horizon, "Late": &cfg.MaxLateness, "PausePoll": &cfg.PausePollInterval, "Prefetch": &cfg.Prefetch} {
		if *d < 0 || *d > time.Duration(kinds.Longest/2) {
			return nil, fmt.Errorf("sluiceredis: %s of %v: 0 to 52 days are possible", what, *d)
		}
	}
	if !cfg.OnOutage.valid() {
		return nil, fmt.Errorf("sluiceredis: no such policy: %v", cfg.OnOutage)
	}
	cfg.Horizon, cfg.PausePollInterval = or(cfg.Horizon, time.Minute), or(cfg.PausePollInterval, 100*time.Millisecond)
	if cfg.Prefetch > cfg.Horizon {
		return nil, fmt.Errorf("sluiceredis: Prefetch of %v is beyond the horizon of %v", cfg.Prefetch, cfg.Horizon)
	}
	p := &Pacer{
		store: s, key: s.key("pacer1", name, "", ""), away: s.honor(cfg.OnOutage),
		horizon: int64(cfg.Horizon), poll: cfg.PausePollInterval, changed: make(chan struct{}),
	}
	p.late.fixed = cfg.MaxLateness
	p.ahead.init(cfg.Prefetch)
	if err := p.SetRate(rate); err != nil {
		return nil, err
	}
	return p, nil
}

// SetRate changes the rate for slots that this machine reserves from now on. It returns an error
// and changes nothing if Pacer would return one. While machines use different rates, calls never
// start faster than at the highest. Reserved and prefetched slots stay where they are.
func (p *Pacer) SetRate(rate limits.Rate) error {
	if err := rates.Check(rate.Count, rate.Per, rate.Burst); err != nil {
		return fmt.Errorf("sluiceredis: %w", err)
	}
	interval := int64(rate.Per) / rate.Count
	if int64(rate.Per)%rate.Count != 0 {
		interval++ // never faster than the rate
	}
	missed := max(0, rate.Burst-1)
	switch {
	case interval > p.horizon:
		return fmt.Errorf("sluiceredis: rate of %v: slots are further apart than the horizon of %v", rate, time.Duration(p.horizon))
	case missed > kinds.Longest/2/interval:
		return fmt.Errorf("sluiceredis: rate of %v: the burst takes longer than 52 days", rate)
	}
	rule := kinds.NewPace(time.Duration(interval), time.Duration(missed*interval), time.Duration(p.horizon))
	p.paced.Store(&spacing{newLimit(rule, p.away), interval, missed * interval})
	return nil
}

// at returns how the pacer is asked now.
func (p *Pacer) at() spot { return spot{p.paced.Load().limit, p.key} }

// A Reservation is a claim on a slot.
type Reservation struct {
	pacer *Pacer
	n     int64
	span
	once sync.Once
	back bool
}

// A span is slots one after the other.
type span struct {
	slot, takes int64     // the first, and how long they are; ns, since 1970 by the server's clock
	at          time.Time // of the first, by ours
	mark        int64     // under which they were reserved
	paused      bool      // whether in a pause
	here        bool      // they are of this process
	open        bool      // none, in truth: let through by FailOpen
}

// Delay returns the time until the call may start, 0 if its slot has passed.
func (r *Reservation) Delay() time.Duration { return max(0, time.Until(r.at)) }

// Cancel returns the slot and reports whether that was possible: until it has come, and if no other
// was reserved after it. Otherwise the slot stays empty. Only the first Cancel has an effect; later
// ones return the same.
func (r *Reservation) Cancel(ctx context.Context) bool {
	r.once.Do(func() {
		r.back = r.pacer.cancel(ctx, r.span, r.n)
	})
	return r.back
}

// cancel returns n slots and reports whether that was possible.
func (p *Pacer) cancel(ctx context.Context, s span, n int64) (back bool) {
	if s.takes > 0 && time.Until(s.at) > 0 {
		back = p.store.cancelSlots(context.WithoutCancel(ctx), p.at(), s)
	}
	if back {
		p.store.stats.refunded.Add(uint64(n))
	} else {
		p.store.stats.lost.Add(uint64(n))
	}
	return back
}

// Reserve reserves the next free slot for a call of cost n: the next call starts n intervals later.
// The caller must wait until the slot, or Cancel.
//
// The error is a [*limits.WaitError] if the slot is more than longest ahead, or beyond the deadline
// of ctx; limits.ErrTooLarge if n intervals are longer than the horizon; and ctx.Err() if ctx is
// done. If the server did not reply, it matches [ErrOutage]; if it also matches [ErrAmbiguous], a
// slot may have been reserved, and stays empty. n = 0 takes nothing. Reserve panics if n < 0.
func (p *Pacer) Reserve(ctx context.Context, n int64, longest time.Duration) (*Reservation, error) {
	mustNotBeNegative(n)
	interval := p.paced.Load().interval
	if n > p.horizon/interval {
		return nil, limits.ErrTooLarge
	}
	if n == 0 {
		return &Reservation{pacer: p, span: span{at: time.Now()}}, ctx.Err()
	}
	longest = max(0, longest)
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)-1) // a slot at the deadline is too late
	}
	slots, err := p.reserve(ctx, n*interval, min(int64(longest), p.horizon))
	if err != nil {
		return nil, err
	}
	return &Reservation{pacer: p, n: n, span: slots}, nil
}

// reserve reserves slots of that length.
func (p *Pacer) reserve(ctx context.Context, takes, patience int64) (span, error) {
	for {
		p.mu.Lock()
		known := p.pause
		p.mu.Unlock()
		r := pacing{takes: takes, patience: patience}
		if err := p.store.reserve(ctx, p.at(), &r); err != nil {
			return span{}, err
		}
		p.learn(r.pauses, r.at)
		if !r.ok {
			return span{}, &limits.WaitError{For: limits.ByRate, Need: r.wait, Have: time.Duration(patience), Until: time.Now().Add(r.wait)}
		}
		slots := r.span()
		p.mu.Lock()
		lost := !r.here && r.slot < known && r.pauses.Now < known && p.pause >= known // it was not ended meanwhile
		p.mu.Unlock()
		if !lost {
			return slots, nil
		}
		// The server has lost a pause that it had reported: pause it again.
		p.cancel(ctx, slots, max(1, takes/p.paced.Load().interval))
		if err := p.prolong(ctx, known-r.pauses.Now); err != nil {
			return span{}, err
		}
	}
}

// Acquire blocks until a call of cost n may start. It returns the errors of Reserve. If ctx
// ends first, the slot is returned if possible.
func (p *Pacer) Acquire(ctx context.Context, n int64) error {
	return p.AcquireWithin(ctx, n, limits.Never)
}

// AcquireWithin is Acquire, but waits no longer than longest. If the slot is
// further ahead it returns a [*limits.WaitError] immediately.
func (p *Pacer) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	began := time.Now()
	for {
		left := longest
		if longest != limits.Never {
			left = max(0, longest-time.Since(began))
		}
		r, err := p.Reserve(ctx, n, left)
		if err != nil || n == 0 {
			return err
		}
		leaves, err := p.wait(ctx, r)
		if leaves || err != nil {
			return err
		}
	}
}

// wait blocks until the slot of r and reports true, or false if r has become
// worthless: a pause came or ended, or we were woken too late.
func (p *Pacer) wait(ctx context.Context, r *Reservation) (leaves bool, err error) {
	for {
		p.mu.Lock()
		changed, looked, void := p.changed, p.looked, p.voids(&r.span)
		p.mu.Unlock()
		if void {
			return false, nil
		}
		left := time.Until(r.at)
		most := p.late.most()
		if left <= 0 {
			p.late.note(-left)
		}
		if -left > most { // by the timer, or before we came to wait at all
			p.store.stats.lost.Add(uint64(r.n))
			return false, nil
		}
		if left <= 0 && (!r.paused || !p.doubts(&r.span, looked)) {
			return true, nil
		}
		if left <= 0 {
			if err := p.look(ctx); err != nil {
				p.store.stats.lost.Add(uint64(r.n))
				return false, err
			}
			r.paused = false // it is too late to end that pause
			continue
		}
		timer := time.NewTimer(min(left, p.poll))
		select {
		case <-ctx.Done():
			timer.Stop()
			r.Cancel(ctx)
			return false, ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C:
			if time.Until(r.at) > 0 && time.Since(looked) > p.poll/2 {
				_ = p.look(ctx) // else the next look will do
			}
		}
	}
}

// look asks for pauses.
func (p *Pacer) look(ctx context.Context) error {
	look := pacing{}
	err := p.store.reserve(ctx, p.at(), &look)
	if err == nil {
		p.learn(look.pauses, look.at)
	}
	return err
}
