// Package queue is the one place in Sluice where callers wait.
//
// A [Queue] is a FIFO of callers. They wait for an [Admitter]: permits (package
// semaphore), a slot in time (package pacer), or all the limits of a gate together.
// The admitter decides; the queue orders, wakes, hands over and cancels.
//
// # How does a queue wait without a timer for every caller?
//
// The simplest limiter computes a sleep for each caller and lets it sleep. Then a
// new rate cannot reach the sleepers, a canceled one leaves a hole that is not
// filled, and 100,000 waiters are 100,000 timers.
//
// Here only the first waiting goroutine, the driver, has a timer; all others sleep on
// their channels. (If the admitter cannot forecast a wait, a bound on it is one more
// timer.) When the driver wakes it serves the queue: [Queue.Advance] asks the admitter
// about the head, hands over, and goes on with the next until the admitter says "not
// yet, come back in d". Whatever changes something (a release, a new rate, a
// canceled head) calls Advance too, immediately and under the same lock:
//
//	  driver                                     others
//	┌─────────┐  ┌─────────┐  ┌──────────────┐  ┌─────────┐
//	│ head    │←─│ waiting │←─│ reservation  │←─│ waiting │←─ newcomers
//	└────┬────┘  └─────────┘  │ (no goroutine│  └─────────┘
//	     │ timer              │  behind it)  │
//	     ▼                    └──────────────┘
//	  Advance: Admit(head)? Hand over, next. Not yet? Sleep for that long.
//
// Invariants, all under the lock:
//   - A caller is in the list or settled, never both.
//   - No caller is admitted before all ahead of it are settled.
//   - Nothing is taken from the admitter for a caller whose context was done before its
//     turn, so a canceled wait has nothing to return.
//   - The driver is awake, has a message, or is woken no later than due and the Hold:
//     by its own timer, or by the clock of the process.
//
// # Where is what?
//
//	queue.go     the queue, its lock and its clock, and the reuse of entries
//	list.go      the list of entries
//	admitter.go  what a user of the package provides
//	waiter.go    an entry, and the messages to its goroutine
//	acquire.go   how callers come in
//	reserve.go   entries without a goroutine
//	again.go     callers that the server has refused
//	away.go      callers that are to wait in another queue
//	fair.go      callers that are the heads of other queues, in the order of fair shares
//	wait.go      how goroutines wait and are woken: one loop for all
//	clock.go     one timer for many queues
//	ask.go       callers whose limits must block to answer, and what those behind them know
//	advance.go   which callers start or fail, and what changes do
//	bounds.go    entries whose wait is bounded; index.go: a tree above them
//	crowd.go     the callers of a semaphore, which wait by themselves
package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// A Queue is a FIFO of callers. It must be made ready by Init and must not be copied.
// Its Lock also guards the state of its admitter.
type Queue struct {
	// The fields that each wait and each hand-over changes are close together: 64 bytes travel from
	// processor to processor together, of which 8 are the semaphore's. The fields below are only
	// read then.
	mu          sync.Mutex
	front, back *Waiter
	spares      spares
	length      int32
	idle        int32 // spares

	seq     uint32  // of the timed entry last added
	open    bool    // the latch
	fine    bool    // not in a testing/synctest bubble, where only timers know the time
	outside bool    // nor are those that wait
	hands   bool    // the admitter is a HasReceipt
	driver  *Waiter // first entry with a goroutine behind it

	weight   total
	heaviest int64         // no entry is heavier; one that was may have left
	due      time.Duration // when the head is to be looked at; Forever: after a change, or there is none
	changed  time.Duration // when the admitter was last changed from outside
	emptied  time.Duration // see noteEmptied; 0: not so
	closed   error

	crowd  *crowd  // or nil
	bounds *bounds // nil until a wait is bounded

	clock *clock
	rings time.Duration // when the clock rings; guarded by the clock, like place

	admitter Admitter
	cfg      Config

	// Fields that callers read without the lock are at the end, next to those that callers of a
	// gate read of that: with thousands of gates each line of the cache is a miss.
	place int32       // in the heap of the clock, from 1 on; 0: it does not ring
	busy  atomic.Bool // see Busy
	epoch time.Time
}

// Init makes q an empty queue under admitter.
func (q *Queue) Init(admitter Admitter, cfg Config) {
	if cfg.Weigh == nil {
		cfg.Weigh = func(n int64) int64 { return n }
	}
	q.admitter, q.cfg, q.clock = admitter, cfg, &theClock
	q.epoch, q.due, q.fine = time.Now(), Forever, !bubbled()
	_, q.hands = admitter.(HasReceipt)
	q.mu.Lock()
	defer q.Unlock() // which opens the latch
}

