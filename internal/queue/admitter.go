package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/sentence"
)

// Forever as a wait means that only a change can end it; as the most that a
// caller will wait, that it sets no bound.
const Forever = sat.Max

// An Admitter decides when the caller at the head of a queue may start. Its methods
// are called with the queue locked and must not block. Instants are durations
// since the queue was made.
type Admitter interface {
	// Admit lets n through at now and returns 0, or takes nothing and returns the time to wait
	// before it is worth asking again: Forever when only a change can help. The head wants to
	// start, so that counts as demand where an admitter learns from it. due ≤ now is the instant
	// for which the head was to be woken; by now − due this package is late, and not the caller.
	Admit(now, due time.Duration, n int64) time.Duration

	// Forecast only looks. It returns the time that a caller would wait from now on that has this
	// cost queued ahead of it, as far as the admitter can know: never more
	// than the true wait, 0 if it knows nothing.
	Forecast(now time.Duration, ahead int64) time.Duration
}

// HasUnitTime is an optional interface of an Admitter.
type HasUnitTime interface {
	// UnitTime returns by how many nanoseconds, but for rounding, a forecast grows at most with
	// each unit of cost ahead. Then a change need not look at entries only because their
	// bounds are hardly later than their slots.
	UnitTime() float64
}

// HasReceipt is an optional interface of an Admitter.
type HasReceipt interface {
	// Receipt is called when Admit has let a caller through, and returns a receipt for the caller,
	// such as the number under which the admitter has recorded it. 0 is none.
	Receipt() uint32
}

// A Latch lets callers pass without the lock while the queue is empty. While it is open
// the state of the admitter lies in one atomic word, which callers change as Admit would.
// The queue closes it before it looks at that state, and opens it, if the admitter can, when
// it is done and nothing waits:
//
//	open:    nothing waits but a crowd, whose number is part of the state, and
//	         the lock is free; the word is the state
//	closed:  the state is under the lock; the word only says that it is closed
//
// So no waiting caller is overtaken through the word, and nothing is decided twice: a
// caller that has read the open word fails to change it once it is closed. Both methods
// are called with the queue locked.
type Latch interface {
	// Close takes the state out of the word. It returns the number of those that wait in the crowd.
	Close() (asleep int)

	// Open puts the state into the word, or reports false if it is not one
	// that the word can hold. There is a crowd only where Join is called.
	Open(asleep int) bool
}

// Config is the configuration of a queue in addition to its admitter.
type Config struct {
	// MaxWaiting is the most entries that may wait; 0 means no bound.
	MaxWaiting int32

	// Exact promises that Forecast is the true wait while nothing changes.
	// Bounds on the wait then need no timers: a hopeless wait is rejected when
	// it begins, and when a change makes it hopeless.
	Exact bool

	// Untimed promises that Admit ignores the time; the clock is then not
	// read for callers that need not wait.
	Untimed bool

	// Weigh returns the amount that an entry of n adds to the forecasts of those behind it. Nil
	// means n.
	Weigh func(n int64) int64

	// Latch, if set, is the latch of the admitter.
	Latch Latch

	// Fine, if set, is called with the queue locked and reports whether it is
	// worth while to wake the driver more exactly than timers do.
	Fine func() bool

	// Hold, if set, is called with the queue locked and returns the time after its slot at which
	// the driver may be woken, to let all start whose slots come until then. It counts as our
	// lateness. In a testing/synctest bubble a wake-up costs nothing, and Hold is not called.
	Hold func() time.Duration

	// Waits, if set, is called with the queue unlocked when a caller is about to
	// wait, with its n: before it has its place, so that no other caller waits for
	// Waits, unless it has to ask, at the head, to know. If Waits panics the caller's
	// wait has ended, and the panic propagates.
	Waits func(ctx context.Context, n int64)

	// Behind, if set, is the queue's own. It is for queues whose callers ask.
	Behind *Behind

	// Refuse, if set, is called with the queue locked for the n of each caller. An
	// error means that no wait can help, and is returned. If it rejects n, it rejects
	// more than n.
	Refuse func(n int64) error

	// GiveUp, if set, is called with the queue locked when a wait with a
	// Patience begins, and after every Change. An error ends the wait.
	GiveUp func(now, patience time.Duration) error

	// Blame, if set, is called with the queue locked when the wait of an entry of n
	// ends because it is too long. It returns the limit that is to blame: the one that
	// the Forecast need consists of or, if need is 0, the one that delays the head.
	// If the queue is empty, the head would be that entry. The End need not be set.
	Blame func(now, need time.Duration, n int64) sentence.Wait
}

