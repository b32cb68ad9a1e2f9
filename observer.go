package sluice

import "time"

// # What does an observer cost those who have none?
//
// Nothing: a gate without one never looks. The way past the lock in Do is for
// gates with nothing to ask and nobody to tell, which was decided once, by New;
// the others go through enter, and tell there. No event is told with a lock held,
// and none while its call holds up others, but one (see Observer). What is told
// of a parent, from the middle of the admission of a child's call, is noted and
// told when that is over: see news.

// An Observer is called with each [Event] of a gate, as it happens: Config.Observer.
// Package observe writes events to a log; observe/otel and observe/prometheus count
// them. How many calls wait or are in flight at the moment is in [Gate.Stats], which
// costs calls nothing.
//
// A call has these events, in this order:
//
//	EventQueued   at most once, if it has to wait; then either
//	EventGranted  and, once the permit is released, EventReleased; or
//	EventRefused
//
// and [RetryValue] reports EventRetried between two of those. EventPaused and
// EventResumed come from the callers of PauseUntil and Resume, and from calls whose
// server asked for a wait. Events of different calls may arrive out of order. Once all
// calls have returned, there were as many events of each kind as Stats counts.
//
// The goroutine of the call calls the observer, so it must be safe for use by multiple
// goroutines, and should return soon. No lock is held: it may use the gate. It delays
// only its own call, with two exceptions. A call that is first in the queue, and is held
// up only there by one of Config.Limits, delays those behind it; and a call whose server
// asked for a wait is still in flight during its EventPaused. If an observer panics,
// everything is given back, and the panic propagates from the method of the gate.
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

	// N is the cost that the call was made with. EventPaused, EventResumed and
	// EventRetried have none.
	N int64

	// Wait is how long the call waited (EventGranted), how long the pause lasts
	// from now (EventPaused), or how long the next attempt waits at least
	// (EventRetried).
	Wait time.Duration

	Held    time.Duration // how long the call was in flight
	Reason  string        // why the call was refused, in a word: see Refusals
	Attempt int           // how many attempts of the call have failed
	Err     error         // the error of the refusal, or of the attempt
	Why     string        // the text passed to PauseUntil
}

// An EventKind says what happened, in a word.
type EventKind string

const (
	// EventQueued: a call is about to wait. N.
	EventQueued EventKind = "queued"

	// EventGranted: a call may leave. N, Wait. Stats.Granted and Stats.Waits count
	// them.
	EventGranted EventKind = "granted"

	// EventRefused: a call may not leave. N; Reason; Err, which is nil if TryAcquire
	// returned false. Stats.Refused counts them.
	EventRefused EventKind = "refused"

	// EventPaused: a pause began or became longer. Wait, Why. There is no event when a
	// pause ends by itself.
	EventPaused EventKind = "paused"

	// EventResumed: Resume ended a pause.
	EventResumed EventKind = "resumed"

	// EventRetried: RetryValue or an Attempts is going to make another attempt, and
	// begins to wait for it. Wait, Attempt, Err. Stats.Retried counts them.
	EventRetried EventKind = "retried"

	// EventReleased: the permit of a call was released. N, Held.
	EventReleased EventKind = "released"
)

// tell tells e to the observer of g, if it has one.
func (g *Gate) tell(e Event) {
	if g.observer != nil {
		e.Gate = g.name
		g.observer(e)
	}
}

// A news is what the observers of gates above that of a call will be told when
// its admission is over. It is noted while the call is first in the queue of its
// own gate: those behind are not to wait for an observer, nor is a panic of it to
// lose what has just been taken.
type news []item

type item struct {
	gate  *Gate
	event Event
}

func (n *news) note(g *Gate, e Event) {
	if n != nil && g.observer != nil {
		*n = append(*n, item{g, e})
	}
}

func (n *news) tell() {
	if n != nil {
		for _, i := range *n {
			i.gate.tell(i.event)
		}
	}
}

// granted tells the observers that p was granted after wait, those of the
// parents first. If one panics p is given back: its caller will never see it.
func (p *Permit) granted(n *news, wait time.Duration) {
	if !p.gate.watched {
		return
	}
	told := false
	defer func() {
		if !told {
			p.answer(false) // no server has answered
			p.giveBack()
		}
	}()
	n.tell()
	p.gate.tell(Event{Kind: EventGranted, N: p.n, Wait: wait})
	told = true
}

// endTold is end for a permit whose end is to be told. What was held is back
// before anybody is told, the lease of another machine as well, which may take a
// while: so the time is taken before.
func (p *Permit) endTold() {
	held := p.gate.queue.Now() - p.since
	p.giveBack()
	p.toldBack(held)
}

// toldBack tells that p is back, after it was held. Gate and parent have granted
// it at one instant.
func (p *Permit) toldBack(held time.Duration) {
	if p.up != nil {
		p.up.toldBack(held)
	}
	p.gate.tell(Event{Kind: EventReleased, N: p.n, Held: held})
}
