// Package queue is the one place in Sluice where callers wait.
//
// A [Queue] is a FIFO of callers and the loop in which they block. What they
// wait for is a [Rule]: permits (package semaphore), a slot in time (package
// pacer), or all the limits of a gate at once. The rule decides, the queue
// orders, wakes, hands over and cancels.
//
// # How does a queue wait without a timer for every caller?
//
// The simplest limiter computes a sleep for each caller and lets it sleep.
// Then a new rate cannot reach the sleepers, a cancelled one leaves a hole
// that nobody fills, and 100,000 waiters are 100,000 timers.
//
// Here only the first waiting goroutine, the driver, sleeps for a time; all
// others sleep until they are told. (If the rule cannot know how long a wait is, a
// bound on it is one more timer, of its own.) When the driver wakes it does not serve
// itself but the queue: [Queue.Advance] asks the rule about the head, hands
// over, asks about the next, until the rule says "not yet, come back in d".
// Whoever changes anything (a release, a new rate, a cancelled head) calls
// Advance too, at once and under the same lock:
//
//	  driver                                     others
//	┌─────────┐  ┌─────────┐  ┌──────────────┐  ┌─────────┐
//	│ head    │←─│ waiting │←─│ reservation  │←─│ waiting │←─ newcomers
//	└────┬────┘  └─────────┘  │ (no goroutine│  └─────────┘
//	     │ timer              │  behind it)  │
//	     ▼                    └──────────────┘
//	  Advance: Admit(head)? hand over, next. Not yet? Sleep for what it says.
//
// Invariants, all under the lock: a caller is in the list or settled, never
// both; nobody is admitted before everybody ahead of it is settled; nothing is
// taken from the rule for a caller whose context was done before its turn, so
// a cancelled wait has nothing to give back; the driver is awake, told, or
// asleep until no later than due.
package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// Forever as a wait means that only a change can end it; as the most that a
// caller will wait, that it sets no bound.
const Forever = sat.Max

// A Rule decides when the caller at the head of a queue may leave. Its methods
// are called with the queue locked and must not block. Instants are durations
// since the queue was made.
type Rule interface {
	// Admit lets n through at now and returns 0, or changes nothing and
	// returns how long to wait before it is worth asking again: Forever when
	// only a change can help. due ≤ now is the instant for which the head was
	// to be woken; now − due is how late we are, and not the caller's fault.
	Admit(now, due time.Duration, n int64) time.Duration

	// Forecast returns how long a caller would wait from now on that has the
	// weight ahead queued before it, as far as the rule can know: never more
	// than the true wait, 0 if it knows nothing.
	Forecast(now time.Duration, ahead int64) time.Duration
}

// An AskFunc decides in place of Rule.Admit for a caller whose limits must block
// to answer, because one of them lives elsewhere. It is called only while the
// caller is at the head of the queue, in the caller's goroutine and with the
// queue unlocked. It returns like Admit; an error is the caller's answer and
// ends its wait. ctx ends with the caller's wait, whatever ends that; only then
// may the next caller ask before the call has returned.
type AskFunc func(ctx context.Context, t Turn) (Wait, error)

// A Wait is how long the caller at the head of a queue has to wait. The zero Wait
// is none.
type Wait struct {
	// For is how long to wait before it is worth asking again: Forever when only
	// a change can help.
	For time.Duration

	// Sure is how much of that it will be at least, whatever others do. Only a
	// wait that is sure to be too long is refused before it begins; one that
	// only a change can end never is.
	Sure time.Duration

	// By, if set, tells when it is worth asking again earlier. Who waits for it is
	// noted there, and asks once more then: it may have told before.
	By *Bell
}

// A Bell is a limit outside the queue that calls f whenever it may admit a caller
// earlier than it said, until stop is called. f does not block.
type Bell func(f func()) (stop func())

// Surely is a wait that nothing will make shorter.
func Surely(d time.Duration) Wait { return Wait{For: d, Sure: d} }

// A Turn is what an AskFunc is told.
type Turn struct {
	N    int64
	Due  time.Duration // ≤ now, since when it could have asked: the rest is our lateness
	Left time.Duration // how long the caller will still wait, Forever for no bound

	Patience time.Duration // of the request
}

