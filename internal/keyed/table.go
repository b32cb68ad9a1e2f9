package keyed

import (
	"math/bits"
	"slices"
)

// chunkLen entries lie in one piece of memory. Less would cost more in
// pointers to them, more would leave more unused.
const (
	chunkBits = 8
	chunkLen  = 1 << chunkBits
)

// A table is a hash table that grows and shrinks by one bucket at a time. See
// the package comment.
type table[K comparable, V any] struct {
	chunks [][]entry[K, V] // entry i is chunks[i/chunkLen][i%chunkLen]
	heads  []uint32        // of each bucket the first entry, or none
	n      uint32          // entries
	cursor uint32          // the entry to be examined next
}

type entry[K comparable, V any] struct {
	tag   uint32 // of the hash
	next  uint32 // entry in the same bucket, or none
	key   K
	value V
}

func (t *table[K, V]) at(i uint32) *entry[K, V] {
	return &t.chunks[i>>chunkBits][i&(chunkLen-1)]
}

// bucket returns the bucket of tag: its low bits, as many as there are buckets
// for. Where the last of these buckets do not exist yet, one bit less.
func (t *table[K, V]) bucket(tag uint32) uint32 {
	n := uint32(len(t.heads))
	b := tag & (1<<bits.Len32(n-1) - 1)
	if b >= n {
		b = twin(b)
	}
	return b
}

// twin returns the bucket that bucket b is split off from: b without its
// highest bit.
func twin(b uint32) uint32 { return b &^ (1 << (bits.Len32(b) - 1)) }

// find returns the index of key, or none.
func (t *table[K, V]) find(tag uint32, key K) uint32 {
	if t.n == 0 {
		return none
	}
	for i := t.heads[t.bucket(tag)]; i != none; {
		e := t.at(i)
		if e.tag == tag && e.key == key {
			return i
		}
		i = e.next
	}
	return none
}

// insert adds key, which is not in the table.
func (t *table[K, V]) insert(tag uint32, key K, v V) {
	for range 2 { // chains are half an entry long: a step along one is a cache miss
		if len(t.heads) < 2*int(t.n+1) {
			t.split()
		}
	}
	c := int(t.n >> chunkBits)
	if c == len(t.chunks) {
		var chunk []entry[K, V]
		if c > 0 { // a table of few entries is not given a whole chunk
			chunk = make([]entry[K, V], 0, chunkLen)
		}
		t.chunks = append(t.chunks, chunk)
	}
	head := &t.heads[t.bucket(tag)]
	t.chunks[c] = append(t.chunks[c], entry[K, V]{tag, *head, key, v})
	*head = t.n
	t.n++
}

// split adds a bucket and moves there what belongs there, all of it from one
// other.
func (t *table[K, V]) split() {
	t.heads = append(t.heads, none)
	b := uint32(len(t.heads) - 1)
	if b == 0 {
		return
	}
	for link := &t.heads[twin(b)]; *link != none; {
		i := *link
		e := t.at(i)
		if t.bucket(e.tag) == b {
			*link = e.next
			e.next, t.heads[b] = t.heads[b], i
		} else {
			link = &e.next
		}
	}
}

// merge removes the last bucket: what is in it goes to its twin.
func (t *table[K, V]) merge() {
	b := uint32(len(t.heads) - 1)
	link := &t.heads[b]
	for *link != none {
		link = &t.at(*link).next
	}
	*link = t.heads[twin(b)]
	t.heads[twin(b)] = t.heads[b]
	t.heads = t.heads[:b]
	if cap(t.heads) > 4*len(t.heads)+chunkLen {
		t.heads = slices.Clone(t.heads)
	}
}

// link returns what points to entry i.
func (t *table[K, V]) link(i uint32) *uint32 {
	link := &t.heads[t.bucket(t.at(i).tag)]
	for *link != i {
		link = &t.at(*link).next
	}
	return link
}

// remove removes entry i and puts the last entry in its place.
func (t *table[K, V]) remove(i uint32) {
	*t.link(i) = t.at(i).next
	last := t.n - 1
	if i != last {
		*t.link(last) = i
		*t.at(i) = *t.at(last)
	}
	c := last >> chunkBits
	*t.at(last) = entry[K, V]{} // let go of the key
	t.chunks[c] = t.chunks[c][:last&(chunkLen-1)]
	t.n--
	// A chunk is kept until half of the one before it is empty as well, and a
	// bucket until there are four for each entry, lest a table that sways around a
	// boundary allocates at each turn.
	if c := len(t.chunks) - 1; c > 0 && int(t.n) <= c*chunkLen-chunkLen/2 {
		t.chunks[c] = nil
		t.chunks = t.chunks[:c]
	}
	for range 4 {
		if len(t.heads) > 1 && len(t.heads) > 4*int(t.n) {
			t.merge()
		}
	}
}
