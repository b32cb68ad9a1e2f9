package sluiceredis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

var (
	pacerReserve = script("pacer_reserve", "instant", "slots")
	pacerCancel  = script("pacer_cancel", "instant", "slots")
	pacerPause   = script("pacer_pause", "instant", "slots")
)

// PacerConfig is what a [Pacer] may be told beside its rate. The zero value is
// usual.
type PacerConfig struct {
	// Missed is for how long slots that nobody used may be caught up: after
	// that much idleness Missed ÷ interval calls more may leave at once. 0
	// means none: strictly even.
	Missed time.Duration

	// Horizon is how far ahead slots are reserved at most, the same on all
	// machines. A call that would have to wait longer is refused at once. 0
	// means 1 minute.
	Horizon time.Duration

	// Late is how long after its slot a call may still leave. One whose
	// machine wakes it later reserves another slot, so that those that were
	// delayed do not leave together. 0 means 5 ms.
	Late time.Duration

	// PausePoll is how long it takes at most, beside a round trip, until a
	// pause reaches a caller who waits on another machine. 0 means 100 ms.
	PausePoll time.Duration
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
// The round trips of all who wait overlap, and those of one machine are shared;
// so the rate does not depend on how long one takes. A slot that was reserved and
// is not used can be given back as long as no other was reserved after it;
// otherwise it stays empty: fewer calls, never more.

// A Pacer lets calls leave evenly spaced, on all machines together: each reserves
// a slot on the server and waits for it.
//
// By the server's clock slots are exactly one interval apart, which is rounded up
// to a nanosecond. What the called side sees differs by how much later than its
// slot each call really leaves: by its round trip and its timers. In any window W
// at most (W + Late) ÷ T + n calls leave as departures are counted on one clock,
// and Missed ÷ T more after idleness; n is the largest of one call.
//
// Callers are served in the order in which their requests reach the server. As a
// meter of a gate, which has a queue of its own, a Pacer holds one slot ahead,
// for the first caller of the gate; it does not know those behind him, so each
// call of the gate takes a round trip.
//
// A Pacer is safe for use by multiple goroutines. It starts none.
type Pacer struct {
	store    *Store
	key      paceKey
	interval int64 // ns
	late     time.Duration
	poll     time.Duration

	turn chan struct{} // of capacity 1; held by Admit
	held *Reservation  // by Admit, for who asks next; guarded by turn
	last *Reservation  // that Admit let through

	mu      sync.Mutex
	pause   int64         // its end, ns since 1970 by the server's clock
	looked  time.Time     // when that was last heard of
	changed chan struct{} // closed when pause changes
}

// A paceKey is a pacer and how it is asked.
type paceKey struct {
	key             string
	missed, horizon int64 // ns
}

// Pacer returns the pacer called name: count per period, evenly. It returns an
// error if name is empty, count or per is not positive, the rate is more than one
// per nanosecond, an interval is longer than the horizon, or a duration in cfg is
// negative or longer than 52 days.
func (s *Store) Pacer(name string, count int64, per time.Duration, cfg PacerConfig) (*Pacer, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	for what, d := range map[string]*time.Duration{"Missed": &cfg.Missed, "Horizon": &cfg.Horizon, "Late": &cfg.Late, "PausePoll": &cfg.PausePoll} {
		if *d < 0 || *d > time.Duration(longest/2) {
			return nil, fmt.Errorf("sluiceredis: %s of %v: 0 to 52 days are possible", what, *d)
		}
	}
	cfg.Horizon, cfg.Late, cfg.PausePoll = or(cfg.Horizon, time.Minute), or(cfg.Late, 5*time.Millisecond), or(cfg.PausePoll, 100*time.Millisecond)
	switch {
	case count <= 0 || per <= 0:
		return nil, fmt.Errorf("sluiceredis: rate of %d per %v: both must be positive", count, per)
	case int64(per) < count:
		return nil, fmt.Errorf("sluiceredis: rate of %d per %v: more than one per nanosecond", count, per)
	}
	interval := int64(per) / count
	if int64(per)%count != 0 {
		interval++ // never faster than told
	}
	if interval > int64(cfg.Horizon) {
		return nil, fmt.Errorf("sluiceredis: rate of %d per %v: slots are further apart than the horizon of %v", count, per, cfg.Horizon)
	}
	return &Pacer{
		store: s, key: paceKey{s.key("pacer1", name, "", ""), int64(cfg.Missed), int64(cfg.Horizon)},
		interval: interval, late: cfg.Late, poll: cfg.PausePoll,
		turn: make(chan struct{}, 1), changed: make(chan struct{}),
	}, nil
}

func or(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return d
}

// Interval returns the time between two slots.
func (p *Pacer) Interval() time.Duration { return time.Duration(p.interval) }

// A Reservation is a claim on a slot.
type Reservation struct {
	pacer *Pacer
	n     int64
	slot  int64     // ns since 1970, by the server's clock
	at    time.Time // by ours
	once  sync.Once
	back  bool
}

// Slot returns when the call may leave.
func (r *Reservation) Slot() time.Time { return r.at }

// Delay returns how long that is from now; not below 0.
func (r *Reservation) Delay() time.Duration { return max(0, time.Until(r.at)) }

// Cancel gives the slot back and reports whether that was possible: until it has
// come, and as long as no other was reserved after it. Otherwise the slot stays
// empty. Only the first Cancel counts; what it returned, the others do, too.
func (r *Reservation) Cancel(ctx context.Context) bool {
	r.once.Do(func() {
		p := r.pacer
		takes := r.n * p.interval
		if takes > 0 && r.Delay() > 0 {
			reply, err := p.store.run(context.WithoutCancel(ctx), pacerCancel, []string{p.key.key}, []string{format(r.slot + takes), format(takes)})
			r.back = err == nil && reply[0] == 1
		}
		if r.back {
			p.store.stats.refunded.Add(uint64(r.n))
		} else {
			p.store.stats.lost.Add(uint64(r.n))
		}
	})
	return r.back
}

// Reserve reserves the next free slot for a call of n, which takes n of them: the
// next call leaves n intervals later. It does not wait for the slot: the caller
// must, and must leave the pacer alone then or Cancel.
//
// If the slot is more than longest ahead, or beyond the deadline of ctx, nothing is
// reserved, and the error is a [*sluice.WaitError]. It is sluice.ErrTooLarge if n
// slots last longer than the horizon, ctx.Err() if ctx is done, or says that the
// server did not answer; after [ErrAmbiguous] a slot may have been reserved, and
// stays empty. n = 0 takes nothing; it panics if n < 0.
func (p *Pacer) Reserve(ctx context.Context, n int64, longest time.Duration) (*Reservation, error) {
	mustNotBeNegative(n)
	if n > p.key.horizon/p.interval {
		return nil, sluice.ErrTooLarge
	}
	if n == 0 {
		return &Reservation{pacer: p, at: time.Now()}, ctx.Err()
	}
	longest = max(0, longest)
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)-1) // a slot at the deadline is too late
	}
	r := pacing{takes: n * p.interval, patience: min(int64(longest), p.key.horizon)}
	if err := p.store.pacers.do(ctx, p.key, &r); err != nil {
		return nil, err
	}
	p.heard(r.pause, r.at)
	if !r.ok {
		return nil, &sluice.WaitError{For: sluice.ByRate, Need: r.wait, Have: time.Duration(r.patience)}
	}
	return &Reservation{pacer: p, n: n, slot: r.slot, at: r.at.Add(r.wait)}, nil
}