// A Latch lets callers by who find nobody waiting, without the lock: while it
// is open the state of the rule lies in one atomic word, which callers change
// as Admit would. The queue closes it before it looks at that state, and opens
// it, if the rule will, when it is done and nobody waits:
//
//	open:    nobody waits but a crowd, whose number is part of the state, and
//	         nobody holds the lock; the word is the state
//	closed:  the state is under the lock; the word only says that it is closed
//
// So nobody is overtaken through the word, and nothing is decided twice: a
// caller that has read the open word fails to change it once it is closed. Both
// methods are called with the queue locked.
type Latch interface {
	// Close takes the state out of the word. It returns how many the crowd
	// is, see there, 0 if there is none.
	Close() (asleep int)

	// Open puts the state into the word, or reports false if it is not one
	// that the word can hold. There is a crowd only where Join is called.
	Open(asleep int) bool
}

// Config is what a queue needs beside its rule.
type Config struct {
	// MaxWaiting is the most entries that may wait; 0 means no bound.
	MaxWaiting int

	// Exact promises that Forecast is the true wait while nothing changes.
	// Bounds on the wait then need no timers: a hopeless wait is refused when
	// it begins, and when a change makes it hopeless.
	Exact bool

	// Untimed promises that Admit ignores the time; the clock is then not
	// read for callers who need not wait.
	Untimed bool

	// Weigh returns what an entry of n adds to the forecasts of those behind
	// it. Nil means n.
	Weigh func(n int64) int64

	// Latch, if set, is that of the rule.
	Latch Latch

	// Fine, if set, is called with the queue locked and reports whether it is
	// worth while to wake the driver more exactly than timers do.
	Fine func() bool

	// Waits, if set, is called with the queue unlocked when a caller is about to
	// wait, with what it asks for: before it has its place, so that nobody waits
	// for Waits, unless it has to ask, at the head, to know. If it panics the
	// caller's wait is over, and the panic propagates.
	Waits func(n int64)

	// Refuse, if set, is called with the queue locked for every n that asks
	// to enter. An error means that no wait can help, and is returned.
	Refuse func(n int64) error

	// GiveUp, if set, is called with the queue locked when a wait with a
	// Patience begins, and after every Change. An error ends the wait.
	GiveUp func(now, patience time.Duration) error

	// Blame, if set, is called with the queue locked when the wait of an entry of n
	// ends because it is too long. It returns the limit that is to blame: the one that
	// the Forecast need consists of or, if need is 0, the one that holds up the head.
	// If the queue is empty, the head would be that entry.
	Blame func(now, need time.Duration, n int64) limits.Cause
}

// A Queue is a FIFO of callers. It must be made ready by Init and must not be copied.
// Its Lock also guards the state of its rule.
type Queue struct {
	// What every caller changes who waits or lets somebody go is close
	// together: 64 bytes travel from processor to processor at once, of which
	// 8 are the semaphore's. What follows is only read then.
	mu          sync.Mutex
	front, back *Waiter
	spares      spares
	length      int32

	seq     uint32  // of the timed entry last added
	driver  *Waiter // first entry with a goroutine behind it
	open    bool    // the latch
	fine    bool    // not in a testing/synctest bubble, where only timers know the time
	outside bool    // nor is whoever waits

	weight  total
	due     time.Duration // when the head is to be looked at; Forever: after a change, or there is none
	changed time.Duration // when the rule was last changed from outside
	closed  error

	crowd *crowd // or nil

	busy atomic.Bool // see Busy

	rule  Rule
	cfg   Config
	epoch time.Time
}

// Init makes q an empty queue under rule.
func (q *Queue) Init(rule Rule, cfg Config) {
	q.rule, q.cfg = rule, cfg
	q.epoch, q.due, q.fine = time.Now(), Forever, !bubbled()
	q.mu.Lock()
	defer q.Unlock() // which opens the latch
}

// Lock locks the queue and with it the state of the rule.
func (q *Queue) Lock() {
	q.mu.Lock()
	if q.open {
		q.open = false
		if n := q.cfg.Latch.Close(); n > 0 {
			q.wakeUp(n)
		}
	}
}

// Unlock undoes Lock.
func (q *Queue) Unlock() {
	if q.cfg.Latch != nil && q.closed == nil {
		if q.front == nil {
			q.open = q.cfg.Latch.Open(0)
		} else if q.crowd != nil {
			q.open = q.layDown()
		}
	}
	q.mu.Unlock()
}

// Now returns the present instant on the monotonic clock.
func (q *Queue) Now() time.Duration { return time.Since(q.epoch) }

// Epoch returns the instant 0.
func (q *Queue) Epoch() time.Time { return q.epoch }

// Time returns the instant d as a time, as the wall clock has it now: it may
// have been set since the queue was made.
func (q *Queue) Time(d time.Duration) time.Time {
	now := time.Now()
	return now.Add(sat.Sub(d, now.Sub(q.epoch)))
}

