package programs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/badinput"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

// TestBadInput reads the table of bad input and tries each cell, in every way there is
// to make that mistake with that column.
func TestBadInput(t *testing.T) {
	text, err := os.ReadFile("../../../docs/bad-input.md")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		table := badinput.Parse(string(text))
		table.Check(t, mistakes(t))
		if len(table) < 20 {
			t.Errorf("only %d rows are found", len(table))
		}
	})
}

// mistakes returns what is to be tried, by row and column.
func mistakes(t *testing.T) badinput.Tries {
	var none context.Context
	done, cancel := context.WithCancel(bg)
	cancel()
	asks := func(s subject) []ask { return s.ask }
	askOrTry := func(s subject) []ask { return s.verbs()[:len(s.ask)+1] }
	m := badinput.Tries{
		"n < 0": eachVerb(t, subject.verbs, func(s subject, ask ask) error {
			if badinput.Outcome(func() error { return ask(done, math.MinInt64) }) != "panic" {
				return errors.New("with a context that is done, no panic")
			}
			return ask(bg, -1)
		}),
		"nil context": eachVerb(t, asks, func(s subject, ask ask) error {
			if badinput.Outcome(func() error { return ask(none, 0) }) != "panic" {
				return errors.New("for n = 0, no panic")
			}
			return ask(none, 1)
		}),
		"context done": eachVerb(t, asks, func(s subject, ask ask) error {
			for _, n := range []int64{0, 1, 4} {
				if err := ask(done, n); err != context.Canceled {
					return fmt.Errorf("for n = %d: %v", n, err)
				}
			}
			return ask(done, math.MaxInt64)
		}),
		"n = 0":     eachVerb(t, askOrTry, func(s subject, ask ask) error { return ask(bg, 0) }),
		"n > limit": eachVerb(t, askOrTry, func(s subject, ask ask) error { return ask(bg, 4) }),
	}
	for _, n := range []int64{math.MaxInt64} {
		for column, tries := range eachVerb(t, askOrTry, func(s subject, ask ask) error { return ask(bg, n) }) {
			m["n > limit"][column] = append(m["n > limit"][column], tries...)
		}
	}
	try := func(row, column string, tries ...func() error) {
		if m[row] == nil {
			m[row] = make(map[string][]func() error)
		}
		m[row][column] = append(m[row][column], tries...)
	}
	for _, s := range subjects(t) {
		if s.owe != nil {
			try("debt > 292 years", s.column, func() error { s.owe(); return s.ask[len(s.ask)-1](bg, 1) })
		}
		if s.zero != nil {
			try("not made by New", s.column, s.zero)
		}
	}

	// By position, and then by a Config, a Quota or a Set method.
	set := func(row, column string, errs ...error) {
		for _, err := range errs {
			try(row, column, func() error { return err })
		}
	}
	lk := must(leaky.NewKeyed[int](hourly))
	kl, kc := must(window.NewKeyedSliding[int](windowed, limits.KeyedConfig{})), must(window.NewKeyedFixed[int](windowed))
	badBucket := func(row string, q limits.Rate) {
		try(row+", New", "TakeRate", func() error { lk.TakeRate(1, q, 1); return nil })
		_, err := leaky.New(q)
		set(row+", New", "leaky", err)
		set(row+", Set", "leaky", limits.Must(leaky.New(hourly)).SetRate(q))
		_, err = leaky.NewKeyed[int](q)
		set(row+", New", "Keyed", err)
		set(row+", Set", "Keyed", lk.SetRate(q))
	}
	badWindow := func(row string, q window.Quota) {
		_, errSliding := window.NewSliding(q)
		_, errFixed := window.NewFixed(q)
		set(row+", New", "window", errSliding, errFixed)
		set(row+", Set", "window", limits.Must(window.NewSliding(windowed)).SetQuota(q), limits.Must(window.NewFixed(windowed)).SetQuota(q))
		_, errSliding = window.NewKeyedSliding[int](q)
		_, errFixed = window.NewKeyedFixed[int](q)
		set(row+", New", "Keyed", errSliding, errFixed)
		set(row+", Set", "Keyed", kl.SetQuota(q), kc.SetQuota(q))
	}
	badRate := func(row string, count int64, per time.Duration) {
		_, err := pacer.New(sluice.Rate{Count: count, Per: per})
		set(row+", New", "pacer", err)
		set(row+", Set", "pacer", limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour})).SetRate(sluice.Rate{Count: count, Per: per}))
		_, err = sluice.New(sluice.Config{Rate: sluice.Rate{Count: count, Per: per}})
		_, errParse := limits.ParseRate(fmt.Sprintf("%d/%v", count, per))
		set(row+", Set", "Gate", err, errParse, mustGate(t, room).SetRate(sluice.Rate{Count: count, Per: per}))
	}
	for row, values := range map[string][]int64{"limit or Burst < 0": {-1, math.MinInt64}, "limit = 0": {0}} {
		for _, n := range values {
			if n < 0 { // a burst of 0 is 1
				q := limits.Rate{Count: 1, Per: time.Hour, Burst: n}
				badBucket(row, q)
				_, err := pacer.New(q)
				set(row+", New", "pacer", err)
				set(row+", Set", "pacer", limits.Must(pacer.New(hourly)).SetRate(q))
				_, err = sluice.New(sluice.Config{Rate: q})
				set(row+", Set", "Gate", err, mustGate(t, room).SetRate(q))
			}
			badWindow(row, window.Quota{Limit: n, Window: time.Hour})
			badWindow(row, window.Quota{Limit: n, Per: window.Day})
			try(row+", New", "semaphore", func() error { return semaphore.NewWeighted(n).Acquire(bg, 1) })
			try(row+", Set", "semaphore", func() error {
				s := semaphore.NewWeighted(3)
				if err := s.SetLimit(n); err != nil {
					return err
				}
				return s.Acquire(bg, 1)
			})
			try(row+", Set", "Gate", func() error {
				_, err := sluice.New(sluice.Config{Concurrency: n})
				return noLimit(mustGate(t, sluice.Config{Concurrency: max(0, n)}), err)
			}, func() error {
				g := mustGate(t, room)
				return noLimit(g, g.SetConcurrency(n))
			})
		}
	}
	for _, r := range []sluice.Rate{{Per: time.Hour}, {Count: -1, Per: time.Hour}, {Count: math.MinInt64, Per: time.Hour}, {Count: 1}, {Count: 1, Per: -1}, {Count: 1, Per: math.MinInt64}} {
		badRate("count, per ≤ 0", r.Count, r.Per)
		badBucket("count, per ≤ 0", limits.Rate{Count: r.Count, Per: r.Per, Burst: 3})
		if r.Per <= 0 {
			badWindow("count, per ≤ 0", window.Quota{Limit: 3, Window: r.Per})
		}
	}
	for _, r := range []sluice.Rate{{Count: 2, Per: 1}, {Count: math.MaxInt64, Per: math.MaxInt64 - 1}, {Count: 1e9 + 1, Per: time.Second}} {
		badRate("too fast", r.Count, r.Per)
		badBucket("too fast", limits.Rate{Count: r.Count, Per: r.Per, Burst: 3})
	}
	badBucket("too fast", limits.Rate{Count: 1e6 + 1, Per: time.Second, Burst: 3})
	badBucket("too long", limits.Rate{Count: 1, Per: time.Hour, Burst: math.MaxInt64})
	badBucket("too long", limits.Rate{Count: 1, Per: math.MaxInt64/2 + 2, Burst: 2})
	for _, burst := range []int64{math.MaxInt64, 147 * 366} {
		long := sluice.Rate{Count: 1, Per: 24 * time.Hour, Burst: burst}
		_, err := pacer.New(long)
		set("too long, New", "pacer", err)
		set("too long, Set", "pacer", limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour})).SetRate(long))
		_, err = sluice.New(sluice.Config{Rate: long})
		set("too long, Set", "Gate", err, mustGate(t, room).SetRate(long))
	}
	for _, n := range []int64{1e9, -1, 1<<29 + 1} {
		_, err1 := leaky.NewKeyed[int](hourly, limits.KeyedConfig{MaxKeys: n})
		_, err2 := window.NewKeyedSliding[int](windowed, limits.KeyedConfig{MaxKeys: n})
		_, err3 := window.NewKeyedFixed[int](windowed, limits.KeyedConfig{MaxKeys: n})
		_, err4 := sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: int(n)})
		set("10⁹ keys", "Keyed", err1, err2, err3, err4)
	}
	try("n < 0", "TakeRate", func() error { lk.TakeRate(1, hourly, -1); return nil })
	try("n = 0", "TakeRate", func() error { return lk.TakeRate(1, hourly, 0).Err() })
	try("n > limit", "TakeRate", func() error { return lk.TakeRate(1, hourly, 4).Err() })
	try("not made by New", "TakeRate", func() error { return new(leaky.Keyed[int]).TakeRate(1, hourly, 1).Err() })
	try("one key too many", "TakeRate", func() error {
		k := must(leaky.NewKeyed[int](hourly, limits.KeyedConfig{MaxKeys: 1}))
		k.TakeRate(1, hourly, 1)
		return k.TakeRate(2, hourly, 1).Err()
	})
	try("one key too many", "Keyed", func() error {
		k := must(leaky.NewKeyed[int](hourly, limits.KeyedConfig{MaxKeys: 1}))
		k.Take(1, 1)
		return k.Take(2, 1).Err()
	}, func() error {
		k := must(window.NewKeyedSliding[int](windowed, limits.KeyedConfig{MaxKeys: 1}))
		k.Take(1, 1)
		return k.Take(2, 1).Err()
	}, func() error {
		k := must(window.NewKeyedFixed[int](windowed, limits.KeyedConfig{MaxKeys: 1}))
		k.Take(1, 1)
		return k.On(2).Adjust(bg, 1, 0)
	}, func() error {
		k := must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return sluice.New(room) }, sluice.KeyedConfig{MaxKeys: 1}))
		return k.Use(1, func(*sluice.Gate) error { return k.Do(bg, 2, nothing) })
	})
	try("context done", "Keyed", func() error { // before a gate is made or there is no room for one
		k := must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, errors.New("made") }))
		return k.Do(done, 1, nothing)
	})
	_, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "q"}}})
	set("nil limit, function", "Gate", err)
	try("nil limit, function", "Keyed", func() error { _, err := sluice.NewKeyed[int](nil); return err })
	try("released twice", "semaphore", func() error {
		s := semaphore.NewWeighted(3)
		s.TryAcquire(1)
		s.Release(1)
		s.Release(1)
		return nil
	})
	try("released twice", "Gate", func() error {
		g := mustGate(t, room)
		g.TryAcquire(1)
		p, _ := g.TryAcquire(2)
		p.Settle(1)
		p.Settle(0)
		p.Release()
		p.Release()
		return badinput.If(g.Stats().InFlight == 1, "no effect")
	})
	try("closed twice", "Gate", func() error {
		g := mustGate(t, room)
		g.Close()
		g.Close()
		return badinput.If(g.Shutdown(bg) == nil && errors.Is(g.Do(bg, nothing), limits.ErrClosed), "no effect")
	})
	return m
}

