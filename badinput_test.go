package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

// TestBadInput reads the table of bad input in doc.go and tries each cell, in
// every way there is to make that mistake with that column.
func TestBadInput(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		table := badInputTable(string(text))
		mistakes := mistakes(t)
		for row, cells := range table {
			for column, want := range cells {
				tries := mistakes[row][column]
				if len(tries) == 0 && want != "-" {
					t.Errorf("%s, %s: nothing is tried", row, column)
				}
				for i, f := range tries {
					if got := outcome(f); got != want {
						t.Errorf("%s, %s, try %d: %s, documented is %s", row, column, i, got, want)
					}
				}
			}
			delete(mistakes, row)
		}
		for row := range mistakes {
			t.Errorf("%s: tried, and not documented", row)
		}
		if len(table) < 20 {
			t.Errorf("only %d rows are found", len(table))
		}
	})
}

// badInputTable returns the cells by row and column.
func badInputTable(source string) map[string]map[string]string {
	_, source, _ = strings.Cut(source, "// # Bad input\n")
	table := make(map[string]map[string]string)
	var columns []string
	for line := range strings.Lines(source) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "//\t")
		switch cells := regexp.MustCompile(`  +`).Split(line, -1); {
		case !ok && columns != nil: // one table
			return table
		case !ok:
		case columns == nil:
			columns = cells[1:]
		default:
			table[cells[0]] = make(map[string]string)
			for i, cell := range cells[1:] {
				table[cells[0]][columns[i]] = cell
			}
		}
	}
	return table
}

// outcome says in the words of the table what came of f.
func outcome(f func() error) (word string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			word = "panic"
		case string:
			if word = "panic"; !regexp.MustCompile(`^(sluice|semaphore|pacer|leaky|window): `).MatchString(p) {
				word = fmt.Sprintf("a panic that does not say of what package: %q", p)
			}
		default:
			word = fmt.Sprintf("a panic: %v", p)
		}
	}()
	var wait *sluice.WaitError
	switch err := f(); {
	case err == nil:
		return "granted"
	case err == context.Canceled: // bare
		return "ctx.Err()"
	case errors.Is(err, sluice.ErrTooLarge):
		return "ErrTooLarge"
	case errors.Is(err, sluice.ErrTooManyKeys):
		return "ErrTooManyKeys"
	case errors.As(err, &wait) && wait.Need > 200*365*24*time.Hour: // whatever has passed since
		return "never"
	case errors.Is(err, errOutcome):
		return strings.TrimPrefix(err.Error(), errOutcome.Error())
	case regexp.MustCompile(`^(sluice|semaphore|pacer|leaky|window): `).MatchString(err.Error()):
		return "error"
	default:
		return err.Error()
	}
}

// errOutcome is the beginning of outcomes that have words of their own.
var errOutcome = errors.New("")

func outcomeIf(ok bool, word string) error {
	if !ok {
		word = "not " + word
	}
	return fmt.Errorf("%w%s", errOutcome, word)
}

