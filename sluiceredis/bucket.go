package sluiceredis

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

// A Bucket is a leaky bucket for each key, shared by all machines. It admits what
// package leaky does, by the server's clock.
//
// A bucket takes about 100 bytes of the server's memory besides its key, and
// expires when it is empty. A Bucket is safe for use by multiple goroutines.
type Bucket struct {
	store *Store
	name  string
	cell  atomic.Pointer[cell] // without a key
	rate  atomic.Pointer[limits.Rate]
	away  OutagePolicy
}

// Bucket returns the buckets called name:
//
//	store.Bucket("orders", limits.Rate{Count: 30, Per: time.Minute, Burst: 16})
//
// admits 16 calls at once for each key and then one every two seconds. It returns
// an error if name is empty, if [limits.Rate.Check] does, or if a full bucket takes
// longer than 104 days to drain.
//
// The same name with another rate means the same keys, also in another program: see
// [Bucket.SetRate].
func (s *Store) Bucket(name string, rate limits.Rate) (*Bucket, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	l := &Bucket{store: s, name: name}
	if err := l.SetRate(rate); err != nil {
		return nil, err
	}
	return l, nil
}

// OnOutage returns the same buckets with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (l *Bucket) OnOutage(p OutagePolicy) *Bucket {
	also := &Bucket{store: l.store, name: l.name, away: l.store.heed(p)}
	also.cell.Store(l.cell.Load())
	also.rate.Store(l.rate.Load())
	return also
}

// SetRate changes the rate on this machine: each call is decided by the rate of the
// machine that makes it. It returns an error and changes nothing if Bucket would
// return one.
//
// Machines need not change at the same time. While some have the new rate and others
// the old one, as in a rolling deploy, no more is admitted in any time than the laxer
// of both rates admits alone; once the last machine has changed, exactly the new rate
// holds. The number of units in use stays the same. If none of three or more rates is
// the laxest, the bound is the largest burst with the highest rate.
//
// A rate that is new to a key finds as many units in use as there are, but never more
// than its own burst, with one exception: one that has a smaller burst and a higher
// rate waits until what the other admitted has leaked at its own rate.
func (l *Bucket) SetRate(rate limits.Rate) error {
	c, err := newCell(rate)
	if err != nil {
		return err
	}
	c.since, c.before = time.Now(), c.interval
	if old := l.cell.Load(); old != nil {
		c.before = old.interval
	}
	l.rate.Store(&rate)
	l.cell.Store(&c)
	return nil
}

// Take takes n from the bucket of key if n fit now. Otherwise it changes nothing, and
// the result says when they will fit. n = 0 changes nothing and is always allowed; an n
// larger than the burst never is, and Err of the result is then [limits.ErrTooLarge].
//
// The error matches [ErrOutage] if the server did not answer and the [OutagePolicy]
// refuses calls. Nothing was taken, unless the error matches [ErrAmbiguous]. If ctx
// ends while the call is under way, its error is returned and what was taken is given
// back. It panics if n < 0.
func (l *Bucket) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	r := new(struct { // in one piece of memory
		single
		cell cell
	})
	r.cell = *l.cell.Load()
	r.cell.key, r.cell.away = l.store.key("leaky2", l.name, key, ""), l.away
	if err := l.store.askIn(ctx, &r.single, &r.cell, n); err != nil {
		return limits.Result{}, err
	}
	return r.results[0], nil
}

// TakeRate is Take at a rate of the call's own, such as that of a user's plan. Several
// rates may be used for one key: no more is admitted than the laxest of them allows,
// see [Bucket.SetRate]. It returns an error if Bucket would return one.
func (l *Bucket) TakeRate(ctx context.Context, key string, rate limits.Rate, n int64) (limits.Result, error) {
	c, err := newCell(rate)
	if err != nil {
		return limits.Result{}, err
	}
	return l.store.take(ctx, l.at(c, key), n)
}

// at returns a cell for key.
func (l *Bucket) at(c cell, key string) *cell {
	c.key, c.away = l.store.key("leaky2", l.name, key, ""), l.away
	return &c
}

// On returns the bucket of key as a limit of a gate, or for sluice.NewQueue. Its Adjust
// gives back what still counts: what cannot have leaked yet, which is for −delta intervals.
// If nothing is left to be given back, its error is [ErrStranded]. It can be joined with
// limits of the same store whose names are the same up to the last slash and whose keys
// are the same, such as "orders/second" and "orders/day"; the key of a [Pacer] is "".
func (l *Bucket) On(key string) limits.Remote { return l.on(key) }

func (l *Bucket) on(key string) *limiter { return &limiter{l.store, l, key} }

func (l *Bucket) member(key string) member { return l.at(*l.cell.Load(), key) }

func (l *Bucket) current(m member) bool { return m.about().tag == l.cell.Load().tag }

// longest is the longest time in nanoseconds that scripts compute with: 104
// days, one second less than 2^53 ns, because the fraction of the present
// second is added to it.
const longest = 1<<53 - 1 - int64(time.Second)

// A cell is a bucket as it is asked: which key, by which rate.
type cell struct {
	spot
	*paced
}

