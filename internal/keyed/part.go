package keyed

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
)

const (
	shardBits = 7
	shards    = 1 << shardBits

	// Of the calls in a shard, each often-th sweeps a bucket elsewhere while that
	// finds anything to forget, else each seldom-th. Both are powers of two.
	often  = 4
	seldom = 32

	// The number of shards without entries that are passed by, and of entries that are examined in
	// each part before a key is rejected.
	passedBy   = 8
	beforeFull = 8
)

// A part is those entries of a Map whose keys are stored as K.
type part[K comparable, V any] struct {
	room *room
	idle func(V, time.Duration) bool
	hash func(K) uint64

	_    [64]byte      // keeps fields that are never written apart from those that are
	turn atomic.Uint32 // the shard whose turn it is to be swept
	used atomic.Bool   // something was ever inserted
	_    [64]byte

	shards [shards]shard[K, V]
}

// The fields of a shard that a call needs are in one line.
type shard[K comparable, V any] struct {
	mu    sync.Mutex
	calls uint32
	table table[K, V]
	_     [72]byte // keeps neighbors apart
}

func (p *part[K, V]) init(r *room, idle func(V, time.Duration) bool, hash func(K) uint64) {
	p.room, p.idle, p.hash = r, idle, hash
	r.parts = append(r.parts, p)
}

func (p *part[K, V]) shard(hash uint64) *shard[K, V] { return &p.shards[hash>>(64-shardBits)] }

// update is Update. It also reports whether it is time to tidy.
func (p *part[K, V]) update(key K, f func(V, time.Duration) V) (now time.Duration, more bool, err error) {
	hash := p.hash(key)
	s := p.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = p.room.now()
	s.calls++
	more = s.calls&p.room.pace.Load() == 0
	b := s.table.bucket(hash)
	if b != nil {
		if e := b.find(tag(hash), key); e != nil {
			e.value = f(e.value, now)
			return now, more, nil
		}
	}
	var zero V
	v := f(zero, now)
	if p.idle(v, now) {
		return now, more, nil
	}
	if b != nil {
		p.sweep(s, b, now)
	}
	if !p.room.reserve() {
		p.room.tidy(shards, beforeFull, now)
		if !p.room.reserve() {
			return now, false, limits.ErrTooManyKeys
		}
	}
	s.table.insert(p.hash, hash, key, v)
	if !p.used.Load() {
		p.used.Store(true)
	}
	return now, more, nil
}

func (p *part[K, V]) get(key K) (v V, now time.Duration) {
	p.look(key, func(found V, at time.Duration) { v, now = found, at })
	return v, now
}

// look calls f with the lock held.
func (p *part[K, V]) look(key K, f func(v V, now time.Duration)) {
	hash := p.hash(key)
	s := p.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	var v V
	if b := s.table.bucket(hash); b != nil {
		if e := b.find(tag(hash), key); e != nil {
			v = e.value
		}
	}
	f(v, p.room.now())
}

func (p *part[K, V]) delete(key K) {
	hash := p.hash(key)
	s := p.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.table.bucket(hash); b != nil {
		if i := b.index(tag(hash), key); i >= 0 {
			b.remove(i)
			p.removed(s, b, 1)
		}
	}
}

func (p *part[K, V]) removed(s *shard[K, V], b *bucket[K, V], n int) {
	s.table.removed(p.hash, b, n)
	p.room.count.Add(-int64(n))
}

// sweep evicts the idle entries of b, which is in s, and returns the number that it has examined
// and the number of those that it has evicted.
func (p *part[K, V]) sweep(s *shard[K, V], b *bucket[K, V], now time.Duration) (examined, forgotten int) {
	examined, forgotten = b.sweep(p.idle, now)
	if forgotten > 0 {
		p.removed(s, b, forgotten)
	}
	return examined, forgotten
}

// tidy sweeps the buckets whose turn it is, up to tries, until it has examined
// enough entries, and returns the number that it has evicted. It stays with a shard for
// all of its buckets, which lie side by side, unless another call is in there, which
// then sweeps. An older now only finds less.
func (p *part[K, V]) tidy(tries, enough int, now time.Duration) (forgotten int) {
	if !p.used.Load() {
		return 0
	}
	for examined := 0; tries > 0 && examined < enough; tries-- {
		turn, done := p.turn.Load(), true
		s := &p.shards[turn%shards]
		if s.mu.TryLock() {
			if b := s.table.next(); b != nil {
				n, idle := p.sweep(s, b, now)
				examined, forgotten = examined+n, forgotten+idle
			}
			done = s.table.swept == 0
			s.mu.Unlock()
		}
		if done {
			p.turn.CompareAndSwap(turn, turn+1)
		}
	}
	return forgotten
}
