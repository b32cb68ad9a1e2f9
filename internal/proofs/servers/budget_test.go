package servers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
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
		"throttle that is a timeout":  {[]answer{always(sluice.ThrottledFor(context.DeadlineExceeded, 0)), fine}, []int{60, 55, 60}},
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
				sluice.Retry(ctx, g, func(ctx context.Context) error {
					got = append(got, g.Stats().RetryTokens)
					return s.call(ctx)
				}, p)
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
		sluice.Retry(bg, g, s.call, each(ms))
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
				sluice.Retry(bg, g, fine)
			}
			if got := g.Stats().RetryTokens; got != c.tokens {
				t.Errorf("RetryBudget %d: %d tokens after successes, want %d", c.capacity, got, c.tokens)
			}
			sluice.Retry(bg, g, newServer(down, fine).call, each(ms))
			drain(t, g, 5)
			for i := range 7 {
				if got, want := g.Stats().RetryTokens, min(c.tokens, c.tokens-5+i); got != want {
					t.Errorf("RetryBudget %d: %d tokens after −5 +5 −5 and %d successes, want %d", c.capacity, got, i, want)
				}
				sluice.Retry(bg, g, fine)
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
				err := sluice.Retry(bg, g, s.call, p)
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
				if err := sluice.Retry(bg, g, fine, each(ms)); err != nil {
					t.Fatal(err)
				}
			}
			s := newServer(down)
			err := sluice.Retry(bg, g, s.call, each(ms))
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
				err := sluice.Retry(bg, g, func(ctx context.Context) error {
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
				}, p)
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
				l.Call(i, func() error { return sluice.Retry(bg, g, s.call, p) })
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
		if err := sluice.Retry(bg, other, newServer(down, fine).call, each(time.Second)); err != nil {
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
		sluice.Retry(bg, g, nothing)
		if err := sluice.Retry(bg, g, fail, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(0)}); !errors.Is(err, sluice.ErrAttempts) {
			t.Error(err)
		}
	}
	if n := g.Stats().RetryTokens; n <= 0 {
		t.Errorf("%d tokens", n)
	}
}

// # Bursts

// Eight calls in flight see one overload, not eight.
func TestConfig_RetryBudget_BurstOfThrottlesIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   [2]int // after the first burst and after the second
	}{
		"throttle":  {busy, [2]int{95, 90}},
		"with time": {retryAfter(10 * time.Second), [2]int{95, 90}},
		"plain":     {down, [2]int{60, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := fixedGate(t, sluice.Config{Rate: herd}), synclog.New()
				for i := range 8 {
					// All leave at 0 and fail from 1 s to 1.7 s, leave again
					// by 11.7 s and fail from 12 s on.
					s := newServer(after(time.Second+time.Duration(i)*100*ms, c.answer), after(2*time.Second, c.answer), after(time.Second, gone))
					l.Call(i, func() error { return sluice.Retry(bg, g, s.call, each(10*time.Second)) })
				}
				time.Sleep(5 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[0] {
					t.Errorf("%d tokens after the first burst, want %d", got, c.want[0])
				}
				time.Sleep(15 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[1] {
					t.Errorf("%d tokens after the second burst, want %d", got, c.want[1])
				}
				time.Sleep(time.Minute)
				if got := l.Sofar(); len(got) != 8 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// When a call left decides whether its failure belongs to a burst: a call that left
// after the burst was charged is charged itself, however soon it fails.
func TestConfig_RetryBudget_ThrottleAfterTheBurstIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: herd}), synclog.New()
		for i, c := range []struct {
			leaves, fails time.Duration
			answer        answer
		}{
			{0, 1000 * ms, busy},
			{999 * ms, 1500 * ms, busy},    // of the burst
			{1001 * ms, 2000 * ms, busy},   // not of the burst
			{1999 * ms, 60000 * ms, busy},  // of the second one, and long in flight
			{2000 * ms, 60000 * ms, late},  // a timeout is not a throttle
			{50000 * ms, 60000 * ms, busy}, // a third one
			{70000 * ms, 80000 * ms, down}, // nor is a failure
			{70000 * ms, 80001 * ms, busy}, // and makes no burst
		} {
			s := newServer(after(c.fails-c.leaves, c.answer), gone)
			l.Call(i, func() error {
				time.Sleep(c.leaves)
				return sluice.Retry(bg, g, s.call, each(time.Hour/10))
			})
		}
		for _, c := range []struct {
			at   time.Duration
			want int
		}{{999 * ms, 100}, {1001 * ms, 95}, {1600 * ms, 95}, {2001 * ms, 90}, {31999 * ms, 90},
			{32000 * ms, 95}, {59999 * ms, 95}, {60001 * ms, 80}, {80002 * ms, 70}} { // 5 for 30 s of quiet
			time.Sleep(c.at - time.Since(l.Start))
			if got := g.Stats().RetryTokens; got != c.want {
				t.Errorf("%d tokens at %v, want %d", got, c.at, c.want)
			}
		}
		time.Sleep(time.Hour)
	})
}

