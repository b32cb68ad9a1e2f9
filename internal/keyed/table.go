package keyed

import (
	"math/bits"
	"slices"
)

const (
	// perBucket entries are in a bucket on average. See bucket.
	perBucket = 5

	// leastPerBucket is the average below which buckets are merged. It is far
	// from perBucket, lest a table that sways splits and merges all the time.
	leastPerBucket = 2

	// chunkLen buckets lie in one piece of memory. From 32 KiB on, Go aligns it
	// to lines.
	chunkBits = 7
	chunkLen  = 1 << chunkBits
)

// A table is a hash table that grows and shrinks by one bucket at a time, in
// turn from the first to the last (linear hashing; Witold Litwin, 1980).
type table[K comparable, V any] struct {
	chunks [][]bucket[K, V] // bucket i is chunks[i/chunkLen][i%chunkLen]
	size   uint32           // buckets
	mask   uint32           // of the bits that the index of the last one has
	n      uint32           // entries
	swept  uint32           // the bucket that was swept last
}

// index returns the index of the bucket of hash: its low bits, as many as there
// are buckets for. Where the last of these buckets do not exist yet, one bit
// less.
func (t *table[K, V]) index(hash uint64) uint32 {
	i := uint32(hash) & t.mask
	if i >= t.size {
		i &= t.mask >> 1
	}
	return i
}

// twin returns the index of the bucket that bucket i is split off from: i
// without its highest bit.
func twin(i uint32) uint32 { return i &^ (1 << (bits.Len32(i) - 1)) }

func (t *table[K, V]) at(i uint32) *bucket[K, V] { return &t.chunks[i>>chunkBits][i&(chunkLen-1)] }

// bucket returns the bucket of hash, or nil if there is none.
func (t *table[K, V]) bucket(hash uint64) *bucket[K, V] {
	if t.size == 0 {
		return nil
	}
	return t.at(t.index(hash))
}

// insert adds key, which is not in the table.
func (t *table[K, V]) insert(hash func(K) uint64, h uint64, key K, v V) {
	if t.n >= t.size*perBucket {
		t.split(hash)
	}
	t.bucket(h).add(tag(h), entry[K, V]{key, v})
	t.n++
}

// removed records that n entries were removed from b.
func (t *table[K, V]) removed(hash func(K) uint64, b *bucket[K, V], n int) {
	t.n -= uint32(n)
	b.settle(hash)
	for t.size > 1 && t.n < t.size*leastPerBucket {
		t.merge(hash)
	}
}

// split adds a bucket and moves the entries that belong there, all of it from one
// other.
func (t *table[K, V]) split(hash func(K) uint64) {
	t.extend()
	last := t.size
	t.resize(last + 1)
	if last == 0 {
		return
	}
	from, to := t.at(twin(last)), t.at(last)
	old := *from
	*from = bucket[K, V]{}
	move := func(e entry[K, V], h uint64) {
		if uint32(h)&(last^twin(last)) != 0 { // the bit that the split is by
			to.add(tag(h), e)
		} else {
			from.add(tag(h), e)
		}
	}
	var hashes [slots]uint64 // all first: the strings of keys are loaded side by side then
	for i, e := range old.entries {
		if old.tags[i] != 0 {
			hashes[i] = hash(e.key)
		}
	}
	for i, e := range old.entries {
		if old.tags[i] != 0 {
			move(e, hashes[i])
		}
	}
	for _, e := range old.overflow {
		move(e, hash(e.key))
	}
}

// merge undoes the last split.
func (t *table[K, V]) merge(hash func(K) uint64) {
	last := t.size - 1
	from, to := t.at(last), t.at(twin(last))
	for i, e := range from.entries {
		if from.tags[i] != 0 {
			to.add(from.tags[i], e)
		}
	}
	for _, e := range from.overflow {
		to.add(tag(hash(e.key)), e)
	}
	*from = bucket[K, V]{}
	t.resize(last)
	t.truncate()
}

func (t *table[K, V]) resize(size uint32) {
	t.size = size
	t.mask = 1<<bits.Len32(size-1) - 1
}

// extend appends an empty bucket. The last chunk is given room for a few more at
// a time, and then moves; the others never do.
func (t *table[K, V]) extend() {
	c := int(t.size >> chunkBits)
	if c == len(t.chunks) {
		t.chunks = append(t.chunks, nil)
	}
	chunk := t.chunks[c]
	if n := len(chunk); n == cap(chunk) {
		more := chunkLen / 4
		if c == 0 {
			more = max(1, n/8)
		}
		chunk = append(slices.Grow([]bucket[K, V](nil), min(n+more, chunkLen)), chunk...)
	}
	t.chunks[c] = append(chunk, bucket[K, V]{})
}

// truncate undoes extend.
func (t *table[K, V]) truncate() {
	c := t.size >> chunkBits
	chunk := t.chunks[c][:t.size&(chunkLen-1)]
	if len(chunk) > 0 {
		if cap(chunk) > 2*len(chunk)+chunkLen/4 {
			chunk = slices.Clone(chunk)
		}
		t.chunks[c] = chunk
		return
	}
	t.chunks[c] = nil
	t.chunks = t.chunks[:c]
	if cap(t.chunks) > 4*len(t.chunks) {
		t.chunks = slices.Clone(t.chunks)
	}
}

// next returns the bucket that it is the turn of to be swept, or nil if there is none. They take
// turns from the last to the first, so entries that a merge moves still have their turn.
func (t *table[K, V]) next() *bucket[K, V] {
	if t.size == 0 {
		return nil
	}
	if t.swept == 0 || t.swept > t.size {
		t.swept = t.size
	}
	t.swept--
	return t.at(t.swept)
}