// A paced is a rate of buckets.
type paced struct {
	rule     kind.Bucket // of the whole, or of a share
	whole    *kind.Bucket
	interval int64 // how many nanoseconds one unit takes to leak
	depth    int64 // and a full bucket
	depthArg string

	since  time.Time // when the rate came into force
	before int64     // interval of the rate before it, or its own
}

// newCell returns the cell of a rate, without a key.
func newCell(rate limits.Rate) (cell, error) {
	rule, err := kind.NewBucket(rate)
	if err != nil {
		return cell{}, fmt.Errorf("sluiceredis: %w", err)
	}
	if rule.Depth() > time.Duration(longest) {
		return cell{}, fmt.Errorf("sluiceredis: rate of %v: a full bucket takes longer than 104 days to drain", rate)
	}
	c := cell{paced: &paced{rule: rule, whole: &rule, interval: int64(rule.Interval()), depth: int64(rule.Depth())}}
	c.depthArg = format(c.depth)
	c.tag = " " + format(rule.Capacity()) + "@" + format(c.interval) // which is in the value, behind the instant
	return c, nil
}

func (c *cell) kind() limitKind       { return bucketKind }
func (c *cell) args(string) []string  { return []string{c.depthArg, c.tag} }
func (c *cell) limit() int64          { return c.rule.Capacity() }
func (c *cell) most() int64           { return c.rule.Capacity() }
func (c *cell) unit() int64           { return c.interval }
func (c *cell) counts() time.Duration { return time.Duration(c.depth) }

func (c *cell) state(found []int64, _ int64) state {
	return &cellState{c, found[1]}
}

// leaked reports whether n units of a call that was admitted age ago may have leaked, by
// this rate or by a faster one before it.
func (c *cell) leaked(n int64, age time.Duration) bool {
	whole := int64(c.whole.Interval())
	return int64(max(0, age)) >= n*whole || !c.since.IsZero() && age > time.Since(c.since) && int64(age)/c.before >= n
}

func (c *cell) correction(delta int64, age time.Duration, _ int64) (add, arg int64, err error) {
	if delta < 0 && c.leaked(-delta, age) {
		return 0, 0, ErrStranded
	}
	return c.nanoseconds(delta), 0, nil
}

// nanoseconds returns delta ≥ −most units as time, no more than any debt may be.
func (c *cell) nanoseconds(delta int64) int64 {
	if delta > longest/c.interval {
		return longest
	}
	return delta * c.interval
}

func (c *cell) share(m int64) member {
	rule, ok := c.whole.Share(m)
	if !ok {
		return nil
	}
	share := *c.paced
	share.rule, share.interval, share.depth = rule, int64(rule.Interval()), int64(rule.Depth())
	return &cell{c.spot, &share}
}

// A water is what this process holds of a key: the buckets of the rate used last and of
// all others, at an instant. That of a share is of the whole: it is as deep.
type water struct {
	pair kind.BucketPair
	at   time.Duration
}

func (c *cell) local(m *memory, decide func(state) (asked bool)) {
	m.update(c.key, func(e *entry, now time.Duration) {
		w, _ := e.value.(*water)
		if w == nil {
			w = new(water)
		}
		p, fresh := w.pair.After(now - w.at).By(c.whole)
		p.Own.Level, p.Rest.Level = min(p.Own.Level, longest), min(p.Rest.Level, longest)
		st := cellState{c, p.Own.Level}
		if asked := decide(&st); st.level == p.Own.Level && !(asked && fresh) {
			return
		}
		p.Pour(st.level - p.Own.Level)
		*w = water{p, now}
		e.value, e.until = w, now+time.Duration(min(longest, max(p.Own.Level, p.Rest.Level)))
	})
}

// A cellState is the level of a bucket.
type cellState struct {
	cell  *cell
	level int64
}

func (s *cellState) wait(n int64) time.Duration {
	if n == 0 {
		return 0
	}
	_, wait := s.cell.rule.Fits(time.Duration(s.level), n)
	return wait
}

func (s *cellState) take(n int64) (end int64) {
	s.level += n * s.cell.interval
	return 0
}

func (s *cellState) add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	if delta < 0 && s.cell.leaked(-delta, age) {
		return 0, ErrStranded
	}
	before, ns := s.level, s.cell.nanoseconds(delta)
	s.level = min(max(0, before+ns), longest)
	if s.level == before+ns {
		return max(delta, -delta), nil
	}
	return ceil(max(s.level-before, before-s.level), s.cell.interval), nil
}

func (s *cellState) holds() (remaining, limit int64, reset time.Duration) {
	res := s.cell.rule.Result(time.Duration(s.level), 0)
	return res.Remaining, res.Limit, res.ResetAfter
}

func (s *cellState) follow(found state, granted, _ int64) {
	c := s.cell
	s.level = max(s.level, min(s.level+min(granted, c.limit())*c.interval, c.depth))
	if whole, ok := found.(*cellState); ok {
		s.level = max(s.level, min(whole.level, c.depth))
	}
}

// Of the last unit it owes only what has not leaked yet.
func (s *cellState) owes(units, m int64) (held, add int64) {
	held = min(units, ceil(s.level, s.cell.interval))
	return held, min(held*int64(s.cell.whole.Interval()), ceil(s.level, m))
}

func format(n int64) string { return strconv.FormatInt(n, 10) }
