package sluiceredis

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # What is a share of a limit, exactly?
//
// Of M instances each admits 1/M of the capacity and 1/M of the rate. For a
// bucket that is M times the interval and a capacity divided by M, rounded down:
// so M shares hold no more than the bucket, and leak no faster. As time, which
// is what a bucket holds, a share and the whole are equally deep, and the server's
// level can be compared with the share's.
//
//	whole   capacity 16, interval 1 s, depth 16 s
//	share   capacity  4, interval 4 s, depth 16 s    of 4 instances
//
// While the server answers, its grants to this process are put into the share, up
// to the brim, and the share is never less full than the whole was found. So who
// has just used its part of the limit, or found it used up by others, has nothing
// when the server goes away. On the way back it is the other way round: what the
// share granted, and still holds, is taken from the whole before anything else
// for that key. With i of M instances cut off all of them together admit at
// most (1 + i/M) times what the limit does, in any window. M counts the
// instances that were there one count before, see beats: an instance that joined
// later is not known, and has no share.

// mostInstances is how many may share a limit: more would overflow what scripts
// compute with.
const mostInstances = 1000

// share returns the cell of one of m instances. It may have no capacity.
func (c cell) share(m int64) cell {
	c.capacity /= m
	c.interval *= m
	return c
}

// share returns the log of one of m instances.
func (k logKey) share(m int64) logKey {
	k.limit /= m
	return k
}

// share returns the window of one of m instances.
func (k fixedKey) share(m int64) fixedKey {
	k.limit /= m
	return k
}

// shares reports whether limits that say p are shared out, and among how many.
func (s *Store) shares(p OutagePolicy) (m int64, ok bool) {
	if s.policy(p) != LocalShare {
		return 0, false
	}
	m = s.instances.Load()
	return m, m > 0
}

// among returns how many instances share a limit, or why there is no share of it.
func (s *Store) among(limit int64, away *AwayError) (m int64, err error) {
	m = s.instances.Load()
	why := s.beats.unsure()
	switch {
	case m == 0:
		return 0, away.because("how many instances there are is not known, so there is no local share")
	case why != "":
		return 0, away.because("%s, so there is no local share", why)
	case limit < m:
		return 0, away.because("of a limit of %d there is no local share for %d instances", limit, m)
	}
	return m, nil
}

// here has requests decided without the server: by policy p, of a limit of that
// size whose grants count for so long at most. by decides by a share; open answers
// a request by FailOpen.
func (s *Store) here(p OutagePolicy, key string, limit int64, counts time.Duration, requests int, away *AwayError, by func(m int64) error, open func()) error {
	switch s.policy(p) {
	case FailOpen:
		open()
		s.local().note(key, 0, counts) // so that nothing of it is given back to the server
		s.stats.open.Add(uint64(requests))
		return nil
	case LocalShare:
		m, err := s.among(limit, away)
		if err == nil {
			if err = by(m); err == nil {
				s.stats.local.Add(uint64(requests))
				return nil
			}
		}
		s.stats.refused.Add(uint64(requests))
		return err
	}
	s.stats.refused.Add(uint64(requests))
	return away
}

// open is what becomes of a request for n by FailOpen.
func open(n, limit int64) limits.Result {
	res := limits.Result{Limit: limit}
	if n > limit {
		res.RetryAfter = limits.Never
	}
	return res
}

func bucketHere(s *Store, c cell, requests []*taking, away *AwayError) error {
	return s.here(c.away, c.key, c.capacity, time.Duration(c.depth()), len(requests), away, func(m int64) error {
		sc := c.share(m)
		var fit []*taking
		for _, t := range requests {
			if t.n > sc.capacity {
				if t.result = open(t.n, c.capacity); t.result.Allowed() {
					t.result = away.later(c.capacity)
				}
				continue
			}
			fit = append(fit, t)
		}
		if err := s.local().takeFromBucket(sc, fit); err != nil {
			return err
		}
		for _, t := range fit {
			if t.granted > 0 {
				s.local().note(c.key, t.granted, time.Duration(c.depth()))
			}
		}
		return nil
	}, func() {
		for _, t := range requests {
			if t.result = open(t.n, c.capacity); t.result.Allowed() {
				t.granted = t.n
			}
		}
	})
}

// keepBucket keeps the share of a bucket up to date: the server has granted so
// much, and has found that level.
func (s *Store) keepBucket(c cell, granted, level, now int64) {
	m, ok := s.shares(c.away)
	if !ok {
		return
	}
	s.local().heard(now)
	sc := c.share(m)
	_ = s.local().buckets.Update(c.key, func(w water, at time.Duration) water { // an error means 2²⁹ keys
		p, _ := w.by(&sc, at)
		mine := p.Own.Level
		more := min(mine+min(granted, sc.capacity)*sc.interval, sc.depth())
		return pour(&sc, p, max(mine, more, min(level, sc.depth()))-mine, at)
	})
}

