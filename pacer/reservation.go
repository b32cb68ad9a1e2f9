package pacer

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// A Reservation is a claim on a slot, without a waiting caller. Until the slot has passed it can be
// returned, exactly. Afterwards the slot is treated as used.
//
// A Reservation is a small value; copies are the same claim. It is safe for use by multiple
// goroutines, but only one may Wait. The zero Reservation is invalid.
type Reservation struct {
	pacer  *Pacer
	waiter *queue.Waiter // its place in the queue, nil if it has none
	at     time.Duration // without a place: its slot, or one of those below
}

const (
	whenever = -1 // n was 0
	refused  = -2
)

// Reserve claims the next slot for a call of cost n, behind earlier callers, and does not block. If
// Config.MaxWaiting callers and reservations wait already, the reservation is rejected: Delay is
// [limits.Never] and Wait fails. It panics if n < 0.
func (p *Pacer) Reserve(n int64) Reservation {
	if n == 1 {
		if now, v := p.pass(); v == schedule.Leave {
			return Reservation{pacer: p, at: now}
		}
	}
	mustNotBeNegative(n)
	if n == 0 {
		return Reservation{pacer: p, at: whenever}
	}
	w, at, err := p.queue.Reserve(queue.Request{N: n})
	if err != nil {
		at = refused
	}
	return Reservation{pacer: p, waiter: w, at: at}
}

// err returns [limits.ErrQueueFull] if there was no room for the reservation, else nil.
func (r Reservation) err() error {
	if r.waiter == nil && r.at == refused {
		return limits.ErrQueueFull
	}
	return nil
}

// Delay returns the time until the call may start, as things stand: 0 if its slot has passed or its
// cost is 0, and [limits.Never] if it was rejected or canceled. It is a forecast: shorter after a
// caller ahead canceled, longer after a pause or a slower rate. Only Wait enforces it. Do not poll
// it for thousands of reservations.
func (r Reservation) Delay() time.Duration {
	slot, now, ok := r.slot()
	if !ok || slot == limits.Never {
		return limits.Never
	}
	return max(0, slot-now)
}

func (r Reservation) slot() (slot, now time.Duration, ok bool) {
	switch {
	case r.waiter != nil:
		return r.pacer.queue.Slot(r.waiter)
	case r.at == refused:
		return 0, 0, false
	case r.at == whenever:
		now = r.pacer.queue.Now()
		return now, now, true
	}
	return r.at, r.pacer.queue.Now(), true
}

// Wait blocks until the slot. It returns nil immediately if that has passed, and the error of
// [Pacer.Acquire] if ctx ends before the slot: then the reservation is canceled. It returns
// [limits.ErrCanceled] if it was canceled and [limits.ErrQueueFull] if it was rejected. It panics if
// another goroutine waits for the same reservation.
func (r Reservation) Wait(ctx context.Context) error {
	switch {
	case r.waiter != nil:
		return r.pacer.queue.Attend(ctx, r.waiter)
	case r.at == whenever:
		return ctx.Err()
	}
	return r.err()
}

// Cancel returns the slot: callers behind it move up, and a goroutine in Wait gets
// [limits.ErrCanceled]. It returns false and does nothing if the slot has passed, or if the
// reservation was canceled before or rejected.
func (r Reservation) Cancel() bool {
	if r.waiter == nil {
		return false
	}
	return r.pacer.queue.Cancel(r.waiter)
}