// Acquire blocks until a call of n may leave. It returns the errors of Reserve;
// if ctx ends while it waits the slot is given back, if that is possible.
func (p *Pacer) Acquire(ctx context.Context, n int64) error {
	return p.AcquireWithin(ctx, n, sluice.Never)
}

// AcquireWithin is Acquire, but waits no longer than longest. If the slot is
// further ahead it returns a [*sluice.WaitError] at once.
func (p *Pacer) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	began := time.Now()
	for {
		left := longest
		if longest != sluice.Never {
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
// worthless: a pause came, or we were woken too late.
func (p *Pacer) wait(ctx context.Context, r *Reservation) (leaves bool, err error) {
	for {
		p.mu.Lock()
		pause, changed, looked := p.pause, p.changed, p.looked
		p.mu.Unlock()
		if r.slot < pause {
			return false, nil
		}
		left := time.Until(r.at)
		if left <= 0 {
			return true, nil
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
			if time.Since(r.at) > p.late {
				p.store.stats.lost.Add(uint64(r.n))
				return false, nil
			}
			if left > p.poll && time.Since(looked) > p.poll/2 {
				look := pacing{}
				if p.store.pacers.do(ctx, p.key, &look) == nil { // else the next look will do
					p.heard(look.pause, look.at)
				}
			}
		}
	}
}

// heard notes the end of a pause of which a reply of that time told.
func (p *Pacer) heard(pause int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.looked) {
		p.looked = at
	}
	if pause > p.pause {
		p.pause = pause
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// PauseUntil lets no call leave before t, on any machine, those that wait
// included: it reaches them within PausePoll and a round trip. When it is over
// calls leave one interval apart, the first of them at t. A pause is only ever
// prolonged. t is converted to a distance from now at the call, so the clocks of
// the machines need not agree; beyond 52 days it is an error.
func (p *Pacer) PauseUntil(ctx context.Context, t time.Time) error {
	distance := time.Until(t)
	if distance <= 0 {
		return ctx.Err()
	}
	if int64(distance) > longest/2 {
		return fmt.Errorf("sluiceredis: a pause of %v: at most 52 days", distance)
	}
	reply, err := p.store.run(ctx, pacerPause, []string{p.key.key}, []string{format(int64(distance))})
	if err == nil {
		err = expect(pacerPause, reply, 4)
	}
	if err != nil {
		return err
	}
	p.heard(reply[3]*1000+reply[1]*int64(time.Second)+reply[2], time.Now())
	return nil
}

// Admit lets n through now and returns 0, or reserves a slot for whoever asks
// next with the same n and returns how long to wait for it. With it a Pacer is
// a sluice.Meter. The slot is lost if nobody asks in time. It returns the errors of
// Reserve and panics if n < 0.
func (p *Pacer) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if n == 0 {
		return 0, ctx.Err()
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r := p.held; r != nil {
		p.mu.Lock()
		paused := r.slot < p.pause
		p.mu.Unlock()
		switch late := time.Since(r.at); {
		case paused:
			p.held = nil
		case late > p.late || r.n != n:
			r.Cancel(ctx)
			p.held = nil
		case late < 0:
			return -late, nil
		default:
			p.held, p.last = nil, r
			return 0, nil
		}
	}
	// The deadline of ctx is the gate's affair: the slot may be for another caller.
	r, err := p.Reserve(undated{ctx}, n, time.Duration(p.key.horizon))
	if no, ok := err.(*sluice.WaitError); ok {
		return no.Need, nil
	}
	if err != nil {
		return 0, err
	}
	if wait = r.Delay(); wait == 0 {
		p.last = r
	} else {
		p.held = r
	}
	return wait, nil
}

// undated is a context without its deadline.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// Adjust takes delta more slots without asking, or gives back those of the call
// that Admit has just let through; for others it is too late, and the error
// [ErrStranded].
func (p *Pacer) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	if delta >= 0 {
		if delta > p.key.horizon/p.interval {
			return sluice.ErrTooLarge
		}
		return p.store.pacers.do(context.WithoutCancel(ctx), p.key, &pacing{takes: delta * p.interval, patience: longest})
	}
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	r := p.last
	if r == nil || r.n != -delta || age > time.Duration(r.n*p.interval) {
		return p.store.settled(delta, []int64{0, 0}, nil)
	}
	// Its slot has come, but the caller did not leave: the next may have it.
	p.last = nil
	if p.held == nil && time.Since(r.at) <= p.late {
		p.held = r
		return nil
	}
	return p.store.settled(delta, []int64{0, 0}, nil)
}

var _ sluice.Meter = (*Pacer)(nil)

// A pacing is a request for slots, and what was answered.
type pacing struct {
	takes, patience int64 // ns; takes 0: only looks

	ok          bool
	slot, pause int64         // ns since 1970, by the server's clock
	wait        time.Duration // until the slot
	at          time.Time     // when the reply arrived
}

// reserveSlots has requests for one pacer answered, in order, at one instant.
func reserveSlots(s *Store, ctx context.Context, k paceKey, requests []*pacing) error {
	args := []string{format(k.missed), format(k.horizon)}
	for _, r := range requests {
		if r.takes > 0 {
			args = append(args, format(r.takes), format(r.patience))
		}
	}
	reply, err := s.run(ctx, pacerReserve, []string{k.key}, args)
	if err == nil {
		err = expect(pacerReserve, reply, 8)
	}
	if err != nil {
		return err
	}
	at, now := time.Now(), reply[7]*1000
	free, pause := reply[3]*int64(time.Second)+reply[4], reply[5]*int64(time.Second)+reply[6]
	granted := int64(0)
	for _, r := range requests {
		r.at, r.wait, r.slot = at, time.Duration(max(0, free)), now+free
		if pause > 0 {
			r.pause = now + pause
		}
		if r.ok = r.takes > 0 && free <= r.patience; r.ok {
			free += r.takes
			granted++
		}
	}
	return s.decided(pacerReserve, len(requests), reply, granted)
}

// giveBackSlots gives back the slots of callers who had gone, the last first, so
// that those before it are at the tail then.
func giveBackSlots(s *Store, k paceKey, requests []*pacing) {
	for i := len(requests) - 1; i >= 0; i-- {
		r := requests[i]
		if !r.ok {
			continue
		}
		reply, err := s.run(context.Background(), pacerCancel, []string{k.key}, []string{format(r.slot + r.takes), format(r.takes)})
		if err == nil && reply[0] == 1 {
			s.stats.refunded.Add(1)
		} else {
			s.stats.lost.Add(1)
		}
	}
}
