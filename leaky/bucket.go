package leaky

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/buckets"
	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Bucket admits what fits into its quota and refuses the rest, at once. A
// new one is empty: all of its capacity is available.
//
// Most programs need only [Bucket.Take]. [Bucket.Admit] and [Bucket.Adjust]
// make a Bucket a meter for a gate, and Admit alone something that
// sluice.NewQueue can give a queue; whoever calls Take then passes that queue by.
//
// A Bucket is safe for use by multiple goroutines, must be made by [New] or
// [NewWith] and must not be copied. No method blocks: taking is one
// compare-and-swap of one instant, less than 0.1 µs. Calls wait for each other for a
// fraction of a microsecond only during SetQuota, while what an earlier quota
// admitted still counts, and if a call has lost to others again and again. It starts no goroutine and needs no closing. Only the monotonic
// clock counts, but for [Bucket.Restore] after a restart. Made in a
// testing/synctest bubble, it belongs to that bubble.
type Bucket struct {
	epoch time.Time // what instants count from
	state atomic.Pointer[state]
	full  atomic.Bool // whether the last call was refused, more or less: see Take

	setting sync.Mutex // held while a state is closed, or has a rest that is used
	bell    bell.Bell
}

// A state is a quota and what was taken while it was in force. The two change
// together, so that nobody decides by an old quota on a new level: SetQuota
// first closes the old state, which no compare-and-swap outlives, for good.
//
// The tat is alone in its line of the cache. Side by side with it the rule, which
// is read before and after the compare-and-swap, went to and fro between
// processors as the tat must.
type state struct {
	rule rule
	rest *rest // nil if there is none
	_    [8]byte
	tat  atomic.Int64 // nanoseconds since the epoch, or closed
	_    [56]byte
}

// A rest is the bucket of quotas that were in force before, see package buckets. It is
// read and written only with Bucket.setting locked. While there is one each call locks.
// The simpler way computed what was poured into it from how far the tat had gone on. But
// that says neither how long the bucket in force was empty, which made this one too full,
// nor how long this one was, which made it too empty.
type rest struct {
	bucket buckets.Bucket
	at     time.Duration // when that was its level
}

// pair returns the buckets of s at now, if the one in force will be empty at tat. If
// there is a rest, Bucket.setting must be locked.
func (s *state) pair(tat, now time.Duration) buckets.Pair {
	p := buckets.Pair{Own: s.rule.bucket(max(0, tat-now))}
	if r := s.rest; r != nil {
		p.Rest = r.bucket
		p.Rest.Level = max(0, p.Rest.Level-int64(max(0, now-r.at)))
	}
	return p
}

const closed = -1 // no tat is negative

// New returns a bucket that holds capacity units and leaks count of them per
// period: New(16, 30, time.Minute) admits 16 at once and then one each two
// seconds. It panics where [Quota.Check] returns an error.
func New(capacity, count int64, per time.Duration) *Bucket {
	return newBucket(mustRule(Quota{capacity, count, per}))
}

// NewWith is New for a quota that comes from elsewhere: it returns an error
// where New panics.
func NewWith(quota Quota) (*Bucket, error) {
	r, err := quota.rule()
	if err != nil {
		return nil, err
	}
	return newBucket(r), nil
}

func newBucket(r rule) *Bucket {
	b := &Bucket{epoch: time.Now()}
	b.state.Store(&state{rule: r})
	return b
}

// load returns the state in force, its tat, and the time. The clock is read
// after the tat, and both anew after a lost compare-and-swap: so the clock never
// goes back from one decision to the next, and a call is not refused what has
// leaked while it was losing. (An older clock would admit no more, because tat
// stays; x/time/rate, which lets its state go back, then does.) Several
// processors would lose most of their swaps so, if losers did not step back,
// see package contend.
func (b *Bucket) load() (s *state, tat, now time.Duration) {
	s = b.state.Load()
	tat = time.Duration(s.tat.Load())
	if tat == closed {
		s, tat = b.reload()
	}
	return s, tat, max(0, time.Since(b.epoch))
}

