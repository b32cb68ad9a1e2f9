package leaky

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Bucket allows calls that fit into it and rejects the rest, immediately.
//
// Most programs need only [Bucket.Take]. It bypasses the queue of a sluice.Gate.
//
// A Bucket is safe for use by multiple goroutines, must be made by [New] and must not be copied. It
// starts no goroutine and needs no closing. It uses the monotonic clock, except in [Bucket.Restore].
type Bucket struct {
	epoch time.Time // the origin of times
	state atomic.Pointer[state]
	full  atomic.Bool // whether the last call was rejected, more or less: see Take

	setting sync.Mutex // held while a state is closed, or has a rest that is used
	bell    bell.Bell
}

// A state is a rate and the units taken while it was current. The two change
// together, so that no call decides by an old rate on a new level: SetRate
// first closes the old state, which no compare-and-swap outlives, for good.
//
// The tat has a line of the cache of its own. Next to it the rule, which is read before
// and after the compare-and-swap, moved between processors as the tat must.
type state struct {
	rule kind.Bucket
	rate limits.Rate
	rest *rest        // nil if there is none
	tat  atomic.Int64 // nanoseconds since the epoch, or closed
	_    [56]byte
}

// A rest is the bucket of earlier rates, see kind.BucketPair. It is read and written only with
// Bucket.setting locked. While there is one each call locks. The simpler way computed the amount
// that was poured into it from the distance that the tat had moved. But that shows neither how long
// the current bucket was empty, which made this one too full, nor how long this one was, which made
// it too empty.
type rest struct {
	bucket kind.BucketState
	at     time.Duration // when that was its level
}

// pair returns the buckets of s at now, if the current one will be empty at tat. If
// there is a rest, Bucket.setting must be locked.
func (s *state) pair(tat, now time.Duration) kind.BucketPair {
	p := kind.BucketPair{Own: s.rule.State(max(0, tat-now))}
	if r := s.rest; r != nil {
		p.Rest = r.bucket
		p.Rest.Level = max(0, p.Rest.Level-int64(max(0, now-r.at)))
	}
	return p
}

const closed = -1 // no tat is negative

// New returns a bucket that holds rate.Burst units (0 means 1) and leaks rate.Count per rate.Per.
// It returns an error for an invalid [limits.Rate] or one of more than 10⁶ per second,
// and if a full bucket would take longer than 146 years to drain.
//
// The interval per unit is rounded down to a nanosecond: 3 per second are 3.000000003.
func New(rate limits.Rate) (*Bucket, error) {
	rule, err := newRule(rate)
	if err != nil {
		return nil, err
	}
	b := &Bucket{epoch: time.Now()}
	b.replace(rule, rate, 0, nil)
	return b, nil
}

func newRule(rate limits.Rate) (kind.Bucket, error) {
	rule, err := kind.NewBucket(rate)
	if err != nil {
		return kind.Bucket{}, fmt.Errorf("leaky: %w", err)
	}
	return rule, nil
}

// loaded returns the state.
func (b *Bucket) loaded() *state {
	s := b.state.Load()
	errs.Made(s != nil, "leaky.Bucket", "leaky.New")
	return s
}

// load returns the current state, its tat, and the time. The clock is read after the tat, and both
// again after a lost compare-and-swap: so the clock never goes back from one decision to the next,
// and the capacity that leaked while a call was losing is available to it. (An older clock would
// allow no more, because the tat stays; x/time/rate, which lets its state go back, then does.)
// Several processors would lose most of their swaps so, if losers did not step back, see package
// contend.
func (b *Bucket) load() (s *state, tat, now time.Duration) {
	s = b.loaded()
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

// Take takes n if n fit now. Otherwise it changes nothing and returns when they will. n = 0 changes
// nothing and is always allowed. If n is more than the capacity, Err of the result is
// [limits.ErrTooLarge]. Take panics if n < 0.
func (b *Bucket) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	if n == 0 {
		s, tat, now := b.load()
		return s.rule.Result(max(0, tat-now), 0)
	}
	// To read the clock takes longer than all else. Read between the load of the word
	// and its swap, it gives another call the time to win: of two processors half of the
	// calls lose. So it is read before the word. A call that then fits, fits: to judge by
	// an older clock is stricter. But a call that was delayed in between may be rejected
	// by a clock that is older than the word. It reads the clock once more, which
	// would make rejections half as expensive again; so while calls are rejected, and there
	// is nothing to swap, the clock is read after the word.
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		var now time.Duration
		full := b.full.Load()
		if !full {
			now = max(0, time.Since(b.epoch))
		}
		// load, written out, which saves a call.
		s := b.loaded()
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
		level, wait := s.rule.Fits(max(0, tat-now), n)
		if wait != 0 && !full {
			b.full.Store(true)
			now = max(0, time.Since(b.epoch))
			level, wait = s.rule.Fits(max(0, tat-now), n)
		}
		if wait != 0 {
			return s.rule.Result(level, wait)
		}
		if s.tat.CompareAndSwap(int64(tat), int64(now+level)) {
			if full {
				b.full.Store(false)
			}
			return s.rule.Result(level, 0)
		}
	}
	return b.insist(n)
}