// Instant returns the time t as an instant, converted now and once: what the
// wall clock does later does not move it.
func (q *Queue) Instant(now time.Duration, t time.Time) time.Duration {
	return sat.Add(now, time.Until(t))
}

// Len returns how many wait. The queue must be locked.
func (q *Queue) Len() int {
	if q.crowd != nil && q.crowd.left > 0 {
		return int(q.length) - 1 + q.crowd.left
	}
	return int(q.length)
}

// Weight returns the weight of all entries, saturated. The queue must be
// locked, and timed.
func (q *Queue) Weight() int64 { return q.weight.value() }

// Busy reports whether somebody waits or the queue is closed. It needs no lock.
// Whoever has made room for others without the lock, by an atomic operation,
// must look at it afterwards and, if it is true, take the lock and call Advance.
// Then nobody waits in vain: those who begin to wait make it true before they
// look for room for the last time.
func (q *Queue) Busy() bool { return q.busy.Load() }

// Closed returns the reason given to Close, or nil. The queue must be locked.
func (q *Queue) Closed() error { return q.closed }

// A Request says what a caller wants.
type Request struct {
	N   int64         // what Admit is asked for
	Max time.Duration // longest wait; negative counts as 0, Forever as no bound

	// Patience, if not 0, is handed to Config.GiveUp.
	Patience time.Duration

	// Ask, if set, decides in place of the rule's Admit.
	Ask AskFunc

	// Came, if set, is when the caller would have come had it not been woken late,
	// by us. It is for callers that ask.
	Came time.Time

	told   bool // Config.Waits was called
	asking context.Context
	stop   context.CancelFunc // of asking
}

// Try admits r if it can leave at once and nobody waits. at is when.
func (q *Queue) Try(r Request) (at time.Duration, ok bool) {
	q.Lock()
	if q.refuse(r.N) != nil {
		q.Unlock()
		return 0, false
	}
	now := q.tick()
	if q.front != nil {
		q.Advance(now)
	}
	ok = q.front == nil
	if ok && r.Ask == nil {
		ok = q.rule.Admit(now, now, r.N) == 0
	} else if ok {
		r.asking, r.stop = context.WithCancel(context.Background()) // which is not the caller's own
		defer r.stop()
		w := q.attended(now, r.N, nil)
		w.askedFor(&r, q, now)
		w.rare.maxAt = now
		q.push(w)
		wait, err := q.ask(w)
		ok = wait.For == 0 && err == nil
		q.leave(w)
		if w.state == granted {
			q.putBack(w)
		}
	}
	q.Unlock()
	return now, ok
}

// Acquire blocks until the rule admits r, in the order of the calls. at is when
// it was admitted, not set for an untimed rule, and waited how long that took,
// 0 if it did not block. The error is ctx.Err(), the
// reason given to Close or by Refuse, errs.ErrQueueFull, an *errs.WaitError if the
// wait cannot end in time, or errs.ErrTimeout if it did not. After an error
// nothing is taken.
func (q *Queue) Acquire(ctx context.Context, r Request) (at, waited time.Duration, err error) {
	if r.Ask != nil {
		// The context of the AskFunc is made here and not where it is called: that is
		// between two locks, and context.WithCancel calls methods of ctx.
		r.asking, r.stop = context.WithCancel(errs.Honest(ctx))
		defer r.stop()
	}
	w, now, err := q.enter(ctx, &r)
	if w == nil {
		return now, 0, err
	}
	at, err = q.wait(ctx, w)
	return at, sat.Sub(at, now), err
}

// enter is Acquire up to the wait, at now. It returns no entry, with the queue
// unlocked, if r need not wait or must not; else the entry, and the queue is
// locked.
func (q *Queue) enter(ctx context.Context, r *Request) (w *Waiter, now time.Duration, err error) {
	done, deadline := ctx.Done(), q.deadline(ctx)
	q.Lock()
	// Looked at under the lock: a context that was done before our turn at
	// the lock fails even if there is room (golang.org/issue/63615).
	if isDone(done) {
		q.Unlock()
		return nil, 0, errs.Done(ctx)
	}
	if err := q.refuse(r.N); err != nil {
		q.Unlock()
		return nil, 0, err
	}
	now = q.tick()
	// Without the time only a head that has given up can have moved anything,
	// and will see to those behind it by itself.
	if q.front != nil && !(q.cfg.Untimed && r.Max == Forever) {
		q.Advance(now)
	}
	if q.front == nil && r.Ask == nil && q.rule.Admit(now, now, r.N) == 0 {
		q.Unlock()
		return nil, now, nil
	}
	if q.cfg.Untimed && r.Max != Forever {
		now = q.Now()
	}
	w = q.attended(now, r.N, done)
	w.askedFor(r, q, now)
	w.setLimits(deadline, q, now, r.Max)
	if w.rare != nil {
		err = q.hopeless(now, w, q.weight.value())
	}
	if err == nil && q.full() {
		err = limits.ErrQueueFull
	}
	if err != nil {
		q.recycle(w)
		q.Unlock()
		return nil, 0, err
	}
	if q.cfg.Waits != nil && !r.told && (q.front != nil || r.Ask == nil) {
		r.told = true
		q.recycle(w)
		q.Unlock()
		q.cfg.Waits(r.N)
		return q.enter(ctx, r) // perhaps it need not wait any more
	}
	q.push(w)
	if q.front == w {
		if r.Ask != nil {
			w.rare.first = true // since it came, also if that should have been earlier
		}
		q.Advance(now)
	}
	return w, now, nil
}

