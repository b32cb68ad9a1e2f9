package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// # What must be known of a limit to decide it along with others?
//
// Scripts know of each kind how to read, decide, correct and write it; see
// lua/kinds.lua. They reply the state that they found, and what follows from it,
// for each request in turn, is computed here. For both, each kind has the same
// methods, those of a member.

// A member is a limit as scripts ask for it. It is one key, at one limit.
type member interface {
	// keyName returns the key.
	keyName() string

	// header returns the kind and what its read wants. A log needs a name that
	// no other call has.
	header(name string) []string

	// most returns how many units fit at most, unit what scripts count for one.
	most() int64
	unit() int64

	// state returns what a script found: three numbers at the server's clock.
	state(found []int64, now int64) state

	// correction returns what a script is to add for delta ≥ −most units of a call
	// that was admitted age ago, and what else it wants to know; end is that of
	// the slots that the call was given, 0 if that is not known. It returns an
	// error if delta is too large, or [ErrStranded] if it is too late.
	correction(delta int64, age time.Duration, end int64) (add, arg int64, err error)

	// policy is that of the limit, and counts how long what was granted counts at
	// most.
	policy() OutagePolicy
	counts() time.Duration

	// correctHere corrects the share of one of m instances by delta units, and
	// returns by how many.
	correctHere(s *Store, delta, m int64, age time.Duration) (int64, error)

	// keep notes in the share that the server has taken so many units at now.
	keep(s *Store, units, now int64)

	// tell has the server take what the share has granted.
	tell(ctx context.Context, s *Store) error
}

// A state is what a limit holds while requests are decided, one after the other.
type state interface {
	// wait returns 0 if n fit now, limits.Never if they never do, and otherwise
	// how long until they will.
	wait(n int64) time.Duration

	// take takes n that fit.
	take(n int64)

	// holds returns how many units are left of how many, and how long until all
	// are.
	holds() (remaining, limit int64, reset time.Duration)

	// keep notes in the share what the server holds at now, of which it has just
	// granted so many units.
	keep(s *Store, granted, now int64)
}

// decide is what becomes of a request for n at a limit.
func decide(s state, n int64) limits.Result {
	res := result(s, n)
	if res.Allowed() {
		s.take(n)
		res.Remaining, _, res.ResetAfter = s.holds()
	}
	return res
}

// result is what a limit says of a request for n, of which nothing was taken.
func result(s state, n int64) limits.Result {
	res := limits.Result{RetryAfter: s.wait(n)}
	res.Remaining, res.Limit, res.ResetAfter = s.holds()
	return res
}

// A cellState is the level of a bucket.
type cellState struct {
	cell  *cell
	level int64
}

func (c *cell) keyName() string        { return c.key }
func (c *cell) header(string) []string { return append([]string{"leaky"}, c.args()...) }
func (c *cell) most() int64            { return c.capacity }
func (c *cell) unit() int64            { return c.interval }

func (c *cell) state(found []int64, _ int64) state {
	return &cellState{c, found[1]*int64(time.Second) + found[2]}
}

func (s *cellState) wait(n int64) time.Duration {
	res, _ := s.cell.decide(s.level, n)
	return res.RetryAfter
}

func (s *cellState) take(n int64) { s.level += n * s.cell.interval }

func (s *cellState) keep(store *Store, granted, now int64) {
	store.keepBucket(*s.cell, granted, s.level, now)
}

func (s *cellState) holds() (remaining, limit int64, reset time.Duration) {
	return max(0, s.cell.depth()-s.level) / s.cell.interval, s.cell.capacity, time.Duration(s.level)
}

func (c *cell) correction(delta int64, age time.Duration, late int64) (add, arg int64, err error) {
	if delta > 0 {
		ns, _ := c.nanoseconds(delta)
		return min(ns, longest), 0, nil
	}
	if int64(max(0, age)) >= -delta*c.interval {
		return 0, 0, ErrStranded // it may have leaked
	}
	return delta * c.interval, late, nil
}