// A burst that could not be charged to the budget retries no call for free.
func TestConfig_RetryBudget_BurstThatCannotBePaidIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		l := synclog.New()
		var want []synclog.Left
		for i := range 8 {
			at := time.Second + time.Duration(i)*100*ms
			l.Call(i, func() error { return sluice.Retry(bg, g, after(at, busy), each(time.Second)) })
			want = append(want, synclog.Failed(i, at, sluice.ErrBudget))
		}
		time.Sleep(time.Minute)
		l.Want(t, want...)
	})
}

func TestConfig_RetryBudget_BurstRefusedAtOnceIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		answer answer
		begin  time.Duration
	}{
		"at the beginning":     {sluice.Config{}, busy, 0},
		"later":                {sluice.Config{}, busy, time.Second},
		"with time":            {sluice.Config{}, retryAfter(10 * time.Second), 0},
		"one after the other":  {sluice.Config{Concurrency: 1}, busy, 0},
		"some after the other": {sluice.Config{Concurrency: 8}, busy, time.Second},
		"parent":               {sluice.Config{Parent: fixedGate(t, sluice.Config{})}, busy, 0},
		"quota":                {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, busy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.cfg.Parent != nil {
					c.cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g := fixedGate(t, c.cfg)
				time.Sleep(c.begin)
				burst := func(want int) {
					t.Helper()
					for range 64 {
						go sluice.Retry(bg, g, c.answer, sluice.RetryPolicy{Attempts: 2, ThrottleBackoff: sluice.Constant(time.Hour), MaxElapsed: -1, MaxServerWait: -1})
					}
					synctest.Wait()
					if got := g.Stats().RetryTokens; got != want {
						t.Errorf("%d tokens, want %d", got, want)
					}
				}
				burst(95)
				time.Sleep(10 * time.Second)
				burst(90) // another one
				g.Close()
			})
		})
	}
}

// On the real clock: a call that leaves after the throttle was charged is charged again.
func TestConfig_RetryBudget_SuccessiveThrottlesAreChargedEach(t *testing.T) {
	g := fixedGate(t, sluice.Config{})
	for i := range 5 {
		sluice.Retry(bg, g, newServer(busy, gone).call, sluice.RetryPolicy{Attempts: 2, ThrottleBackoff: sluice.Constant(ms)})
		if got, want := g.Stats().RetryTokens, 95-5*i; got != want {
			t.Errorf("%d tokens after throttle %d, want %d", got, i+1, want)
		}
	}
}

// # Recovery