// noLimit returns err or that g has no limit.
func noLimit(g *sluice.Gate, err error) error {
	if err != nil {
		return err
	}
	_, one := g.TryAcquire(1 << 61)
	_, two := g.TryAcquire(1 << 61)
	return badinput.If(one && two, "no limit")
}

// A limit on keys takes no memory before there are keys.
func TestMaxKeys_TakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(leaky.NewKeyed[int](hourly, limits.KeyedConfig{MaxKeys: 1 << 29}))
	must(window.NewKeyedSliding[int](windowed, limits.KeyedConfig{MaxKeys: 1 << 29}))
	must(window.NewKeyedFixed[int](windowed, limits.KeyedConfig{MaxKeys: 1 << 29}))
	must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: 1 << 29}))
	limits.Must(window.NewSliding(window.Quota{Limit: math.MaxInt64, Window: math.MaxInt64}))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100_000 {
		t.Errorf("%d bytes for nothing", n)
	}
}

// # What n can be taken from

// A subject is something that n can be taken from; its limit is 3, its rate one
// per hour, and it is new.
type subject struct {
	column string
	ask    []ask
	try    func(n int64) bool // without a context
	other  []func(n int64)    // what else takes an n
	owe    func()             // makes it owe more than can be paid back
	zero   func() error       // uses one that was not made by New
}