// mistakes returns what is to be tried, by row and column.
func mistakes(t *testing.T) map[string]map[string][]func() error {
	var none context.Context
	done, cancel := context.WithCancel(bg)
	cancel()
	asks := func(s subject) []ask { return s.ask }
	askOrTry := func(s subject) []ask { return s.verbs()[:len(s.ask)+1] }
	m := map[string]map[string][]func() error{
		"n < 0": eachVerb(t, subject.verbs, func(s subject, ask ask) error {
			if outcome(func() error { return ask(done, math.MinInt64) }) != "panic" {
				return errors.New("with a context that is done, no panic")
			}
			return ask(bg, -1)
		}),
		"nil context": eachVerb(t, asks, func(s subject, ask ask) error {
			if outcome(func() error { return ask(none, 0) }) != "panic" {
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
	lk := must(leaky.NewKeyed[int](hourly, leaky.KeyedConfig{}))
	kl, kc := must(window.NewKeyedSliding[int](windowed, window.KeyedConfig{})), must(window.NewKeyedFixed[int](windowed, window.KeyedConfig{}))
	badQuota := func(row string, q leaky.Quota) {
		try(row+", New", "leaky", func() error { leaky.New(q.Capacity, q.Count, q.Per); return nil })
		try(row+", New", "Keyed", func() error { lk.TakeQuota(1, q, 1); return nil })
		_, err := leaky.NewWith(q)
		set(row+", Set", "leaky", q.Check(), err, leaky.New(3, 1, time.Hour).SetQuota(q))
		_, err = leaky.NewKeyed[int](q, leaky.KeyedConfig{})
		set(row+", Set", "Keyed", err, lk.SetQuota(q))
	}
	badWindow := func(row string, q window.Quota) {
		try(row+", New", "window",
			func() error { window.NewSliding(q.Limit, q.Window); return nil },
			func() error { window.NewFixed(q.Limit, q.Window); return nil })
		_, errLog := window.NewSlidingWith(q)
		_, errCounter := window.NewFixedWith(q)
		set(row+", Set", "window", errLog, errCounter, q.Check(), window.NewSliding(3, time.Hour).SetLimit(q.Limit, q.Window))
		_, errLog = window.NewKeyedSliding[int](q, window.KeyedConfig{})
		_, errCounter = window.NewKeyedFixed[int](q, window.KeyedConfig{})
		set(row+", Set", "Keyed", errLog, errCounter)
	}
	badRate := func(row string, count int64, per time.Duration) {
		try(row+", New", "pacer", func() error { pacer.New(count, per); return nil })
		_, err := pacer.NewWith(count, per, pacer.Config{})
		set(row+", Set", "pacer", err, pacer.New(1, time.Hour).SetRate(count, per))
		_, err = sluice.New(sluice.Config{Rate: sluice.Rate{Count: count, Per: per}})
		_, errParse := limits.ParseRate(fmt.Sprintf("%d/%v", count, per))
		set(row+", Set", "Gate", err, errParse, mustGate(t, room).SetRate(count, per))
	}
	for row, values := range map[string][]int64{"limit < 0": {-1, math.MinInt64}, "limit = 0": {0}} {
		for _, n := range values {
			badQuota(row, leaky.Quota{Capacity: n, Count: 1, Per: time.Hour})
			badWindow(row, window.Quota{Limit: n, Window: time.Hour})
			try(row+", New", "window", func() error { window.NewCalendar(n, window.Day, nil); return nil })
			set(row+", Set", "window", window.NewFixed(3, time.Hour).SetLimit(n))
			try(row+", New", "Keyed",
				func() error { kl.TakeLimit(1, n, 1); return nil },
				func() error { kc.TakeLimit(1, n, 1); return nil })
			set(row+", Set", "Keyed", kl.SetLimit(n), kc.SetLimit(n))
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
		badQuota("count, per ≤ 0", leaky.Quota{Capacity: 3, Count: r.Count, Per: r.Per})
		if r.Per <= 0 {
			badWindow("count, per ≤ 0", window.Quota{Limit: 3, Window: r.Per})
		}
	}
	for _, r := range []sluice.Rate{{Count: 2, Per: 1}, {Count: math.MaxInt64, Per: math.MaxInt64 - 1}, {Count: 1e9 + 1, Per: time.Second}} {
		badRate("too fast", r.Count, r.Per)
		badQuota("too fast", leaky.Quota{Capacity: 3, Count: r.Count, Per: r.Per})
	}
	badQuota("too fast", leaky.Quota{Capacity: 3, Count: 1e6 + 1, Per: time.Second})
	badQuota("too long", leaky.Quota{Capacity: math.MaxInt64, Count: 1, Per: time.Hour})
	badQuota("too long", leaky.Quota{Capacity: 2, Count: 1, Per: math.MaxInt64/2 + 2})
	for _, cfg := range []pacer.Config{{Burst: math.MaxInt64}, {Burst: 147 * 366}, {BurstTime: math.MaxInt64/2 + 2}, {BurstTime: math.MaxInt64}} {
		_, err := pacer.NewWith(1, 24*time.Hour, cfg)
		set("too long, Set", "pacer", err)
		_, err = sluice.New(sluice.Config{Rate: sluice.Rate{Count: 1, Per: 24 * time.Hour}, Burst: cfg.Burst, BurstTime: cfg.BurstTime})
		set("too long, Set", "Gate", err)
	}
	set("too long, Set", "pacer", must(pacer.NewWith(1, time.Hour, pacer.Config{Burst: 147 * 366})).SetRate(1, 24*time.Hour))
	set("too long, Set", "Gate", mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}, Burst: 147 * 366}).SetRate(1, 24*time.Hour))

	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0.999, 1e6 + 1} {
		_, err := pacer.NewWith(1, time.Second, pacer.Config{WarmUp: time.Minute, ColdFactor: f})
		set("NaN, infinite", "pacer", err)
	}
	for _, n := range []int64{1e9, -1, 1<<29 + 1} {
		_, err1 := leaky.NewKeyed[int](hourly, leaky.KeyedConfig{MaxKeys: n})
		_, err2 := window.NewKeyedSliding[int](windowed, window.KeyedConfig{MaxKeys: n})
		_, err3 := window.NewKeyedFixed[int](windowed, window.KeyedConfig{MaxKeys: n})
		_, err4 := sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: int(n)})
		set("10⁹ keys", "Keyed", err1, err2, err3, err4)
	}
	try("one key too many", "Keyed", func() error {
		k := must(leaky.NewKeyed[int](hourly, leaky.KeyedConfig{MaxKeys: 1}))
		k.Take(1, 1)
		return k.Take(2, 1).Err()
	}, func() error {
		k := must(window.NewKeyedSliding[int](windowed, window.KeyedConfig{MaxKeys: 1}))
		k.Take(1, 1)
		return k.Take(2, 1).Err()
	}, func() error {
		k := must(window.NewKeyedFixed[int](windowed, window.KeyedConfig{MaxKeys: 1}))
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
	try("nil limit, function", "Block", func() error { sluice.NewQueue(nil); return nil })
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
		return outcomeIf(g.Stats().InFlight == 1, "no effect")
	})
	try("closed twice", "Gate", func() error {
		g := mustGate(t, room)
		g.Close()
		g.Close()
		return outcomeIf(g.Shutdown(bg) == nil && errors.Is(g.Do(bg, nothing), sluice.ErrClosed), "no effect")
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
	return outcomeIf(one && two, "no limit")
}

func TestBadInput_CanFail(t *testing.T) {
	for want, f := range map[string]func() error{
		"panic":       func() error { panic("pacer: x") },
		"error":       func() error { return errors.New("pacer: x") },
		"ctx.Err()":   func() error { return context.Canceled },
		"ErrTooLarge": func() error { return fmt.Errorf("x: %w", sluice.ErrTooLarge) },
		"never":       func() error { return &sluice.WaitError{Need: limits.Never} },
		"refuses":     func() error { return outcomeIf(true, "refuses") },
		"not refuses": func() error { return outcomeIf(false, "refuses") },
		"x":           func() error { return errors.New("x") },
		"a panic: oh": func() error { panic(errors.New("oh")) },
	} {
		if got := outcome(f); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	table := badInputTable("// # Bad input\n//\n// words\n//\n//\tmistake  a    b c\n//\tn < 0    yes  no\n//\n//\tx  y\n")
	if len(table) != 1 || len(table["n < 0"]) != 2 || table["n < 0"]["b c"] != "no" {
		t.Errorf("%v", table)
	}
}

// A limit on keys takes no memory before there are keys.
func TestMaxKeys_TakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(leaky.NewKeyed[int](hourly, leaky.KeyedConfig{MaxKeys: 1 << 29}))
	must(window.NewKeyedSliding[int](windowed, window.KeyedConfig{MaxKeys: 1 << 29}))
	must(window.NewKeyedFixed[int](windowed, window.KeyedConfig{MaxKeys: 1 << 29}))
	must(sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: 1 << 29}))
	window.NewSliding(math.MaxInt64, math.MaxInt64)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100_000 {
		t.Errorf("%d bytes for nothing", n)
	}
}
