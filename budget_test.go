package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// With these answers one call gets through a gate, and this is what the budget
// holds before each attempt and at the end.
func TestConfig_RetryBudget_Prices(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		want    []int
	}{
		"first success":               {[]answer{fine}, []int{60, 61}},
		"success after a retry":       {[]answer{down, fine}, []int{60, 55, 60}},
		"success after two":           {[]answer{down, down, fine}, []int{60, 55, 50, 55}},
		"throttle":                    {[]answer{busy, busy, fine}, []int{60, 55, 50, 55}},
		"with a time":                 {[]answer{retryAfter(time.Second), retryAfter(time.Second), fine}, []int{60, 55, 50, 55}},
		"timeout":                     {[]answer{late, late, fine}, []int{60, 50, 40, 45}},
		"timeout of the attempt":      {[]answer{hang, fine}, []int{60, 50, 55}},
		"wrapped timeout":             {[]answer{always(fmt.Errorf("get: %w", context.DeadlineExceeded)), fine}, []int{60, 50, 55}},
		"timeout, deep inside":        {[]answer{always(&url.Error{Op: "Get", Err: fmt.Errorf("x: %w", context.DeadlineExceeded)}), fine}, []int{60, 50, 55}},
		"throttle that is a timeout":  {[]answer{always(sluice.RetryAfter(context.DeadlineExceeded, 0)), fine}, []int{60, 55, 60}},
		"an error that is no timeout": {[]answer{always(notTimeout{}), fine}, []int{60, 55, 60}},
		"one of each":                 {[]answer{down, busy, late, fine}, []int{60, 55, 50, 40, 45}},
		"permanent":                   {[]answer{gone}, []int{60, 60}},
		"no attempts left":            {[]answer{down, down, down, down}, []int{60, 55, 50, 45, 45}},
		"too long a wait":             {[]answer{retryAfter(time.Hour)}, []int{60, 60}},
		"beyond MaxElapsed":           {[]answer{after(20*time.Second, down)}, []int{60, 60}},
		"beyond the deadline":         {[]answer{after(20*time.Second, down)}, []int{60, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := fixedGate(t, sluice.Config{})
				drain(t, g, 40)
				limit := time.Hour
				p := each(time.Second)
				switch name {
				case "timeout of the attempt":
					p.AttemptTimeout = time.Second
				case "beyond MaxElapsed":
					p.MaxElapsed = 20 * time.Second
				case "beyond the deadline":
					limit = 21 * time.Second
				}
				ctx, cancel := context.WithTimeout(bg, limit)
				defer cancel()
				var got []int
				s := newServer(c.answers...)
				sluice.Retry(ctx, g, p, func(ctx context.Context) error {
					got = append(got, g.Stats().RetryTokens)
					return s.call(ctx)
				})
				got = append(got, g.Stats().RetryTokens)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("tokens %v, want %v", got, c.want)
				}
			})
		})
	}
}

// hang ends with its context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// notTimeout has the method, and says no.
type notTimeout struct{}

func (notTimeout) Error() string { return "refused" }
func (notTimeout) Timeout() bool { return false }

// drain takes tokens from the budget of g, by 5.
func drain(t *testing.T, g *sluice.Gate, tokens int) {
	t.Helper()
	before := g.Stats().RetryTokens
	for range tokens / 5 {
		s := newServer(down, gone) // a retry that fails for good puts nothing back
		sluice.Retry(bg, g, each(ms), s.call)
	}
	if got := g.Stats().RetryTokens; got != before-tokens {
		t.Fatalf("drained by %d from %d to %d", tokens, before, got)
	}
}

// spent returns a gate that has spent its budget on retries, as long ago as can be
// without getting any of it back.
func spent(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	cfg.RetryBudget = 10
	g := fixedGate(t, cfg)
	drain(t, g, 10)
	time.Sleep(29 * time.Second)
	return g
}

func TestConfig_RetryBudget_HoldsNoMoreThanItsCapacity(t *testing.T) {
	for _, c := range []struct{ capacity, tokens int }{{0, 100}, {5, 5}, {7, 7}, {1000, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			g := fixedGate(t, sluice.Config{RetryBudget: c.capacity})
			if got := g.Stats().RetryTokens; got != c.tokens {
				t.Errorf("RetryBudget %d: a new gate has %d tokens, want %d", c.capacity, got, c.tokens)
			}
			for range 3 {
				sluice.Retry(bg, g, sluice.RetryPolicy{}, fine)
			}
			if got := g.Stats().RetryTokens; got != c.tokens {
				t.Errorf("RetryBudget %d: %d tokens after successes, want %d", c.capacity, got, c.tokens)
			}
			sluice.Retry(bg, g, each(ms), newServer(down, fine).call)
			drain(t, g, 5)
			for i := range 7 {
				if got, want := g.Stats().RetryTokens, min(c.tokens, c.tokens-5+i); got != want {
					t.Errorf("RetryBudget %d: %d tokens after −5 +5 −5 and %d successes, want %d", c.capacity, got, i, want)
				}
				sluice.Retry(bg, g, sluice.RetryPolicy{}, fine)
			}
		})
	}
}

