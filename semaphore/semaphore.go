// Package semaphore caps the number of calls in flight.
//
// [Weighted] has the methods of golang.org/x/sync/semaphore and passes its tests, so usually
// changing the import path is enough. Two things differ: a request for more than the limit fails
// immediately instead of blocking until its context ends, and a request for 0 never waits.
//
// For even spacing as well use a gate of package sluice.
package semaphore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// Weighted hands out permits, at most its limit at a time. A call of cost n takes n permits and
// returns them when it is done.
//
// Callers are served strictly in the order in which they came: nothing overtakes a large request at
// the front. A call for one permit whose context cannot be canceled has come when its goroutine
// sleeps, a moment later than Waiting counts it.
//
// A Weighted is safe for use by multiple goroutines, must be made by [NewWeighted] and must not be
// copied. In the terminology of the Go memory model, a call of Release that makes room synchronizes
// before the return of the Acquire or TryAcquire that uses it. Made in a testing/synctest bubble, a
// Weighted belongs to that bubble.
type Weighted struct {
	// Guarded by the queue's lock. 0 ≤ inFlight; inFlight > limit only after
	// the limit was lowered below the permits in flight.
	inFlight int64
	queue    queue.Queue // after it: the fields that both change are in one line of the cache
	limit    int64

	stock atomic.Pointer[stock]

	// With the queue that makes 320 bytes: those are aligned to lines of the cache.
}

// NewWeighted is [New], under the name that it has in golang.org/x/sync/semaphore.
func NewWeighted(limit int64) *Weighted { return New(limit) }

// New returns a semaphore with limit permits, all of them free. With a limit of 0 only requests for
// 0 succeed until it is raised. It panics if limit < 0.
func New(limit int64) *Weighted {
	if limit < 0 {
		panic(fmt.Sprintf("semaphore: negative limit %d", limit))
	}
	s := &Weighted{limit: limit}
	s.stock.Store(newStock(limit))
	r := (*admitter)(s)
	s.queue.Init(r, queue.Config{Untimed: true, Refuse: r.refuse, Latch: r})
	return s
}

// current returns the stock that applies.
func (s *Weighted) current() *stock {
	st := s.stock.Load()
	errs.Made(st != nil, "semaphore.Weighted", "semaphore.New")
	return st
}

// Acquire takes n permits, blocking until they are free and all earlier
// callers have been served, or until ctx is done. n = 0 takes nothing and
// never blocks.
//
// It returns ctx.Err() if ctx is done, even if that happened before the call
// and permits are free, and [limits.ErrTooLarge] immediately if n is more than the limit
// or, later, if the limit falls below n. After an error the semaphore is as it
// would be without the call. It panics if n < 0.
func (s *Weighted) Acquire(ctx context.Context, n int64) error {
	if n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		st := s.current()
		v := st.take(n)
		if v == done { // first: the compiler then jumps from there
			return nil
		}
		if v == lost {
			if v = again(st.take, n); v == done {
				return nil
			}
		}
		if v == refused && n == 1 && ctx.Done() == nil {
			if v = st.join(1); v == lost {
				v = again(st.join, 1)
			}
			if v == done {
				return <-s.queue.Room()
			}
		}
	}
	mustNotBeNegative(n)
	if n == 0 {
		return ctx.Err()
	}
	p, err := s.queue.Join(ctx, n)
	switch ended := ctx.Done(); {
	case p.Crowd != nil:
		return <-p.Crowd
	case p.Wake != nil:
		m := queue.Look
		select {
		case m = <-p.Wake:
		case <-ended:
		}
		if !m.Granted() {
			err = s.queue.Finish(ctx, p, m)
		}
	}
	if err != nil {
		return err
	}
	return s.keep(ctx, n)
}

