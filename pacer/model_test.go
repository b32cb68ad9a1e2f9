package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// A model is a pacer that is slow and obvious: exact fractions, a slice for
// the queue, everything computed again at each question. It knows nothing of
// goroutines and timers. FuzzPacer compares its answers with the real ones.
type model struct {
	now     time.Duration
	changed time.Duration // when the rate or the pause was last changed
	rate    limits.Rate
	cfg     pacer.Config
	pause   time.Duration

	tat   *big.Rat // in ns
	last  *big.Rat // departure of the last call, its weight, and what it left unpaid of the burst
	lastN int64
	debt  time.Duration

	waiting []*entry
}

type entry struct {
	id    int
	n     int64
	maxAt time.Duration // 0 = none
	ctxAt time.Duration // 0 = none
	idle  bool          // a reservation nobody waits for

	over   bool
	at     time.Duration
	err    error
	need   time.Duration // of a WaitError
	cancel context.CancelFunc
	r      pacer.Reservation
}

func ns(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }

func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

func floor(x *big.Rat) time.Duration {
	return time.Duration(new(big.Int).Div(x.Num(), x.Denom()).Int64())
}

// ceilTo rounds x up to a multiple of 1/unit.
func ceilTo(x *big.Rat, unit int64) *big.Rat {
	y := new(big.Rat).Mul(x, new(big.Rat).SetInt64(unit))
	n := new(big.Int).Add(y.Num(), new(big.Int).Sub(y.Denom(), big.NewInt(1)))
	return new(big.Rat).SetFrac(n.Div(n, y.Denom()), big.NewInt(unit))
}

// times returns n·T.
func (m *model) times(n int64) *big.Rat {
	t := new(big.Rat).SetFrac64(int64(m.rate.Per), m.rate.Count)
	return t.Mul(t, new(big.Rat).SetInt64(n))
}

func (m *model) tau() time.Duration {
	return floor(m.times(max(1, m.rate.Burst) - 1))
}

func (m *model) lifted() *big.Rat {
	if floor := ns(m.pause + m.tau()); floor.Cmp(m.tat) > 0 {
		return floor
	}
	return m.tat
}

// slot is when a call starts that has ahead before it.
func (m *model) slot(ahead int64) time.Duration {
	return max(m.changed, floor(plus(m.lifted(), m.times(ahead)))-m.tau())
}

func (m *model) leave(at time.Duration, n int64) {
	charged := m.lifted()
	if floor(charged) < at {
		charged = ns(at)
	}
	m.last, m.lastN, m.debt = charged, n, 0
	if m.tau() > 0 {
		m.last = ns(at)
		m.debt = max(0, floor(ceilTo(minus(charged, m.last), 1)))
	}
	m.tat = plus(charged, m.times(n))
}

// settle lets everybody leave whose slot has come.
func (m *model) settle() {
	for len(m.waiting) > 0 && m.slot(0) <= m.now {
		e := m.waiting[0]
		e.over, e.at = true, m.slot(0)
		m.leave(e.at, e.n)
		m.waiting = m.waiting[1:]
	}
}

func (m *model) ahead(e *entry) (sum int64) {
	for _, w := range m.waiting {
		if w == e {
			break
		}
		sum += w.n
	}
	return sum
}

// hopeless fails e if it cannot start in time.
func (m *model) hopeless(e *entry) bool {
	slot := m.slot(m.ahead(e))
	if slot <= m.now || (e.maxAt == 0 || slot <= e.maxAt) && (e.ctxAt == 0 || slot < e.ctxAt) {
		return false
	}
	e.need = slot - m.now
	m.drop(e, context.DeadlineExceeded)
	return true
}

func (m *model) drop(e *entry, err error) {
	e.over, e.at, e.err = true, m.now, err
	for i, w := range m.waiting {
		if w == e {
			m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
			return
		}
	}
}

func (m *model) enter(e *entry) {
	switch {
	case len(m.waiting) == 0 && m.slot(0) <= m.now:
		e.over, e.at = true, m.now
		m.leave(m.now, e.n)
	case m.hopeless(e):
	case m.cfg.MaxWaiting > 0 && len(m.waiting) >= m.cfg.MaxWaiting:
		m.drop(e, limits.ErrQueueFull)
	default:
		m.waiting = append(m.waiting, e)
	}
}

func (m *model) change(f func()) {
	f()
	m.changed = m.now
	for i := 0; i < len(m.waiting); {
		if e := m.waiting[i]; e.idle || !m.hopeless(e) {
			i++
		}
	}
	m.settle()
}