// Lock locks the queue and with it the state of the admitter.
func (q *Queue) Lock() {
	q.mu.Lock()
	if q.open {
		q.open = false
		if n := q.cfg.Latch.Close(); n > 0 {
			q.unpackCrowd(n)
		}
	}
}

// Unlock undoes Lock.
func (q *Queue) Unlock() {
	if q.cfg.Latch != nil && q.closed == nil {
		if q.front == nil {
			q.open = q.cfg.Latch.Open(0)
		} else if q.crowd != nil {
			q.open = q.packCrowd()
		}
	}
	q.mu.Unlock()
}

// Now returns the current instant on the monotonic clock.
func (q *Queue) Now() time.Duration { return time.Since(q.epoch) }

// Epoch returns the instant 0.
func (q *Queue) Epoch() time.Time { return q.epoch }

// Time returns the instant d as a time, as the wall clock has it now: it may
// have been set since the queue was made.
func (q *Queue) Time(d time.Duration) time.Time {
	now := time.Now()
	return now.Add(sat.Sub(d, now.Sub(q.epoch)))
}

// Instant returns the time t as an instant, converted now and once: later changes of the wall clock
// do not move it.
func (q *Queue) Instant(now time.Duration, t time.Time) time.Duration {
	return sat.Add(now, time.Until(t))
}

// Len returns the number of waiting callers. The queue must be locked.
func (q *Queue) Len() int {
	if q.crowd != nil && q.crowd.left > 0 {
		return int(q.length) - 1 + q.crowd.left
	}
	return int(q.length)
}

// Oldest returns when the caller came that has waited longest, and false if none waits.
// The queue must be locked, and timed.
func (q *Queue) Oldest() (came time.Duration, ok bool) {
	if q.front == nil {
		return 0, false
	}
	return q.front.came, true
}

// Weight returns the cost of all entries, saturated. The queue must be
// locked, and timed.
func (q *Queue) Weight() int64 { return q.weight.value() }

// Busy reports whether the queue is not empty, or closed. It needs no lock. A caller
// that makes room by an atomic operation, without the lock, must call Busy afterwards
// and, if it is true, take the lock and call Advance. Then no wait is missed: a caller
// that begins to wait makes Busy true before it looks for room for the last time.
func (q *Queue) Busy() bool { return q.busy.Load() }

// Closed returns the reason given to Close, or nil. The queue must be locked.
func (q *Queue) Closed() error { return q.closed }

// tick returns the current instant if the admitter wants to know it.
func (q *Queue) tick() time.Duration {
	if q.cfg.Untimed {
		return 0
	}
	return q.Now()
}

// maxSpare limits the number of waiters that are kept for later.
const maxSpare = 256

// attended returns an entry for n with a goroutine, whose context has the
// channel done. The entry and its channel were used before if possible; in a
// testing/synctest bubble, to which channels belong, they never are.
func (q *Queue) attended(now time.Duration, n int64, done <-chan struct{}) *Waiter {
	if !q.cfg.Untimed {
		q.outside = q.fine && now >= 0 // before the queue was made: in a bubble it is the year 2000
	} else if q.front == nil {
		// To read the clock for each would be a tenth of the cost of a wait.
		// A bubble and a caller outside of it do not wait for one another.
		q.outside = q.fine && q.Now() >= 0
	}
	w := q.spares.front
	if w != nil && q.outside && len(w.wake) == 0 {
		q.spares.front, w.next = w.next, nil
		q.idle--
	} else {
		w = &Waiter{shared: q.fine && q.Now() >= 0}
	}
	w.attend(done)
	w.n, w.came = n, now
	return w
}

// recycle takes back w, which was admitted or was never in the queue. Its goroutine
// may not have got the message yet: w can be used again when that is out of the
// channel. Those that failed are few, and left to the collector.
func (q *Queue) recycle(w *Waiter) {
	if w.shared && q.idle < maxSpare {
		w.done, w.rare, w.state = nil, nil, waiting
		if q.spares.front == nil {
			q.spares.front = w
		} else {
			q.spares.back.next = w
		}
		q.spares.back = w
		q.idle++
	}
}

// putBack is recycle for an entry whose own goroutine calls it.
func (q *Queue) putBack(w *Waiter) {
	heard(w.wake) // it may have been nudged
	q.recycle(w)
}
