package limits

import (
	"context"
	"fmt"
	"time"
)

// A Limiter is a limit that decides immediately and never waits. The limits of packages leaky,
// window and sluiceredis are Limiters. One of this process should also have exactly the methods
//
//	OnChange(f func()) (stop func())
//	Forecast() Forecast
//
// OnChange calls f when the Limiter may allow a call earlier than it said, because something was
// returned or the limit has changed, until stop returns. A gate then tries again immediately, and
// several of its calls may ask the Limiter at the same time; other Limiters are asked by one call
// after the other. f does not block, and may be called from several goroutines.
//
// Units that a gate returns because another limit rejected must not be reported, or two gates may
// wake each other without end. leaky and window recognize it by the context of Adjust, so a Limiter
// that wraps one should pass that on.
type Limiter interface {
	// Admit takes n now and returns 0. Or it changes nothing and returns the time until it is worth
	// calling again: [Never] if only a change of the limit can help. It returns ErrTooLarge if n
	// can never fit, and another error if it cannot decide; nothing is taken then. n is positive.
	// Admit may do I/O within ctx but must not wait for the limit itself. Several goroutines may
	// call it concurrently.
	Admit(ctx context.Context, n int64) (wait time.Duration, err error)

	// Adjust corrects the units taken by an earlier call. A negative delta returns units, a
	// positive one takes more, beyond the limit if need be. age is the time since that call was
	// allowed. A gate returns the units it has just taken, with age 0, when another limit rejects,
	// and later corrects an estimate to the actual cost of a call. Units that no longer apply by
	// then must not be returned at the expense of others. An error means that the change is lost.
	Adjust(ctx context.Context, delta int64, age time.Duration) error
}

// A Remote is a Limiter behind a network. A gate calls it last.
type Remote interface {
	Limiter

	// Join returns a Joint for this limit and the others, in that order, or nil if they cannot be
	// joined: one is on another server, or is given twice. Without others it is a Joint for this
	// limit alone, or nil if Admit does as well. Join does no I/O.
	Join(others ...Limiter) Joint
}

// A Joint takes from one or several limits in one step, from all or none.
type Joint interface {
	// AdmitAll takes n[i] from each limit i, and returns 0; n[i] may be 0, which limit i always
	// allows, but not all of them are. Or it changes nothing and returns the time until it is worth
	// calling again, and the index of the limit with that wait, or of the one that an error is about.
	// Otherwise it is like Admit.
	//
	// behind[i] is the amount that the calls behind this one will take of limit i, 0 if that is not
	// known; nil means that none waits. A Joint may take a part of it in the same step, from all
	// limits alike, and returns the rest that no call has come for in the next moment.
	AdmitAll(ctx context.Context, n, behind []int64) (wait time.Duration, which int, err error)

	// AdjustAll adjusts each limit i by delta[i], not at all if that is 0. It returns nil if all
	// changes were made, or an error for each limit, nil for those that were changed.
	AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error
}

// A Semaphore is a cap on calls in flight that is shared with other gates or machines.
type Semaphore interface {
	// Acquire blocks until n permits are free, but no longer than longest and not beyond ctx. With
	// longest ≤ 0 it does not wait for permits; [Never] sets no bound. After an error nothing is
	// taken.
	Acquire(ctx context.Context, n int64, longest time.Duration) (Lease, error)
}

// A Lease is permits of a Semaphore, leased until they are released or lost.
type Lease interface {
	// Release releases the permits. A gate calls it once.
	Release()

	// Lost returns a channel that is closed if the permits were lost before they were released, or
	// nil if that cannot happen.
	Lost() <-chan struct{}
}

// Must returns v, or panics if err is not nil. It is for limits whose numbers are
// constants of the program:
//
//	var perHost = limits.Must(leaky.New(limits.Rate{Count: 10, Per: time.Second, Burst: 20}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return v
}
