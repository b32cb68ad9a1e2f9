package sluiceredis

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

var leakyTake = strictScript("leaky_take", "instant", "leaky")

// longestKey is the longest key of Throttle, in bytes.
const longestKey = 1024

// Throttle is CL.THROTTLE key maxBurst count period n of redis-cell, without the
// module: it reads and writes the same state in the same key, so that a program
// can change from one to the other and both can be used at once, and its Result
// has what redis-cell replies in [limits.Result.Cell], or CellLegacy as versions
// up to 0.3.0 did. Durations in it are exact. n = 0 only looks.
//
// Three things differ, where redis-cell does harm. Nothing is written for n = 0.
// A key lives until its debt is paid and a little longer, not a little shorter. And
// a key that holds something else is answered by [ErrData]; there it ends the
// server.
//
// What a bucket owes is time and stays that when its limits change: after 16 at
// once of 30 per minute, one at 300 per minute is refused for another 29 s. And after
// 100 at 50/s, which are 2 s, a limit of 100 at 5/s has room for 90 more. A bucket of
// [Store.Leaky] has neither fault: see [Bucket.SetQuota].
//
// The key is used as it is, without the prefix of the store. Throttle returns an
// error, and takes nothing, if key is empty or longer than 1024 bytes, maxBurst <
// 0, count or period ≤ 0, a unit leaks in less than a nanosecond, a full bucket
// takes longer than 104 days to drain, ctx is done, or the server does not answer
// as it should; after [ErrAmbiguous] n may have been taken. It panics if n < 0.
func (s *Store) Throttle(ctx context.Context, key string, maxBurst, count int64, period time.Duration, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	if key == "" || len(key) > longestKey {
		return limits.Result{}, fmt.Errorf("sluiceredis: a key of %d bytes: 1 to %d are possible", len(key), longestKey)
	}
	if maxBurst < 0 || maxBurst >= longest {
		return limits.Result{}, fmt.Errorf("sluiceredis: a burst of %d beyond the first", maxBurst)
	}
	c, err := newCell(maxBurst+1, count, period)
	if err != nil {
		return limits.Result{}, err
	}
	c.key = key
	t := taking{n: n}
	if err := s.buckets.do(ctx, c, &t); err != nil {
		return limits.Result{}, err
	}
	return t.result, nil
}

// A Leaky is leaky buckets, one for each key, shared by all machines. It admits
// what package leaky does, with the server's clock.
//
// A bucket costs the server some 100 bytes beside its key, one script of about
// 5 µs for each call or many that come together, half of that if calls for other
// keys come with them, and is forgotten when it is empty.
//
// A Leaky is safe for use by multiple goroutines.
type Bucket struct {
	store  *Store
	name   string
	quoted atomic.Pointer[quoted]
	away   OutagePolicy
}

// A quoted is a quota and what it makes of a bucket.
type quoted struct {
	quota leaky.Quota
	cell  cell // without a key

	since  time.Time // when it came into force
	before int64     // interval of the quota before it, or its own
}

// age returns the age of a call that took n units as it is by the quota: one that was
// admitted by a quota that leaked faster may have leaked already.
func (q *quoted) age(n int64, age time.Duration) time.Duration {
	if age > time.Since(q.since) && int64(age)/q.before >= n {
		return time.Duration(longest)
	}
	return age
}

// Leaky returns the buckets called name: Leaky("orders", leaky.Quota{Capacity:
// 16, Count: 30, Per: time.Minute}) admits 16 at once for each key and then one
// each two seconds. It returns an error if name is empty, where
// [leaky.Quota.Check] does, and if a full bucket takes longer than 104 days to
// drain.
//
// The same name at another quota means the same keys, also in another program: see
// [Bucket.SetQuota].
func (s *Store) Bucket(name string, quota leaky.Quota) (*Bucket, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	l := &Bucket{store: s, name: name}
	if err := l.SetQuota(quota); err != nil {
		return nil, err
	}
	return l, nil
}

func nativeCell(quota leaky.Quota) (cell, error) {
	if err := quota.Check(); err != nil {
		return cell{}, err
	}
	c, err := newCell(quota.Capacity, quota.Count, quota.Per)
	c.of = mark{c.interval, c.capacity}
	return c, err
}

// OnOutage returns the same buckets with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (l *Bucket) OnOutage(p OutagePolicy) *Bucket {
	also := &Bucket{store: l.store, name: l.name, away: l.store.heed(p)}
	also.quoted.Store(l.quoted.Load())
	return also
}

// Quota returns the quota of calls that bring none.
func (l *Bucket) Quota() leaky.Quota { return l.quoted.Load().quota }