// An AskFunc decides in place of Admitter.Admit for a caller whose limits must block
// to answer, because one of them lives elsewhere. It is called only while the
// caller is at the head of the queue, in the caller's goroutine and with the
// queue unlocked. It returns like Admit; an error is the caller's answer and
// ends its wait. ctx ends with the caller's wait, whatever ends that; only then
// may the next caller ask before the call has returned.
type AskFunc func(ctx context.Context, t Turn) (Wait, error)

// A Wait is the time for which the caller at the head of a queue has to wait. The zero Wait
// is none.
type Wait struct {
	// For is the time to wait before it is worth asking again: Forever when only
	// a change can help.
	For time.Duration

	// Sure is the least that it will be, whatever others do. Only a
	// wait that is sure to be too long is rejected before it begins; one that
	// only a change can end never is.
	Sure time.Duration

	// Paced reports that it is for the rate of the queue's own admitter, which catches up on
	// lateness. Fine and Hold of the queue's Config then say how exactly it is to end.
	Paced bool

	// Receipt is handed to the caller if it need not wait.
	Receipt Receipt

	// By, if set, calls back when it is worth asking again earlier. The caller is
	// registered there, and then asks once more: something may have come back before.
	By *Bell
}

// sureAt returns until when w lasts for sure, if it began now.
func (w Wait) sureAt(now time.Duration) time.Duration {
	if w.For == Forever { // which a change may end at any time
		return 0
	}
	return sat.Add(now, w.Sure)
}

// A Bell registers f at a limit outside the queue. The limit calls f whenever it may
// admit a caller earlier than it said, until stop is called. f does not block.
type Bell func(f func()) (stop func())

// Surely is a wait that nothing will make shorter.
func Surely(d time.Duration) Wait { return Wait{For: d, Sure: d} }

// A Turn describes the caller for which an AskFunc is called.
type Turn struct {
	N    int64
	Due  time.Duration // ≤ now, since when it could have asked: the rest is our lateness
	Left time.Duration // how long the caller will still wait, Forever for no bound

	Patience time.Duration // of the request

	Refused int // of the request
	First   time.Time
}

// A Grant is how a wait ended well.
type Grant struct {
	At      time.Duration // when the caller was admitted, not set for an untimed admitter
	Receipt Receipt
}

// A Receipt is the note of the admitters that have admitted a caller hand to it. 0 is none.
type Receipt struct {
	Own uint32   // of the admitter of the queue, see HasReceipt
	Up  []uint32 // of others, for a caller that asks; nil if there are none
}

// A Flow is the share of a queue in the one above it. At most one of its callers waits there, its head.
type Flow struct {
	Below  *Queue
	Weight int64 // its share, in proportion to those of others; 0 is 1

	// Guarded by the lock of the queue above.
	tag    float64 // of the head that waits there
	finish float64 // of the last call
	kept   bool    // the next head has that tag, too
}

// A Behind is the part of a queue by which callers behind a head that asks share the knowledge of
// the head.
type Behind struct {
	// Above is the queue in which the callers of this one ask, with Request.Flow, or nil. It is
	// fixed, has a Behind, and there is no circle.
	Above *Queue

	// Count, if set, returns the amount that a call of n takes of the share of its flow; it is n
	// otherwise. It is fixed.
	Count func(n int64) int64

	// sure is the instant before which no caller starts for sure; 0 if that is not known.
	sure atomic.Int64

	// These are guarded by the lock of the queue, see fair.go: the virtual time, and how many entries have a
	// flow.
	virtual float64
	flows   int32

	// soonestBelow: no bound in a queue below, whose head waits here, is earlier; those of entries
	// that have left may be. In instants of this queue. 0: no head of another has waited here.
	soonestBelow atomic.Int64
}

// set writes only changes: callers of other queues read it.
func (b *Behind) set(sure time.Duration) {
	if b.sure.Load() != int64(sure) {
		b.sure.Store(int64(sure))
	}
}

func (b *Behind) noteBelow(bound time.Duration) {
	if bound == 0 {
		bound = -1 // 0 says that there is none
	}
	for {
		soonest := b.soonestBelow.Load()
		if soonest != 0 && soonest <= int64(bound) || b.soonestBelow.CompareAndSwap(soonest, int64(bound)) {
			return
		}
	}
}
