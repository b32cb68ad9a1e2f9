package sluice

import (
	"context"
	"errors"
	"iter"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/clean"
	"github.com/sluice-go/sluice/limits"
)

// counters are for Stats.
type counters struct {
	granted   uint64 // guarded by the queue's lock
	sent      uint64 // their cost, likewise
	elsewhere elsewhere
	refused   [reasonOther + 1]atomic.Uint64
	lastError atomic.Pointer[lastError]
	retried   atomic.Uint64
	stranded  atomic.Uint64
	waits     waits
}

// sofar returns the number of calls that have started at now, without those that were throttled because
// of a limit of others.
func (c *counters) sofar(now time.Duration) sofar {
	return sofar{now, int64(c.granted - c.elsewhere.calls), int64(c.sent - c.elsewhere.cost)}
}

// elsewhere are calls that were throttled because of a limit that is not that of the gate.
type elsewhere struct{ calls, cost uint64 }

func (e *elsewhere) add(n int64) {
	e.calls++
	e.cost += uint64(n)
}

// passed counts n calls, of cost 1, that were granted without the lock.
func (c *counters) passed(n int64) {
	c.granted += uint64(n)
	c.sent += uint64(n)
}

func (c *counters) rejections() Rejections {
	return Rejections{
		Busy:      c.refused[reasonBusy].Load(),
		Deadline:  c.refused[reasonDeadline].Load(),
		Canceled:  c.refused[reasonCancelled].Load(),
		TooLarge:  c.refused[reasonTooLarge].Load(),
		QueueFull: c.refused[reasonQueueFull].Load(),
		Closed:    c.refused[reasonClosed].Load(),
		Other:     c.refused[reasonOther].Load(),
	}
}

// Rejections counts the calls that a gate rejected, by reason, in the words of Event.Reason.
type Rejections struct {
	Busy      uint64 // "busy": TryAcquire when the call would have had to wait
	Deadline  uint64 // "deadline": WaitError, ErrTimeout, ErrServerWait or the deadline of a context
	Canceled  uint64 // "canceled": a canceled context
	TooLarge  uint64 // "too_large": ErrTooLarge
	QueueFull uint64 // "queue_full": ErrQueueFull
	Closed    uint64 // "closed": ErrClosed
	Other     uint64 // "other": the error of a limit or of Config.Semaphore
}

// All yields each reason and its count, in the order of the fields.
func (r Rejections) All() iter.Seq2[string, uint64] {
	counts := [...]uint64{r.Busy, r.Deadline, r.Canceled, r.TooLarge, r.QueueFull, r.Closed, r.Other}
	return func(yield func(string, uint64) bool) {
		for i, n := range counts {
			if !yield(reasons[i], n) {
				return
			}
		}
	}
}

// A reason is why a call was refused: the number of a field of Rejections.
type reason int

const (
	reasonBusy reason = iota
	reasonDeadline
	reasonCancelled
	reasonTooLarge
	reasonQueueFull
	reasonClosed
	reasonOther
)

// reasons are the words for Event.Reason.
var reasons = [...]string{"busy", "deadline", "canceled", "too_large", "queue_full", "closed", "other"}

// reasonMoved is the Event.Reason of a call that was turned away, which is not refused.
const reasonMoved = "moved"

func reasonOf(err error) reason {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrServerWait):
		return reasonDeadline
	case errors.Is(err, context.Canceled):
		return reasonCancelled
	case errors.Is(err, limits.ErrTooLarge):
		return reasonTooLarge
	case errors.Is(err, limits.ErrQueueFull):
		return reasonQueueFull
	case errors.Is(err, limits.ErrClosed):
		return reasonClosed
	}
	return reasonOther
}

// WaitHistogram is a histogram of waiting times. Bucket 0 counts calls that did not wait, any other
// bucket i those that waited at least half of 2^i µs and less than 2^i µs. Bucket 1 also counts
// shorter waits, the last longer ones.
type WaitHistogram [waitBuckets]uint64

const waitBuckets = 44 // the last one begins at 2^42 µs, 50 days

// bound returns the upper bound of bucket i: all waits in it are shorter.
func bound(i int) time.Duration {
	switch {
	case i <= 0:
		return 0
	case i >= waitBuckets-1:
		return limits.Never
	}
	return time.Microsecond << i
}

// Count returns the number of calls.
func (w WaitHistogram) Count() uint64 {
	var n uint64
	for _, c := range w {
		n += c
	}
	return n
}

// Quantile returns a time that at least the share q of the calls, 0 ≤ q ≤ 1, did not exceed: the
// upper bound of a bucket, and so, from 1 µs on, at most twice the exact time.
func (w WaitHistogram) Quantile(q float64) time.Duration {
	rank := q * float64(w.Count())
	var n uint64
	for i, c := range w {
		n += c
		if n > 0 && float64(n) >= rank {
			return bound(i)
		}
	}
	return 0
}

// waits is the histogram as it grows, without the calls that did not wait.
type waits [waitBuckets]atomic.Uint64

