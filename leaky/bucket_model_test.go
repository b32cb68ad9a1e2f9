package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A model is a bucket that is slow and obvious: water that is so many
// nanoseconds deep, in integers without an end, and sinks by one each
// nanosecond. It has no arrival times.
type model struct {
	rate  limits.Rate
	now   time.Duration
	level *big.Int
	asked map[limits.Rate]bool // that were in force before this one
}

func newModel(q limits.Rate) *model {
	return &model{rate: q, level: new(big.Int), asked: map[limits.Rate]bool{}}
}

func (m *model) empty() bool { return m.level.Sign() <= 0 }

// times returns how deep n units are.
func (m *model) times(n int64) *big.Int {
	t := big.NewInt(int64(m.rate.Per) / m.rate.Count)
	return t.Mul(t, big.NewInt(n))
}

func (m *model) depth() *big.Int { return m.times(m.rate.Burst) }

func (m *model) add(x *big.Int) {
	m.level.Add(m.level, x)
	if m.level.Sign() < 0 {
		m.level.SetInt64(0)
	}
	if end := big.NewInt(math.MaxInt64 - int64(m.now)); m.level.Cmp(end) > 0 {
		m.level = end
	}
}

func (m *model) leak(now time.Duration) {
	m.add(big.NewInt(int64(m.now - now)))
	m.now = now
}

func (m *model) take(n int64) limits.Result {
	r := limits.Result{Limit: m.rate.Burst}
	over := new(big.Int).Add(m.level, m.times(n))
	over.Sub(over, m.depth())
	switch {
	case n > m.rate.Burst:
		r.RetryAfter = limits.Never
	case n > 0 && over.Sign() > 0:
		r.RetryAfter = min(time.Duration(over.Int64()), limits.Never-1)
	default:
		m.add(m.times(n))
	}
	// Units fit for as long as they do.
	room := new(big.Int).Sub(m.depth(), m.level)
	if room.Sign() > 0 {
		r.Remaining = room.Div(room, m.times(1)).Int64()
	}
	r.ResetAfter = time.Duration(m.level.Int64())
	return r
}

// setRate changes to a rate by which the bucket is found to be so full. It returns
// an error if that cannot be: fewer units than there were, though they would fit, or
// more than full, though no more is owed. Where it knows the level it checks it, and
// otherwise whether that would be possible.
func (m *model) setRate(q limits.Rate, found time.Duration) error {
	if q == m.rate {
		m.level = m.level.SetInt64(int64(found))
		return nil
	}
	owed := new(big.Int).Sub(m.level, m.depth())
	if owed.Sign() < 0 {
		owed.SetInt64(0)
	}
	before := m.times(1)
	m.asked[m.rate] = true
	m.rate = q
	scale := func(x *big.Int) *big.Int { // in units of the new interval, rounded up
		y := new(big.Int).Mul(x, m.times(1))
		return y.Add(y, new(big.Int).Sub(before, big.NewInt(1))).Div(y, before)
	}
	units, full := scale(m.level), scale(owed)
	full.Add(full, m.depth())
	end := big.NewInt(math.MaxInt64 - int64(m.now))
	for _, x := range []*big.Int{units, full} {
		if x.Cmp(end) > 0 {
			x.Set(end)
		}
	}
	least, most := units, full
	if slower := m.times(1).Cmp(before) >= 0; slower && full.Cmp(units) < 0 {
		least = full
	} else if !slower && units.Cmp(full) > 0 {
		most = units
	}
	m.level = big.NewInt(int64(found))
	// 2 ns, and where more than 104 days are converted what floating point has no place for.
	slack := new(big.Int).Rsh(most, 50)
	slack.Add(slack, big.NewInt(4))
	if m.asked[q] || len(m.asked) > 1 {
		return nil // also rates before the last one count: see package mixed
	}
	if new(big.Int).Add(m.level, slack).Cmp(least) < 0 || new(big.Int).Sub(m.level, slack).Cmp(most) > 0 {
		return fmt.Errorf("by %v the bucket holds %v; %v to %v are possible", q, found, least, most)
	}
	return nil
}

var (
	fuzzRates = []limits.Rate{
		{Count: 1, Per: sec, Burst: 5}, {Count: 30, Per: time.Minute, Burst: 16}, {Count: 1, Per: sec, Burst: 1}, {Count: 7, Per: time.Minute, Burst: 3}, {Count: 10, Per: sec, Burst: 10}, {Count: 1, Per: 7 * 24 * time.Hour, Burst: 4},
		{Count: 999_999, Per: sec, Burst: 1000}, {Count: 3, Per: sec, Burst: 2}, {Count: 1, Per: time.Microsecond, Burst: 1 << 62 / 1000}, {Count: 300, Per: 20 * sec, Burst: 100},
	}
	fuzzTimes   = []time.Duration{1, ms, sec, 333_333_333, 8_571_428_571, 200 * ms, 26 * time.Hour, time.Minute, 1000, 199 * ms}
	fuzzWeights = []int64{1, 1, 2, 3, 5, 16, 17, 1000, math.MaxInt64, 0, 1 << 61 / 1000}
)