// After an outage all calls that have the time succeed, with or without a deadline.
func TestConfig_RetryBudget_CallsWithDeadlinesSucceedAfterAnOutage(t *testing.T) {
	fifty := sluice.Rate{Count: 50, Per: time.Second}
	for name, cfg := range map[string]func() sluice.Config{
		"rate":        func() sluice.Config { return sluice.Config{Rate: fifty} },
		"no rate":     func() sluice.Config { return sluice.Config{} },
		"concurrency": func() sluice.Config { return sluice.Config{Rate: fifty, Concurrency: 5} },
		"burst":       func() sluice.Config { return sluice.Config{Rate: withBurst(fifty, 20)} },
		"parent": func() sluice.Config {
			return sluice.Config{Rate: fifty, Parent: fixedGate(t, sluice.Config{Rate: fifty})}
		},
		"grandparent": func() sluice.Config {
			return sluice.Config{Parent: fixedGate(t, sluice.Config{Rate: fifty, Parent: fixedGate(t, sluice.Config{})})}
		},
		"quota":        func() sluice.Config { return sluice.Config{Rate: fifty, Limits: []sluice.Limit{{Limiter: free{}}}} },
		"hardly a bet": func() sluice.Config { return sluice.Config{Rate: fifty, RetryBudget: 5} },
	} {
		t.Run(name, func(t *testing.T) {
			// ok returns how many of 500 calls succeed, and when the last one does.
			ok := func(p sluice.RetryPolicy, with func(f func(context.Context) error)) (n int64, last time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					g := fixedGate(t, cfg())
					var calls, fine atomic.Int64
					var mu sync.Mutex
					start := time.Now()
					for range 500 {
						go with(func(ctx context.Context) error {
							err := sluice.Retry(ctx, g, func(context.Context) error {
								n := calls.Add(1)
								// Answered one after the other: in which order the budget sees
								// them decides how many retries it pays for.
								time.Sleep(10*ms + time.Duration(n))
								if n <= 30 {
									return errDown
								}
								return nil
							}, p)
							if err == nil {
								fine.Add(1)
								mu.Lock()
								last = max(last, time.Since(start))
								mu.Unlock()
							} else if !errors.Is(err, sluice.ErrBudget) {
								t.Errorf("after %v: %v", time.Since(start), err)
							}
							return err
						})
					}
					time.Sleep(time.Hour)
					mu.Lock()
					defer mu.Unlock()
					n = fine.Load()
				})
				return n, last
			}
			p := each(time.Second)
			want, last := ok(p, func(f func(context.Context) error) { f(bg) })
			if want < 450 || last > time.Minute {
				t.Fatalf("without a deadline %d succeed, the last one after %v", want, last)
			}
			for how, with := range map[string]func(f func(context.Context) error){
				"deadline": func(f func(context.Context) error) {
					ctx, cancel := context.WithTimeout(bg, last+time.Second)
					defer cancel()
					f(ctx)
				},
				"MaxElapsed": nil,
			} {
				policy := p
				if with == nil {
					policy.MaxElapsed = last + time.Second
					with = func(f func(context.Context) error) { f(bg) }
				}
				if got, _ := ok(policy, with); got != want {
					t.Errorf("%s: %d succeed, %d without", how, got, want)
				}
			}
		})
	}
}

func TestConfig_RetryBudget_AcquireWithinAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second), synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, fine) })
		for i := range 3 { // 8 s each if nothing succeeded
			l.Call(i+1, func() error {
				p, err := g.AcquireWithin(bg, 1, 20*time.Second)
				if err == nil {
					p.Release()
				}
				return err
			})
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 8*time.Second), synclog.At(1, 12*time.Second), synclog.At(2, 16*time.Second), synclog.At(3, 20*time.Second))
	})
}

func TestConfig_RetryBudget_RecoversWithTime(t *testing.T) {
	for _, c := range []struct {
		capacity int
		after    []int // tokens after each 30 s
	}{
		{0, []int{0, 5, 10, 15, 20}},
		{100, []int{0, 5, 10, 15, 20}},
		{10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10}},
		{25, []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25}},
		{1000, []int{0, 50, 100, 150}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := fixedGate(t, sluice.Config{RetryBudget: c.capacity})
			capacity := g.Stats().RetryTokens
			for range capacity / 5 {
				sluice.Retry(bg, g, down, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(ms)})
			}
			for i, want := range c.after {
				if i > 0 {
					time.Sleep(30*time.Second - 1)
					if got := g.Stats().RetryTokens; got != c.after[i-1] {
						t.Errorf("RetryBudget %d: %d tokens just before %v, want %d", c.capacity, got, time.Duration(i)*30*time.Second, c.after[i-1])
					}
					time.Sleep(time.Nanosecond)
				}
				if got := g.Stats().RetryTokens; got != want {
					t.Errorf("RetryBudget %d: %d tokens after %v, want %d", c.capacity, got, time.Duration(i)*30*time.Second, want)
				}
			}
			time.Sleep(10 * time.Minute)
			if got := g.Stats().RetryTokens; got != capacity {
				t.Errorf("RetryBudget %d: %d tokens in the end", c.capacity, got)
			}
		})
	}
}