type ask func(ctx context.Context, n int64) error

// asking takes from a limiter.
func asking(a limits.Limiter) []ask {
	return []ask{func(ctx context.Context, n int64) error {
		wait, err := a.Admit(ctx, n)
		if wait > 0 {
			err = &limits.WaitError{Need: wait}
		}
		return err
	}}
}

// blocking are the verbs that block.
func blocking(acquire ask, within func(context.Context, int64, time.Duration) error) []ask {
	return []ask{acquire, func(ctx context.Context, n int64) error { return within(ctx, n, time.Minute) }}
}

func entered(g *sluice.Gate) []ask {
	return blocking(
		func(ctx context.Context, n int64) error { return released(g.Acquire(ctx, n)) },
		func(ctx context.Context, n int64, d time.Duration) error { return released(g.AcquireWithin(ctx, n, d)) },
	)
}

func tried(g *sluice.Gate) func(n int64) bool {
	return func(n int64) bool {
		p, ok := g.TryAcquire(n)
		return released(p, nil) == nil && ok
	}
}

// released releases p if there is one.
func released(p *sluice.Permit, err error) error {
	if p != nil {
		p.Release()
	}
	return err
}

var (
	hourly   = limits.Rate{Count: 1, Per: time.Hour, Burst: 3}
	windowed = window.Quota{Limit: 3, Window: time.Hour}
	room     = sluice.Config{Concurrency: 3, ConcurrencyUnit: sluice.Cost}
)

