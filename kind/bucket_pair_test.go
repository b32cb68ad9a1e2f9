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

// In no window more is granted than the laxest rate allows, and no wait is longer
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
