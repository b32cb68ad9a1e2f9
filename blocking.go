package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// A Queue makes callers wait for a limiter that does not wait itself. See [NewQueue].
type Queue struct {
	queue  queue.Queue
	behind queue.Behind
	ask    queue.AskFunc
}

// NewQueue returns a Queue for limiter: its callers wait in order until limiter allows them. Only
// the first caller consults the limiter, again after each wait that it returned.
//
// Calls that take from limiter directly bypass the queue. A [limits.Notifier] is consulted again as
// soon as it may allow a call earlier.
//
// A Queue is safe for use by multiple goroutines. NewQueue panics if limiter is nil.
func NewQueue(limiter limits.Limiter) *Queue {
	if limiter == nil {
		panic("sluice: NewQueue(nil)")
	}
	bell := bellOf(limiter)
	q := &Queue{ask: func(ctx context.Context, t queue.Turn) (queue.Wait, error) {
		wait, err := limiter.Admit(ctx, t.N)
		return queue.Wait{For: wait, Sure: wait, By: bell}, err
	}}
	q.queue.Init(unknown{}, queue.Config{Behind: &q.behind})
	return q
}

// Acquire blocks until the limiter allows n, behind the callers that came before. n = 0 takes
// nothing and never blocks.
//
// If ctx is done, it returns ctx.Err(). If the limiter says that n, or the call of the first
// caller, fits only after the deadline of ctx, it returns a [*limits.WaitError] immediately. If the
// limiter returns an error, such as [limits.ErrTooLarge], so does Acquire. After an error nothing
// is taken, as far as the limiter can know. It panics if n < 0.
func (q *Queue) Acquire(ctx context.Context, n int64) error {
	return q.acquire(ctx, n, queue.Forever)
}

// AcquireWithin is Acquire, but waits no longer than longest. As soon as the limiter says that
// the wait is longer, to this caller or to the first one, it returns a [*limits.WaitError]. If
// the caller has not become the first by then, it returns [limits.ErrTimeout]. longest ≤ 0 does
// not wait.
func (q *Queue) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	return q.acquire(ctx, n, longest)
}

// Wait is Acquire of 1.
func (q *Queue) Wait(ctx context.Context) error { return q.acquire(ctx, 1, queue.Forever) }

func (q *Queue) acquire(ctx context.Context, n int64, longest time.Duration) error {
	mustNotBeNegative(n)
	if n == 0 {
		return ctx.Err()
	}
	_, _, err := q.queue.Acquire(ctx, queue.Request{N: n, Max: longest, Ask: q.ask})
	return err
}

// TryAcquire returns true if no caller waits and the limiter allows n now. Consulting the limiter
// may take a round trip. It panics if n < 0.
func (q *Queue) TryAcquire(n int64) bool {
	mustNotBeNegative(n)
	if n == 0 {
		return true
	}
	_, ok := q.queue.Try(queue.Request{N: n, Ask: q.ask})
	return ok
}

// Waiting returns the number of callers that wait.
func (q *Queue) Waiting() int {
	q.queue.Lock()
	defer q.queue.Unlock()
	return q.queue.Len()
}

// unknown is the queue.Admitter of a limiter that must be asked.
type unknown struct{}

// Admit implements queue.Admitter. It is not called: the queue asks.
func (unknown) Admit(time.Duration, time.Duration, int64) time.Duration { return limits.Never }

// Forecast implements queue.Admitter.
func (unknown) Forecast(time.Duration, int64) time.Duration { return 0 }