// add counts a granted call that waited for d.
func (w *waits) add(d time.Duration) {
	if d <= 0 {
		return
	}
	i := bits.Len64(uint64(d / time.Microsecond))
	w[min(max(i, 1), waitBuckets-1)].Add(1)
}

func (w *waits) snapshot(granted uint64) (s WaitHistogram) {
	for i := range w {
		s[i] = w[i].Load()
	}
	if waited := s.Count(); waited < granted {
		s[0] = granted - waited
	}
	return s
}

// A lastError is the content of Stats.LastError.
type lastError struct {
	err  error  // of a kind that is small; nil: see text
	text string // of any other: a gate must not keep the contents of an error
	at   time.Duration
}

// refuse counts a call that was refused with err at now, and returns the reason.
func (c *counters) refuse(now time.Duration, err error) reason {
	why := reasonOf(err)
	c.refused[why].Add(1)
	c.noteError(now, why, err)
	return why
}

// noteError records with which error a call was refused at now.
func (c *counters) noteError(now time.Duration, why reason, err error) {
	if why != reasonDeadline && why != reasonTooLarge && why != reasonOther {
		return
	}
	last := &lastError{at: now}
	_, small := err.(*limits.WaitError)
	switch small = small || err == limits.ErrTooLarge || err == limits.ErrTimeout || err == context.DeadlineExceeded; {
	case small:
		last.err = err
	default:
		last.text = lastErrorText(err)
	}
	c.lastError.Store(last)
}

func lastErrorText(err error) string {
	return clean.Text(strings.TrimPrefix(err.Error(), "sluice: "))
}

// String returns the text of the error; "" for nil.
func (e *lastError) String() string {
	switch {
	case e == nil:
		return ""
	case e.err != nil:
		return lastErrorText(e.err)
	}
	return e.text
}

// An Event is something that happened in a gate: see [Config].Observer. Fields that the comment of
// its Kind does not mention are zero. Later versions may add kinds and fields.
//
// A call has these events, in this order:
//
//	EventQueued    at most once, if it has to wait; then either
//	EventAdmitted  and, once the permit is released, EventReleased; or
//	EventRejected
//
// and EventRetried between two attempts. Events of different calls may arrive out of order. Once
// all calls have returned, Stats and the number of events agree.
//
// A call of a child is also one of the parent: an observer of both sees it twice, the parent first.
// While it waits for the parent, only the parent reports EventQueued. A wait for [Config].Semaphore
// has none.
type Event struct {
	Kind EventKind
	Gate string // Config.Name of the gate

	// Context has the values of the context of the call, such as a trace. It may be done.
	// TryAcquire has context.Background.
	Context context.Context

	// N is the cost that the call was made with.
	N int64

	// Wait is how long the call waited (EventAdmitted), the least time that it will wait, as
	// far as that is known (EventQueued), how long the pause lasts from now (EventPaused), or
	// the least time that the next attempt waits (EventRetried).
	Wait time.Duration

	LimitedBy limits.Cause // the cause that delays the first of the callers that wait

	Held    time.Duration // how long the call was in flight
	Reason  string        // why the call was rejected, in a word: see Rejections; or Learned.Why
	Attempt int           // how many attempts of the call have failed
	Err     error         // the error of the rejection, or of the attempt
	Why     string        // the text passed to PauseUntil, the estimate, or as WaitError.Why
}

// An EventKind names an event, in a word.
type EventKind string

const (
	// EventQueued: a call is about to wait. Fields: Context, N, Wait, LimitedBy, Why.
	EventQueued EventKind = "queued"

	// EventAdmitted: a call may start. Fields: Context, N, Wait. Stats.Admitted and
	// Stats.Waits count them.
	EventAdmitted EventKind = "admitted"

	// EventRejected: a call may not start. Fields: Context, N, Reason, and Err, which is nil if
	// TryAcquire returned false. Stats.Rejected counts them.
	EventRejected EventKind = "rejected"

	// EventPaused: a pause began or became longer. Fields: Wait, Why. There is no event when a
	// pause ends by itself.
	EventPaused EventKind = "paused"

	// EventResumed: Resume ended a pause. No fields.
	EventResumed EventKind = "resumed"

	// EventRetried: RetryValue or a RetryLoop is going to make another attempt, and
	// begins to wait for it. Fields: Context, Wait, Attempt, Err. Stats.Retried counts them.
	EventRetried EventKind = "retried"

	// EventLearned: a gate with [Adaptive] has a new estimate of the limit of the server.
	// Fields: Reason (a copy of Learned.Why) and Why (the text of Stats.Learned).
	EventLearned EventKind = "learned"

	// EventReleased: the permit of a call was released. Fields: N, Held.
	EventReleased EventKind = "released"
)

// A reporter reports the events of a gate.
type reporter struct {
	name     string
	observer func(Event) // or nil
}

// report passes e to the observer of the gate, if there is one.
func (r *reporter) report(e Event) {
	if r.observer != nil {
		e.Gate = r.name
		r.observer(e)
	}
}