// reload returns the state that follows one that is closed.
func (b *Bucket) reload() (s *state, tat time.Duration) {
	for tat = closed; tat == closed; tat = time.Duration(s.tat.Load()) {
		b.setting.Lock() // until it is there
		s = b.state.Load()
		b.setting.Unlock()
	}
	return s, tat
}

// swap replaces tat by next unless the state has changed meanwhile.
func (s *state) swap(tat, next time.Duration) bool {
	return tat == next || s.tat.CompareAndSwap(int64(tat), int64(next))
}

// Take takes n if n fit now, and otherwise changes nothing and says when they
// will. n = 0 takes nothing and is always allowed; an n beyond the capacity
// never is, and Err of the result is then [limits.ErrTooLarge]. It panics if n < 0.
func (b *Bucket) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	if n == 0 {
		return b.Peek()
	}
	// To read the clock takes longer than all else. Read between the load of the word
	// and its swap, it is when another call wins: of two processors half of the calls
	// lose. So it is read before the word. Whoever then fits, fits: to judge by an
	// older clock is stricter. But a call that was held up in between may be refused
	// by a clock that is older than the word. It reads the clock once more, which
	// would make refusals half as dear again; so while calls are refused, and there is
	// nothing to swap, the clock is read after the word.
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		var now time.Duration
		full := b.full.Load()
		if !full {
			now = max(0, time.Since(b.epoch))
		}
		// load, written out, which saves a call.
		s := b.state.Load()
		tat := time.Duration(s.tat.Load())
		if tat == closed {
			s, tat = b.reload()
		}
		if full {
			now = max(0, time.Since(b.epoch))
		}
		if s.rest != nil {
			break
		}
		level, wait := s.rule.fits(max(0, tat-now), n)
		if wait != 0 && !full {
			b.full.Store(true)
			now = max(0, time.Since(b.epoch))
			level, wait = s.rule.fits(max(0, tat-now), n)
		}
		if wait != 0 {
			return s.rule.result(level, wait)
		}
		if s.tat.CompareAndSwap(int64(tat), int64(now+level)) {
			if full {
				b.full.Store(false)
			}
			return s.rule.result(level, 0)
		}
	}
	return b.insist(n)
}

// insist is Take for a call that has lost to others again and again, and for a bucket
// with a rest: it closes the state while it decides, and others wait.
func (b *Bucket) insist(n int64) limits.Result {
	b.setting.Lock()
	defer b.setting.Unlock()
	s := b.state.Load()
	tat, now := time.Duration(s.tat.Swap(closed)), max(0, time.Since(b.epoch))
	res, after := decide(tat, now, &s.rule, n)
	b.change(s, tat, after, now)
	return res
}

// change sets the tat of s, the state in force, which is closed, and pours as much
// into its rest, or takes as much out. The lock is held.
func (b *Bucket) change(s *state, tat, after, now time.Duration) {
	before, level := max(0, tat-now), max(0, after-now)
	if s.rest != nil && level != before {
		p := s.pair(tat, now)
		if level > before {
			p.Pour(int64(level - before))
		} else {
			p.Return(int64(before - level))
		}
		if p.Rest.Level == 0 {
			b.replace(s.rule, after, nil)
			return
		}
		*s.rest = rest{p.Rest, now}
	}
	s.tat.Store(int64(after))
}

// Peek returns what Take(0) does: the bucket as it is. It never writes.
func (b *Bucket) Peek() limits.Result {
	s, tat, now := b.load()
	res, _ := take(tat, now, &s.rule, 0)
	return res
}

// Return gives back n that Take or Admit has just granted and that were not
// used: the bucket is then as if they had never been taken. What is returned
// late has leaked already, so that giving it back makes room for more than was
// ever reserved; but the bucket is never emptier than empty. It panics if n < 0.
func (b *Bucket) Return(n int64) {
	mustNotBeNegative(n)
	b.adjust(-n)
	b.bell.Ring()
}

// Reset empties the bucket.
func (b *Bucket) Reset() {
	b.reset()
	b.bell.Ring()
}