// It makes no difference whether Stats are read or calls succeed meanwhile.
func TestConfig_RetryBudget_RecoveryDependsOnTimeOnly(t *testing.T) {
	for name, between := range map[string]func(g *sluice.Gate){
		"nothing": func(*sluice.Gate) {},
		"Stats":   func(g *sluice.Gate) { g.Stats() },
		"calls": func(g *sluice.Gate) {
			if p, ok := g.TryAcquire(1); ok {
				p.Release()
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := emptied(t, sluice.Config{}, 30*time.Second)
			for i := range 50 {
				between(g)
				time.Sleep(7 * time.Second)
				s, steps := g.Stats(), (i+1)*7/30
				spacing := 30 * time.Second >> steps
				if spacing < ms {
					spacing = 0
				}
				if s.Spacing != spacing || s.RetryTokens != min(10, steps) {
					t.Errorf("%s: spacing %v and %d tokens after %d s", name, s.Spacing, s.RetryTokens, i*7+7)
				}
			}
		})
	}
}

// While calls fail, nothing comes back, with or without an attempt left.
func TestConfig_RetryBudget_DoesNotRecoverWhileCallsFail(t *testing.T) {
	for name, call := range map[string]func(g *sluice.Gate){
		"no budget":   func(g *sluice.Gate) { sluice.Retry(bg, g, down, each(ms)) },
		"no attempts": func(g *sluice.Gate) { sluice.Retry(bg, g, down, sluice.RetryPolicy{Attempts: 1}) },
		"Gate.Do":     func(g *sluice.Gate) { g.Do(bg, down) },
		"throttled":   func(g *sluice.Gate) { g.Do(bg, busy) },
		"timeout":     func(g *sluice.Gate) { sluice.Retry(bg, g, always(sluice.Permanent(os.ErrDeadlineExceeded)), each(ms)) },
		"timeouts":    func(g *sluice.Gate) { g.Do(bg, always(sluice.Permanent(os.ErrDeadlineExceeded))) },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := emptied(t, sluice.Config{}, 20*time.Second)
			for range 100 {
				time.Sleep(20 * time.Second)
				call(g)
			}
			if s := g.Stats(); s.Spacing != 20*time.Second || s.RetryTokens != 0 {
				t.Errorf("%s: spacing %v, %d tokens", name, s.Spacing, s.RetryTokens)
			}
		})
	}
}

func TestConfig_RetryBudget_RecoveryReachesWaiters(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"alone": {}, "rate": {Rate: tenPerSecond}, "quota": {Limits: []sluice.Limit{{Limiter: free{}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, l := emptied(t, cfg, 30*time.Second), synclog.New()
			for i := range 7 {
				l.Call(i, enter(g, bg))
			}
			time.Sleep(time.Hour)
			// 30 s until 30 s, 15 s until 60 s, 7.5 s until 90 s, 3.75 s from then on.
			l.Want(t, synclog.At(0, 30*time.Second), synclog.At(1, 45*time.Second), synclog.At(2, 60*time.Second), synclog.At(3, 67500*ms),
				synclog.At(4, 75*time.Second), synclog.At(5, 82500*ms), synclog.At(6, 90*time.Second))
			if t.Failed() {
				t.Log(name)
			}
		})
	}
}

func TestConfig_RetryBudget_RecoveredGateIsAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{}, 30*time.Second)
		time.Sleep(10 * time.Minute)
		start := time.Now()
		for range 1000 {
			g.Do(bg, fine)
		}
		if s := g.Stats(); time.Since(start) != 0 || s.Spacing != 0 || s.RetryTokens != 10 {
			t.Errorf("after %v: %+v", time.Since(start), s)
		}
	})
}

