package kind

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/mixed"
	"github.com/sluice-go/sluice/limits"
)

// A plain is a BucketPair with a clock.
type plain struct{ pair BucketPair }

func (p *plain) sleep(d time.Duration) { p.pair = p.pair.After(d) }

func (p *plain) take(rate limits.Rate, n int64) limits.Result {
	r := must(rate)
	pair, res, keep := p.pair.Take(&r, n)
	if keep {
		p.pair = pair
	}
	return res
}

// In no window more is admitted than the laxest rate allows, and no wait is longer
// than it must be.
func TestBucketPair_Take(t *testing.T) {
	for i, rates := range mixed.Sets {
		for seed := range uint64(60) {
			p := &plain{}
			if err := mixed.Run(seed, rates, 300, mixed.Subject{Sleep: p.sleep, Take: p.take}); err != nil {
				t.Fatalf("set %d, seed %d: %v", i, seed, err)
			}
		}
	}
}

// The check can fail: buckets that spill, and such that keep time, break the bound.
func TestBucketPair_checkCanFail(t *testing.T) {
	spills := func(p *plain) func(limits.Rate, int64) limits.Result {
		return func(q limits.Rate, n int64) limits.Result {
			own := &p.pair.Own
			own.Interval, own.Capacity = int64(q.Per)/q.Count, q.Burst
			own.Level = min(own.Level, own.depth())
			return p.take(q, n)
		}
	}
	keepsTime := func(p *plain) func(limits.Rate, int64) limits.Result {
		return func(q limits.Rate, n int64) limits.Result {
			p.pair.Own.Interval, p.pair.Own.Capacity = int64(q.Per)/q.Count, q.Burst
			return p.take(q, n)
		}
	}
	for name, of := range map[string]func(*plain) func(limits.Rate, int64) limits.Result{"spills": spills, "keeps time": keepsTime} {
		failed := 0
		for seed := range uint64(20) {
			p := &plain{}
			if mixed.Run(seed, mixed.Sets[1], 300, mixed.Subject{Sleep: p.sleep, Take: of(p)}) != nil {
				failed++
			}
		}
		if failed < 10 {
			t.Errorf("%s: found in %d of 20 histories", name, failed)
		}
	}
}

func FuzzBucketPair(f *testing.F) {
	f.Add(uint64(1), int64(100), int64(20_000_000), int64(20), int64(20_000_000), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, seed uint64, c1, t1, c2, t2, c3, t3 int64) {
		rates := []limits.Rate{}
		for _, q := range [][2]int64{{c1, t1}, {c2, t2}, {c3, t3}} {
			if q[0] > 0 && q[0] < 10_000 && q[1] >= 1000 && q[1] < int64(time.Hour) {
				rates = append(rates, limits.Rate{Count: 1, Per: time.Duration(q[1]), Burst: q[0]})
			}
		}
		if len(rates) < 2 {
			t.Skip("too few")
		}
		p := &plain{}
		if err := mixed.Run(seed, rates, 150, mixed.Subject{Sleep: p.sleep, Take: p.take}); err != nil {
			t.Fatal(err)
		}
	})
}

// Units stay units: never fewer, and at most 2 ns more.
func TestConvert_keepsUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() int64 { return 1 + r.Int64N(1<<(1+r.IntN(52))) }
	for range 100_000 {
		ns, from, to := some()-1, some(), some()
		exact := new(big.Int).Mul(big.NewInt(ns), big.NewInt(to))
		exact.Add(exact, big.NewInt(from-1)).Div(exact, big.NewInt(from))
		got := convert(ns, from, to)
		if !exact.IsInt64() {
			if got != math.MaxInt64 {
				t.Fatal(ns, from, to, got, exact)
			}
			continue
		}
		if exact.Int64() > 1<<53 {
			continue
		}
		if more := got - exact.Int64(); more < 0 || more > 3 {
			t.Fatalf("%d at %d is %d at %d; exactly %v", ns, from, got, to, exact)
		}
	}
	for _, v := range [][4]int64{{5, 5, 5, 5}, {0, 3, 7, 0}, {6, 3, 7, 14}, {math.MaxInt64, 1, 2, math.MaxInt64}} {
		if got := convert(v[0], v[1], v[2]); got != v[3] {
			t.Errorf("%v: %d", fmt.Sprint(v), got)
		}
	}
}

