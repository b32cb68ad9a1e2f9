package sluiceredis

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
)

var leakyTake = strictScript("leaky_take", "instant", "leaky")

// A Bucket is a leaky bucket for each key, shared by all machines. It admits what
// package leaky does, by the server's clock.
//
// A bucket takes about 100 bytes of the server's memory besides its key, and
// expires when it is empty. A Bucket is safe for use by multiple goroutines.
type Bucket struct {
	store  *Store
	name   string
	quoted atomic.Pointer[quoted]
	away   OutagePolicy
}

// A quoted is a rate and what it makes of a bucket.
type quoted struct {
	rate limits.Rate
	cell cell // without a key

	since  time.Time // when it came into force
	before int64     // interval of the rate before it, or its own
}

// age returns the age of a call that took n units as it is by the rate: one that was
// admitted by a faster rate may have leaked already.
func (q *quoted) age(n int64, age time.Duration) time.Duration {
	if age > time.Since(q.since) && int64(age)/q.before >= n {
		return time.Duration(longest)
	}
	return age
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
	also.quoted.Store(l.quoted.Load())
	return also
}

// Rate returns the rate in force.
func (l *Bucket) Rate() limits.Rate { return l.quoted.Load().rate }

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
	before := c.interval
	if old := l.quoted.Load(); old != nil {
		before = old.cell.interval
	}
	l.quoted.Store(&quoted{rate, c, time.Now(), before})
	return nil
}

// Take takes n from the bucket of key if n fit now. Otherwise it changes nothing, and
// the result says when they will fit. n = 0 takes nothing and is always allowed; an n
// larger than the burst never is, and Err of the result is then [limits.ErrTooLarge].
//
// The error is an [*AwayError] if the server did not answer and the [OutagePolicy]
// refuses calls. Nothing was taken, unless the error matches [ErrAmbiguous]. If ctx
// ends while the call is under way, its error is returned and what was taken is given
// back. It panics if n < 0.
func (l *Bucket) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return l.take(ctx, l.quoted.Load().cell, key, n)
}

// TakeRate is Take at a rate of the call's own, such as that of a user's plan. Several
// rates may be used for one key: no more is admitted than the laxest of them allows,
// see [Bucket.SetRate]. It returns an error if Bucket would return one.
func (l *Bucket) TakeRate(ctx context.Context, key string, rate limits.Rate, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	c, err := newCell(rate)
	if err != nil {
		return limits.Result{}, err
	}
	return l.take(ctx, c, key, n)
}

// at returns the cell of a quota for key.
func (l *Bucket) at(c cell, key string) cell {
	c.key, c.away = l.store.key("leaky2", l.name, key, ""), l.away
	return c
}

func (l *Bucket) take(ctx context.Context, c cell, key string, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	c = l.at(c, key)
	t := taking{n: n}
	if err := l.store.buckets.do(ctx, c, &t); err != nil {
		return limits.Result{}, err
	}
	return t.result, nil
}

// Peek returns what Take of 0 does: the bucket as it is.
func (l *Bucket) Peek(ctx context.Context, key string) (limits.Result, error) {
	return l.Take(ctx, key, 0)
}

// On returns the bucket of key as a limit of a gate, or for sluice.NewQueue.
func (l *Bucket) On(key string) *BucketLimiter { return &BucketLimiter{l, key} }

// A BucketLimiter is the bucket of one key, as a limits.Limiter.
type BucketLimiter struct {
	leaky *Bucket
	key   string
}

var _ limits.Limiter = (*BucketLimiter)(nil)

// Admit implements limits.Limiter with [Bucket.Take].
func (m *BucketLimiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.leaky.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A positive
// delta takes more, beyond the burst if need be. A negative delta gives back, as long
// as it cannot have leaked yet, which is for −delta intervals; after that Adjust
// changes nothing and returns [ErrStranded]. It ignores that ctx is done, so that
// nothing is lost when a caller gives up.
func (m *BucketLimiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	q := m.leaky.quoted.Load()
	c := m.leaky.at(q.cell, m.key)
	return m.leaky.store.adjustOne(ctx, &c, delta, q.age(-delta, age))
}

// A taking is a request for n units, and what was answered.
type taking struct {
	n int64

	result  limits.Result
	granted int64
	now     int64     // the server's clock, µs since 1970
	sent    time.Time // when the script was, or a little earlier
}

// takeFromBucket has requests for one bucket answered, in order, at one instant.
func takeFromBucket(s *Store, ctx context.Context, c cell, requests []*taking) error {
	if err := s.tellBucket(ctx, c); err != nil {
		return err
	}
	args := c.args()
	var cost, count int64
	push := func() {
		if count > 0 {
			args = append(args, format(cost), format(count))
		}
	}
	for _, t := range requests {
		switch more := t.n * c.interval; {
		case t.n == 0 || t.n > c.capacity: // the answer is known, but for the level
		case more == cost:
			count++
		default:
			push()
			cost, count = more, 1
		}
	}
	push()
	sent := time.Now()
	reply, err := s.run(ctx, leakyTake, []string{c.key}, args)
	if err != nil {
		return err
	}
	if err := expect(leakyTake, reply, 6); err != nil {
		return err
	}
	level, granted, units := reply[3]*int64(time.Second)+reply[4], int64(0), int64(0)
	for _, t := range requests {
		before := level
		t.now, t.sent = reply[5], sent
		t.result, level = c.decide(level, t.n)
		if level > before {
			t.granted = t.n
			granted, units = granted+1, units+t.n
		}
	}
	s.keepBucket(c, units, level, reply[5])
	return s.decided(leakyTake, len(requests), reply, granted)
}

// giveBackToBucket gives back what was taken for callers who had gone.
func giveBackToBucket(s *Store, c cell, requests []*taking) {
	for _, t := range requests {
		_ = s.adjustOne(context.Background(), &c, -t.granted, time.Since(t.sent)) // counted if it fails
	}
}

func format(n int64) string { return strconv.FormatInt(n, 10) }