// history reads choices from fuzzed bytes.
type history []byte

func (h *history) next(n int) int {
	if len(*h) == 0 {
		return 0
	}
	b := (*h)[0]
	*h = (*h)[1:]
	return int(b) % n
}

func pick[T any](h *history, from []T) T { return from[h.next(len(from))] }

func fuzzSeeds(f *testing.F) {
	f.Add([]byte{0, 0, 4, 0, 0, 6, 2, 0, 4, 1, 0})                         // fill, reject, sleep, take
	f.Add([]byte{1, 0, 5, 5, 0, 1, 0, 0, 6, 5, 0, 0, 5, 9, 0, 8})          // other rates
	f.Add([]byte{0, 0, 3, 3, 4, 3, 0, 1, 6, 2, 5, 2, 0, 0, 2, 1, 2, 8, 4}) // adjust, return, reset
	f.Add([]byte{6, 0, 7, 6, 8, 0, 7, 0, 0, 6, 0, 0, 0, 0, 7, 6, 1, 0, 0}) // nanoseconds
	f.Add([]byte{8, 3, 8, 3, 8, 0, 0, 5, 0, 0, 0, 3, 8, 2, 8, 0, 4, 5, 8}) // no end
	f.Add([]byte{3, 0, 2, 6, 2, 7, 0, 2, 0, 0, 7, 1, 3, 8, 0, 7, 0, 6, 7}) // restarts
}

// FuzzBucket compares a Bucket in a bubble with the model: every answer, and
// what Take(0) returns after every step.
func FuzzBucket(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { bucketHistory(t, data) })
	})
}

func bucketHistory(t *testing.T, data []byte) {
	h := history(data)
	q := pick(&h, fuzzRates)
	b, m, start := limits.Must(leaky.New(q)), newModel(q), time.Now()
	for len(h) > 0 {
		m.leak(time.Since(start))
		op := h.next(8)
		switch op {
		case 0, 1:
			n := pick(&h, fuzzWeights)
			before := b.Take(0)
			got, want := b.Take(n), m.take(n)
			if got != want {
				t.Fatalf("%v: Take(%d) of %v, %+v:\n got %+v\nwant %+v", m.now, n, m.rate, before, got, want)
			}
			if op == 1 && got.Allowed() { // as if it had not been
				b.Adjust(bg, -n, 0)
				m.add(m.times(-n))
				if after := b.Take(0); after != before {
					t.Fatalf("%v: Return(%d): %+v, before it was taken %+v", m.now, n, after, before)
				}
			}
			if !got.Allowed() && got.RetryAfter > 0 && got.RetryAfter < time.Hour && h.next(2) == 0 {
				time.Sleep(got.RetryAfter - 1)
				if r := b.Take(n); r.Allowed() {
					t.Fatalf("%v: Take(%d) succeeds a nanosecond before %v", m.now, n, got.RetryAfter)
				}
				time.Sleep(time.Nanosecond)
				m.leak(time.Since(start))
				if r := b.Take(n); r != m.take(n) || !r.Allowed() {
					t.Fatalf("%v: Take(%d) after the wait: %+v", m.now, n, r)
				}
			}
		case 2:
			n := pick(&h, fuzzWeights)
			b.Adjust(bg, -n, 0)
			m.add(m.times(-n))
		case 3:
			n := pick(&h, fuzzWeights) * int64(1-2*h.next(2))
			if err := b.Adjust(bg, n, 0); err != nil {
				t.Fatal(err)
			}
			m.add(m.times(n))
		case 4:
			if h.next(4) == 0 {
				b.Adjust(bg, math.MinInt64, 0)
				m.level.SetInt64(0)
			}
			n := pick(&h, fuzzWeights)
			wait, err := b.Admit(bg, n)
			want := m.take(n)
			if wait != waitOf(want) || !errors.Is(err, want.Err()) || (err == nil) != (n <= m.rate.Burst) {
				t.Fatalf("%v: Admit(%d) = %v, %v; want %+v", m.now, n, wait, err, want)
			}
		case 5:
			q := pick(&h, fuzzRates)
			if err := b.SetRate(q); err != nil {
				t.Fatal(err)
			}
			if err := m.setRate(q, b.Take(0).ResetAfter); err != nil {
				t.Fatalf("%v: %v", m.now, err)
			}
		case 6:
			time.Sleep(pick(&h, fuzzTimes))
			m.leak(time.Since(start))
		case 7:
			saved := b.Snapshot()
			if h.next(2) == 0 {
				time.Sleep(pick(&h, fuzzTimes))
			}
			m.leak(time.Since(start))
			b = limits.Must(leaky.New(m.rate))
			if err := b.Restore(saved); err != nil {
				t.Fatalf("%v: %s: %v", m.now, saved, err)
			}
			m.now, start = 0, time.Now() // times count from here
		}
		if got, want := b.Take(0), m.take(0); got != want {
			t.Fatalf("%v: after op %d of %v:\n got %+v\nwant %+v", m.now, op, m.rate, got, want)
		}
	}
}

