package sluiceredis

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// # How is a share of a limit defined?
//
// Of M instances each admits 1/M of the capacity and 1/M of the rate. For a bucket that is M times
// the interval and a capacity divided by M, rounded down: so M shares hold no more than the bucket,
// and leak no faster. As time, the unit of a bucket, a share and the whole are equally deep, and
// the server's level can be compared with the share's.
//
//	whole   capacity 16, interval 1 s, depth 16 s
//	share   capacity  4, interval 4 s, depth 16 s    of 4 instances
//
// While the server answers, the units that it admits to this process are put into the share, until
// it is full, and the share is never less full than the whole was found. So an instance that has
// just used its share of the limit, or found it used up by others, has nothing when the server
// becomes unavailable. On the way back it is the other way round: the units that the share
// admitted, and still holds, is taken from the whole before anything else for that key. With i of M
// instances cut off all of them together admit at most (1 + i/M) times the units of the limit, in any
// window. M counts the instances that were there one count before, see beats: an instance that
// joined later is not known, and has no share.

// mostInstances is the maximum number of instances that may share a limit: more would overflow the
// numbers of scripts.
const mostInstances = 1000

// followed returns the share of a limit that this process keeps up to date, if it does,
// and of how many it is one.
func (s *Store) followed(l *limit) (share kinds.Rule, among int64) {
	if s.alone || s.policy(l.away) != LocalShare {
		return nil, 0
	}
	if among = s.instances.Load(); among > 0 {
		share = l.share(among)
	}
	return share, among
}

// shareOf returns the share of a limit, or why there is none.
func (s *Store) shareOf(l *limit, away *outageError) (kinds.Rule, error) {
	among, why := s.instances.Load(), s.beats.unsure()
	switch {
	case among == 0:
		return nil, away.because("how many instances there are is not known, so there is no local share")
	case why != "":
		return nil, away.because("%s, so there is no local share", why)
	}
	share := l.share(among)
	if share == nil {
		return nil, away.because("of a limit of %d there is no local share for %d instances", l.Limit(), among)
	}
	return share, nil
}

// later is the result for a call for which a share never has room, but the server
// may have: to come again when that may be back.
func (e *outageError) later(limit int64) limits.Result {
	return limits.Result{Limit: limit, RetryAfter: max(time.Millisecond, e.retry)}
}

// keep keeps the share of a limit up to date: the server has admitted so many units, and
// found is its state, or nil if that is not known.
func (s *Store) keep(a spot, found kinds.State, granted, now int64) {
	share, among := s.followed(a.limit)
	if share == nil {
		return
	}
	s.local().Set(now)
	h := s.local().Open(a.key, share)
	h.Follow(found, granted, among)
	h.Close(false)
}

// report has the server take the units that a share has admitted and still holds.
func (s *Store) report(ctx context.Context, a spot) error {
	share, among := s.followed(a.limit)
	if share == nil {
		return nil
	}
	granted := s.local().Unreported(a.key)
	if granted == 0 {
		return nil
	}
	h := s.local().Open(a.key, share)
	granted, add := h.Owes(granted, among)
	h.Close(false)
	for units := granted; add > 0; {
		some := min(add, a.AtOnce())
		args := append(a.Args([]string{a.Kind().String()}, s.unique()), format(some), "0")
		if _, err := s.run(ctx, adds[a.Kind()], []string{a.key}, args); err != nil {
			if a.Each() == 1 { // the server has those of the scripts before
				units = add
			}
			s.local().Note(a.key, units, a.Counts())
			s.stats.reported.Add(uint64(granted - units))
			return err
		}
		add -= some
	}
	s.stats.reported.Add(uint64(granted))
	return nil
}

// adjustHere makes that part of a correction which does not concern the server: all of it if there
// is no server, and of returned units those that were not reported to the server. It returns the
// rest.
func (s *Store) adjustHere(a spot, delta int64, age time.Duration, end int64) (rest int64, err error) {
	if delta == 0 {
		return 0, nil
	}
	if s.alone {
		made, err := s.addHere(a.key, a.Rule, delta, age, end)
		if delta > 0 {
			return 0, err
		}
		s.stats.refunded.Add(uint64(made))
		s.stats.stranded.Add(uint64(-delta - made))
		if err == nil && made == 0 {
			err = errStranded
		}
		return 0, err
	}
	if delta > 0 || s.mem.Load() == nil || a.Kind().ByEnd() {
		return delta, nil
	}
	off, own := s.local().Unnote(a.key, -delta, age)
	if off > 0 {
		if share := a.share(s.instances.Load()); share != nil {
			_, err = s.addHere(a.key, share, -off, age, 0)
		}
		s.stats.refunded.Add(uint64(off))
	}
	rest = delta + off
	if rest < 0 && own {
		// Given back to the server, it would be taken off the usage of others.
		s.stats.stranded.Add(uint64(-rest))
		if rest = 0; off == 0 {
			err = errStranded
		}
	}
	return rest, err
}

// addHere adds to the units that this process holds of a limit or its share.
func (s *Store) addHere(key string, rule kinds.Rule, delta int64, age time.Duration, end int64) (made int64, err error) {
	h := s.local().Open(key, rule)
	made, err = h.Add(delta, age, end)
	h.Close(err == nil)
	return made, err
}

// adjustAway keeps a share up to date with a correction that the server answered with err.
// Units that the server could not be asked to take, the share takes.
func (s *Store) adjustAway(a spot, delta int64, age time.Duration, err error) error {
	share, _ := s.followed(a.limit)
	if share == nil {
		return err
	}
	var away *outageError
	switch {
	case delta < 0 && err == nil:
		_, _ = s.addHere(a.key, share, delta, age, 0) // it was admitted to this process, so it is in the share
	case delta > 0 && errors.As(err, &away):
		s.local().Note(a.key, delta, a.Counts())
		_, err = s.addHere(a.key, share, delta, age, 0)
	}
	return err
}