func TestConfig_RetryBudget_TwentyFailuresAreRetriedFromFull(t *testing.T) {
	for name, c := range map[string]struct {
		answer   answer
		last     error
		capacity int
		retries  int
	}{
		"plain":               {down, errDown, 0, 20},
		"throttle":            {busy, errBusy, 0, 20},
		"with a time":         {retryAfter(time.Second), errBusy, 0, 20},
		"timeout":             {late, os.ErrDeadlineExceeded, 0, 10},
		"plain, 12 tokens":    {down, errDown, 12, 2},
		"timeout, 12 tokens":  {late, os.ErrDeadlineExceeded, 12, 1},
		"timeout, 19 tokens":  {late, os.ErrDeadlineExceeded, 19, 1}, // 9 are not enough
		"timeout, 9 tokens":   {late, os.ErrDeadlineExceeded, 9, 0},
		"throttle, 4 tokens":  {busy, errBusy, 4, 0}, // not enough for any
		"a time, 1 token":     {retryAfter(time.Second), errBusy, 1, 0},
		"a time, 10 tokens":   {retryAfter(time.Second), errBusy, 10, 2},
		"throttle, 14 tokens": {busy, errBusy, 14, 2},
		"plain, 1,000 tokens": {down, errDown, 1000, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{Rate: herd, RetryBudget: c.capacity}), newServer(c.answer)
				p := each(time.Second)
				p.Attempts = -1
				err := sluice.Retry(bg, g, p, s.call)
				// It stops before the backoff, not after it: no time passes.
				at := time.Duration(c.retries) * time.Second
				s.wantStop(t, err, stop{
					last: c.last, why: sluice.ErrBudget, attempts: c.retries + 1,
					at: at, elapsed: at, retryAt: at + time.Second,
				})
			})
		})
	}
}

func TestConfig_RetryBudget_OneCallInFiveMayBeAFailingRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fixedGate(t, sluice.Config{})
		drain(t, g, 100)
		for round := range 10 {
			for range 5 {
				if err := sluice.Retry(bg, g, each(ms), fine); err != nil {
					t.Fatal(err)
				}
			}
			s := newServer(down)
			err := sluice.Retry(bg, g, each(ms), s.call)
			if got := len(s.attempts()); got != 2 || !errors.Is(err, sluice.ErrBudget) {
				t.Errorf("round %d: %d attempts, %v", round, got, err)
			}
		}
	})
}

// A budget that is slow and obvious, for calls one after the other.
func TestConfig_RetryBudget_Model(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			capacity := 1 + r.IntN(60)
			g, tokens := fixedGate(t, sluice.Config{RetryBudget: capacity}), capacity
			for range 100 {
				attempts := 0
				p := each(ms)
				p.Attempts = 1 + r.IntN(4)
				var why error
				err := sluice.Retry(bg, g, p, func(ctx context.Context) error {
					attempts++
					kind := r.IntN(6)
					cost := 5
					switch kind {
					case 0, 1:
						if tokens++; attempts > 1 {
							tokens += 4
						}
						tokens, why = min(tokens, capacity), nil
						return nil
					case 2:
						why = sluice.ErrPermanent
						return gone(ctx)
					case 3:
						cost = 10
					}
					switch {
					case attempts == p.Attempts:
						why = sluice.ErrAttempts
					case tokens < cost:
						why = sluice.ErrBudget
					default:
						tokens -= cost
					}
					return []answer{3: late, 4: busy, 5: down}[kind](ctx)
				})
				if got := g.Stats().RetryTokens; got != tokens || !errors.Is(err, why) {
					t.Fatalf("%d tokens, want %d; %v, want %v", got, tokens, err, why)
				}
			}
		})
	}
}

func TestConfig_RetryBudget_NegativeMakesRetriesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, budget := range []int{-1, math.MinInt} {
			g, l := fixedGate(t, sluice.Config{Rate: herd, RetryBudget: budget}), synclog.New()
			p := each(time.Second)
			p.Attempts, p.MaxElapsed = 200, -1
			for i, a := range []answer{down, late, busy, retryAfter(time.Second)} {
				answers := make([]answer, 199)
				for i := range answers {
					answers[i] = a
				}
				s := newServer(append(answers, fine)...)
				l.Call(i, func() error { return sluice.Retry(bg, g, p, s.call) })
			}
			time.Sleep(time.Hour)
			left := l.Sofar()
			for _, l := range left {
				if l.Err != nil {
					t.Errorf("%v", l)
				}
			}
			if got := g.Stats().Spacing; len(left) != 4 || got != 0 {
				t.Errorf("%d calls ended, spacing %v", len(left), got)
			}
		}
	})
}

// Each gate has its own budget.
func TestConfig_RetryBudget_IsPerGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := emptied(t, sluice.Config{}, time.Second), fixedGate(t, sluice.Config{})
		if got := other.Stats(); got.RetryTokens != 100 || got.Spacing != 0 {
			t.Errorf("%+v", got)
		}
		if err := sluice.Retry(bg, other, each(time.Second), newServer(down, fine).call); err != nil {
			t.Error(err)
		}
		if got := one.Stats(); got.RetryTokens != 0 || got.Spacing != time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestConfig_RetryBudget_DoesNotOverflow(t *testing.T) {
	g := fixedGate(t, sluice.Config{RetryBudget: math.MaxInt})
	fail := func(context.Context) error { return errors.New("x") }
	for range 3 {
		sluice.Retry(bg, g, sluice.RetryPolicy{}, nothing)
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(0)}, fail); !errors.Is(err, sluice.ErrAttempts) {
			t.Error(err)
		}
	}
	if n := g.Stats().RetryTokens; n <= 0 {
		t.Errorf("%d tokens", n)
	}
}