func (b *Bucket) reset() {
	b.setting.Lock()
	defer b.setting.Unlock()
	old := b.state.Load()
	old.tat.Swap(closed)
	b.replace(old.rule, 0, nil)
}

// Quota returns the quota in force.
func (b *Bucket) Quota() Quota { return b.state.Load().rule.quota }

// SetQuota changes the quota, for calls from now on. It returns an error and changes
// nothing if the quota is impossible.
//
// What is in the bucket stays there, in units: of 12 that a bucket of 16 holds, a
// bucket of 20 holds 12, and they leak at the new rate. But a bucket is never fuller
// than full, so a bucket of 4 holds 4. The other 8 are not forgotten while they would
// not have leaked: if the quota is changed back they are in the bucket again. So in
// any time no more is admitted than the laxest of the quotas would admit alone,
// however often the quota changes; see [Keyed.TakeQuota] for quotas of which none is the laxest.
// What [Bucket.Adjust] took beyond the capacity stays owed, in units.
func (b *Bucket) SetQuota(quota Quota) error {
	r, err := quota.rule()
	if err != nil {
		return err
	}
	b.setQuota(&r)
	b.bell.Ring()
	return nil
}

func (b *Bucket) setQuota(r *rule) {
	b.setting.Lock()
	defer b.setting.Unlock()
	old := b.state.Load()
	tat, now := time.Duration(old.tat.Swap(closed)), max(0, time.Since(b.epoch))
	p, _ := old.pair(tat, now).By(int64(r.interval), r.quota.Capacity)
	tat = sat.Add(now, time.Duration(p.Own.Level))
	var before *rest
	if p.Rest.Level > 0 {
		before = &rest{p.Rest, now}
	}
	b.replace(*r, tat, before)
}

// replace makes a new state the one in force. That before it is closed, and the lock
// is held.
func (b *Bucket) replace(r rule, tat time.Duration, rest *rest) {
	s := &state{rule: r, rest: rest}
	s.tat.Store(int64(tat))
	b.state.Store(s)
}

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ctx.Err() if ctx is done and
// [limits.ErrTooLarge] if n is more than the capacity, and takes nothing then. With it
// a Bucket is a limits.Limiter. It panics if n < 0.
func (b *Bucket) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return admit(b.Take(n))
}

// admit is what Admit returns for r.
func admit(r limits.Result) (time.Duration, error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	return r.RetryAfter, nil
}

// Adjust corrects by delta what was taken, once it is known what a call really
// cost: a negative delta gives back, as [Bucket.Return] does and however long
// ago it was taken, a positive one takes without asking. That may overdraw the bucket, beyond its capacity;
// nothing fits then before it has drained far enough, and Peek shows it as a
// ResetAfter of more than a full bucket's. Amounts beyond 292 years are 292
// years. With Adjust a Bucket is a limits.Limiter. It never fails and pays no
// attention to ctx: what is given back must not be lost because its caller gave
// up.
func (b *Bucket) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	b.adjust(delta)
	if bell.Loud(ctx, delta) {
		b.bell.Ring()
	}
	return nil
}

// OnChange makes the bucket call f whenever it may admit a call earlier than it said,
// until stop is called: after [Bucket.Return], Reset, SetQuota, and an Adjust that
// gives back. With it a Bucket is a limits.Notifier: who waits for it in a gate or
// a sluice.NewQueue asks again at once. f must not block, nor use the bucket.
func (b *Bucket) OnChange(f func()) (stop func()) { return b.bell.Wait(f) }

func (b *Bucket) adjust(delta int64) {
	for {
		s, tat, now := b.load()
		if s.rest != nil {
			break
		}
		if s.swap(tat, adjust(tat, now, s.rule.interval, delta)) {
			return
		}
	}
	b.setting.Lock()
	defer b.setting.Unlock()
	s := b.state.Load()
	tat, now := time.Duration(s.tat.Swap(closed)), max(0, time.Since(b.epoch))
	b.change(s, tat, adjust(tat, now, s.rule.interval, delta), now)
}
