// Package keyed remembers a small value per key and forgets the values that
// are no different from none, a few at each call, without a goroutine.
//
// # Why not a Go map, or a sync.Map?
//
// Limits per key have two troubles with maps. A map cannot be searched for
// stale entries a few at a time: an iterator cannot be kept, and to begin a new
// one each time finds random entries, over and over. And a map does not shrink:
// after a million keys it holds their memory for the thousand that are left.
//
// So each shard is a table of its own. The entries lie side by side, in chunks
// that do not move, and a cursor walks over them. One that is removed is
// replaced by the last one, so there are no holes, and chunks at the end are
// freed. Entries of one bucket are chained by index, and the buckets grow and
// shrink one at a time (linear hashing; Witold Litwin, 1980), so that no call
// ever rehashes a table.
//
//	buckets   0   1   2   3   4          split 1 next: into 1 and 5
//	          │   │       │
//	entries   A → D   …   C   B   E      removed D: E moves to its place
//	              ↑ cursor
//
// For a string key and a value of 16 bytes that is 16 + 16 + 8 bytes for the
// entry and 8 for two buckets: 48, and the key's own bytes.
package keyed

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
)

// ErrTooManyKeys reports a new key when as many as may be are remembered.
var ErrTooManyKeys = errs.ErrTooManyKeys

const (
	shardBits = 6
	shards    = 1 << shardBits

	// How many entries a call examines to see whether they can be forgotten:
	// ownSteps in the shard it locks anyway, newSteps instead if it adds a key,
	// and every elsewhereEvery-th elsewhereSteps in another shard, lest one that
	// nobody asks for keeps its entries for ever. In a shard that gains an entry
	// with each call, three suffice to keep no more than about one stale entry
	// for two live ones. More is not better: each is a miss of the cache.
	ownSteps       = 1
	newSteps       = 3
	elsewhereEvery = 8
	elsewhereSteps = 8
)

// Most is the most keys a Map may be asked to remember. Much before that
// memory is short: 2²⁹ keys take more than 24 GB.
const Most = 1 << 29

// A Map remembers a V per K. It must be made by New and is safe for use by
// multiple goroutines. Two K that are equal are one key; one that does not
// equal itself (a NaN) is a new key each time. Like a Go map it panics for an
// interface K that holds something incomparable.
type Map[K comparable, V any] struct {
	epoch time.Time
	max   int64
	idle  func(V, time.Duration) bool
	hash  func(K) uint64

	count     atomic.Int64  // of entries in all shards
	elsewhere atomic.Uint32 // the shard that was tidied last

	shards [shards]shard[K, V]
}

type shard[K comparable, V any] struct {
	mu    sync.Mutex
	calls uint32
	table table[K, V]
	_     [56]byte // keeps the locks of neighbours apart
}

// New returns a map that remembers up to most keys, 0 < most ≤ [Most]. idle
// reports whether a value is, at an instant, as good as none; it must be quick
// and must not use the Map.
func New[K comparable, V any](most int64, idle func(v V, now time.Duration) bool) *Map[K, V] {
	seed := maphash.MakeSeed()
	return &Map[K, V]{
		epoch: time.Now(),
		max:   most,
		idle:  idle,
		hash:  func(key K) uint64 { return maphash.Comparable(seed, key) },
	}
}

// now returns the time since the map was made. It is read under the lock of a
// shard, so that it never goes backwards for a key.
func (m *Map[K, V]) now() time.Duration { return max(0, time.Since(m.epoch)) }

// locate returns the shard of key, and what its table tells keys apart by.
func (m *Map[K, V]) locate(key K) (s *shard[K, V], tag uint32) {
	h := m.hash(key)
	return &m.shards[h>>(64-shardBits)], uint32(h)
}

// Update calls f with the value of key, or the zero V if there is none, and
// the time since the map was made, and remembers the value that f returns. No
// other call for the same key goes on meanwhile; f must not use the Map. If the
// key is new and its value is not idle, and as many keys as may be are
// remembered, it returns ErrTooManyKeys and remembers nothing.
func (m *Map[K, V]) Update(key K, f func(v V, now time.Duration) V) error {
	s, tag := m.locate(key)
	now, more, err := m.update(s, tag, key, f)
	if more {
		m.tidy(1, now)
	}
	return err
}

func (m *Map[K, V]) update(s *shard[K, V], tag uint32, key K, f func(V, time.Duration) V) (now time.Duration, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = m.now()
	s.calls++
	more = s.calls%elsewhereEvery == 0
	steps := ownSteps
	if i := s.table.find(tag, key); i != none {
		e := s.table.at(i)
		e.value = f(e.value, now)
	} else {
		var zero V
		if v := f(zero, now); !m.idle(v, now) {
			err = m.insert(s, tag, key, v, now)
			steps = newSteps
		}
	}
	m.sweep(s, steps, now)
	return now, more && err == nil, err // a refusal has looked elsewhere already
}

func (m *Map[K, V]) insert(s *shard[K, V], tag uint32, key K, v V, now time.Duration) error {
	if !m.reserve() {
		m.sweep(s, elsewhereSteps, now)
		m.tidy(shards, now)
		if !m.reserve() {
			return ErrTooManyKeys
		}
	}
	s.table.insert(tag, key, v)
	return nil
}

// reserve counts one more entry if there may be one more.
func (m *Map[K, V]) reserve() bool {
	if m.count.Add(1) <= m.max {
		return true
	}
	m.count.Add(-1)
	return false
}

// Get returns the value of key, or the zero V if there is none, and the time
// since the map was made. It changes nothing.
func (m *Map[K, V]) Get(key K) (v V, now time.Duration) {
	s, tag := m.locate(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.table.find(tag, key); i != none {
		v = s.table.at(i).value
	}
	return v, m.now()
}

// Delete forgets key.
func (m *Map[K, V]) Delete(key K) {
	s, tag := m.locate(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.table.find(tag, key); i != none {
		m.remove(s, i)
	}
}

func (m *Map[K, V]) remove(s *shard[K, V], i uint32) {
	s.table.remove(i)
	m.count.Add(-1)
}

// Len returns how many keys are remembered, those with an idle value included
// that nobody has come across yet.
func (m *Map[K, V]) Len() int { return int(m.count.Load()) }

// sweep examines the next entries of s, up to steps, forgets the idle ones and
// returns how many it has examined.
func (m *Map[K, V]) sweep(s *shard[K, V], steps int, now time.Duration) int {
	t := &s.table
	steps = min(steps, int(t.n))
	for range steps {
		if t.cursor >= t.n {
			t.cursor = 0
		}
		if m.idle(t.at(t.cursor).value, now) {
			m.remove(s, t.cursor) // another entry is there now
		} else {
			t.cursor++
		}
	}
	return steps
}

// tidy sweeps the next shard in turn, or as many, up to tries, as it takes to
// examine elsewhereSteps entries. It passes by those that somebody is in, who
// then sweeps. An older now only finds less.
func (m *Map[K, V]) tidy(tries int, now time.Duration) {
	for steps := elsewhereSteps; tries > 0 && steps > 0; tries-- {
		s := &m.shards[m.elsewhere.Add(1)%shards]
		if s.mu.TryLock() {
			steps -= m.sweep(s, steps, now)
			s.mu.Unlock()
		}
	}
}

// none is no index.
const none = math.MaxUint32
