package sluiceredis

import (
	"context"
	"sync"
	"time"
)

// A bounded is a context with a deadline. It has no timer until somebody waits for it:
// most clients only give the deadline to a connection.
type bounded struct {
	context.Context           // of the caller
	limit           time.Time // when b ends, if that does not end before

	mu     sync.Mutex
	timed  context.Context // with a timer; nil until it is wanted
	cancel context.CancelFunc
	ended  bool
}

// begin makes b the context of a call that lasts until limit, or as long as ctx.
func (b *bounded) begin(ctx context.Context, limit time.Time) { b.Context, b.limit = ctx, limit }

// end ends b, as a context.CancelFunc does.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = true; b.cancel != nil {
		b.cancel()
	}
}

// timer returns the context with a timer, and makes it if there is none and want is true.
func (b *bounded) timer(want bool) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil && (want || b.ended) {
		b.timed, b.cancel = context.WithDeadline(b.Context, b.limit)
		if b.ended {
			b.cancel()
		}
	}
	return b.timed
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) {
	if deadline, ok := b.Context.Deadline(); ok && deadline.Before(b.limit) {
		return deadline, true
	}
	return b.limit, true
}

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.timer(true).Done() }

// Err implements context.Context. It always returns the same: an end is
// kept by the context with the timer. If the caller's deadline is the earlier one, the
// caller's context says whether that has passed, so that both never differ.
func (b *bounded) Err() error {
	timed := b.timer(false)
	if timed == nil {
		if b.Context.Err() == nil && time.Now().Before(b.limit) {
			return nil
		}
		timed = b.timer(true)
	}
	return timed.Err()
}

// Value implements context.Context. Package context finds out by it that no goroutine
// is needed to wait for b.
func (b *bounded) Value(key any) any {
	if timed := b.timer(false); timed != nil {
		return timed.Value(key)
	}
	return b.Context.Value(key)
}