func TestBucketPair_By(t *testing.T) {
	slow, fast := must(limits.Rate{Count: 1, Per: sec, Burst: 10}), must(limits.Rate{Count: 10, Per: sec, Burst: 10})
	larger, smaller := must(limits.Rate{Count: 1, Per: sec, Burst: 20}), must(limits.Rate{Count: 1, Per: sec, Burst: 4})
	s := int64(sec)
	for name, v := range map[string]struct {
		before BucketPair
		by     *Bucket
		after  BucketPair
		fresh  bool
	}{
		"a new key":          {BucketPair{}, &slow, BucketPair{Own: slow.State(0)}, false},
		"the same rate":      {BucketPair{Own: slow.State(3 * sec)}, &slow, BucketPair{Own: slow.State(3 * sec)}, false},
		"the other rate":     {BucketPair{slow.State(3 * sec), fast.State(sec)}, &fast, BucketPair{fast.State(sec), slow.State(3 * sec)}, false},
		"as many units":      {BucketPair{Own: slow.State(3 * sec)}, &fast, BucketPair{fast.State(3 * sec / 10), slow.State(3 * sec)}, true},
		"full at most":       {BucketPair{Own: slow.State(9 * sec)}, &smaller, BucketPair{smaller.State(4 * sec), slow.State(9 * sec)}, true},
		"debt stays":         {BucketPair{Own: slow.State(12 * sec)}, &smaller, BucketPair{smaller.State(6 * sec), slow.State(12 * sec)}, true},
		"larger":             {BucketPair{Own: slow.State(3 * sec)}, &larger, BucketPair{larger.State(3 * sec), slow.State(3 * sec)}, true},
		"slower, larger":     {BucketPair{Own: BucketState{s / 2, 10, s}}, &larger, BucketPair{larger.State(12 * sec), BucketState{s / 2, 10, s}}, true},
		"an empty one":       {BucketPair{Own: slow.State(0)}, &fast, BucketPair{fast.State(0), slow.State(0)}, false},
		"of two the laxer":   {BucketPair{slow.State(sec), smaller.State(sec)}, &fast, BucketPair{fast.State(sec / 10), slow.State(sec)}, true},
		"or the other way":   {BucketPair{smaller.State(sec), slow.State(sec)}, &fast, BucketPair{fast.State(sec / 10), slow.State(sec)}, true},
		"an empty other one": {BucketPair{fast.State(0), larger.State(4 * sec)}, &smaller, BucketPair{smaller.State(4 * sec), larger.State(4 * sec)}, true},
		"an empty laxer one": {BucketPair{larger.State(0), slow.State(sec)}, &fast, BucketPair{fast.State(sec / 10), slow.State(sec)}, true},
		"none is laxer":      {BucketPair{fast.State(sec), larger.State(4 * sec)}, &smaller, BucketPair{smaller.State(4 * sec), BucketState{s / 10, 20, s}}, true},
	} {
		if got, fresh := v.before.By(v.by); got != v.after || fresh != v.fresh {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, fresh, v.after, v.fresh)
		}
	}
}