func (c *cell) policy() OutagePolicy  { return c.away }
func (c *cell) counts() time.Duration { return time.Duration(c.depth()) }

func (c *cell) correctHere(s *Store, delta, m int64, age time.Duration) (int64, error) {
	if delta < 0 && int64(max(0, age)) >= -delta*c.interval {
		return 0, ErrStranded // it may have leaked
	}
	share := c.share(m)
	ns := share.bounded(delta)
	changed, err := s.local().adjustBucket(share, ns)
	if changed == -ns {
		return -delta, err
	}
	return ceil(changed, share.interval), err
}

func (c *cell) keep(s *Store, units, now int64)          { s.keepBucket(*c, units, 0, now) }
func (c *cell) tell(ctx context.Context, s *Store) error { return s.tellBucket(ctx, *c) }

// A logState is how many units are in a window.
type logState struct {
	key               *logKey
	used, newest, now int64
	when              int64 // the next request will fit, if it does not now
}

func (k *logKey) keyName() string             { return k.key }
func (k *logKey) header(name string) []string { return append([]string{"log"}, k.args(name)...) }
func (k *logKey) most() int64                 { return min(k.limit, mostAtOnce) }
func (k *logKey) unit() int64                 { return 1 }

func (k *logKey) state(found []int64, now int64) state {
	return &logState{key: k, used: found[1], newest: found[2], now: now}
}

func (s *logState) wait(n int64) time.Duration {
	switch {
	case n > s.key.most():
		return limits.Never
	case n == 0 || n <= s.key.limit-s.used:
		return 0
	}
	return time.Duration(s.when-s.now) * time.Microsecond
}

func (s *logState) take(n int64) {
	if n > 0 {
		s.used, s.newest = s.used+n, s.now
	}
}

func (s *logState) keep(store *Store, granted, now int64) {
	store.keepLog(*s.key, granted, s.used, now)
}

func (s *logState) holds() (remaining, limit int64, reset time.Duration) {
	if s.used > 0 {
		reset = time.Duration(s.newest+s.key.window-s.now) * time.Microsecond
	}
	return max(0, s.key.limit-s.used), s.key.limit, reset
}

func (k *logKey) correction(delta int64, age time.Duration, admitted int64) (add, arg int64, err error) {
	if delta > mostAtOnce {
		return 0, 0, fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, mostAtOnce)
	}
	if admitted > 0 {
		return delta, -admitted, nil
	}
	return delta, int64(age / time.Microsecond), nil
}

func (k *logKey) policy() OutagePolicy  { return k.away }
func (k *logKey) counts() time.Duration { return micro(k.window) }

func (k *logKey) correctHere(s *Store, delta, m int64, age time.Duration) (int64, error) {
	if delta > mostAtOnce {
		return 0, fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, mostAtOnce)
	}
	return s.local().adjustLog(k.share(m), delta, age)
}

func (k *logKey) keep(s *Store, units, now int64)          { s.keepLog(*k, units, 0, now) }
func (k *logKey) tell(ctx context.Context, s *Store) error { return s.tellLog(ctx, *k) }

// logged returns how many units j asks of logs.
func (j *joining) logged() (units int64) {
	for i, m := range j.form.members {
		if k, ok := m.(*logKey); ok && j.n[i] <= k.most() {
			units += j.n[i]
		}
	}
	return units
}

// A fixedState is how much of a window is used, and when it is over.
type fixedState struct {
	key  *fixedKey
	used int64
	left time.Duration
}

func (k *fixedKey) keyName() string        { return k.key }
func (k *fixedKey) header(string) []string { return append([]string{"fixed"}, k.args()...) }
func (k *fixedKey) most() int64            { return k.limit }
func (k *fixedKey) unit() int64            { return 1 }

func (k *fixedKey) state(found []int64, _ int64) state {
	return &fixedState{k, found[1], time.Duration(found[2]) * time.Microsecond}
}

func (s *fixedState) wait(n int64) time.Duration {
	switch {
	case n > s.key.limit:
		return limits.Never
	case n == 0 || n <= s.key.limit-s.used:
		return 0
	}
	return s.left
}

