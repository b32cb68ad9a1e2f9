package queue

import (
	"context"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/limits"
)

// A crowd is the callers that want 1 and cannot be canceled. They share one entry and
// one channel.
//
// The runtime keeps the goroutines that receive from one channel in order, and a send
// wakes the first. Callers that want the same and never give up need no more than that:
// which of them is next need not be known, only how many there are. And a number also
// fits into the word of a Latch, so while only a crowd waits the latch is open: to join
// and to be let go is a compare-and-swap, without the lock. Whatever takes the lock
// finds the crowd in the queue, in front of all that come later.
//
// The reason for this second way to wait: one permit and 64 goroutines that want it, at
// the median of ten interleaved runs, take 240 ns per hand-over with a crowd and 300 to
// 390 with an entry for each.
//
//	left   how many have joined and got no message
//	room   takes a message for each that gets one: nil, or why the wait has failed
//
// A message may wait in the channel for a goroutine that has been counted and does not
// receive yet, and its sender waits if there are too many of those. Two callers that
// join at the same time may begin to receive in another order than they were counted;
// then that is the order in which they came. If one is not run for a while in between, a
// caller that comes after it was counted may overtake it.
//
// Callers with contexts could be of the crowd as well, and count themselves out by a
// compare-and-swap when their contexts end. One permit and 4,096 goroutines then take 600 ns
// per hand-over instead of 1,230. But in two seconds of recorded histories (bench/linear)
// one call had overtaken another that was counted, and one whose context had ended, but
// whose goroutine had not run since, had held a permit. So they have their own entries.
type crowd struct {
	Waiter // without a channel: no goroutine attends it alone
	left   int
	room   chan error
}

// Room returns where the crowd receives. There must be one.
func (q *Queue) Room() chan error { return q.crowd.room }

// joinCrowd puts a caller that wants 1 and cannot be canceled into the crowd, unless
// others wait that are not of it.
func (q *Queue) joinCrowd() bool {
	switch {
	case q.front == nil && q.fine && q.Now() < 0: // in a bubble, see attended
		return false
	case q.front != nil && (!q.isCrowd(q.front) || q.front != q.back):
		return false
	}
	if q.crowd == nil {
		q.crowd = &crowd{room: make(chan error, 8)}
		q.crowd.n = 1
	}
	q.crowd.left++
	if q.front == nil {
		q.push(&q.crowd.Waiter)
	}
	return true
}

func (q *Queue) isCrowd(w *Waiter) bool { return q.crowd != nil && w == &q.crowd.Waiter }

// unpackCrowd takes the crowd of n out of the word of the latch and into the queue.
func (q *Queue) unpackCrowd(n int) {
	q.crowd.left = n
	q.push(&q.crowd.Waiter)
}

// packCrowd puts the crowd into the word of the latch, if nothing else waits and the word
// can hold it.
func (q *Queue) packCrowd() bool {
	if !q.isCrowd(q.front) || q.front != q.back || !q.cfg.Latch.Open(q.crowd.left) {
		return false
	}
	q.crowd.left = 0
	q.remove(&q.crowd.Waiter)
	return true
}

// releaseCrowd lets n of the crowd through, or has them fail.
func (q *Queue) releaseCrowd(n int, err error) {
	if q.crowd.left -= n; q.crowd.left == 0 {
		q.remove(&q.crowd.Waiter)
	}
	for range n {
		q.crowd.room <- err
	}
}

// # Why does a semaphore receive its messages itself?
//
// Most callers of a semaphore have nothing to look at but whether it is their turn. They
// could call Acquire, as all others do, and sleep three calls deeper. But when a goroutine
// runs again the processor expects it to return to where the goroutine before it would
// have: it mispredicts each return, and none of these frames is in its cache. With one
// permit and 64 goroutines with contexts a hand-over took 550 ns that way instead of 430.
// So Join is Acquire up to the sleep, the semaphore sleeps, and only a wait that does not
// end with an admission goes on in the loop of all others, by Finish.

// A Place is where a caller waits after Join.
type Place struct {
	Crowd <-chan error   // if set: receive from it, once; that is the result
	Wake  <-chan Message // if set: receive from it, or wait for the end of the context
	w     *Waiter
}

// Join is Acquire, of a queue that is Untimed and for as long as it takes, up to the
// sleep. If the place is empty, the caller was admitted, or err says why not.
func (q *Queue) Join(ctx context.Context, n int64) (p Place, err error) {
	done := ctx.Done()
	q.Lock()
	switch err := q.refuse(n); {
	case isDone(done): // looked at under the lock, see admitOrQueue
		q.Unlock()
		return Place{}, errs.Done(ctx)
	case err != nil:
		q.Unlock()
		return Place{}, err
	case q.front == nil && q.admitter.Admit(0, 0, n) == 0:
		q.Unlock()
		return Place{}, nil
	case q.full():
		q.Unlock()
		return Place{}, limits.ErrQueueFull
	}
	if n == 1 && done == nil && q.cfg.Latch != nil && q.joinCrowd() {
		room := q.crowd.room
		q.Unlock()
		return Place{Crowd: room}, nil
	}
	w := q.attended(0, n, done)
	q.push(w)
	q.Unlock()
	return Place{Wake: w.wake, w: w}, nil
}

// Finish ends the wait of a caller that has received m from Wake, which is not a grant, or
// whose context is done: then m is Look. It may block. The error is that of Acquire.
func (q *Queue) Finish(ctx context.Context, p Place, m Message) error {
	q.Lock()
	m = q.awoken(p.w, p.Wake, m, isDone(ctx.Done()))
	_, err := q.wait(ctx, p.w, m)
	return err
}
