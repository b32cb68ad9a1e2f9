package sluiceredis

import (
	"time"
)

// A Lease is permits leased by a [Semaphore].
type Lease struct {
	semaphore *Semaphore // nil if n is 0
	id        string
	n, token  int64
	late      bool // a request for it may still be under way
	lost      chan struct{}
	timer     *time.Timer // guarded by the semaphore's lock
	until     time.Time   // the time it is believed to last; likewise
}

// Token returns the fencing token, a number that is higher than the token of any earlier lease; 0
// for a lease of no permits. Pass it to the called server if that can reject lower ones.
func (l *Lease) Token() int64 { return l.token }

// Lost returns a channel that is closed when the lease was lost before it was released, or may have
// been lost. It is closed before the permits are leased again.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release releases the permits, which takes a round trip. Only the first Release has an effect.
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

// lose tells the holder that the lease has ended.
func (l *Lease) lose() {
	if l.semaphore.drop(l) {
		l.semaphore.store.stats.leasesLost.Add(1)
		close(l.lost)
	}
}