// After an outage a client whose calls are all answered by 404 soon calls at its own rate.
func TestConfig_RetryBudget_DefiniteErrorsEndAnOutageSoon(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"rate":   {Rate: sluice.Rate{Count: 100, Per: time.Second}},
		"none":   {},
		"parent": {Parent: fixedGate(t, sluice.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if cfg.Parent != nil {
					cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g := emptied(t, cfg, 30*time.Second)
				start := time.Now()
				for range 100 {
					if err := sluice.Retry(bg, g, gone); err == nil {
						t.Error("no error")
					}
				}
				if took := time.Since(start); took > time.Minute+time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// The permit of a call may be held long after its success is known. Waiting calls do not
// wait for its release.
func TestConfig_RetryBudget_SuccessReachesWaitersBeforeRelease(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"alone": {}, "rate": {Rate: tenPerSecond}, "concurrency": {Concurrency: 2},
		"quota": {Limits: []sluice.Limit{{Limiter: free{}}}}, "parent": {Parent: fixedGate(t, sluice.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if cfg.Parent != nil {
					cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g, l := emptied(t, cfg, 8*time.Second), synclog.New()
				l.Call(0, func() error {
					return byHand(bg, g, sluice.RetryPolicy{}, 1, time.Hour, after(time.Second, fine)) // a body is read for an hour
				})
				l.Call(1, enter(g, bg))
				time.Sleep(2 * time.Hour)
				l.Want(t, synclog.At(0, 9*time.Second), synclog.At(1, 12*time.Second)) // 8 s + 4 s, not 8 s + 8 s
			})
		})
	}
}

// The budget together with all other limits, on the real scheduler.
func TestConfig_RetryBudget_Stress(t *testing.T) {
	parent := fixedGate(t, sluice.Config{Concurrency: 4})
	g := fixedGate(t, sluice.Config{Concurrency: 8, RetryBudget: 20, Parent: parent})
	var wg sync.WaitGroup
	answers := []answer{fine, down, busy, gone, fine, late, retryAfter(ms), fine}
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(bg, 20*ms)
				sluice.Retry(ctx, g, answers[(w+i)%len(answers)], each(ms))
				cancel()
			}
		})
	}
	wg.Wait()
	if s, p := g.Stats(), parent.Stats(); s.InFlight != 0 || s.Waiting+s.Pacing != 0 || p.InFlight != 0 || p.Waiting+p.Pacing != 0 {
		t.Errorf("%+v\n%+v", s, p)
	}
}

// # A server that is down

// README: when a server is down, a gate makes at most twenty retries at first, ten after timeouts,
// and then few. Of calls in flight that the server throttles together only one pays; 100 callers
// with 20 calls in flight then make fewer than 100 retries in 10 min.
func TestRetry_BudgetWhenAServerIsDown(t *testing.T) {
	fails, busy := func() error { return errDown }, busyFor(0)
	for name, c := range map[string]struct {
		answers      []func() error // in turn
		first, later int            // most retries in the first minute, and in 10 min
	}{
		"500":                            {[]func() error{fails}, 20, 20},
		"timeouts":                       {[]func() error{func() error { return context.DeadlineExceeded }}, 10, 10},
		"503":                            {[]func() error{busy}, 60, 99},
		"503, Retry-After":               {[]func() error{busyFor(time.Second)}, 60, 99},
		"500 and 503":                    {[]func() error{fails, busy}, 80, 99},
		"500 and 503, Retry-After":       {[]func() error{fails, busyFor(time.Second)}, 60, 99},
		"500 and 503, short Retry-After": {[]func() error{busyFor(ms), fails}, 60, 99},
	} {
		for kind, adaptive := range map[string]sluice.Adaptive{"": {}, ", adaptive off": {Disabled: true}} {
			t.Run(name+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := mustGate(t, sluice.Config{Concurrency: 20, Adaptive: adaptive})
					ctx, cancel := context.WithCancel(bg)
					var mu sync.Mutex
					n := 0
					answer := func(context.Context) error {
						time.Sleep(50 * ms)
						mu.Lock()
						defer mu.Unlock()
						n++
						return c.answers[n%len(c.answers)]()
					}
					var callers sync.WaitGroup
					for range 100 {
						callers.Go(func() {
							for ctx.Err() == nil {
								_ = sluice.Retry(ctx, g, answer)
								time.Sleep(time.Second)
							}
						})
					}
					time.Sleep(time.Minute)
					first := g.Stats().Retried
					time.Sleep(9 * time.Minute)
					later := g.Stats().Retried
					if first > uint64(c.first) || later > uint64(c.later) {
						t.Errorf("%d retries in a minute, %d in 10 min, want at most %d and %d", first, later, c.first, c.later)
					}
					if first < 5 {
						t.Errorf("only %d retries", first)
					}
					cancel()
					callers.Wait()
				})
			})
		}
	}
}