// subjects returns new ones, always in the same order.
func subjects(t *testing.T) []subject {
	s, p := semaphore.NewWeighted(3), limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}))
	b, kb := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3})), must(leaky.NewKeyed[int](hourly))
	l, kl := limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour})), must(window.NewKeyedSliding[int](windowed))
	c, kc := limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: time.Hour})), must(window.NewKeyedFixed[int](windowed))
	hosts := must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return sluice.New(room) }))
	use := func(ctx context.Context, n int64) (err error) {
		return hosts.Use(1, func(g *sluice.Gate) error { return released(g.Acquire(ctx, n)) })
	}
	all := []subject{{
		column: "semaphore", ask: blocking(s.Acquire, s.AcquireWithin), try: s.TryAcquire, other: []func(int64){s.Release},
		zero: func() error { return new(semaphore.Weighted).Acquire(bg, 1) },
	}, {
		column: "pacer", ask: blocking(p.Acquire, p.AcquireWithin), try: p.TryAcquire, other: []func(int64){func(n int64) { p.Reserve(n) }},
		owe:  func() { p.TryAcquire(math.MaxInt64) },
		zero: func() error { return new(pacer.Pacer).Acquire(bg, 1) },
	}, {
		column: "leaky", ask: asking(b), try: func(n int64) bool { return b.Take(n).Allowed() },
		owe:  func() { b.Adjust(bg, math.MaxInt64, 0) },
		zero: func() error { return new(leaky.Bucket).Take(1).Err() },
	}, {
		column: "window", ask: asking(l), try: func(n int64) bool { return l.Take(n).Allowed() },
		zero: func() error { return new(window.Counter).Take(1).Err() },
	}, {
		column: "window", ask: asking(c), try: func(n int64) bool { return c.Take(n).Allowed() },
		zero: func() error { return new(window.Counter).Take(1).Err() },
	}, {
		column: "Keyed", ask: asking(kb.On(1)), try: func(n int64) bool { return kb.Take(1, n).Allowed() },
		other: []func(int64){func(n int64) { kb.TakeRate(1, hourly, n) }},
		owe:   func() { kb.On(1).Adjust(bg, math.MaxInt64, 0) },
		zero:  func() error { return new(leaky.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: asking(kl.On(1)), try: func(n int64) bool { return kl.Take(1, n).Allowed() },
		zero: func() error { return new(window.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: asking(kc.On(1)), try: func(n int64) bool { return kc.Take(1, n).Allowed() },
		zero: func() error { return new(window.Keyed[int]).Take(1, 1).Err() },
	}, {
		column: "Keyed", ask: []ask{use}, try: func(n int64) bool { return use(bg, n) == nil },
		zero: func() error { return new(sluice.Keyed[int]).Do(bg, 1, nothing) },
	}}
	for _, limiter := range []limits.Limiter{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3})), limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: time.Hour}))} {
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "q", Limiter: limiter}}})
		var owe func()
		if _, ok := limiter.(*leaky.Bucket); ok {
			owe = func() { limiter.Adjust(bg, math.MaxInt64, 0) }
		}
		all = append(all, subject{
			column: "Gate", ask: entered(g), try: tried(g), owe: owe, other: []func(int64){
				func(n int64) { g.Estimate(n) },
				func(n int64) { new(sluice.Permit).Settle(n) },
			},
			zero: func() error { return released(new(sluice.Gate).Acquire(bg, 1)) },
		})
	}
	g, child := mustGate(t, room), mustGate(t, sluice.Config{Parent: mustGate(t, room)})
	return append(all,
		subject{column: "Gate", ask: entered(g), try: tried(g)},
		subject{column: "Gate", ask: entered(child), try: tried(child)})
}

// verbs returns all that can be done to s with an n, each by itself.
func (s subject) verbs() []ask {
	all := append(slices.Clone(s.ask), func(_ context.Context, n int64) error {
		if !s.try(n) {
			return limits.ErrTooLarge // is why, if nothing is taken
		}
		return nil
	})
	for _, f := range s.other {
		all = append(all, func(_ context.Context, n int64) error { f(n); return nil })
	}
	return all
}

// eachVerb makes a try of f for each verb of each subject, which is new, and checks
// that nothing was taken unless f returns nil.
func eachVerb(t *testing.T, verbs func(s subject) []ask, f func(s subject, ask ask) error) map[string][]func() error {
	cells := make(map[string][]func() error)
	for i, s := range subjects(t) {
		for verb := range verbs(s) {
			cells[s.column] = append(cells[s.column], func() error {
				s := subjects(t)[i]
				all, refused := int64(3), true
				if s.column == "pacer" {
					all = 1
				}
				defer func() {
					if refused && !s.try(all) {
						t.Errorf("%s, subject %d, verb %d: something was taken", s.column, i, verb)
					}
				}()
				err := f(s, verbs(s)[verb])
				refused = err != nil
				return err
			})
		}
	}
	return cells
}
