package keyed

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// slots entries fit in a bucket. With the tags and the overflow, seven of 32
// bytes make four lines of the cache.
const slots = 7

// A bucket is a handful of entries in no order, distinguished by tags:
//
//	line   ┌─────────────┬──────────┬───────────────┐
//	  0    │ tags 0 … 6  │ overflow │ slot 0        │
//	       ├─────────────┴──────────┼───────────────┤
//	  1    │ slot 1                 │ slot 2        │
//	       ├────────────────────────┼───────────────┤
//	  2    │ slot 3                 │ slot 4        │
//	       ├────────────────────────┼───────────────┤
//	  3    │ slot 5                 │ slot 6        │
//	       └────────────────────────┴───────────────┘
//
// To find a key takes line 0 and the line of its slot. To wait for the first before
// the second is known would take 6 % of a call's time. So each tag has a
// home, the slot that is examined first: the CPU, which expects to find the key
// there, loads both lines together. Seven in ten are at home.
//
// With five on average, some buckets have too many. Entries that do not fit are in a slice next to
// it, as if there were no tags: 6 to 10 % of all, most of them half-way between two powers of two,
// when those buckets that are not split yet have twice as many as those that are. Spiral storage
// (G. N. N. Martin, 1979) always splits the fullest, and 6.6 % overflow at any size; calls were no
// faster for it, and it takes a logarithm to explain. Four on average would be 68 bytes per key.
type bucket[K comparable, V any] struct {
	tags     [slots + 1]uint8 // of the entry in each slot, or 0; the last is not used
	overflow []entry[K, V]    // entries that do not fit
	entries  [slots]entry[K, V]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// tag returns a byte that distinguishes the keys of a bucket most of the time, never 0.
// Other bits of the hash choose the shard and the bucket.
func tag(hash uint64) uint8 { return max(1, uint8(hash>>48)) }

// home returns the slot of choice for a tag.
func home(tag uint8) int { return int(tag) * slots >> 8 }

// tagged returns a word with the high bit of byte i set if slot i has the given
// tag. It may also be set for slots above one that has.
func (b *bucket[K, V]) tagged(tag uint8) uint64 {
	const ones = 0x01_01_01_01_01_01_01_01
	diff := binary.LittleEndian.Uint64(b.tags[:]) ^ ones*uint64(tag)
	return (diff - ones) &^ diff & (ones << 7 >> 8)
}

// find returns the entry of key, or nil.
func (b *bucket[K, V]) find(tag uint8, key K) *entry[K, V] {
	if i := home(tag); b.tags[i] == tag && b.entries[i].key == key {
		return &b.entries[i]
	}
	if i := b.index(tag, key); i >= slots {
		return &b.overflow[i-slots]
	} else if i >= 0 {
		return &b.entries[i]
	}
	return nil
}

// index returns the slot of key or, if it is in the overflow, where there, plus
// slots, or −1.
func (b *bucket[K, V]) index(tag uint8, key K) int {
	for hits := b.tagged(tag); hits != 0; hits &= hits - 1 {
		if i := bits.TrailingZeros64(hits) / 8; b.tags[i] == tag && b.entries[i].key == key {
			return i
		}
	}
	for i := range b.overflow {
		if b.overflow[i].key == key {
			return slots + i
		}
	}
	return -1
}

// add adds an entry: at home, where one that is not makes way, else in any slot,
// and if there is none it overflows.
func (b *bucket[K, V]) add(tag uint8, e entry[K, V]) {
	i := home(tag)
	there := b.tags[i]
	if there == 0 || home(there) != i {
		b.tags[i], tag = tag, there
		b.entries[i], e = e, b.entries[i]
		if there == 0 {
			return
		}
	}
	if empty := b.tagged(0); empty != 0 {
		i := bits.TrailingZeros64(empty) / 8
		b.tags[i], b.entries[i] = tag, e
	} else {
		b.overflow = append(b.overflow, e)
	}
}

// remove removes the entry at an index, as find returns it.
func (b *bucket[K, V]) remove(i int) {
	if i < slots {
		b.tags[i], b.entries[i] = 0, entry[K, V]{}
		return
	}
	last := len(b.overflow) - 1
	b.overflow[i-slots], b.overflow[last] = b.overflow[last], entry[K, V]{}
	b.overflow = b.overflow[:last]
	if last == 0 {
		b.overflow = nil
	}
}

// settle moves to slots the entries that need no longer overflow.
func (b *bucket[K, V]) settle(hash func(K) uint64) {
	for len(b.overflow) > 0 && b.tagged(0) != 0 {
		e := b.overflow[0]
		b.remove(slots)
		b.add(tag(hash(e.key)), e)
	}
}

// sweep removes the entries that are idle and returns their number and the number of those removed.
func (b *bucket[K, V]) sweep(idle func(V, time.Duration) bool, now time.Duration) (examined, removed int) {
	examine := func(i int, v V) {
		examined++
		if idle(v, now) {
			b.remove(i)
			removed++
		}
	}
	for i := len(b.overflow) - 1; i >= 0; i-- {
		examine(slots+i, b.overflow[i].value)
	}
	for i := range slots {
		if b.tags[i] != 0 {
			examine(i, b.entries[i].value)
		}
	}
	return examined, removed
}
