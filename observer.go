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

// An Observer is told what happens in a gate, as it happens: Config.Observer.
// Package observe writes it to a log; observe/otel and observe/prometheus make
// metrics of it. For how many wait or are in flight now, and how much was let
// through, ask [Gate.Stats]: it costs calls nothing.
//
// A call has these events, in this order:
//
//	EventQueued   once at most, if it has to wait; then either
//	EventGranted  and, once the permit is back, EventReleased; or
//	EventRefused
//
// and [RetryValue] tells EventRetried between two of those. EventPaused and
// EventResumed come from whoever calls PauseUntil and Resume, or is told to wait
// by a server. Events of different calls may arrive in another order than that
// in which they happened. When all calls have returned, a gate has told as many
// of each kind as its Stats counts.
//
// Observe is called by the goroutine of the call, by several at once, and with no
// lock held: it may use the gate. It delays the call that it is told of, which
// has no place in the queue yet, has left it, or has given back what it had, and
// nobody else, but in two cases. A call that is first in the queue and finds only
// there that a quota holds it up delays those behind; and one that was told to
// wait by a server is still in flight when it tells EventPaused. If Observe panics
// nothing stays taken, and the panic flies on from the method of the gate.
//
// Each gate tells its own observer what its own Stats counts, and hands no
// observer down. A call of a child is one of the parent, too: an observer of
// both is told twice, under two names, first of the parent. It is the queue of
// the parent in which such a call waits for the parent: the child tells no
// EventQueued then, and the parent one each time the call joins its queue, which
// it may leave without an event if the child holds it up again. A wait for
// Config.Semaphore has no EventQueued either.
type Observer interface {
	// Observe is told of e. It should return soon: its time is the call's.
	Observe(e Event)
}

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(e Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// An Event is what an [Observer] is told. The fields that its Kind does not
// mention are zero. There may be more kinds and fields one day: ignore a kind
// that you do not know, and name the fields if you write an Event.
type Event struct {
	Kind EventKind
	Gate string // Config.Name of the gate

	// N is what the call was made with, its cost: not for EventPaused,
	// EventResumed and EventRetried.
	N int64

	// Wait is how long the call has waited (EventGranted), the pause will last
	// from now on (EventPaused), or the next attempt is to wait at least
	// (EventRetried).
	Wait time.Duration

	Held    time.Duration // how long the call was in flight
	Reason  Reason        // why it was refused
	Attempt int           // how many attempts of the call have failed
	Err     error         // what the call was refused with, or the attempt failed with
	Why     string        // what PauseUntil was told
}

// An EventKind says what happened.
type EventKind uint8

const (
	// EventQueued: a call is about to wait. N.
	EventQueued EventKind = iota + 1

	// EventGranted: a call is let through. N, Wait. Stats.Granted and
	// Stats.Waits count them.
	EventGranted

	// EventRefused: a call is not let through. N; Reason; Err, which is nil if
	// TryAcquire says no. Stats.Refused counts them.
	EventRefused

	// EventPaused: a pause has begun, or is longer than before. Wait, Why. One
	// that ends by itself has no event for that: nobody is there to tell it.
	EventPaused

	// EventResumed: Resume has ended a pause.
	EventResumed

	// EventRetried: Call, or an Attempts, has decided on another attempt, and
	// begins to wait for it. Wait, Attempt, Err. Stats.Retried counts them.
	EventRetried

	// EventReleased: the permit of a call is back. N, Held.
	EventReleased
)

var eventKinds = [...]string{
	EventQueued:   "queued",
	EventGranted:  "granted",
	EventRefused:  "refused",
	EventPaused:   "paused",
	EventResumed:  "resumed",
	EventRetried:  "retried",
	EventReleased: "released",
}

// String returns k in one word, such as "granted".
func (k EventKind) String() string { return word(eventKinds[:], uint8(k)) }

// A Reason is why a call was refused: a field of [Refusals].
type Reason uint8

// The reasons, in the order of the fields of Refused.
const (
	ReasonBusy      Reason = iota + 1 // TryAcquire when it was not the caller's turn
	ReasonDeadline                    // WaitError, ErrTimeout, ErrServerWait or the deadline of a context
	ReasonCancelled                   // a cancelled context
	ReasonTooLarge                    // ErrTooLarge
	ReasonQueueFull                   // ErrQueueFull
	ReasonClosed                      // ErrClosed
	ReasonOther                       // a quota or Permits could not be asked
)

var reasons = [...]string{
	ReasonBusy:      "busy",
	ReasonDeadline:  "deadline",
	ReasonCancelled: "cancelled",
	ReasonTooLarge:  "too_large",
	ReasonQueueFull: "queue_full",
	ReasonClosed:    "closed",
	ReasonOther:     "other",
}

// String returns r in one word, such as "queue_full".
func (r Reason) String() string { return word(reasons[:], uint8(r)) }

func word(words []string, i uint8) string {
	if int(i) >= len(words) || words[i] == "" {
		return "unknown"
	}
	return words[i]
}

// tell tells e to the observer of g, if it has one.
func (g *Gate) tell(e Event) {
	if g.observer != nil {
		e.Gate = g.name
		g.observer.Observe(e)
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
