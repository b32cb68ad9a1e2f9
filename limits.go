package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
)

// An Admitter is a limit that answers and never waits: a meter, or one that
// lives elsewhere. It is all that [Block] needs.
type Admitter interface {
	// Admit lets n through now and returns 0, or changes nothing and returns
	// how long it takes until it is worth asking again: [Never] if only a
	// change of the limit can help. It returns ErrTooLarge if n can never
	// fit, and another error if the limit could not be asked; the caller is
	// then not let through. n is positive. Admit may do I/O within ctx but
	// must not wait for the limit itself. It may be called by several
	// goroutines at once.
	Admit(ctx context.Context, n int64) (wait time.Duration, err error)
}

// A Meter is an Admitter that a [Gate] can consult along with its other limits.
type Meter interface {
	Admitter

	// Adjust changes by delta, without asking, what a call took that was
	// admitted age ago: a negative delta gives back, a positive one takes more,
	// beyond the limit if need be. The gate gives back what it has just taken,
	// age 0, when another limit refused, and settles later what a call really
	// cost. What no longer counts by then must not be given back at the expense
	// of others. An error means that the change is lost; the gate counts it as
	// stranded.
	Adjust(ctx context.Context, delta int64, age time.Duration) error
}

// A Notifier is an Admitter of this process that says when it may admit somebody
// earlier than it said: something was given back, or its limit has changed. A [Gate]
// or a [Block] then asks again at once.
type Notifier interface {
	Admitter

	// OnChange has f called after each such change until stop is called. It need not
	// be called for changes before OnChange returns. f does not block, and may be
	// called from several goroutines. Once stop has returned f must not be called any
	// more. A gate calls OnChange only for a call that waits, and stop when it does
	// not wait any more.
	//
	// What a gate gives back because another limit refused must not be told of, or two
	// gates that ask two meters in opposite order wake each other without end. The
	// meters of leaky and window know it by its context. So a Meter that wraps one
	// of those should hand on the context of Adjust.
	OnChange(f func()) (stop func())
}

// bellOf returns how limit tells of changes, nil if it does not.
func bellOf(limit Admitter) *queue.Bell {
	n, ok := limit.(Notifier)
	if !ok {
		return nil
	}
	b := queue.Bell(n.OnChange)
	return &b
}

// A Joiner is a Meter that is asked over a network, perhaps along with others that
// live where it does. A [Gate] asks those last, whatever their order among its
// quotas, so that nothing travels for what a limit of this machine refuses; and
// those that can be joined in one step, all or none, so that what one refuses
// need not be given back to the others.
type Joiner interface {
	Meter

	// Join returns what decides this meter and the others, in that order, in one
	// step, or nil if they cannot be joined: one lives elsewhere, or is there
	// twice. One that can never be joined returns nil. Join does no I/O.
	Join(others ...Meter) Joint
}

// A Joint is meters that are decided in one step.
type Joint interface {
	// AdmitAll lets n[i] through meter i now, for each i, and returns 0, or
	// changes nothing and returns how long it takes until it is worth asking
	// again, and which meter refuses. That is one for which the wait is as long;
	// with ErrTooLarge the one in which n can never fit; with another error the
	// one that could not be asked, or any if none could. It is otherwise as
	// Admit of a meter.
	AdmitAll(ctx context.Context, n []int64) (wait time.Duration, which int, err error)

	// AdjustAll is Adjust of each meter i by delta[i], not at all if that is 0.
	// It returns nil if all changes were made, or an error for each meter, nil
	// for those that were.
	AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error
}

// Permits is a cap on calls in flight that lives outside the gate, shared with
// other gates or machines.
type Permits interface {
	// Acquire blocks until n permits are free, but no longer than longest and
	// not beyond ctx; longest ≤ 0 does not wait for permits, [Never] sets no
	// bound. After an error nothing is taken.
	Acquire(ctx context.Context, n int64, longest time.Duration) (Lease, error)
}

// A Lease is permits lent by Permits.
type Lease interface {
	// Release gives the permits back. The gate calls it once.
	Release()

	// Lost returns a channel that is closed if the permits were lost before
	// they were released, or nil if that cannot happen.
	Lost() <-chan struct{}
}

// A Unit is what a limit counts.
type Unit int

const (
	// DefaultUnit is Calls for concurrency and rate and Cost for quotas.
	DefaultUnit Unit = iota

	// Calls counts every call as 1, whatever n it is made with.
	Calls

	// Cost counts a call as its n, and later as what it was settled for.
	Cost
)

// of returns what a call of n counts.
func (u Unit) of(n int64) int64 {
	if u == Cost {
		return n
	}
	return min(n, 1)
}

func (u Unit) or(other Unit) Unit {
	if u == DefaultUnit {
		return other
	}
	return u
}

func (u Unit) check(what string) error {
	if u < DefaultUnit || u > Cost {
		return fmt.Errorf("%s: no such unit: %d", what, u)
	}
	return nil
}

// A Quota is one more limit of a gate.
type Quota struct {
	Name   string // what messages call it
	Meter  Meter  // required
	Counts Unit   // DefaultUnit means Cost
}

// limit returns what holds calls up if q does.
func (q *Quota) limit() Limit {
	if q.Name == "" {
		return "quota"
	}
	return Limit("quota " + q.Name)
}

func (q *Quota) check() error {
	if q.Meter == nil {
		return errors.New("no meter")
	}
	return q.Counts.check("counts")
}