func (m *model) setRate(rate limits.Rate) {
	stored := m.tau() > 0 && floor(m.lifted())-m.tau() <= m.now
	if stored { // what is missing to a full burst, as if left by a call of nothing now
		m.last, m.lastN = ns(m.now), 0
		m.debt = max(0, floor(ceilTo(minus(m.lifted(), m.last), 1)))
		m.pause = -1 << 62
	}
	// As many calls stay stored as were, or as the new burst allows.
	before := max(1, m.rate.Burst)
	missing := new(big.Rat).Quo(ns(m.debt), m.times(1))
	m.rate = rate
	missing.Add(missing, new(big.Rat).SetInt64(max(1, rate.Burst)-before))
	m.debt = max(0, floor(ceilTo(missing.Mul(missing, m.times(1)), 1)))
	m.last = ceilTo(m.last, rate.Count)
	m.tat = plus(plus(m.last, ns(m.debt)), m.times(m.lastN))
	if !stored && m.tau() > 0 && floor(m.tat)-m.tau() < m.now {
		m.last, m.lastN, m.debt = ns(m.now), 0, m.tau()
		m.tat = plus(m.last, ns(m.debt))
	}
}

var (
	fuzzRates = []limits.Rate{
		{Count: 10, Per: time.Second}, {Count: 3, Per: time.Second}, {Count: 7, Per: time.Second}, {Count: 1, Per: 10 * time.Second},
		{Count: 1000, Per: time.Second}, {Count: 1_000_000, Per: time.Second}, {Count: 1, Per: 24 * time.Hour},
		{Count: 300, Per: 20 * time.Second}, {Count: 999_999, Per: 7 * time.Second},
	}
	fuzzBursts = []int64{0, 3, 1, 2, 5, 40}
	fuzzTimes  = []time.Duration{
		0, 1, 999, 50 * ms, 100 * ms, time.Second / 3, time.Second, 10 * time.Second, 26 * time.Hour, ms,
	}
	fuzzWeights = []int64{1, 1, 1, 2, 5, 1000, 3, 1}
)

// FuzzPacer runs a random history against a pacer and its model in a bubble
// and compares, after every step: who has left and at which time, who
// failed, with what and how long it would have had to wait, how many wait, and
// what every reservation forecasts.
func FuzzPacer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 11, 5})                                       // callers, one sleep
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 3, 1, 3, 0, 11, 7, 8, 4, 11, 1, 8, 3})     // cancel, new rates
	f.Add([]byte{2, 0, 4, 0, 4, 1, 4, 2, 5, 1, 6, 2, 11, 4, 9, 5, 6, 0, 10, 11, 6}) // reservations, pauses
	f.Add([]byte{0, 2, 11, 8, 7, 0, 7, 0, 7, 0, 8, 0, 0, 1, 0, 1, 8, 5, 7, 0})      // bursts
	f.Add([]byte{3, 0, 1, 0, 5, 1, 0, 6, 2, 3, 5, 2, 0, 7, 9, 6, 8, 2, 11, 8})      // deadlines
	f.Add([]byte{4, 3, 8, 1, 0, 4, 0, 3, 8, 6, 11, 3, 8, 2, 11, 8, 0, 0, 8, 0})     // fractions re-priced
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 300 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { runHistory(t, data) })
	})
}

