package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Lease is permits lent by a [Semaphore]. It is safe for use by multiple
// goroutines.
type Lease struct {
	semaphore *Semaphore // nil if n is 0
	id        string
	n, token  int64
	late      bool // a request for it may still be under way
	lost      chan struct{}
	timer     *time.Timer // guarded by the semaphore's lock
	until     time.Time   // how long it is believed to last; likewise
}

// Token returns the fencing token, a number that is higher than that of any lease
// before; 0 if the lease is for nothing. Pass it to the called side if that can refuse
// lower ones.
func (l *Lease) Token() int64 { return l.token }

// Weight returns how many permits the lease is for.
func (l *Lease) Weight() int64 { return l.n }

// Lost returns a channel that is closed when the lease was lost before it was
// released, or may have been: no later than others may have it.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Context returns a copy of ctx that ends, with the cause limits.ErrLeaseLost, when
// the lease is lost. Call stop when it is not needed any more.
func (l *Lease) Context(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		select {
		case <-l.lost:
			cancel(limits.ErrLeaseLost)
		case <-held.Done():
		}
		close(over)
	}()
	return held, func() {
		cancel(context.Canceled)
		<-over
	}
}

// Release gives the permits back, which takes a round trip. Only the first Release
// counts. After the lease was lost it does nothing.
func (l *Lease) Release() {
	s := l.semaphore
	switch {
	case s == nil:
	case s.over(l):
		l.lose()
	case s.drop(l):
		s.giveBack(l.id, l.late)
	}
}

// lose tells the holder that the lease is over.
func (l *Lease) lose() {
	if l.semaphore.drop(l) {
		l.semaphore.store.stats.leasesLost.Add(1)
		close(l.lost)
	}
}