// AcquireWithin is Acquire, but waits no longer than longest and then returns [limits.ErrTimeout].
// longest ≤ 0 does not block.
func (s *Weighted) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	if n <= 0 || longest == queue.Forever {
		return s.Acquire(ctx, n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	st := s.current()
	if v := st.take(n); v == done || v == lost && again(st.take, n) == done {
		return nil
	}
	if _, _, err := s.queue.Acquire(ctx, request(n, longest)); err != nil {
		return err
	}
	return s.keep(ctx, n)
}

// keep is called with n permits. As in x/sync, a context that has ended since
// they were admitted counts, and they go to the next.
func (s *Weighted) keep(ctx context.Context, n int64) error {
	err := ctx.Err()
	if err != nil {
		s.giveBack(n)
	}
	return err
}

// giveBack undoes an admission. Unlike a caller of Release it cannot know that
// Drain has written off some of its permits; then there are fewer.
func (s *Weighted) giveBack(n int64) {
	s.queue.Lock()
	defer s.queue.Unlock()
	s.inFlight -= min(n, s.inFlight)
	s.queue.Advance(0)
}

// TryAcquire takes n permits and reports true if they are free and no caller
// waits. Otherwise it changes nothing and reports false. It never blocks and
// never overtakes. n = 0 takes nothing and succeeds. It panics if n < 0.
func (s *Weighted) TryAcquire(n int64) bool {
	if n > 0 {
		st := s.current()
		v := st.take(n)
		if v == lost {
			v = again(st.take, n)
		}
		if v != closed {
			return v == done
		}
	}
	mustNotBeNegative(n)
	if n == 0 {
		return true
	}
	_, ok := s.queue.Try(request(n, 0))
	return ok
}

// Release releases n permits and serves waiting callers. n may be any part or sum of the acquired
// permits: a Weighted does not record the permits of each caller. It panics if n < 0 or if n is more
// than is in flight; nothing is then returned.
func (s *Weighted) Release(n int64) {
	if n > 0 {
		st := s.current()
		v := st.giveBack(n)
		if v == done {
			return
		}
		if v == crowded {
			v = st.handOver(n, &s.queue)
		}
		if v == lost {
			v = again(func(n int64) verdict { return st.handOver(n, &s.queue) }, n)
		}
		if v == done {
			return
		}
	}
	mustNotBeNegative(n)
	s.queue.Lock()
	if held := s.inFlight; n > held {
		s.queue.Unlock()
		panic(fmt.Sprintf("semaphore: released more than held: %d of %d", n, held))
	}
	s.inFlight -= n
	s.queue.Advance(0)
	s.queue.Unlock()
}

// SetLimit changes the number of permits and applies it immediately to waiting callers. If it is
// higher, they are served. If it is lower, those that want more than the limit fail with
// [limits.ErrTooLarge]. Permits that are out stay valid, and no caller is served until enough of
// them are released. It returns an error and changes nothing if limit < 0.
func (s *Weighted) SetLimit(limit int64) error {
	if limit < 0 {
		return fmt.Errorf("semaphore: negative limit %d", limit)
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	s.limit = limit
	s.queue.Recheck()
	s.queue.Advance(0)
	return nil
}

// Drain takes all permits that are available and returns their number. They are to be released like
// any others. If the limit was lowered below the permits in flight by k, Drain returns −k and writes
// off k permits: release k fewer than you hold.
func (s *Weighted) Drain() int64 {
	s.queue.Lock()
	defer s.queue.Unlock()
	s.queue.Advance(0) // the head may have given up, and others have a right to these
	got := s.limit - s.inFlight
	s.inFlight = s.limit
	return got
}

// Limit returns the number of permits there are.
func (s *Weighted) Limit() int64 {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.limit
}

// InFlight returns the number of permits that are out.
func (s *Weighted) InFlight() int64 {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.inFlight
}

// Available returns the number of permits that are free: Limit less InFlight. It is negative while
// more permits are out than a lowered limit allows. TryAcquire may fail nevertheless: a caller that
// needs more may be waiting.
func (s *Weighted) Available() int64 {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.limit - s.inFlight
}

// Waiting returns the number of callers that wait for permits.
func (s *Weighted) Waiting() int {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.queue.Len()
}

// admitter is a Weighted as its queue sees it.
type admitter Weighted

func (r *admitter) refuse(n int64) error {
	if n > r.limit {
		return limits.ErrTooLarge
	}
	return nil
}

// Admit implements queue.Admitter.
func (r *admitter) Admit(_, _ time.Duration, n int64) time.Duration {
	if n > r.limit-r.inFlight {
		return queue.Forever
	}
	r.inFlight += n
	return 0
}

// Forecast implements queue.Admitter.
func (r *admitter) Forecast(time.Duration, int64) time.Duration { return 0 }

func request(n int64, longest time.Duration) queue.Request {
	return queue.Request{N: n, Max: longest}
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("semaphore: n < 0: %d", n))
	}
}
