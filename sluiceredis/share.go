package sluiceredis

import (
	"context"
	"errors"
	"math"
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

// followed returns the share of m that this process keeps up to date, if it does, and
// of how many it is one.
func (s *Store) followed(m member) (share member, among int64) {
	if s.alone || s.policy(m.about().away) != LocalShare {
		return nil, 0
	}
	if among = s.instances.Load(); among > 0 {
		share = m.share(among)
	}
	return share, among
}

// shareOf returns the share of m, or why there is none.
func (s *Store) shareOf(m member, away *outageError) (member, error) {
	among, why := s.instances.Load(), s.beats.unsure()
	switch {
	case among == 0:
		return nil, away.because("how many instances there are is not known, so there is no local share")
	case why != "":
		return nil, away.because("%s, so there is no local share", why)
	}
	share := m.share(among)
	if share == nil {
		return nil, away.because("of a limit of %d there is no local share for %d instances", m.limit(), among)
	}
	return share, nil
}

// later is what a call is told for which a share has no room, ever, but the server
// may have: to ask again when that may be back.
func (e *outageError) later(limit int64) limits.Result {
	return limits.Result{Limit: limit, RetryAfter: max(time.Millisecond, e.retry)}
}

// keep keeps the share of m up to date: the server has granted so many units, and what
// it found is found, or nil if that is not known.
func (s *Store) keep(m member, found state, granted, now int64) {
	share, among := s.followed(m)
	if share == nil {
		return
	}
	s.local().heard(now)
	share.local(s.local(), func(st state) bool {
		st.follow(found, granted, among)
		return false
	})
}

// tell has the server take what a share has granted and still holds.
func (s *Store) tell(ctx context.Context, m member) error {
	share, among := s.followed(m)
	if share == nil {
		return nil
	}
	key := m.about().key
	granted := s.local().untold(key)
	if granted == 0 {
		return nil
	}
	var add int64
	share.local(s.local(), func(st state) bool {
		granted, add = st.owes(granted, among)
		return false
	})
	most := int64(math.MaxInt64)
	if m.kind() == slidingKind {
		most = mostAtOnce
	}
	for some := int64(0); add > 0; add -= some {
		some = min(add, most)
		args := append(append([]string{m.kind().String()}, m.args(s.unique())...), format(some), "0")
		if _, err := s.run(ctx, adds[m.kind()], []string{key}, args); err != nil {
			s.local().note(key, granted, m.counts())
			return err
		}
	}
	s.stats.told.Add(uint64(granted))
	return nil
}

// adjustHere makes that part of a correction which is this process's own affair:
// all of it if there is no server, and of what is given back that of which the
// server was not told. It returns the rest.
func (s *Store) adjustHere(m member, delta int64, age time.Duration, end int64) (rest int64, err error) {
	if delta == 0 {
		return 0, nil
	}
	if s.alone {
		made, err := s.addHere(m, delta, age, end)
		if delta > 0 {
			return 0, err
		}
		s.stats.refunded.Add(uint64(made))
		s.stats.stranded.Add(uint64(-delta - made))
		if err == nil && made == 0 {
			err = ErrStranded
		}
		return 0, err
	}
	if delta > 0 || s.mem.Load() == nil || m.kind() == paceKind { // slots are given back by when they end
		return delta, nil
	}
	off, own := s.local().unnote(m.about().key, -delta, age)
	if off > 0 {
		if share := m.share(s.instances.Load()); share != nil {
			_, err = s.addHere(share, -off, age, 0)
		}
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

// addHere adds to what this process holds of a limit or its share.
func (s *Store) addHere(m member, delta int64, age time.Duration, end int64) (made int64, err error) {
	m.local(s.local(), func(st state) bool {
		made, err = st.add(delta, age, end)
		return err == nil
	})
	return made, err
}

// adjustAway keeps a share up to date with a correction that came to err. What the
// server could not be told to take, the share takes.
func (s *Store) adjustAway(m member, delta int64, age time.Duration, err error) error {
	share, _ := s.followed(m)
	if share == nil {
		return err
	}
	var away *outageError
	switch {
	case delta < 0 && err == nil:
		_, _ = s.addHere(share, delta, age, 0) // it was granted to this process, so it is in the share
	case delta > 0 && errors.As(err, &away):
		s.local().note(m.about().key, delta, m.counts())
		_, err = s.addHere(share, delta, age, 0)
	}
	return err
}
