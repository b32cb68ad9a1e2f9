package queue

import (
	"context"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/limits"
)

// # Why does a semaphore receive its messages itself?
//
// Most callers of a semaphore have nothing to look at but whether it is their turn. They
// could call Acquire, as all others do, and sleep three calls deeper. But when a goroutine
// runs again the processor expects it to return to where the goroutine before it would
// have: it mispredicts each return, and none of these frames is in its cache. With one
// permit and 64 goroutines with contexts a hand-over took 550 ns that way instead of 430.
// So Join is Acquire up to the sleep, the semaphore sleeps, and only a wait that does not
// end with a grant goes on in the loop of all others, by Finish.

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
