package keyed

import (
	"testing"
)

// When there is one more bucket, only its twin has moved anything, and only to it.
func TestSplitsMoveLittle(t *testing.T) {
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

// At all sizes a tenth or less of the entries overflow.
func TestOverflow(t *testing.T) {
	hash := func(key uint64) uint64 { // splitmix64
		key *= 0x9e3779b97f4a7c15
		key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
		key = (key ^ key>>27) * 0x94d049bb133111eb
		return key ^ key>>31
	}
	var tab table[uint64, int]
	for n := range uint64(40_000) {
		tab.insert(hash, hash(n), n, 0)
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

// Eight in ten of the entries that do not overflow are in the line that is loaded
// while it is not known yet where they are.
func TestHomes(t *testing.T) {
	near, far := 0, 0
	for seed := range 2000 {
		var b bucket[int, int]
		for key := range perBucket {
			tag := uint8(1 + (seed*7919+key*key*31+key*131)%255)
			b.add(tag, entry[int, int]{key, 0})
			if i := b.index(tag, key); i < 0 || b.find(tag, key) != &b.entries[i] {
				t.Fatalf("seed %d: key %d is at %d", seed, key, i)
			}
		}
		for i, tag := range b.tags[:slots] {
			switch {
			case tag == 0:
			case home(tag) == i || beside(home(tag)) == i:
				near++
			default:
				far++
			}
		}
	}
	t.Logf("%.2f are near home", float64(near)/float64(near+far))
	if share := float64(near) / float64(near+far); share < 0.8 {
		t.Errorf("%.2f are near home", share)
	}
	for i := range slots {
		if j := beside(i); beside(j) != i || i > 0 && j == i || (i+1)/2 != (j+1)/2 {
			t.Errorf("%d is beside %d", j, i)
		}
	}
}