// Change settles what is due, calls f to change the rule, and applies the
// change to everybody who waits: those it makes hopeless fail, those it lets
// through leave, and the driver sleeps for the new time. It looks at all of them, with
// the queue locked.
func (q *Queue) Change(f func(now time.Duration)) {
	q.Adjust(func(now time.Duration) (later bool) {
		f(now)
		return true
	})
}

// Adjust is Change, but does not look at those who wait unless f reports that a forecast
// may be later now: what comes earlier makes no wait hopeless.
func (q *Queue) Adjust(f func(now time.Duration) (later bool)) {
	q.Lock()
	defer q.Unlock()
	now := q.Now()
	q.Advance(now)
	later := f(now)
	q.changed, q.due = now, now // to be looked at anew
	if later {
		q.failHopeless(now)
	}
	q.Advance(now)
	q.Kick()
}

// failHopeless ends each wait that cannot end in time any more.
func (q *Queue) failHopeless(now time.Duration) {
	var ahead total
	for w := q.front; w != nil; {
		next := w.next
		if err := q.hopeless(now, w, ahead.value()); err != nil {
			q.fail(w, err)
		} else {
			ahead.add(q.weigh(w.n))
		}
		w = next
	}
}

// Recheck ends the wait of everybody whom Refuse would refuse now. The queue
// must be locked.
func (q *Queue) Recheck() {
	for w := q.front; w != nil; {
		next := w.next
		switch err := q.refuse(w.n); {
		case err == nil:
		case isDone(w.done): // it failed before
			q.giveUp(w)
		default:
			q.fail(w, err)
		}
		w = next
	}
}

// Close fails everybody who waits and everybody who comes later. Only the
// first call counts.
func (q *Queue) Close(reason error) {
	q.Lock()
	defer q.Unlock()
	if q.closed != nil {
		return
	}
	q.Advance(q.Now())
	q.closed = reason
	q.busy.Store(true)
	q.Recheck()
}

// Each calls f with the weights of the entries in order until it returns
// false, with that of a crowd once. The queue must be locked.
func (q *Queue) Each(f func(n int64) bool) {
	for w := q.front; w != nil && f(w.n); w = w.next {
	}
}

// Advance hands over to every entry whose turn it is at now. The queue must be
// locked. It must be called after anything that may let the head through.
func (q *Queue) Advance(now time.Duration) {
	for w := q.front; w != nil; w = q.front {
		if q.isCrowd(w) {
			if q.rule.Admit(now, now, 1) > 0 {
				return
			}
			q.tellCrowd(1, nil)
			continue
		}
		if w.asks() {
			if r := w.rare; !r.first {
				// It is late by as much as the one that was first before it.
				r.first, r.since = true, max(r.since, min(q.due, now))
				if w.at == Forever {
					w.tell()
				}
			}
			break
		}
		at, due := now, min(q.due, now)
		if w.wake == nil {
			// Nobody sleeps for it, so nobody can be late for it either: it
			// is charged as if it had been looked at exactly at its slot. That is
			// due, whoever is at the head, unless due is over or Change has reset it.
			at = q.due
			if at <= now || at == Forever {
				at = sat.Add(q.changed, q.rule.Forecast(q.changed, 0))
			}
			if at > now {
				q.arm(at) // also for a driver that is new
				return
			}
			due = at
		}
		if isDone(w.done) {
			q.giveUp(w)
			continue
		}
		if wait := q.rule.Admit(at, due, w.n); wait > 0 {
			q.arm(sat.Add(now, wait))
			return
		}
		q.remove(w)
		w.at, w.state = at, granted
		w.send(Message(at))
		q.recycle(w)
	}
	q.setDue(Forever)
}

