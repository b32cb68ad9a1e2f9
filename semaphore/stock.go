package semaphore

import (
	"math"
	"sync/atomic"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/queue"
)

// # How are permits taken without the lock?
//
// While no caller waits, the permits that are free are a number, and taking or returning some is
// one compare-and-swap of it. While only callers wait that want 1 and cannot be canceled, a crowd
// (see package queue), the number is negative: the number of those that sleep. To release one permit is
// then to count and to wake one of them. While others wait, or the queue's lock is held, the number
// is closed, and callers take the lock:
//
//	free ≥ 0         open: no caller waits; limit − free permits are in flight
//	free < 0         open: all are in flight, and −free callers sleep in the crowd
//	free = isClosed  limit and inFlight are under the lock; take it
//
// So no caller is overtaken: a newcomer that is not of the crowd finds fewer free permits than it
// wants, or closed, for as long as any caller waits. Nothing is lost either: the queue closes free
// by a swap before it looks at the permits and decides, and a compare-and-swap that began before
// fails. A Release that has counted a caller out of the crowd wakes one, whatever happens to the
// number.
//
// A limit is fixed for the life of a stock. A new limit makes a new one and
// leaves the old closed for good: with a limit next to the number, a Release
// that had read the old limit could find, after a change and other calls, the
// same number again, and count permits that do not exist.
type stock struct {
	limit int64
	_     [56]byte     // free is alone in its line of the cache
	free  atomic.Int64 // or isClosed
	_     [56]byte
}

const isClosed = math.MinInt64

// newStock returns a stock that is closed.
func newStock(limit int64) *stock {
	s := &stock{limit: limit}
	s.free.Store(isClosed)
	return s
}

// A verdict is the answer of a stock.
type verdict int

const (
	done    verdict = iota
	refused         // there are not as many
	crowded         // there is a crowd to wake
	closed          // the queue decides
	lost            // another caller came first: ask again
)

// take takes n of those that are free.
func (s *stock) take(n int64) verdict {
	free := s.free.Load()
	switch {
	case free < n: // isClosed as well: one comparison for a call that need not wait
		return unavailable(free)
	case s.free.CompareAndSwap(free, free-n):
		return done
	}
	return lost
}

func unavailable(free int64) verdict {
	if free == isClosed {
		return closed
	}
	return refused
}

// giveBack returns n of those that are in flight.
func (s *stock) giveBack(n int64) verdict {
	free := s.free.Load()
	switch {
	case free < 0: // isClosed, too
		return crowded
	case n > s.limit-free:
		return refused
	case s.free.CompareAndSwap(free, free+n):
		return done
	}
	return lost
}

// join counts a caller that wants 1 into the crowd. It is rejected if there is none.
func (s *stock) join(int64) verdict {
	free := s.free.Load()
	switch {
	case free == isClosed:
		return closed
	case free >= 0:
		return refused
	case s.free.CompareAndSwap(free, free-1):
		return done
	}
	return lost
}

// handOver is giveBack, even if there is a crowd, of which it wakes as many as get the returned
// permits.
func (s *stock) handOver(n int64, q *queue.Queue) verdict {
	free := s.free.Load()
	switch {
	case free == isClosed:
		return closed
	case n > s.limit-max(free, 0):
		return refused
	case !s.free.CompareAndSwap(free, free+n):
		return lost
	}
	for ; free < 0 && n > 0; free, n = free+1, n-1 {
		q.Room() <- nil
	}
	return done
}

// again asks for n until that is not lost. take and giveBack do not loop themselves so
// that they are inlined, which saves a tenth of a call.
func again(ask func(n int64) verdict, n int64) (v verdict) {
	losses := contend.Lost(0)
	for v = ask(n); v == lost; v = ask(n) {
		losses = contend.Lost(losses)
	}
	return v
}

// Close implements queue.Latch.
func (r *admitter) Close() (asleep int) {
	free := r.stock.Load().free.Swap(isClosed)
	r.inFlight = r.limit - max(free, 0)
	return int(max(-free, 0))
}

// Open implements queue.Latch.
func (r *admitter) Open(asleep int) bool {
	free := r.limit - r.inFlight
	if free < 0 || free > 0 && asleep > 0 { // free permits next to a crowd are about to be handed over
		return false
	}
	s := r.stock.Load()
	if s.limit != r.limit {
		s = newStock(r.limit)
		r.stock.Store(s)
	}
	s.free.Store(free - int64(asleep))
	return true
}
