package leaky

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// A packed is the interval and the capacity of a rate in one word, because each key
// of a Keyed has one: two words would make a key an eighth larger. The capacity is in
// the lowest bits, the interval above it, and the number of bits that the capacity has in the
// highest six. Both fit if the bucket drains within two years or so; a wider one is
// its number in a list.
type packed uint64

const (
	packedBits = 58
	isWide     = packed(63) << packedBits // more bits than any capacity has
)

// pack returns an interval and a capacity as one word, or 0 if they do not fit.
func pack(interval, capacity int64) packed {
	n := bits.Len64(uint64(capacity))
	if n+bits.Len64(uint64(interval)) > packedBits {
		return 0
	}
	return packed(n)<<packedBits | packed(interval)<<n | packed(capacity)
}

// wide is the list of those that do not fit. It only grows; buckets of years are few.
type wide struct {
	mu   sync.Mutex
	list atomic.Pointer[[][2]int64]
}

// packed returns an interval and a capacity as one word.
func (w *wide) packed(interval, capacity int64) packed {
	if p := pack(interval, capacity); p != 0 {
		return p
	}
	both := [2]int64{interval, capacity}
	if i := slices.Index(w.all(), both); i >= 0 {
		return isWide | packed(i)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.all()
	i := slices.Index(list, both)
	if i < 0 {
		i = len(list)
		list = append(slices.Clip(list), both)
		w.list.Store(&list)
	}
	return isWide | packed(i)
}

// all returns the list.
func (w *wide) all() [][2]int64 {
	if l := w.list.Load(); l != nil {
		return *l
	}
	return nil
}

// unpack returns the interval and the capacity; 0 of a new key.
func (w *wide) unpack(p packed) (interval, capacity int64) {
	switch {
	case p == 0:
		return 0, 0
	case p >= isWide:
		both := w.all()[p&^isWide]
		return both[0], both[1]
	}
	n := p >> packedBits
	p &= 1<<packedBits - 1
	return int64(p >> n), int64(p & (1<<n - 1))
}
