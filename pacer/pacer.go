// Package pacer spaces calls out evenly in time: the leaky bucket as a queue.
//
//	p, err := pacer.New(limits.PerSecond(10)) // one call every 100 ms
//	…
//	for _, job := range jobs {
//		if err := p.Wait(ctx); err != nil {
//			return err
//		}
//		go job()
//	}
//
// A pacer delays. For an immediate yes or no use package leaky. A pacer does not notice when a call
// is done: to cap the number in flight use package semaphore, and for both a gate of package sluice.
package pacer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/rates"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// A Pacer gives each call a slot, one interval after the slot of the call before it: count calls
// per period, evenly. Slots are absolute. k slots on they are exactly k·period/count later, rounded
// down to a nanosecond.
//
// Most programs need only [Pacer.Wait].
//
// A call of cost n starts at its slot like any other, and the next slot comes n intervals later, as
// in Guava's RateLimiter. n = 0 consumes nothing and is admitted immediately. n has no upper bound;
// if a cost moves the next slot beyond 292 years, no later call starts.
//
// Calls start strictly in the order in which they came. A canceled caller returns its slot exactly.
// A new rate, a pause and its end reach all waiting callers immediately.
//
// A Pacer is safe for use by multiple goroutines, must be made by [New] and must not be copied. It
// starts no goroutine and needs no closing. Made in a testing/synctest bubble, it belongs to that
// bubble.
type Pacer struct {
	lane     schedule.Lane // open while no caller waits
	queue    queue.Queue
	schedule schedule.Schedule // guarded by the queue's lock
}

// Config configures a [Pacer], in addition to its rate. The zero Config is usual.
type Config struct {
	// MaxCatchUp is the time that the following calls may catch up when a caller is woken late,
	// because timers are late or the machine stalls. A millisecond, or a TimerResolution, is caught
	// up immediately, the rest at twice the rate. Anything beyond MaxCatchUp is lost. In any window
	// W at most B + (W + MaxCatchUp)/T + n − 1 units start: T is the interval, B the burst, n the
	// largest cost.
	//
	// 0 means 50 ms. If a server counts strictly in windows of a second, choose 10 ms and a rate that
	// is 1 % lower. Negative means strict: without a burst no gap is ever shorter than the interval,
	// and the rate falls short by however late callers are woken. The lateness of a caller itself is
	// never caught up.
	MaxCatchUp time.Duration

	// TimerResolution is the time by which calls may be woken late to save processor time. Calls
	// whose slots come within it may start together at its end; none starts before its slot. 0 means
	// 1 ms. Less than 1 ms, negative for none, or a MaxCatchUp below 2 ms wakes calls exactly: on
	// Linux within about 50 µs of their slots, which takes half of a processor at 20,000/s. A
	// testing/synctest bubble is always exact.
	//
	// If timers are always later than 2 ms, as on Windows before version 1803 (15.6 ms), set it to
	// their resolution, or the rate is not reached.
	TimerResolution time.Duration

	// WarmUp makes a pacer without a burst start slowly, for services that must warm up. The interval
	// is at first three times as long; at full load it shrinks to normal within WarmUp. Idle time and
	// pauses cool the pacer down; after WarmUp it is cold again. 0 means none.
	WarmUp time.Duration

	// MaxWaiting is the most callers and reservations that may wait. 0 means no bound.
	MaxWaiting int
}

// New returns a pacer that lets rate.Count calls start per rate.Per, evenly spaced, the first of
// them immediately. A new pacer has no burst saved up, and saves none during a pause. More than one
// Config panics.
//
// New returns an error unless rate is valid (see [limits.Rate]) and its burst takes at most
// 146 years, if WarmUp or MaxWaiting is negative, and if a WarmUp is combined with a burst.
func New(rate limits.Rate, options ...Config) (*Pacer, error) {
	cfg := defaults.Option("pacer.New", options)
	if cfg.MaxWaiting < 0 {
		return nil, fmt.Errorf("pacer: negative MaxWaiting %d", cfg.MaxWaiting)
	}
	if err := rates.Check(rate.Count, rate.Per, rate.Burst); err != nil { // the zero Rate too: a pacer has a rate
		return nil, fmt.Errorf("pacer: %w", err)
	}
	s, err := schedule.New(schedule.Config{Rate: rate, MaxCatchUp: cfg.MaxCatchUp, TimerResolution: cfg.TimerResolution, WarmUp: cfg.WarmUp})
	if err != nil {
		return nil, fmt.Errorf("pacer: %w", err)
	}
	p := &Pacer{schedule: *s}
	p.lane.Init()
	r := (*admitter)(p)
	p.queue.Init(r, queue.Config{MaxWaiting: int32(min(cfg.MaxWaiting, math.MaxInt32)), Exact: true, Latch: r, Fine: p.schedule.Fine, Hold: p.schedule.Hold})
	return p, nil
}

