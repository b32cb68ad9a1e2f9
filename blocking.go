package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// A Blocking is a limit that only answers, made one that callers wait for. See
// [NewQueue].
type Queue struct {
	queue queue.Queue
	ask   queue.AskFunc
}

// Block gives limit the verbs of Guava's RateLimiter: callers wait in a FIFO
// until limit admits them. Only the first of them asks it, as often as its
// answers say; the others cost it nothing.
//
// Whoever asks limit directly, and not through the same Blocking, passes that
// queue by. If limit may admit somebody earlier than it said, because something was
// given back or its quota changed, the first caller notices at once if limit is a
// [Notifier], as all limits of leaky and window are, and otherwise not before then.
//
// A Blocking is safe for use by multiple goroutines. Made in a
// testing/synctest bubble, it belongs to that bubble. Block panics if limit is
// nil.
func NewQueue(limit limits.Limiter) *Queue {
	if limit == nil {
		panic("sluice: Block(nil)")
	}
	bell := bellOf(limit)
	b := &Queue{ask: func(ctx context.Context, t queue.Turn) (queue.Wait, error) {
		wait, err := limit.Admit(ctx, t.N)
		return queue.Wait{For: wait, Sure: wait, By: bell}, err
	}}
	b.queue.Init(unknown{}, queue.Config{})
	return b
}

// Acquire blocks until the limit admits n, behind everybody who came before.
// n = 0 takes nothing and never blocks.
//
// It returns ctx.Err() if ctx is done, also if that was so before the call. If
// the limit answers that n fits only after the deadline of ctx it returns a
// [*WaitError] at once. It returns the limit's own error, such as
// [ErrTooLarge], if there is one. After an error nothing is taken, as far as
// the limit can tell. It panics if n < 0.
func (b *Queue) Acquire(ctx context.Context, n int64) error {
	return b.acquire(ctx, n, queue.Forever)
}

// AcquireWithin is Acquire, but waits no longer than longest. When its turn to
// ask has come and the answer is a longer wait, it returns a [*WaitError] at
// once; if its turn does not come in time, [ErrTimeout]. longest ≤ 0 does not
// wait.
func (b *Queue) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	return b.acquire(ctx, n, longest)
}

func (b *Queue) acquire(ctx context.Context, n int64, longest time.Duration) error {
	mustNotBeNegative(n)
	if n == 0 {
		return ctx.Err()
	}
	_, _, err := b.queue.Acquire(ctx, queue.Request{N: n, Max: longest, Ask: b.ask})
	return err
}

// TryAcquire reports true if nobody waits and the limit admits n now. It never
// waits, but asks the limit, which may take a round trip. It panics if n < 0.
func (b *Queue) TryAcquire(n int64) bool {
	mustNotBeNegative(n)
	if n == 0 {
		return true
	}
	_, ok := b.queue.Try(queue.Request{N: n, Ask: b.ask})
	return ok
}

// Waiting returns how many callers wait.
func (b *Queue) Waiting() int {
	b.queue.Lock()
	defer b.queue.Unlock()
	return b.queue.Len()
}

// unknown is the rule of a limit that cannot be known before it is asked.
type unknown struct{}

// Admit implements queue.Rule. It is not called: the queue asks.
func (unknown) Admit(time.Duration, time.Duration, int64) time.Duration { return limits.Never }

// Forecast implements queue.Rule.
func (unknown) Forecast(time.Duration, int64) time.Duration { return 0 }
