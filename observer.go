package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// An Observer is called with each [Event] of a gate, as it happens: Config.Observer. Package
// observe writes events to a log; observe/otel and observe/prometheus count them.
//
// A call has these events, in this order:
//
//	EventQueued   at most once, if it has to wait; then either
//	EventAdmitted  and, once the permit is released, EventReleased; or
//	EventRejected
//
// and EventRetried between two attempts. EventPaused and EventResumed come from the callers of
// PauseUntil and Resume, and from calls whose server requested a wait. Events of different calls
// may arrive out of order. Once all calls have returned, Stats and the number of events agree.
//
// The observer runs in the goroutine of the call, or with Adaptive.Peers in one of the gate, where
// a panic ends the program. It must be safe for use by multiple goroutines, and should return soon.
// No lock is held: it may use the gate. A slow observer delays its own call, which may be in flight
// or first in the queue, with others behind it. If an observer panics, everything is returned, and
// the panic propagates from the method of the gate.
//
// A call of a child is also one of the parent: an observer of both sees it twice, under two names,
// the parent first. While it waits for the parent, only the parent reports EventQueued, each time
// the call joins its queue. A wait for Config.Semaphore has no EventQueued.
type Observer func(Event)

// An Event is something that happened in a gate. Fields that the comment of its Kind does not
// mention are zero. Later versions may add kinds and fields: ignore unknown kinds, and name the
// fields when making an Event.
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
	Reason  string        // why the call was refused, in a word: see Rejections; or Learned.Why
	Attempt int           // how many attempts of the call have failed
	Err     error         // the error of the refusal, or of the attempt
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

	// EventPaused: a pause began or became longer. Fields: Wait, Why. There is no event
	// when a pause ends by itself.
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