// Kick makes a head that asks do so again, also if it is asking at this moment
// and may have looked too early. The queue must be locked. It must be called
// after anything that may let such a head through; for others Advance has asked
// already.
func (q *Queue) Kick() {
	if q.front != nil && q.front.asks() {
		q.front.rare.since = min(q.front.rare.since, q.Now())
		q.front.tell()
	}
}

// setDue writes only what is new: what is beside due every caller reads, on all
// processors, and in a semaphore it is Forever for good.
func (q *Queue) setDue(due time.Duration) {
	if q.due != due {
		q.due = due
	}
}

// arm makes the driver wake at due.
func (q *Queue) arm(due time.Duration) {
	q.setDue(due)
	if q.driver != nil && q.driver.at > due {
		q.driver.tell()
	}
}

// hopeless returns an error if w, with the weight ahead before it, cannot
// leave in time.
func (q *Queue) hopeless(now time.Duration, w *Waiter, ahead int64) error {
	if w.rare == nil { // whatever it takes
		return nil
	}
	if w.rare.patience != 0 && q.cfg.GiveUp != nil {
		if err := q.cfg.GiveUp(now, w.rare.patience); err != nil {
			return err
		}
	}
	need := q.rule.Forecast(now, ahead)
	asks := w.asks() && (q.front == nil || q.front == w) // and then knows
	if need == 0 && w.maxAt() <= now && !asks {
		return q.blame(now, 0, w, limits.ErrTimeout)
	}
	return q.blame(now, need, w, w.tooLong(now, need))
}

// blame returns err, with which the wait of w ends, with the limit that is to blame. A
// nil err stays nil.
func (q *Queue) blame(now, need time.Duration, w *Waiter, err error) error {
	if err == nil || q.cfg.Blame == nil {
		return err
	}
	return errs.For(q.cfg.Blame(now, need, w.n), err)
}

// refuse returns why n cannot enter, or nil.
func (q *Queue) refuse(n int64) error {
	switch {
	case q.closed != nil:
		return q.closed
	case q.cfg.Refuse != nil:
		return q.cfg.Refuse(n)
	}
	return nil
}

func (q *Queue) full() bool {
	return q.cfg.MaxWaiting > 0 && q.Len() >= q.cfg.MaxWaiting
}

// tick returns the present instant if the rule wants to know it.
func (q *Queue) tick() time.Duration {
	if q.cfg.Untimed {
		return 0
	}
	return q.Now()
}

// drop removes w, which then has failed with err, and lets those behind it
// move up.
func (q *Queue) drop(now time.Duration, w *Waiter, err error) {
	q.fail(w, err)
	q.Advance(now)
}

// giveUp removes w without a word: its context is done, and its goroutine finds
// out by itself, or it has none.
func (q *Queue) giveUp(w *Waiter) {
	q.remove(w)
	w.state = dropped
}

func (q *Queue) fail(w *Waiter, err error) {
	if q.isCrowd(w) {
		q.tellCrowd(q.crowd.left, err)
		return
	}
	q.remove(w)
	w.fail(err)
}

// leave takes w out of the queue, if it is still in it, and calls the next.
func (q *Queue) leave(w *Waiter) {
	if !w.settled() {
		q.remove(w)
		w.state = granted
	}
	q.Advance(q.Now())
}

func (q *Queue) push(w *Waiter) {
	w.prev = q.back
	if q.back == nil {
		q.front = w
		q.busy.Store(true)
	} else {
		q.back.next = w
	}
	q.back = w
	q.length++
	if q.cfg.Untimed { // then nobody asks for these
		return
	}
	q.seq++
	w.seq = q.seq
	q.weight.add(q.weigh(w.n))
	if q.driver == nil && w.wake != nil {
		q.driver = w
	}
}

func (q *Queue) remove(w *Waiter) {
	q.length--
	if !q.cfg.Untimed {
		q.weight.sub(q.weigh(w.n))
		if w == q.driver {
			q.driver = w.next
			for q.driver != nil && q.driver.wake == nil {
				q.driver = q.driver.next
			}
		}
	}
	if w.prev == nil {
		if q.front = w.next; q.front == nil && q.closed == nil {
			q.busy.Store(false)
		}
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.back = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

func (q *Queue) weigh(n int64) int64 {
	if q.cfg.Weigh == nil {
		return n
	}
	return q.cfg.Weigh(n)
}

func isDone(done <-chan struct{}) bool {
	if done == nil {
		return false
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