// Wait is Acquire(ctx, 1).
func (p *Pacer) Wait(ctx context.Context) error { return p.acquire(ctx, 1, queue.Forever) }

// Acquire blocks until the slot of a call of cost n, behind earlier callers.
//
// It returns ctx.Err() if ctx is done, even if that was so before the call. If the slot is not
// before the deadline of ctx it returns a [*limits.WaitError] immediately, and it does so later if
// a change makes the wait hopeless. It returns [limits.ErrQueueFull] if the queue is full. After an
// error the pacer is as it would be without the call. It panics if n < 0.
func (p *Pacer) Acquire(ctx context.Context, n int64) error {
	return p.acquire(ctx, n, queue.Forever)
}

// AcquireWithin is Acquire, but if the slot is more than longest away it returns a
// [*limits.WaitError] immediately. longest ≤ 0 does not block.
func (p *Pacer) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	return p.acquire(ctx, n, longest)
}

func (p *Pacer) acquire(ctx context.Context, n int64, longest time.Duration) error {
	if n == 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, v := p.pass(); v == schedule.Leave {
			return nil
		}
	}
	mustNotBeNegative(n)
	if n == 0 {
		return ctx.Err()
	}
	_, _, err := p.queue.Acquire(ctx, queue.Request{N: n, Max: longest})
	return err
}

// pass lets a call of cost 1 start at now if it can without the lock.
func (p *Pacer) pass() (now time.Duration, v schedule.Verdict) {
	s := p.lane.Slots()
	for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		next, now, v := s.Look(p.queue.Epoch())
		if v != schedule.Leave || s.Take(next, now) {
			return now, v
		}
	}
	return 0, schedule.Ask
}

// TryAcquire takes the slot for a call of cost n and reports true if that slot is now. Otherwise it
// changes nothing and reports false. It never blocks and never overtakes. It panics if n < 0.
func (p *Pacer) TryAcquire(n int64) bool {
	if n == 1 {
		if _, v := p.pass(); v != schedule.Ask {
			return v == schedule.Leave
		}
	}
	mustNotBeNegative(n)
	if n == 0 {
		return true
	}
	_, ok := p.queue.Try(queue.Request{N: n})
	return ok
}

// SetRate changes the rate and its burst. It returns an error and changes nothing if New would
// return one.
//
// The new rate also applies to the debt: the next slot is where it would be if the last call had
// started under the new rate, or now if that has passed. The saved burst stays that many calls, at
// most the new burst.
func (p *Pacer) SetRate(rate limits.Rate) error {
	err := rates.Check(rate.Count, rate.Per, rate.Burst)
	if err == nil {
		p.queue.Change(func(now time.Duration) { err = p.schedule.SetRate(now, rate) })
	}
	if err != nil {
		return fmt.Errorf("pacer: %w", err)
	}
	return nil
}

// PauseUntil lets no call start before t. Then calls start one interval apart, the first at t. A t
// before the end of the current pause changes nothing. Setting the clock later does not move the
// end.
func (p *Pacer) PauseUntil(t time.Time) {
	p.queue.Change(func(now time.Duration) { p.schedule.PauseUntil(p.queue.Instant(now, t)) })
}

// Resume ends a pause now. Waiting callers start one interval apart.
func (p *Pacer) Resume() {
	p.queue.Adjust(func(now time.Duration) (later bool) {
		p.schedule.Resume(now)
		return false
	})
}

// Interval returns the time between calls at the current rate, rounded down to
// a nanosecond.
func (p *Pacer) Interval() time.Duration {
	p.queue.Lock()
	defer p.queue.Unlock()
	return p.schedule.Interval()
}

// Waiting returns the number of callers and reservations that wait for their slot.
func (p *Pacer) Waiting() int {
	p.queue.Lock()
	defer p.queue.Unlock()
	p.queue.Advance(p.queue.Now())
	return p.queue.Len()
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("pacer: n < 0: %d", n))
	}
}