// insist is Take for a call that has lost to others again and again, and for a bucket
// with a rest: it closes the state while it decides, and others wait.
func (b *Bucket) insist(n int64) (res limits.Result) {
	b.closing(func(s *state, tat, now time.Duration) {
		if s.rest == nil {
			tat, res = s.rule.Take(tat, now, n)
			s.tat.Store(int64(tat))
			return
		}
		p, r, _ := s.pair(tat, now).Take(&s.rule, n)
		b.keep(s, p, now)
		res = r
	})
	return res
}

// closing calls f with the current state, which is closed while f runs and must have
// been replaced, or have its tat again, when f returns.
func (b *Bucket) closing(f func(s *state, tat, now time.Duration)) {
	b.setting.Lock()
	defer b.setting.Unlock()
	s := b.loaded()
	f(s, time.Duration(s.tat.Swap(closed)), max(0, time.Since(b.epoch)))
}

// keep stores the buckets of s, which has a rest.
func (b *Bucket) keep(s *state, p kind.BucketPair, now time.Duration) {
	tat := sat.Add(now, time.Duration(p.Own.Level))
	if p.Rest.Level == 0 {
		b.replace(s.rule, s.rate, tat, nil)
		return
	}
	*s.rest = rest{p.Rest, now}
	s.tat.Store(int64(tat))
}

// replace makes a new state the current one. That before it is closed, and the lock
// is held.
func (b *Bucket) replace(rule kind.Bucket, rate limits.Rate, tat time.Duration, rest *rest) {
	rate.Burst = rule.Capacity()
	s := &state{rule: rule, rate: rate, rest: rest}
	s.tat.Store(int64(tat))
	b.state.Store(s)
}

// SetRate changes the rate, for calls from now on. It returns an error and changes nothing where
// [New] returns one.
//
// The level of the bucket is kept, in units: of 12 that a bucket of 16 holds, a bucket of 4 holds
// 4, which leak at the new rate. The other 8 are remembered until they would have leaked. No more
// is allowed than the laxest of the rates would allow alone; see [Keyed.TakeRate] for rates of which
// none is the laxest. Units that [Bucket.Adjust] took beyond the capacity stay a debt.
func (b *Bucket) SetRate(rate limits.Rate) error {
	rule, err := newRule(rate)
	if err != nil {
		return err
	}
	b.closing(func(old *state, tat, now time.Duration) {
		p, _ := old.pair(tat, now).By(&rule)
		var before *rest
		if p.Rest.Level > 0 {
			before = &rest{p.Rest, now}
		}
		b.replace(rule, rate, sat.Add(now, time.Duration(p.Own.Level)), before)
	})
	b.bell.Ring()
	return nil
}

// Admit implements [limits.Limiter] with Take. It returns ctx.Err() if ctx is done, and panics if
// n < 0.
func (b *Bucket) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	res := b.Take(n)
	return kind.Admitted(res)
}

// Adjust implements [limits.Limiter]. A negative delta returns units: the bucket is then as if they
// had never been taken, but never emptier than empty, so -math.MaxInt64 empties it. A positive
// delta takes units, beyond the capacity if need be; nothing fits then before the bucket has
// drained far enough. Adjust never fails, even if ctx is done, and ignores age.
func (b *Bucket) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	b.adjust(delta)
	if bell.Loud(ctx, delta) {
		b.bell.Ring()
	}
	return nil
}

func (b *Bucket) adjust(delta int64) {
	for {
		s, tat, now := b.load()
		if s.rest != nil {
			break
		}
		next := s.rule.Adjust(tat, now, delta)
		if next == tat || s.tat.CompareAndSwap(int64(tat), int64(next)) {
			return
		}
	}
	b.closing(func(s *state, tat, now time.Duration) {
		if s.rest == nil {
			s.tat.Store(int64(s.rule.Adjust(tat, now, delta)))
			return
		}
		b.keep(s, s.pair(tat, now).Adjust(&s.rule, delta), now)
	})
}

// Forecast makes a limits.Forecast.
func (b *Bucket) Forecast() limits.Forecast {
	s, tat, now := b.load()
	return forecast.NewBucket(s.rule.Capacity(), s.rule.Interval(), max(0, tat-now))
}

// OnChange is for a [limits.Limiter]. It calls f after SetRate, and after an Adjust that returns
// units. f must not use the bucket.
func (b *Bucket) OnChange(f func()) (stop func()) { return b.bell.Wait(f) }

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("leaky: n < 0: %d", n))
	}
}
