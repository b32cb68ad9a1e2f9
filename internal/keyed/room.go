package keyed

import (
	"sync/atomic"
	"time"
)

// A room is the shared state of the parts of a Map: the clock and the room for keys.
type room struct {
	epoch time.Time
	max   int64
	parts []interface {
		tidy(tries, enough int, now time.Duration) (forgotten int)
	}

	_     [64]byte      // keeps fields that are never written, now and then,
	pace  atomic.Uint32 // often or seldom, less 1
	_     [64]byte      // and at each new key apart
	count atomic.Int64  // of entries
	_     [64]byte
}

// now returns the time since the map was made. It is read under the lock of a
// shard, so that it never goes backwards for a key.
func (r *room) now() time.Duration { return max(0, time.Since(r.epoch)) }

// reserve counts one more entry if there may be one more.
func (r *room) reserve() bool {
	if r.count.Add(1) <= r.max {
		return true
	}
	r.count.Add(-1)
	return false
}

// tidy has each part evict a few entries.
func (r *room) tidy(tries, enough int, now time.Duration) {
	forgotten := 0
	for _, p := range r.parts {
		forgotten += p.tidy(tries, enough, now)
	}
	pace := uint32(seldom - 1)
	if forgotten > 0 {
		pace = often - 1
	}
	if r.pace.Load() != pace { // do not take the line from others for nothing
		r.pace.Store(pace)
	}
}
