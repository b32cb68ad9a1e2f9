package buckets_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/buckets"
	"github.com/sluice-go/sluice/internal/buckets/bucketstest"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A plain is a Pair with a clock.
type plain struct{ pair buckets.Pair }

func (p *plain) sleep(d time.Duration) {
	p.pair.Own.Level = max(0, p.pair.Own.Level-int64(d))
	p.pair.Rest.Level = max(0, p.pair.Rest.Level-int64(d))
}

func (p *plain) take(q leaky.Quota, n int64) limits.Result {
	interval := int64(q.Per) / q.Count
	pair, fresh := p.pair.By(interval, q.Capacity)
	res := limits.Result{Limit: q.Capacity, ResetAfter: time.Duration(pair.Own.Level)}
	if n == 0 {
		return res
	}
	if over := pair.Own.Level + n*interval - pair.Own.Depth(); over > 0 {
		res.RetryAfter = time.Duration(over)
	} else {
		pair.Pour(n * interval)
	}
	if fresh || res.Allowed() {
		p.pair = pair
	}
	return res
}

// In no window more is granted than the laxest quota allows, and no wait is longer
// than it must be.
func TestBound(t *testing.T) {
	for i, quotas := range bucketstest.Sets {
		for seed := range uint64(60) {
			p := &plain{}
			if err := bucketstest.Run(seed, quotas, 300, bucketstest.Subject{Sleep: p.sleep, Take: p.take}); err != nil {
				t.Fatalf("set %d, seed %d: %v", i, seed, err)
			}
		}
	}
}

// The check can fail: buckets that spill, and such that keep time, break the bound.
func TestBoundCanBeBroken(t *testing.T) {
	spills := func(p *plain) func(leaky.Quota, int64) limits.Result {
		return func(q leaky.Quota, n int64) limits.Result {
			own := &p.pair.Own
			own.Interval, own.Capacity = int64(q.Per)/q.Count, q.Capacity
			own.Level = min(own.Level, own.Depth())
			return p.take(q, n)
		}
	}
	keepsTime := func(p *plain) func(leaky.Quota, int64) limits.Result {
		return func(q leaky.Quota, n int64) limits.Result {
			p.pair.Own.Interval, p.pair.Own.Capacity = int64(q.Per)/q.Count, q.Capacity
			return p.take(q, n)
		}
	}
	for name, of := range map[string]func(*plain) func(leaky.Quota, int64) limits.Result{"spills": spills, "keeps time": keepsTime} {
		failed := 0
		for seed := range uint64(20) {
			p := &plain{}
			if bucketstest.Run(seed, bucketstest.Sets[1], 300, bucketstest.Subject{Sleep: p.sleep, Take: of(p)}) != nil {
				failed++
			}
		}
		if failed < 10 {
			t.Errorf("%s: found in %d of 20 histories", name, failed)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add(uint64(1), int64(100), int64(20_000_000), int64(20), int64(20_000_000), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, seed uint64, c1, t1, c2, t2, c3, t3 int64) {
		quotas := []leaky.Quota{}
		for _, q := range [][2]int64{{c1, t1}, {c2, t2}, {c3, t3}} {
			if q[0] > 0 && q[0] < 10_000 && q[1] >= 1000 && q[1] < int64(time.Hour) {
				quotas = append(quotas, leaky.Quota{Capacity: q[0], Count: 1, Per: time.Duration(q[1])})
			}
		}
		if len(quotas) < 2 {
			t.Skip("too few")
		}
		p := &plain{}
		if err := bucketstest.Run(seed, quotas, 150, bucketstest.Subject{Sleep: p.sleep, Take: p.take}); err != nil {
			t.Fatal(err)
		}
	})
}

// Units stay units: never fewer, and at most 2 ns more.
func TestConvert(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() int64 { return 1 + r.Int64N(1<<(1+r.IntN(52))) }
	for range 100_000 {
		ns, from, to := some()-1, some(), some()
		exact := new(big.Int).Mul(big.NewInt(ns), big.NewInt(to))
		exact.Add(exact, big.NewInt(from-1)).Div(exact, big.NewInt(from))
		got := buckets.Convert(ns, from, to)
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
		if got := buckets.Convert(v[0], v[1], v[2]); got != v[3] {
			t.Errorf("%v: %d", fmt.Sprint(v), got)
		}
	}
}
