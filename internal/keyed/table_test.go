package keyed

import (
	"math/rand/v2"
	"testing"
)

// When there is one more bucket, only its twin has moved anything, and only to it.
func TestTable_SplitsMoveLittle(t *testing.T) {
	var before table[int, int]
	before.resize(1)
	for n := uint32(2); n < 2000; n++ {
		var after table[int, int]
		after.resize(n)
		for h := range uint64(4096) {
			was, is := before.index(h), after.index(h)
			if is >= n || is != was && (is != n-1 || was != twin(n-1)) {
				t.Fatalf("of %d buckets, hash %#x is in %d and was in %d", n, h, is, was)
			}
		}
		before = after
	}
}

// splitmix is a good hash (Steele, Lea and Flood: Fast Splittable Pseudorandom
// Number Generators, 2014).
func splitmix(key uint64) uint64 {
	key *= 0x9e3779b97f4a7c15
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	return key ^ key>>31
}

// At all sizes a tenth or less of the entries overflow.
func TestTable_Overflow(t *testing.T) {
	var tab table[uint64, int]
	for n := range uint64(40_000) {
		tab.insert(splitmix, splitmix(n), n, 0)
		if n < 20_000 || n%2000 != 0 {
			continue
		}
		overflow, most := 0, 0
		for i := range tab.size {
			b := tab.at(i)
			overflow += len(b.overflow)
			most = max(most, len(b.overflow))
		}
		t.Logf("%d entries: %.1f %% overflow, at most %d of one bucket", n, 100*float64(overflow)/float64(n), most)
		if share := float64(overflow) / float64(n); share > 0.11 {
			t.Errorf("%d entries: %.1f %% overflow", n, 100*share)
		}
	}
}

// Most entries are where they are looked for first.
func TestTable_Homes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		added, removed int
		least          float64
	}{
		{perBucket, 0, 0.68},
		{slots + 2, 4, 0.45}, // an entry that had to go elsewhere stays there
	} {
		home, all := 0, 0
		for range 2000 {
			var b bucket[int, int]
			tags := make([]uint8, c.added)
			for key := range tags {
				tags[key] = uint8(1 + random.IntN(255))
				b.add(tags[key], entry[int, int]{key, 0})
			}
			for key := range c.removed {
				b.remove(b.index(tags[key], key))
				b.settle(func(key int) uint64 { return uint64(tags[key]) << 48 })
			}
			for key, tag := range tags {
				i, e := b.index(tag, key), b.find(tag, key)
				switch {
				case key < c.removed:
					if i >= 0 || e != nil {
						t.Fatalf("removed key %d is at %d", key, i)
					}
					continue
				case i < 0 || i >= slots && len(b.overflow) <= i-slots || e == nil || e.key != key:
					t.Fatalf("key %d is at %d", key, i)
				case i == int(tag)*slots/256:
					home++
				}
				all++
			}
		}
		if share := float64(home) / float64(all); share < c.least {
			t.Errorf("%d added, %d removed: %.2f are at home", c.added, c.removed, share)
		}
	}
}