func runHistory(t *testing.T, data []byte) {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	rate := fuzzRates[next(len(fuzzRates))]
	kind := next(6)
	cfg := []pacer.Config{{}, {MaxCatchUp: -1}, {}, {}, {MaxWaiting: 3}, {MaxWaiting: 5}}[kind]
	rate.Burst = []int64{0, 0, 3, 5, 0, 2}[kind]
	burst := func() int64 { return rate.Burst }
	if kind == 3 { // each rate has another
		burst = func() int64 { return fuzzBursts[next(len(fuzzBursts))] }
	}
	p, err := pacer.New(rate, cfg)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	m := &model{rate: rate, cfg: cfg, tat: new(big.Rat), last: new(big.Rat)}

	type result struct {
		over      bool
		begun, at time.Duration
		err       error
	}
	var entries []*entry
	results := map[int]*result{}
	begin := func(e *entry, ctx context.Context, call func(ctx context.Context) error) {
		ctx, e.cancel = context.WithCancel(ctx)
		res := &result{begun: time.Since(start)}
		results[e.id] = res
		go func() {
			res.err = call(ctx)
			res.over, res.at = true, time.Since(start)
		}()
		synctest.Wait()
	}
	check := func(op string) {
		t.Helper()
		synctest.Wait()
		for _, e := range entries {
			res := results[e.id]
			if res == nil {
				continue
			}
			var wait *limits.WaitError
			switch {
			case res.over != e.over:
				t.Fatalf("%s: call %d (n=%d): over = %v (%v at %v), model says %v (%v at %v)", op, e.id, e.n, res.over, res.err, res.at, e.over, e.err, e.at)
			case !res.over:
			case res.at != max(e.at, res.begun): // a reservation may be over before it is waited for
				t.Fatalf("%s: call %d (n=%d) left at %v, model says %v", op, e.id, e.n, res.at, e.at)
			case !errors.Is(res.err, e.err):
				t.Fatalf("%s: call %d (n=%d): %v, model says %v", op, e.id, e.n, res.err, e.err)
			case errors.As(res.err, &wait) && wait.Need != e.need:
				t.Fatalf("%s: call %d (n=%d): would need %v, model says %v", op, e.id, e.n, wait.Need, e.need)
			}
		}
		for _, e := range entries {
			if e.r == (pacer.Reservation{}) || e.err != nil {
				continue
			}
			want := e.at
			if !e.over {
				want = m.slot(m.ahead(e))
			}
			if got := e.r.Slot().Sub(start); got != want {
				t.Fatalf("%s: slot of reservation %d is %v, model says %v", op, e.id, got, want)
			}
		}
		if got := p.Waiting(); got != len(m.waiting) {
			t.Fatalf("%s: %d wait, model says %d", op, got, len(m.waiting))
		}
	}
	pick := func() *entry {
		if len(entries) == 0 {
			return nil
		}
		return entries[next(len(entries))]
	}

	for len(data) > 0 {
		m.now = time.Since(start)
		m.settle()
		op := next(12)
		name := fmt.Sprintf("%v: op %d", m.now, op)
		switch op {
		case 0, 1, 2:
			e := &entry{id: len(entries), n: fuzzWeights[next(len(fuzzWeights))]}
			entries = append(entries, e)
			ctx := bg
			longest := time.Duration(1<<63 - 1)
			switch op {
			case 1:
				longest = fuzzTimes[next(len(fuzzTimes))]
				e.maxAt = m.now + longest
				if e.maxAt == 0 {
					e.maxAt = -1 // 0 stands for none; before now is as good as now
				}
			case 2:
				d := 1 + fuzzTimes[next(len(fuzzTimes))]
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(bg, d)
				defer cancel()
				e.ctxAt = m.now + d
			}
			m.enter(e)
			begin(e, ctx, func(ctx context.Context) error {
				if op == 1 {
					return p.AcquireWithin(ctx, e.n, longest)
				}
				return p.Acquire(ctx, e.n)
			})
		case 3:
			if e := pick(); e != nil && e.cancel != nil {
				if !e.over {
					m.drop(e, context.Canceled)
					m.settle()
				}
				e.cancel()
			}
		case 4:
			e := &entry{id: len(entries), n: fuzzWeights[next(len(fuzzWeights))], idle: true}
			entries = append(entries, e)
			m.enter(e)
			e.r = p.Reserve(e.n)
			if !errors.Is(e.r.Err(), e.err) {
				t.Fatalf("%s: Reserve: %v, model says %v", name, e.r.Err(), e.err)
			}
		case 5:
			if e := pick(); e != nil && e.r != (pacer.Reservation{}) {
				want := !e.over
				if want {
					m.drop(e, limits.ErrCanceled)
					m.settle()
				}
				if got := e.r.Cancel(); got != want {
					t.Fatalf("%s: Cancel() = %v, model says %v", name, got, want)
				}
			}
		case 6:
			if e := pick(); e != nil && e.r != (pacer.Reservation{}) && e.cancel == nil {
				e.idle = false
				begin(e, bg, e.r.Wait)
			}
		case 7:
			n := fuzzWeights[next(len(fuzzWeights))]
			e := &entry{n: n}
			want := len(m.waiting) == 0 && m.slot(0) <= m.now
			if want {
				m.enter(e)
			}
			if got := p.TryAcquire(n); got != want {
				t.Fatalf("%s: TryAcquire(%d) = %v, model says %v", name, n, got, want)
			}
		case 8:
			r := fuzzRates[next(len(fuzzRates))]
			r.Burst = burst()
			m.change(func() { m.setRate(r) })
			if err := p.SetRate(r); err != nil {
				t.Fatal(err)
			}
		case 9:
			until := m.now + fuzzTimes[next(len(fuzzTimes))]
			m.change(func() { m.pause = max(m.pause, until) })
			p.PauseUntil(start.Add(until))
		case 10:
			m.change(func() { m.pause = min(m.pause, m.now) })
			p.Resume()
		case 11:
			time.Sleep(fuzzTimes[next(len(fuzzTimes))])
			m.now = time.Since(start)
			m.settle()
		}
		check(name)
	}

	// Everybody gives up: nothing may be left.
	for _, e := range entries {
		if e.cancel != nil {
			e.cancel()
		}
		if e.r != (pacer.Reservation{}) {
			e.r.Cancel()
		}
	}
	synctest.Wait()
	if got := p.Waiting(); got != 0 {
		t.Fatalf("%d wait after all were cancelled", got)
	}
}
