package adaptive

import "testing"

// after returns what is believed of a rejection if there was another one so many calls before.
func after(k *chance, calls int, expected, told bool) (ignored bool) {
	c := New(Config{})
	k.may(false, false)
	for range calls {
		k.call(c)
	}
	return k.may(expected, told)
}

// Two rejections within seven calls are no chance, nor three within 32. The first one never changes anything, unless it was
// to be expected or says how long to wait.
func TestChance_NearEachOther(t *testing.T) {
	for calls, want := range map[int]bool{0: false, 7: false, 8: true, 100: true} {
		var k chance
		if k.init(); after(&k, calls, false, false) != want {
			t.Errorf("after %d calls it is chance: %t, want %t", calls, !want, want)
		}
	}
	for calls, want := range map[int]bool{15: false, 16: false, 17: true} { // twice so many
		var k chance
		k.init()
		if !after(&k, calls, false, false) {
			t.Fatalf("two rejections, %d calls apart, are no chance", calls)
		}
		c := New(Config{})
		for range calls {
			k.call(c)
		}
		if got := k.may(false, false); got != want {
			t.Errorf("three rejections, %d calls apart: chance %t, want %t", calls, got, want)
		}
	}
	for _, tc := range []struct{ expected, told, strays, want bool }{
		{false, false, false, true}, {true, false, false, false}, {false, true, false, false}, {false, true, true, true},
	} {
		k := chance{strays: tc.strays}
		if k.init(); k.may(tc.expected, tc.told) != tc.want {
			t.Errorf("%+v", tc)
		}
	}
}

// Where a share of the calls is rejected by chance, that share counts for less: each call takes 2.5 times the share
// off the doubt, and from 2 % on three rejections near each other, and not two, are no chance.
func TestChance_WhereItIsUsual(t *testing.T) {
	for _, tc := range []struct {
		share    float64
		calls    int // between two rejections
		expected bool
		want     bool
	}{
		{.1, 0, false, true}, // of 1 in 10, two in a row are chance
		{.02, 5, false, false},
		{.02, 6, false, true}, // 6 calls take 0.3 off
		{.001, 7, false, false},
		{.001, 20, true, false}, // a rejection that was to be expected, as hardly any is chance
		{.003, 20, true, false}, // it is one with another within 25 calls,
		{.003, 25, true, true},  // and not later
	} {
		k := chance{share: tc.share}
		k.init()
		if got := after(&k, tc.calls, tc.expected, false); got != tc.want {
			t.Errorf("%v of the calls, %d calls later, expected %t: chance %t, want %t", tc.share, tc.calls, tc.expected, got, tc.want)
		}
	}
	for share, want := range map[float64]bool{.0021: true, .0019: false} {
		k := chance{share: share}
		if k.init(); k.may(true, false) != want {
			t.Errorf("where %v are, a rejection that was to be expected is chance: %t, want %t", share, !want, want)
		}
	}
	k := chance{share: .021, doubt: 1.3}
	if k.init(); k.may(false, false) {
		t.Error("a doubt of 2.3 is chance")
	}
	k = chance{share: .021, doubt: 1.1}
	if k.init(); !k.may(false, false) {
		t.Error("a doubt of 2.1 is none")
	}
}

// Rejections without a time are less than others of a server that mostly says one: four in a row are no chance.
func TestChance_Silent(t *testing.T) {
	for doubt, want := range map[float64]bool{1.9: true, 2: true, 2.1: false} {
		k := chance{told: 3, doubt: doubt}
		if k.init(); k.may(true, false) != want {
			t.Errorf("a doubt of %v and one more: chance %t, want %t", doubt, !want, want)
		}
	}
	k := chance{told: 2, doubt: 1}
	if k.init(); k.may(false, false) {
		t.Error("two that said how long to wait are enough to expect it")
	}
}

// A rejection is confirmed by another within 25 calls, by fewer if many are rejected by chance. Without one it was single, and
// the mean of single ones is over 500 calls.
func TestChance_Near(t *testing.T) {
	for share, want := range map[float64]int{0: 25, .004: 25, .006: 20, .01: 12, .02: 6, .1: 6} {
		k := chance{share: share}
		if k.near() != want {
			t.Errorf("of %v: within %d calls, want %d", share, k.near(), want)
		}
	}
	c, k := New(Config{}), chance{}
	k.init()
	k.may(false, false)
	for range 25 {
		k.call(c)
	}
	equal(t, "within 25 calls", k.single, 0)
	k.call(c)
	equal(t, "after 26", k.single, .002)
	k.call(c)
	equal(t, "after 27", k.single, .002*.998)
}

// Where more than 6 single rejections in 1,000 calls were seen, a test of 200 calls begins: after 300 calls, and then
// after 4,000. What is rejected in it is chance, but for 2 in 1,000 at most, which are none.
func TestChance_Test(t *testing.T) {
	for _, tc := range []struct {
		single float64
		phase  Phase
		calls  int
		want   bool
	}{
		{.012, Tracking, 299, false}, {.012, Tracking, 300, true}, {.009, Tracking, 300, false}, {.012, Bounding, 300, false},
	} {
		c := New(Config{})
		c.phase = tc.phase
		k := chance{single: tc.single}
		k.init()
		for range tc.calls {
			k.call(c)
		}
		if k.testing != tc.want {
			t.Errorf("%+v: a test %t", tc, k.testing)
		}
	}
	// 0.0109 × 0.998³⁰⁰ is .00598, and 0.0111 × that .00609.
	for single, want := range map[float64]bool{.0109: false, .0111: true} {
		c := New(Config{})
		c.phase = Tracking
		k := chance{single: single}
		k.init()
		for range 300 {
			k.call(c)
		}
		if k.testing != want {
			t.Errorf("single ones of %v: a test %t", single, k.testing)
		}
	}
	for bad, want := range map[int]float64{0: 0, 1: .005, 20: .1} {
		c := New(Config{})
		c.phase = Tracking
		k := chance{testing: true, bad: bad, single: .01}
		k.init()
		for range 199 {
			k.call(c)
		}
		if !k.testing {
			t.Fatal("it ends before 200 calls")
		}
		if k.call(c); k.testing {
			t.Fatal("it has not ended after 200 calls")
		}
		equal(t, "share", k.share, want)
		if (k.single == 0) != (want == 0) {
			t.Errorf("%d rejected: single ones %v", bad, k.single)
		}
		for range 3999 {
			k.call(c)
		}
		if k.single = .01; k.testing {
			t.Error("the next test before 4,000 calls")
		}
		if k.call(c); !k.testing {
			t.Error("no test after 4,000 calls")
		}
	}
}

// A share that something else has found is chance from now on, and the next test is soon.
func TestChance_Found(t *testing.T) {
	c := New(Config{})
	c.phase = Tracking
	k := chance{doubt: 1.5, testing: true, calls: 77, patience: 4000}
	k.found(.05)
	if !k.may(true, false) {
		t.Error("the first rejection after it is no chance")
	}
	for range 299 {
		k.call(c)
	}
	if k.testing {
		t.Error("a test within 300 calls")
	}
	if k.call(c); !k.testing {
		t.Error("no test after 300 calls")
	}
}
