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
// # What does a call cost?
//
// With a million keys hardly anything is in the cache of the CPU, and what a call
// costs is how often it has to wait for a line of memory, 100 to 160 ns each
// time. It cannot do with less than two: one for the entry, which says where the
// text of the key is, and one for the text. The simplest table has more:
//
//	heads of chains → entry (→ next in chain) → text, and an entry to examine
//
// It takes 1.4 times as long as a Go map per shard that forgets nothing, and twice
// as long on two CPUs. With tags and a slice of entries for each bucket it is
//
//	tags → entry → text, and an entry to examine
//
// and still 1.3 to 1.4 times as long, as the tags of a million keys are too many for
// the cache as well. So here each shard is a table of buckets of four lines, the tags
// among them:
//
//	shard   lock ─ chunks
//	                 ↓
//	bucket  0    1    2    3    4         next to be split: 1, into 1 and 5
//	      ┌────┬────┬────┬────┬────┐      bucket  tags │ overflow │ slot 0
//	      │    │    │    │    │    │ ···          slot 1   │ slot 2
//	      │    │    │    │    │    │              slot 3   │ slot 4
//	      └────┴────┴────┴────┴────┘              slot 5   │ slot 6
//	                ← swept
//
// A key's bucket follows from its hash and its slot most of the time, too. Both
// lines of a bucket that are needed are loaded at once, and then the text. That
// takes 1.0 to 1.1 times as long as the Go map, 0.9 to 1.3 times on two CPUs. See
// bucket and table.
//
// For a string key and a value of 16 bytes, seven slots and what else is in a
// bucket are 256 bytes. With five entries on average, what overflows and room to
// grow that is 54 to 56 bytes per key, the header of the string included.
//
// # How is forgetting paid for?
//
// Each call that has to examine others waits for more lines. So a new key has the
// others in its bucket examined, which keeps stale ones to about one for three
// that are live while all keys are new. Besides, a call now and then sweeps
// another bucket, one after the other, so that each is swept some time: every
// fourth call while that finds anything, else every 32nd. At each fourth it would
// be 10 % of the time of all.
package keyed

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
)

// ErrTooManyKeys reports a new key when as many as may be are remembered.
var ErrTooManyKeys = errs.ErrTooManyKeys

const (
	shardBits = 7
	shards    = 1 << shardBits

	// Of the calls in a shard, each often-th sweeps a bucket elsewhere while that
	// finds anything to forget, else each seldom-th. Both are powers of two.
	often  = 4
	seldom = 32

	// How many shards without entries are passed by, and how many entries are
	// examined before a key is refused.
	passedBy   = 8
	beforeFull = 8
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

	_     [64]byte      // keeps what is never written apart from what is
	count atomic.Int64  // of entries in all shards
	pace  atomic.Uint32 // often or seldom, less 1
	turn  atomic.Uint32 // the shard whose turn it is to be swept
	_     [64]byte

	shards [shards]shard[K, V]
}

// What a call needs of a shard is in one line.
type shard[K comparable, V any] struct {
	mu    sync.Mutex
	calls uint32
	table table[K, V]
	_     [72]byte // keeps neighbours apart
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

func (m *Map[K, V]) shard(hash uint64) *shard[K, V] { return &m.shards[hash>>(64-shardBits)] }

// Update calls f with the value of key, or the zero V if there is none, and
// the time since the map was made, and remembers the value that f returns. No
// other call for the same key goes on meanwhile; f must not use the Map. If the
// key is new and its value is not idle, and as many keys as may be are
// remembered, it returns ErrTooManyKeys and remembers nothing.
func (m *Map[K, V]) Update(key K, f func(v V, now time.Duration) V) error {
	hash := m.hash(key)
	now, more, err := m.update(hash, key, f)
	if more {
		m.tidy(passedBy, 1, now)
	}
	return err
}

func (m *Map[K, V]) update(hash uint64, key K, f func(V, time.Duration) V) (now time.Duration, more bool, err error) {
	s := m.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = m.now()
	s.calls++
	more = s.calls&m.pace.Load() == 0
	b := s.table.bucket(hash)
	if b != nil {
		if e := b.find(tag(hash), key); e != nil {
			e.value = f(e.value, now)
			return now, more, nil
		}
	}
	var zero V
	v := f(zero, now)
	if m.idle(v, now) {
		return now, more, nil
	}
	if b != nil {
		m.sweep(s, b, now)
	}
	if !m.reserve() {
		m.tidy(shards, beforeFull, now)
		if !m.reserve() {
			return now, false, ErrTooManyKeys
		}
	}
	s.table.insert(m.hash, hash, key, v)
	return now, more, nil
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
	hash := m.hash(key)
	s := m.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.table.bucket(hash); b != nil {
		if e := b.find(tag(hash), key); e != nil {
			v = e.value
		}
	}
	return v, m.now()
}

// Delete forgets key.
func (m *Map[K, V]) Delete(key K) {
	hash := m.hash(key)
	s := m.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.table.bucket(hash); b != nil {
		if i := b.index(tag(hash), key); i >= 0 {
			b.remove(i)
			m.removed(s, b, 1)
		}
	}
}

func (m *Map[K, V]) removed(s *shard[K, V], b *bucket[K, V], n int) {
	s.table.removed(m.hash, b, n)
	m.count.Add(-int64(n))
}

// Len returns how many keys are remembered, those with an idle value included
// that nobody has come across yet.
func (m *Map[K, V]) Len() int { return int(m.count.Load()) }

// sweep forgets the idle entries of b, which is in s, and returns how many it
// has examined and how many of them forgotten.
func (m *Map[K, V]) sweep(s *shard[K, V], b *bucket[K, V], now time.Duration) (examined, forgotten int) {
	examined, forgotten = b.sweep(m.idle, now)
	if forgotten > 0 {
		m.removed(s, b, forgotten)
	}
	return examined, forgotten
}

// tidy sweeps the buckets whose turn it is, up to tries, until it has examined
// enough entries. It stays with a shard for all of its buckets, which lie side by
// side, unless somebody is in there, who then sweeps. An older now only finds
// less.
func (m *Map[K, V]) tidy(tries, enough int, now time.Duration) {
	examined, forgotten := 0, 0
	for ; tries > 0 && examined < enough; tries-- {
		turn, done := m.turn.Load(), true
		s := &m.shards[turn%shards]
		if s.mu.TryLock() {
			if b := s.table.next(); b != nil {
				n, idle := m.sweep(s, b, now)
				examined, forgotten = examined+n, forgotten+idle
			}
			done = s.table.swept == 0
			s.mu.Unlock()
		}
		if done {
			m.turn.CompareAndSwap(turn, turn+1)
		}
	}
	pace := uint32(seldom - 1)
	if forgotten > 0 {
		pace = often - 1
	}
	if m.pace.Load() != pace { // do not take the line from others for nothing
		m.pace.Store(pace)
	}
}