func (s *fixedState) take(n int64) { s.used += n }

func (s *fixedState) keep(store *Store, granted, now int64) {
	store.keepFixed(*s.key, granted, s.used, int64(s.left/time.Microsecond), now)
}

func (s *fixedState) holds() (remaining, limit int64, reset time.Duration) {
	if s.used > 0 {
		reset = s.left
	}
	return max(0, s.key.limit-s.used), s.key.limit, reset
}

func (k *fixedKey) correction(delta int64, age time.Duration, _ int64) (add, arg int64, err error) {
	return min(delta, mostInFixed), microseconds(age), nil
}

func (k *fixedKey) policy() OutagePolicy  { return k.away }
func (k *fixedKey) counts() time.Duration { return micro(k.window) }

func (k *fixedKey) correctHere(s *Store, delta, m int64, age time.Duration) (int64, error) {
	return s.local().adjustFixed(k.share(m), min(delta, mostInFixed), age)
}

func (k *fixedKey) keep(s *Store, units, _ int64) {
	if m, ok := s.shares(k.away); ok {
		_, _ = k.correctHere(s, units, m, 0)
	}
}

func (k *fixedKey) tell(ctx context.Context, s *Store) error { return s.tellFixed(ctx, *k) }

// A pace is a pacer whose slots are taken when they have come, and not ahead.
type pace struct{ paceKey }

// A paceState is when the next slot is free, from now: negative if it could have
// been used before.
type paceState struct {
	pace *pace
	free int64 // ns
}

func (p *pace) keyName() string        { return p.key }
func (p *pace) header(string) []string { return append([]string{"pacer"}, p.args()...) }
func (p *pace) most() int64            { return p.horizon / p.interval }
func (p *pace) unit() int64            { return p.interval }

func (p *pace) state(found []int64, _ int64) state {
	return &paceState{p, found[1]*int64(time.Second) + found[2]}
}

func (s *paceState) wait(n int64) time.Duration {
	switch {
	case n > s.pace.most():
		return limits.Never
	case n == 0:
		return 0
	}
	return time.Duration(max(0, s.free))
}

func (s *paceState) take(n int64) { s.free += n * s.pace.interval }

func (s *paceState) keep(store *Store, granted, now int64) {
	takes := granted * s.pace.interval
	r := pacing{takes: takes, ok: granted > 0, slot: now*1000 + s.free - takes}
	store.keepPacer(s.pace.paceKey, []*pacing{&r}, now)
}

// holds says how many calls of 1 could leave now, and how many after idleness. One
// call may be larger, and pays afterwards.
func (s *paceState) holds() (remaining, limit int64, reset time.Duration) {
	if s.free <= 0 {
		remaining = 1 - s.free/s.pace.interval
	}
	return remaining, 1 + s.pace.missed/s.pace.interval, time.Duration(max(0, s.free+s.pace.missed))
}

func (p *pace) correction(delta int64, _ time.Duration, end int64) (add, arg int64, err error) {
	switch {
	case delta > p.most():
		return 0, 0, sluice.ErrTooLarge
	case delta < 0 && end == 0:
		return 0, 0, ErrStranded // which slots they were is not known
	}
	return delta * p.interval, end, nil
}

func (p *pace) policy() OutagePolicy  { return p.away }
func (p *pace) counts() time.Duration { return 2 * time.Duration(p.horizon) }

func (p *pace) correctHere(s *Store, delta, m int64, _ time.Duration) (int64, error) {
	switch {
	case delta > p.most():
		return 0, sluice.ErrTooLarge
	case delta < 0:
		return 0, ErrStranded // which slots they were is not known
	}
	r := pacing{takes: delta * p.interval, patience: longest}
	return delta, s.local().reserveSlots(p.paceKey, m, []*pacing{&r})
}

// keep does nothing: a share of a pacer is kept by what the server replies next.
func (p *pace) keep(*Store, int64, int64) {}

func (p *pace) tell(ctx context.Context, s *Store) error { return s.tellPacer(ctx, p.paceKey) }