// SetQuota changes the quota of calls that bring none, on this machine: each call
// decides by the quota that its machine has. It returns an error and changes nothing
// where Leaky does.
//
// Machines need not change at one instant. While some have the new quota and others
// the old one, as in a deploy that replaces them one by one, each quota has a bucket of
// its own in each key, and what either grants is in both. So in any time no more is
// let through than the laxer of both quotas lets through alone, a call that is refused
// makes no room for others, and when the last machine has changed it is exactly the
// new quota. The number of units that are in use stays when the rate changes.
//
// A quota that is asked for the first time finds as many units as are in use, but its
// bucket is never fuller than full. So it waits no longer than if it had used
// all of its own capacity, with one exception: one that has a smaller capacity and a
// higher rate than the other waits until what that has granted has leaked, at its own
// rate. If no quota is the laxer one, a key that is asked by three, or whose
// bucket was empty in between, may let through what the largest capacity and the
// highest rate of them allow together.
//
// What was taken beyond the capacity stays owed, in units. What [Blocks] hold may be spent, and
// lapses otherwise.
func (l *Bucket) SetQuota(quota leaky.Quota) error {
	c, err := nativeCell(quota)
	if err != nil {
		return err
	}
	before := c.interval
	if old := l.quoted.Load(); old != nil {
		before = old.cell.interval
	}
	l.quoted.Store(&quoted{quota, c, time.Now(), before})
	return nil
}

// Take takes n from the bucket of key if n fit now, and otherwise changes nothing
// and says when they will. n = 0 takes nothing and is always allowed; an n beyond
// the capacity never is, and Err of the result is then [limits.ErrTooLarge].
//
// The error says that the server could not be asked, if the [OutagePolicy] is to refuse
// calls then: an [*AwayError]. Nothing was taken, except that after [ErrAmbiguous]
// it may have been. A context that is done while
// the call is on its way is returned as it is if others are on the same way: what
// was taken is then given back. It panics if n < 0.
func (l *Bucket) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return l.take(ctx, l.quoted.Load().cell, key, n)
}

// TakeQuota is Take by a quota of the call's own, such as that of the tariff the
// user of this call has. A key may be asked by several quotas, and no more is let
// through than the laxest of them allows: see [Bucket.SetQuota]. While what one of them
// took is still in the key, a decision by another takes two scripts. It returns an error
// where Leaky does.
func (l *Bucket) TakeQuota(ctx context.Context, key string, quota leaky.Quota, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	c, err := nativeCell(quota)
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

// TakeUpTo takes as many as fit now, up to n, and returns how many. If that is
// none, the result says when the first will fit. It panics if n < 0.
func (l *Bucket) TakeUpTo(ctx context.Context, key string, n int64) (int64, limits.Result, error) {
	mustNotBeNegative(n)
	c := l.at(l.quoted.Load().cell, key)
	t := taking{n: n, upTo: true}
	if err := l.store.buckets.do(ctx, c, &t); err != nil {
		return 0, limits.Result{}, err
	}
	return t.granted, t.result, nil
}

// Peek returns what Take of 0 does: the bucket as it is.
func (l *Bucket) Peek(ctx context.Context, key string) (limits.Result, error) {
	return l.Take(ctx, key, 0)
}

// On returns the bucket of key as a meter, for a sluice.Gate or sluice.NewQueue. It
// is a small value and takes up nothing on the server.
func (l *Bucket) On(key string) *BucketLimiter { return &BucketLimiter{l, key} }

// A LeakyMeter is one bucket of a Leaky, as a limits.Limiter.
type BucketLimiter struct {
	leaky *Bucket
	key   string
}

var _ limits.Limiter = (*BucketLimiter)(nil)

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ErrTooLarge if n is more than the
// capacity, and the errors of Leaky.Take. It panics if n < 0.
func (m *BucketLimiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.leaky.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A positive
// delta takes without asking, beyond the capacity if need be; a debt of more than
// 104 days is one of 104 days. A negative delta gives back, exactly: the bucket is
// then as if that had never been taken. That is possible while it cannot have
// leaked yet, for as long as it takes to leak by itself: −delta intervals.
// After that, and if the bucket is empty because the server lost it, Adjust returns
// [ErrStranded] and changes nothing. (A leaky.Bucket
// gives back later, too, and says that this may let more through than the quota.)
// That ctx is done does not matter: what is given back must not be lost because
// its caller gave up.
func (m *BucketLimiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	q := m.leaky.quoted.Load()
	c := m.leaky.at(q.cell, m.key)
	return m.leaky.store.adjustOne(ctx, &c, delta, q.age(-delta, age))
}

// A taking is a request for n units, and what was answered.
type taking struct {
	n    int64
	upTo bool // or fewer

	result  limits.Result
	granted int64
	now     int64     // the server's clock, µs since 1970
	sent    time.Time // when the script was, or a little earlier
}

// runs returns what t asks the script for: so many requests of that cost each.
func (t *taking) runs(c *cell) (cost, count int64) {
	switch {
	case t.n == 0 || t.n > c.capacity && !t.upTo: // the answer is known, but for the level
		return 0, 0
	case t.upTo:
		return c.interval, min(t.n, c.capacity)
	}
	return t.n * c.interval, 1
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
		switch more, times := t.runs(&c); {
		case times == 0:
		case more == cost:
			count += times
		default:
			push()
			cost, count = more, times
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
		if t.upTo {
			t.granted, t.result, level = c.decideUpTo(level, t.n)
			granted, units = granted+t.granted, units+t.granted
			continue
		}
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
		if t.granted > 0 && c.native() { // redis-cell's state takes nothing back: N2
			_ = s.adjustOne(context.Background(), &c, -t.granted, time.Since(t.sent)) // counted if it fails
		} else {
			s.stats.stranded.Add(uint64(t.granted))
		}
	}
}

func format(n int64) string { return strconv.FormatInt(n, 10) }
