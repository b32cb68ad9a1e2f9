package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// An Observer is called with each [Event] of a gate, as it happens: Config.Observer.
// Package observe writes events to a log; observe/otel and observe/prometheus count
// them. How many calls wait or are in flight at the moment is in [Gate.Stats], which
// costs calls nothing.
//
// A call has these events, in this order:
//
//	EventQueued   at most once, if it has to wait; then either
//	EventAdmitted  and, once the permit is released, EventReleased; or
//	EventRejected
//
// and [RetryValue] reports EventRetried between the events of two attempts. EventPaused
// and EventResumed come from the callers of PauseUntil and Resume, and from calls whose
// server asked for a wait. Events of different calls may arrive out of order. Once all
// calls have returned, there were as many events of each kind as Stats counts.
//
// The goroutine of the call calls the observer, or with [Adaptive].Peers the one that talks to
// the other processes, in which a panic ends the program. So it must be safe for use by multiple
// goroutines, and should return soon. No lock is held: it may use the gate. It delays
// only its own call, with two exceptions. A call that is first in the queue, and is held
// up only there by one of Config.Limits, delays those behind it; and a call whose server
// asked for a wait is still in flight during its EventPaused. If an observer panics,
// everything is returned, and the panic propagates from the method of the gate.
//
// A gate does not pass its observer on. A call of a child counts as one of the parent,
// too: an observer of both sees it twice, under two names, the parent first. While such
// a call waits for the parent it is in the parent's queue: only the parent reports
// EventQueued, and each time the call joins that queue again. A wait for
// Config.Semaphore has no EventQueued.
type Observer func(Event)

// An Event is something that happened in a gate. Fields that the comment of its Kind
// does not mention are zero. Later versions may add kinds and fields: ignore unknown
// kinds, and name the fields when making an Event.
type Event struct {
	Kind EventKind
	Gate string // Config.Name of the gate

	// Context has the values of the context of the call, such as a trace: EventQueued,
	// EventAdmitted, EventRejected and EventRetried. It may be done.
	// TryAcquire has context.Background.
	Context context.Context

	// N is the cost that the call was made with. EventPaused, EventResumed and
	// EventRetried have none.
	N int64

	// Wait is how long the call waited (EventAdmitted), how long it will wait at least, as
	// far as the rate, a pause and a limit say (EventQueued), how long the pause lasts from now
	// (EventPaused), or how long the next attempt waits at least (EventRetried).
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

	// EventRejected: a call may not leave. Fields: Context, N, Reason, and Err, which is nil if
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
