package semaphore

import "sync/atomic"

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
	free  atomic.Int64 // or isClosed
}

const isClosed = -1

// newStock returns a stock that is closed.
func newStock(limit int64) *stock {
	s := &stock{limit: limit}
	s.free.Store(isClosed)
	return s
}

// What taking from a stock came to.
type taking int

const (
	taken  taking = iota
	tooFew        // nobody waits, but there are not as many
	closed        // that is for the queue to say
)

func (s *stock) take(n int64) taking {
	for {
		free := s.free.Load()
		switch {
		case free == isClosed:
			return closed
		case free < n:
			return tooFew
		case s.free.CompareAndSwap(free, free-n):
			return taken
		}
	}
}

// giveBack reports false if it changed nothing: the stock is closed, or not as
// many are in flight.
func (s *stock) giveBack(n int64) bool {
	for {
		free := s.free.Load()
		if free == isClosed || n > s.limit-free {
			return false
		}
		if s.free.CompareAndSwap(free, free+n) {
			return true
		}
	}
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