// tell tells the server of what a share has granted and still holds: held says how
// much that is, put takes it from the whole, and counts is how long a grant counts.
// It counts what was told in units of so much.
func (s *Store) tell(p OutagePolicy, key string, unit int64, counts time.Duration, held func(m int64) int64, put func(m, granted int64) error) error {
	m, ok := s.shares(p)
	if !ok {
		return nil
	}
	granted := s.local().untold(key)
	if granted == 0 {
		return nil
	}
	if granted = min(granted, held(m)); granted == 0 {
		return nil
	}
	if err := put(m, granted); err != nil {
		s.local().note(key, granted, counts)
		return err
	}
	s.stats.told.Add(uint64(granted / unit))
	return nil
}

// tellBucket takes from a bucket what its share has granted and still holds, as
// far as it fits.
func (s *Store) tellBucket(ctx context.Context, c cell) error {
	level := func() int64 { // the same of the whole and of a share
		w, now := s.local().buckets.Get(c.key)
		p, _ := w.by(&c, now)
		return p.Own.Level
	}
	held := func(m int64) int64 { return ceil(level(), c.interval*m) }
	return s.tell(c.away, c.key, 1, c.counts(), held, func(m, units int64) error {
		args := c.args()
		// Of the last unit only what has not leaked yet.
		owed := min(units*c.interval, ceil(level(), m))
		if whole := owed / c.interval; whole > 0 {
			args = append(args, format(c.interval), format(whole))
		}
		if part := owed % c.interval; part > 0 {
			args = append(args, format(part), "1")
		}
		_, err := s.run(ctx, leakyTake, []string{c.key}, args)
		return err
	})
}

func ceil(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}

func logHere(s *Store, k logKey, requests []*asking, away *AwayError) error {
	return s.windowHere(k.away, k.key, k.limit, k.most(), micro(k.window), requests, away, func(m int64, fit []*asking) error {
		return s.local().takeFromLog(k.share(m), fit)
	})
}

func fixedHere(s *Store, k fixedKey, requests []*asking, away *AwayError) error {
	return s.windowHere(k.away, k.key, k.limit, k.limit, micro(k.window), requests, away, func(m int64, fit []*asking) error {
		return s.local().takeFromFixed(k.share(m), fit)
	})
}

// windowHere is here for a window of that limit, from which one call takes most at
// most.
func (s *Store) windowHere(p OutagePolicy, key string, limit, most int64, counts time.Duration, requests []*asking, away *AwayError, by func(m int64, fit []*asking) error) error {
	return s.here(p, key, limit, counts, len(requests), away, func(m int64) error {
		var fit []*asking
		for _, a := range requests {
			if a.n > limit/m || a.n > most {
				if a.result = openWindow(a.n, most, limit); a.result.Allowed() {
					a.result = away.later(limit)
				}
				continue
			}
			fit = append(fit, a)
		}
		if err := by(m, fit); err != nil {
			return err
		}
		for _, a := range fit {
			if a.granted() > 0 {
				s.local().note(key, a.n, counts)
			}
		}
		return nil
	}, func() {
		for _, a := range requests {
			a.result = openWindow(a.n, most, limit)
		}
	})
}

// openWindow is open for a window from which one call takes most at most.
func openWindow(n, most, limit int64) limits.Result {
	res := open(n, most)
	res.Limit = limit
	return res
}

// keepLog keeps the share of a log up to date: the server has granted so much, and
// so much is used.
func (s *Store) keepLog(k logKey, granted, used, now int64) {
	m, ok := s.shares(k.away)
	if !ok {
		return
	}
	s.local().heard(now)
	sk := k.share(m)
	mine := sk.limit - s.local().log(k.window).TakeLimit(k.key, max(1, sk.limit), 0).Remaining
	want := max(min(mine+granted, sk.limit), min(ceil(used, m), sk.limit))
	if want > mine {
		_, _ = s.local().adjustLog(sk, want-mine, 0) // an error means 2²⁹ keys
	}
}

// tellLog adds to a log what its share has granted and still holds.
func (s *Store) tellLog(ctx context.Context, k logKey) error {
	held := func(int64) int64 {
		return k.limit - s.local().log(k.window).TakeLimit(k.key, k.limit, 0).Remaining
	}
	return s.tell(k.away, k.key, 1, k.counts(), held, func(_, units int64) error {
		told := k // not k, which would always be allocated
		for ; units > mostAtOnce; units -= mostAtOnce {
			if err := s.put(ctx, &told, mostAtOnce); err != nil {
				return err
			}
		}
		return s.put(ctx, &told, units)
	})
}