// FuzzKeyed compares a Keyed with one model per key, none of which is ever
// forgotten.
func FuzzKeyed(f *testing.F) {
	fuzzSeeds(f)
	f.Add([]byte{2, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 6, 2, 0, 5, 0, 1, 1, 1, 0}) // full
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 600 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { keyedHistory(t, data) })
	})
}

func keyedHistory(t *testing.T, data []byte) {
	h := history(data)
	rate := pick(&h, fuzzRates)
	most := pick(&h, []int64{0, 1, 4, 9})
	k, err := leaky.NewKeyed[int](rate, limits.KeyedConfig{MaxKeys: most})
	if err != nil {
		t.Fatal(err)
	}
	if most == 0 {
		most = 1 << 29
	}
	models, start := map[int]*model{}, time.Now()
	stored := 0 // before the call
	of := func(key int) *model {
		if models[key] == nil {
			models[key] = newModel(rate)
		}
		m := models[key]
		m.leak(time.Since(start))
		return m
	}
	full := func(m *model, err error) bool {
		if !errors.Is(err, limits.ErrTooManyKeys) {
			return false
		}
		if !m.empty() && len(m.asked) == 0 || int64(stored) < most { // of several rates another may hold it
			t.Fatalf("%v with %d of %d keys, level %v", err, stored, most, m.level)
		}
		return true
	}
	asks := func(m *model, q limits.Rate, before limits.Result) {
		t.Helper()
		if err := m.setRate(q, before.ResetAfter); err != nil {
			t.Fatalf("%v: %v", m.now, err)
		}
	}
	for len(h) > 0 {
		key := h.next(16)
		m := of(key)
		stored = k.Len()
		switch op := h.next(7); op {
		case 0, 1:
			q := rate
			take := func(n int64) limits.Result { return k.Take(key, n) }
			if op == 1 {
				q = pick(&h, fuzzRates)
				take = func(n int64) limits.Result { return k.TakeRate(key, q, n) }
			}
			n := pick(&h, fuzzWeights)
			before := k.TakeRate(key, q, 0)
			got := take(n)
			if full(m, got.Err()) {
				if got != (limits.Result{RetryAfter: limits.Never}) {
					t.Fatalf("refused for its key: %+v", got)
				}
				break
			}
			if n == 0 { // looks only
				m = &model{m.rate, m.now, new(big.Int).Set(m.level), maps.Clone(m.asked)}
			}
			asks(m, q, before)
			if want := m.take(n); got != want {
				t.Fatalf("%v: key %d, %d of %v:\n got %+v\nwant %+v", m.now, key, n, q, got, want)
			}
		case 2:
			n := pick(&h, fuzzWeights) * int64(1-2*h.next(2))
			before := k.Take(key, 0)
			if err := k.On(key).Adjust(bg, n, 0); !full(m, err) {
				asks(m, rate, before)
				m.add(m.times(n))
				if err != nil {
					t.Fatal(err)
				}
			}
		case 3:
			n := pick(&h, fuzzWeights)
			before := k.Take(key, 0)
			wait, err := k.On(key).Admit(context.Background(), n)
			if full(m, err) {
				break
			}
			if n > 0 {
				asks(m, rate, before)
			}
			if n > 0 || m.rate == rate {
				if want := m.take(n); wait != waitOf(want) || !errors.Is(err, want.Err()) {
					t.Fatalf("%v: Admit(%d) of key %d = %v, %v; want %+v", m.now, n, key, wait, err, want)
				}
			}
		case 4:
			if h.next(4) == 0 {
				before := k.Take(key, 0)
				if err := k.On(key).Adjust(bg, math.MinInt64, 0); err != nil {
					t.Fatal(err)
				}
				asks(m, rate, before)
				m.level.SetInt64(0)
			}
		case 5:
			rate = pick(&h, fuzzRates)
			if err := k.SetRate(rate); err != nil {
				t.Fatal(err)
			}
		case 6:
			time.Sleep(pick(&h, fuzzTimes))
		}
		live := 0
		for key, m := range models {
			m.leak(time.Since(start))
			if !m.empty() && len(m.asked) == 0 { // of several rates another may hold it: see Len
				live++
			}
			seen := &model{m.rate, m.now, new(big.Int).Set(m.level), maps.Clone(m.asked)}
			asks(seen, rate, k.Take(key, 0))
			got, want := k.Take(key, 0), seen.take(0)
			if got != want {
				t.Fatalf("%v: key %d:\n got %+v\nwant %+v", m.now, key, got, want)
			}
		}
		if n := k.Len(); n < live || int64(n) > most {
			t.Fatalf("%v: Len() = %d, %d are live and %d allowed", time.Since(start), n, live, most)
		}
	}
}

// waitOf returns what Admit returns for r next to its error.
func waitOf(r limits.Result) time.Duration {
	if r.RetryAfter == limits.Never {
		return 0
	}
	return r.RetryAfter
}