func TestBucketPair_Pour(t *testing.T) {
	slow, fast := must(limits.Rate{Count: 1, Per: sec, Burst: 10}), must(limits.Rate{Count: 10, Per: sec, Burst: 5})
	larger, quick := must(limits.Rate{Count: 1, Per: sec, Burst: 20}), must(limits.Rate{Count: 10, Per: sec, Burst: 10})
	smaller := must(limits.Rate{Count: 1, Per: sec, Burst: 4})
	for name, v := range map[string]struct {
		before BucketPair
		ns     time.Duration
		after  BucketPair
	}{
		"nothing":                   {BucketPair{slow.State(sec), larger.State(sec)}, 0, BucketPair{slow.State(sec), larger.State(sec)}},
		"alone":                     {BucketPair{Own: slow.State(sec)}, sec, BucketPair{Own: slow.State(2 * sec)}},
		"both, in units":            {BucketPair{slow.State(sec), fast.State(sec / 10)}, 2 * sec, BucketPair{slow.State(3 * sec), fast.State(3 * sec / 10)}},
		"the laxer one needs none":  {BucketPair{larger.State(sec), slow.State(sec)}, sec, BucketPair{Own: larger.State(2 * sec)}},
		"nor the faster one":        {BucketPair{quick.State(sec / 10), slow.State(sec)}, sec / 10, BucketPair{Own: quick.State(2 * sec / 10)}},
		"full and no fuller":        {BucketPair{fast.State(0), slow.State(9 * sec)}, 3 * sec / 10, BucketPair{fast.State(3 * sec / 10), slow.State(10 * sec)}},
		"full, of the same rate":    {BucketPair{smaller.State(0), slow.State(9 * sec)}, 3 * sec, BucketPair{smaller.State(3 * sec), slow.State(10 * sec)}},
		"given back, the same rate": {BucketPair{smaller.State(3 * sec), slow.State(9 * sec)}, -2 * sec, BucketPair{smaller.State(sec), slow.State(7 * sec)}},
		"fuller stays so":           {BucketPair{fast.State(0), slow.State(12 * sec)}, 3 * sec / 10, BucketPair{fast.State(3 * sec / 10), slow.State(12 * sec)}},
		"by a slower one, in full":  {BucketPair{slow.State(0), fast.State(sec / 2)}, 3 * sec, BucketPair{slow.State(3 * sec), fast.State(8 * sec / 10)}},
		"debt, in full":             {BucketPair{fast.State(sec / 2), slow.State(9 * sec)}, 3 * sec / 10, BucketPair{fast.State(8 * sec / 10), slow.State(12 * sec)}},
		"given back":                {BucketPair{fast.State(sec / 2), slow.State(5 * sec)}, -2 * sec / 10, BucketPair{fast.State(3 * sec / 10), slow.State(3 * sec)}},
		"given back by the slower":  {BucketPair{slow.State(5 * sec), fast.State(sec / 2)}, -2 * sec, BucketPair{slow.State(3 * sec), fast.State(sec / 2)}},
		"more than was in it":       {BucketPair{fast.State(sec / 10), slow.State(sec)}, -sec, BucketPair{fast.State(0), slow.State(0)}},
		"more than can be computed": {BucketPair{fast.State(sec / 10), slow.State(sec)}, -math.MaxInt64, BucketPair{fast.State(0), slow.State(0)}},
	} {
		if v.before.Pour(int64(v.ns)); v.before != v.after {
			t.Errorf("%s: %+v, want %+v", name, v.before, v.after)
		}
	}
}

func TestBucketPair_Take_KeepsOnlyWhatChanged(t *testing.T) {
	slow, fast := must(limits.Rate{Count: 1, Per: sec, Burst: 10}), must(limits.Rate{Count: 10, Per: sec, Burst: 5})
	full := BucketPair{Own: slow.State(10 * sec)}
	for name, v := range map[string]struct {
		by      *Bucket
		n       int64
		allowed bool
		keep    bool
	}{
		"refused":              {&slow, 1, false, false},
		"never":                {&slow, 11, false, false},
		"nothing":              {&slow, 0, true, false},
		"nothing, new":         {&fast, 0, true, false},
		"refused by a new one": {&fast, 1, false, true},
	} {
		p, res, keep := full.Take(v.by, v.n)
		if res.Allowed() != v.allowed || keep != v.keep || !keep && v.by == &slow && p != full {
			t.Errorf("%s: %+v, %+v, %v", name, p, res, keep)
		}
	}
	p, res, keep := full.After(3*sec).Take(&slow, 2)
	if p != (BucketPair{Own: slow.State(9 * sec)}) || !res.Allowed() || res.ResetAfter != 9*sec || res.Remaining != 1 || !keep {
		t.Errorf("allowed: %+v, %+v, %v", p, res, keep)
	}
	if p := full.Adjust(&slow, -4).Adjust(&fast, 1); p != (BucketPair{fast.State(7 * sec / 10), slow.State(7 * sec)}) {
		t.Errorf("adjusted: %+v", p)
	}
	if p := (BucketPair{slow.State(2 * sec), fast.State(3 * sec)}).After(sec * 5 / 2); p != (BucketPair{slow.State(0), fast.State(sec / 2)}) {
		t.Errorf("later: %+v", p)
	}
}
