package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
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
	text, err := os.ReadFile("docs/bad-input.md")
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
	lk := must(leaky.NewKeyed[int](hourly, limits.KeyedConfig{}))
	kl, kc := must(window.NewKeyedSliding[int](windowed, limits.KeyedConfig{})), must(window.NewKeyedFixed[int](windowed, limits.KeyedConfig{}))
	badBucket := func(row string, q limits.Rate) {
		try(row+", New", "TakeRate", func() error { lk.TakeRate(1, q, 1); return nil })
		_, err := leaky.New(q)
		set(row+", New", "leaky", err)
		set(row+", Set", "leaky", limits.Must(leaky.New(hourly)).SetRate(q))
		_, err = leaky.NewKeyed[int](q, limits.KeyedConfig{})
		set(row+", New", "Keyed", err)
		set(row+", Set", "Keyed", lk.SetRate(q))
	}
	badWindow := func(row string, q window.Quota) {
		_, errSliding := window.NewSliding(q)
		_, errFixed := window.NewFixed(q)
		set(row+", New", "window", errSliding, errFixed)
		set(row+", Set", "window", limits.Must(window.NewSliding(windowed)).SetQuota(q), limits.Must(window.NewFixed(windowed)).SetQuota(q))
		_, errSliding = window.NewKeyedSliding[int](q, limits.KeyedConfig{})
		_, errFixed = window.NewKeyedFixed[int](q, limits.KeyedConfig{})
		set(row+", New", "Keyed", errSliding, errFixed)
		set(row+", Set", "Keyed", kl.SetQuota(q), kc.SetQuota(q))
	}
	badRate := func(row string, count int64, per time.Duration) {
		_, err := pacer.New(sluice.Rate{Count: count, Per: per}, pacer.Config{})
		set(row+", New", "pacer", err)
		set(row+", Set", "pacer", limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}, pacer.Config{})).SetRate(sluice.Rate{Count: count, Per: per}))
		_, err = sluice.New(sluice.Config{Rate: sluice.Rate{Count: count, Per: per}})
		_, errParse := limits.ParseRate(fmt.Sprintf("%d/%v", count, per))
		set(row+", Set", "Gate", err, errParse, mustGate(t, room).SetRate(sluice.Rate{Count: count, Per: per}))
	}
	for row, values := range map[string][]int64{"limit or Burst < 0": {-1, math.MinInt64}, "limit = 0": {0}} {
		for _, n := range values {
			if n < 0 { // a burst of 0 is 1
				q := limits.Rate{Count: 1, Per: time.Hour, Burst: n}
				badBucket(row, q)
				_, err := pacer.New(q, pacer.Config{})
				set(row+", New", "pacer", err)
				set(row+", Set", "pacer", limits.Must(pacer.New(hourly, pacer.Config{})).SetRate(q))
				_, err = sluice.New(sluice.Config{Rate: q})
				set(row+", Set", "Gate", err, mustGate(t, room).SetRate(q))
			}
			badWindow(row, window.Quota{Limit: n, Window: time.Hour})
			badWindow(row, window.Quota{Limit: n, Calendar: window.Day})
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
		_, err := pacer.New(long, pacer.Config{})
		set("too long, New", "pacer", err)
		set("too long, Set", "pacer", limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}, pacer.Config{})).SetRate(long))
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
		k := must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, errors.New("made") }, sluice.KeyedConfig{}))
		return k.Do(done, 1, nothing)
	})
	_, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "q"}}})
	set("nil limit, function", "Gate", err)
	try("nil limit, function", "Queue", func() error { sluice.NewQueue(nil); return nil })
	try("nil limit, function", "Keyed", func() error { _, err := sluice.NewKeyed[int](nil, sluice.KeyedConfig{}); return err })
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
