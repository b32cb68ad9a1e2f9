package semaphore

import (
	"sync/atomic"

	"github.com/sluice-go/sluice/internal/contend"
)

// # How are permits taken without the lock?
//
// While nobody waits, the permits that are free are a number, and taking or
// giving back some is one compare-and-swap of it. While somebody waits or holds
// the queue's lock the number is closed, and everybody takes the lock:
//
//	free ≥ 0         open: nobody waits; limit − free permits are in flight
//	free = isClosed  limit and inFlight are under the lock; take it
//
// So nobody is overtaken: a newcomer finds free closed for as long as the queue
// is not empty. Nothing is lost either: the queue closes free by a swap before
// it looks at the permits and decides, and a compare-and-swap that began before
// fails.
//
// A limit is fixed for the life of a stock. A new limit makes a new one and
// leaves the old closed for good: with a limit beside the number, a Release
// that had read the old limit could find, after a change and other calls, the
// same number again, and count permits that do not exist.
type stock struct {
	limit int64
	_     [56]byte     // free is alone in its line of the cache
	free  atomic.Int64 // or isClosed
	_     [56]byte
}

const isClosed = -1

// newStock returns a stock that is closed.
func newStock(limit int64) *stock {
	s := &stock{limit: limit}
	s.free.Store(isClosed)
	return s
}

// A verdict is what asking a stock came to.
type verdict int

const (
	done    verdict = iota
	refused         // nobody waits, but there are not as many
	closed          // that is for the queue to say
	lost            // to somebody who asked at the same time: ask again
)

// take takes n of those that are free.
func (s *stock) take(n int64) verdict {
	free := s.free.Load()
	switch {
	case free == isClosed:
		return closed
	case free < n:
		return refused
	case s.free.CompareAndSwap(free, free-n):
		return done
	}
	return lost
}

// giveBack gives back n of those that are in flight.
func (s *stock) giveBack(n int64) verdict {
	free := s.free.Load()
	switch {
	case free == isClosed:
		return closed
	case n > s.limit-free:
		return refused
	case s.free.CompareAndSwap(free, free+n):
		return done
	}
	return lost
}

// again asks for n until that is not lost any more. take and giveBack do not do
// so by themselves: as they are, they are compiled into their callers, which
// saves a tenth of a call.
func again(ask func(n int64) verdict, n int64) (v verdict) {
	losses := contend.Lost(0)
	for v = ask(n); v == lost; v = ask(n) {
		losses = contend.Lost(losses)
	}
	return v
}

// Close implements queue.Latch.
func (r *rule) Close() { r.inFlight = r.limit - r.stock.Load().free.Swap(isClosed) }

// Open implements queue.Latch.
func (r *rule) Open() bool {
	if r.inFlight > r.limit {
		return false
	}
	s := r.stock.Load()
	if s.limit != r.limit {
		s = newStock(r.limit)
		r.stock.Store(s)
	}
	s.free.Store(r.limit - r.inFlight)
	return true
}
