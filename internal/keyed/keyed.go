// Package keyed remembers a small value per key and evicts the values that
// are no different from none, a few at each call, without a goroutine.
//
// # Why not a Go map, or a sync.Map?
//
// Limits per key have two troubles with maps. A map cannot be searched for
// stale entries a few at a time: an iterator cannot be kept, and to begin a new
// one each time finds random entries, over and over. And a map does not shrink:
// after a million keys it holds their memory for the thousand that are left.
//
// # How much does a call cost?
//
// With a million keys hardly anything is in the cache of the CPU, and the cost of a call is the
// number of times it has to wait for a line of memory, 100 to 160 ns each time. It cannot do with
// less than two: one for the entry, which says where the text of the key is, and one for the text.
// The simplest table has more:
//
//	heads of chains → entry (→ next in chain) → text, and an entry to examine
//
// It takes 1.4 times as long as a Go map per shard that evicts nothing, and twice
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
// A key's bucket follows from its hash and its slot most of the time as well. Both
// lines of a bucket that are needed are loaded together, and then the text. See
// bucket and table.
//
// A string of up to 15 bytes, as most numbers, addresses and names are, is stored
// in place of the header of its string, and nothing is left to wait for but the
// bucket. See short. Those are apart from the others, in their own tables:
//
//	                  ┌ part: tables of other keys
//	Map ── room ──────┤
//	 count, clock     └ part: tables of short texts
//
// With a million keys a call then takes about 0.7 times as long as a Go map per
// shard, for longer strings 0.9 to 1.1 times.
//
// For a string key and a value of 16 bytes, seven slots and the rest of a bucket are 256 bytes.
// With five entries on average, overflows and room to grow that is 54 to 56 bytes per key, the
// header of the string included.
//
// # How is forgetting paid for?
//
// Each call that has to examine others waits for more lines. So a new key has the
// others in its bucket examined, which keeps stale ones to about one for three
// that are live while all keys are new. In addition, a call now and then sweeps
// another bucket, one after the other, so that each is swept some time: every
// fourth call while that finds anything, else every 32nd. At each fourth it would
// be 10 % of the time of all.
package keyed

import (
	"hash/maphash"
	"time"
)

// Most is the largest possible limit on keys. Much before that memory is short: 2²⁹ keys
// take more than 24 GB.
const Most = 1 << 29

// A Map remembers a V per K. It must be made by New and is safe for use by
// multiple goroutines. Two K that are equal are one key; one that does not
// equal itself (a NaN) is a new key each time. Like a Go map it panics for an
// interface K that holds something incomparable.
type Map[K comparable, V any] struct {
	part[K, V]                 // of all keys but short strings
	texts      *part[short, V] // of those, nil if K is not string
}

// New returns a map that remembers up to most keys, 0 < most ≤ [Most]. idle
// reports whether a value is, at a time, as good as none; it must be quick
// and must not use the Map.
func New[K comparable, V any](most int64, idle func(v V, now time.Duration) bool) *Map[K, V] {
	r, seed := &room{epoch: time.Now(), max: most}, maphash.MakeSeed()
	m := new(Map[K, V])
	m.part.init(r, idle, func(key K) uint64 { return maphash.Comparable(seed, key) })
	if _, isText := any(*new(K)).(string); isText {
		m.texts = new(part[short, V])
		m.texts.init(r, idle, func(s short) uint64 { return maphash.Bytes(seed, s[:]) })
	}
	return m
}

// Update calls f with the value of key, or the zero V if there is none, and the time since the map
// was made, and remembers the value that f returns. No other call for the same key runs at the same
// time; f must not use the Map. If the key is new and its value is not idle, and as many keys as
// may be are remembered, it returns ErrTooManyKeys and remembers nothing.
func (m *Map[K, V]) Update(key K, f func(v V, now time.Duration) V) error {
	var now time.Duration
	var more bool
	var err error
	if s, ok := m.short(key); ok {
		now, more, err = m.texts.update(s, f)
	} else {
		now, more, err = m.update(key, f)
	}
	if more {
		m.room.tidy(passedBy, 1, now)
	}
	return err
}

// Get returns the value of key, or the zero V if there is none, and the time
// since the map was made. It changes nothing.
func (m *Map[K, V]) Get(key K) (v V, now time.Duration) {
	if s, ok := m.short(key); ok {
		return m.texts.get(s)
	}
	return m.get(key)
}

// Look calls f with what Get returns. No other call for the same key runs at the same time; f must not
// use the Map.
func (m *Map[K, V]) Look(key K, f func(v V, now time.Duration)) {
	if s, ok := m.short(key); ok {
		m.texts.look(s, f)
	} else {
		m.look(key, f)
	}
}

// Delete removes key.
func (m *Map[K, V]) Delete(key K) {
	if s, ok := m.short(key); ok {
		m.texts.delete(s)
	} else {
		m.delete(key)
	}
}

// Len returns the number of remembered keys, including those with an idle value that no
// call has come across yet.
func (m *Map[K, V]) Len() int { return int(m.room.count.Load()) }

// short returns key as a short string if it is one.
func (m *Map[K, V]) short(key K) (short, bool) {
	if m.texts == nil {
		return short{}, false
	}
	return shorten(any(key).(string))
}