// keepFixed keeps the share of a window up to date: the server has granted so
// much, so much is used, and so much of the window is left.
func (s *Store) keepFixed(k fixedKey, granted, used, left, now int64) {
	m, ok := s.shares(k.away)
	if !ok {
		return
	}
	s.local().heard(now)
	sk := k.share(m)
	_ = s.local().fixeds.Update(k.key, func(old counted, at time.Duration) counted { // an error means 2²⁹ keys
		w := old.at(k, now, at)
		// The window of the server, or what is left of another that holds this one
		// up, which may be less: a share is never shorter than it was.
		if start := now + left - k.window; start > w.start || w.used == 0 {
			if start != w.start {
				w.used = 0
			}
			w.start, w.until = start, at+micro(left)
		}
		w.used = max(w.used, min(w.used+granted, sk.limit), min(ceil(used, m), sk.limit))
		w.limit = max(w.limit, sk.limit)
		if w.used == 0 && w.next == nil {
			return counted{}
		}
		return w
	})
}

// tellFixed adds to a window what its share has granted in it.
func (s *Store) tellFixed(ctx context.Context, k fixedKey) error {
	held := func(int64) int64 {
		clock := s.local().edges(k)
		old, now := s.local().fixeds.Get(k.key)
		return old.at(k, clock, now).used
	}
	return s.tell(k.away, k.key, 1, k.counts(), held, func(_, units int64) error {
		told := k // not k, which would always be allocated
		return s.put(ctx, &told, units)
	})
}

func pacerHere(s *Store, k paceKey, requests []*pacing, away *AwayError) error {
	asked := 0 // others only look
	for _, r := range requests {
		if r.here = r.takes > 0; r.here {
			asked++
		}
	}
	return s.here(k.away, k.key, mostInstances, 2*time.Duration(k.horizon), asked, away, func(m int64) error {
		takes := make([]int64, len(requests))
		for i, r := range requests {
			takes[i] = r.takes
		}
		if err := s.local().reserveSlots(k, m, requests); err != nil {
			return err
		}
		for i, r := range requests {
			if r.ok {
				s.local().note(k.key, takes[i], 2*time.Duration(k.horizon))
			}
		}
		return nil
	}, func() {
		for _, r := range requests {
			r.ok, r.open, r.at, r.wait, r.slot, r.pauses = r.takes > 0, true, time.Now(), 0, s.local().nanos(), pauses{}
		}
	})
}

// keepPacer keeps the share of a pacer up to date: this is what the server said.
func (s *Store) keepPacer(k paceKey, requests []*pacing, now int64) {
	m, ok := s.shares(k.away)
	if !ok {
		return
	}
	s.local().heard(now)
	clock := s.local().nanos()
	_ = s.local().pacers.Update(k.key, func(p spaced, at time.Duration) spaced { // an error means 2²⁹ keys
		for _, r := range requests {
			if r.ok {
				p.next = max(p.next, r.slot+r.takes*m)
			}
			p.pause = max(p.pause, r.pause)
		}
		return p.kept(k, clock, at)
	})
}

// tellPacer reserves slots for those of its share that are still to come, or were
// the last.
func (s *Store) tellPacer(ctx context.Context, k paceKey) error {
	held := func(m int64) int64 {
		p, _ := s.local().pacers.Get(k.key)
		ahead := max(0, p.next-s.local().nanos())
		// A slot is told of as a whole, lest the next follow too closely.
		return ceil(ahead, m*k.interval) * k.interval
	}
	return s.tell(k.away, k.key, k.interval, 2*time.Duration(k.horizon), held, func(_, takes int64) error {
		_, err := s.run(ctx, pacerReserve, []string{k.key}, append(k.args(), format(takes), format(longest)))
		return err
	})
}

// adjustHere makes that part of a correction which is this process's own affair:
// all of it if there is no server, and of what is given back that of which the
// server was not told. It returns the rest.
func (s *Store) adjustHere(c member, delta int64, age time.Duration) (rest int64, err error) {
	if delta == 0 {
		return 0, nil
	}
	if s.alone {
		made, err := c.correctHere(s, delta, 1, age)
		return 0, s.settled(delta, made, err)
	}
	m := s.mem.Load()
	_, slots := c.(*pace) // which are given back by when they end, see correction
	if delta > 0 || m == nil || slots {
		return delta, nil
	}
	off, own := m.unnote(c.keyName(), -delta, age)
	if off > 0 {
		_, err = c.correctHere(s, -off, s.instances.Load(), age)
		s.stats.refunded.Add(uint64(off))
	}
	rest = delta + off
	if rest < 0 && own {
		// Given back to the server, it would be taken off what others have used.
		s.stats.stranded.Add(uint64(-rest))
		if rest = 0; off == 0 {
			err = ErrStranded
		}
	}
	return rest, err
}

// adjustAway keeps a share up to date with a correction that came to err. What the
// server could not be told to take, the share takes.
func (s *Store) adjustAway(c member, delta int64, age time.Duration, err error) error {
	m, ok := s.shares(c.policy())
	if !ok {
		return err
	}
	var away *AwayError
	switch {
	case delta < 0 && err == nil:
		_, _ = c.correctHere(s, delta, m, age) // it was granted to this process, so it is in the share
	case delta > 0 && errors.As(err, &away):
		s.local().note(c.keyName(), delta, c.counts())
		_, err = c.correctHere(s, delta, m, age)
	}
	return err
}
