package sluice

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/strays"
	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/limits"
)

// # Whom does a refusal concern?

func TestRefusedCall_ConcernsOthers(t *testing.T) {
	for _, c := range []struct {
		granted, refused, n int
		others              bool
	}{
		{0, 0, 1, true}, // nothing is known of others
		{0, 100, 20, true},
		{1, 0, 1, true},
		{5, 0, 1, true},
		{6, 0, 1, false},
		{2, 0, 2, false},
		{1, 0, 2, false},
		{100, 10, 1, false},
		{100, 20, 1, true},
		{100, 100, 2, true},
		{100, 100, 3, false},
		{100, 110, 3, true},
		{10, 100, 8, true},
	} {
		var tl tally
		var call refusedCall
		now := time.Second
		for i := range c.n {
			call.note(now, now-1, &tl, true) // the only call that is refused, as far as is counted
			tl.refuse(now, now-1, i > 0)
			if i == 0 {
				for range c.granted {
					tl.grant(now + 1)
				}
				for range c.refused {
					tl.refuse(now, now-1, false)
				}
			}
		}
		call.at = now
		if got := call.concernsOthers(&tl); got != c.others {
			t.Errorf("%d granted, %d refused, refused %d times before: concerns others %t", c.granted, c.refused, c.n, got)
		}
		if tl.grantedSince = min(tl.grantedSince, now); c.granted > 0 && !call.concernsOthers(&tl) {
			t.Errorf("%d granted, all of which had left before the refusal: it concerns only the call", c.granted)
		}
	}
}

// A busyServer takes 10 ms, and always refuses the calls of some items.
type busyServer struct {
	mu       sync.Mutex
	asks     time.Duration // for a wait; 0: it sets no time
	refuses  func(item int) bool
	refusals int
	lastGood time.Time
}

func (s *busyServer) call(item int) error {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses(item) {
		s.refusals++
		return ThrottledFor(fmt.Errorf("item %d", item), s.asks)
	}
	s.lastGood = time.Now()
	return nil
}

// serve calls 200 good items and some bad ones with so many workers, and returns how many failed.
func (s *busyServer) serve(cfg Config, policy RetryPolicy, items, most int) (failed int, took time.Duration) {
	g, began := limits.Must(New(cfg)), time.Now()
	work := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range most {
		workers.Go(func() {
			for item := range work {
				if err := Retry(context.Background(), g, func(context.Context) error { return s.call(item) }, policy); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	for item := range items {
		work <- item
	}
	close(work)
	workers.Wait()
	return failed, time.Since(began)
}

// One call of 201 that is always refused costs the others a few waits. It held them up for more
// than a minute, five of them for more than an hour, and a batch for ever.
func TestRetry_OneCallThatIsAlwaysRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"default":        {},
		"off":            {Adaptive: Adaptive{Disabled: true}},
		"search":         {Adaptive: Adaptive{Search: true, Start: Rate{Count: 1000, Per: time.Second}}},
		"parent":         {Parent: limits.Must(New(Config{}))},
		"told 1,000/s":   {Rate: Rate{Count: 1000, Per: time.Second}},
		"concurrency 4":  {Concurrency: 4},
		"no elapsed end": {},
		"all at once":    {Rate: Rate{Count: 1000, Per: time.Second}},
	} {
		for _, asks := range []time.Duration{0, time.Second, 5 * time.Second} {
			for _, bad := range []int{1, 5} {
				t.Run(fmt.Sprintf("%s, %d bad, Retry-After %v", name, bad, asks), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						if cfg.Parent != nil { // which belongs to a bubble
							cfg.Parent = limits.Must(New(Config{}))
						}
						policy, workers := RetryPolicy{}, 8
						if name == "all at once" { // and the refused ones go ahead of most of the others
							workers = 200 + bad
						}
						if name == "no elapsed end" {
							policy.MaxElapsed = -1
						}
						s := &busyServer{asks: asks, refuses: func(item int) bool { return item%40 == 20 && item/40 < bad }}
						began := time.Now()
						failed, took := s.serve(cfg, policy, 200+bad, workers)
						good := s.lastGood.Sub(began)
						t.Logf("good after %v, all after %v, %d refusals", good, took, s.refusals)
						if most := 10*time.Second + time.Duration(2*bad+2)*asks; good > most || failed != bad {
							t.Errorf("the good ones took %v, want at most %v; %d failed", good, most, failed)
						}
						most := 2 * time.Minute
						if name == "all at once" {
							// The last that are left may have been refused once, each, before the last
							// good one was granted. Nothing tells them from the calls of a server that
							// began to refuse everybody, which end after MaxServerWait.
							most = 7 * time.Minute
						}
						if took > most {
							t.Errorf("all took %v, want at most %v", took, most)
						}
					})
				})
			}
		}
	}
}

// A server that refuses everybody is asked as before: no call takes that for its own matter.
func TestRetry_AServerThatRefusesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &busyServer{asks: time.Second, refuses: func(int) bool { return time.Since(began) < time.Minute }}
		failed, took := s.serve(Config{}, RetryPolicy{}, 200, 8)
		t.Logf("all after %v, %d refusals", took, s.refusals)
		if failed > 0 || s.refusals > 80 {
			t.Errorf("%d of 200 failed, %d refusals in a minute; 8 callers and one in each second", failed, s.refusals)
		}
	})
}

// A server that refuses all calls for longer than MaxServerWait ends the calls, whatever waits it
// asks for: with 1 s they went on for 15 min.
func TestRetry_RefusedForLongerThanMaxServerWait(t *testing.T) {
	for _, asks := range []time.Duration{0, time.Second, 30 * time.Second} {
		for _, callers := range []int{1, 100} {
			t.Run(fmt.Sprintf("Retry-After %v, %d callers", asks, callers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, began := limits.Must(New(Config{})), time.Now()
					var calls sync.WaitGroup
					for range callers {
						calls.Go(func() {
							err := Retry(context.Background(), g, func(context.Context) error {
								time.Sleep(10 * time.Millisecond)
								return ThrottledFor(errors.New("busy"), asks)
							})
							if !errors.Is(err, ErrServerWait) {
								t.Error(err)
							}
						})
					}
					calls.Wait()
					if took := time.Since(began); took < 5*time.Minute || took > 6*time.Minute+time.Second+asks {
						t.Errorf("the last call ended after %v", took)
					}
				})
			})
		}
	}
}

// A program that makes a call now and then is not told that the server has refused all of them
// for hours.
func TestRetry_ABlockageThatNobodySawIsNotLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		policy := RetryPolicy{Attempts: 1, MaxServerWait: -1}
		refused := func(context.Context) error { return ThrottledFor(errors.New("busy"), time.Second) }
		if err := Retry(context.Background(), g, refused, policy); err == nil {
			t.Fatal("no error")
		}
		time.Sleep(time.Hour)
		n := 0
		if err := Retry(context.Background(), g, func(ctx context.Context) error {
			if n++; n == 1 {
				return refused(ctx)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// # The retry budget

// A call waits until a spacing lets it leave, or until quiet has halved the spacing so that it
// does.
func TestBudget_Wait_QuietHalvesTheSpacing(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name                    string
		spacing, left, at, want time.Duration
	}{
		{"none", 0, 20 * s, 21 * s, 0},
		{"before it is halved", 5 * s, 20 * s, 21 * s, 4 * s},
		{"just when it is halved", 10 * s, 20 * s, 21 * s, 9 * s},
		{"halved at 30 s", 30 * s, 20 * s, 21 * s, 14 * s},
		{"over when it is halved", 12 * s, 20 * s, 21 * s, 9 * s},
	} {
		b := newBudget(0)
		b.spacing, b.left = c.spacing, c.left
		if got := b.peek(c.at, 0); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A call that leaves after a long quiet ends the spacing, after which calls pass without the
// lock again.
func TestBudget_Leave_EndsASpacing(t *testing.T) {
	b := newBudget(0)
	b.spacing, b.tokens = 4*time.Millisecond, 50
	b.started(quiet, quiet, want{})
	if b.spacing != 2*time.Millisecond || b.tokens != 55 || b.since != quiet {
		t.Errorf("after %v: %+v", quiet, b)
	}
	b.started(10*quiet, quiet, want{})
	if b.spacing != 0 {
		t.Errorf("after %v: %+v", 10*quiet, b)
	}
}

// A slow start measures a pace again when a call was throttled that no published window explains, also in a
// gate that does not learn.
func TestRamp_ForgetsPublishedWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Adaptive: Adaptive{Disabled: true}})
		if err != nil {
			t.Fatal(err)
		}
		call := func(refused error) {
			err := g.Do(t.Context(), func(context.Context) error { time.Sleep(10 * time.Millisecond); return refused })
			if !errors.Is(err, refused) {
				t.Fatal(err)
			}
		}
		down := errors.New("429")
		for range 3 {
			for range 20 {
				call(nil)
			}
			call(ThrottledFor(&errs.Explained{Err: down}, 5*time.Second))
		}
		if !g.ramp.windows || g.ramp.gap != 0 {
			t.Errorf("after published windows: windows %v, gap %v", g.ramp.windows, g.ramp.gap)
		}
		for range 20 {
			call(nil)
		}
		call(ThrottledFor(down, time.Second))
		if g.ramp.windows || g.ramp.gap == 0 {
			t.Errorf("afterwards: windows %v, gap %v", g.ramp.windows, g.ramp.gap)
		}
	})
}

// # Some calls are throttled now and then

// Of 20 calls that are repeated some are throttled again, beside others of which some are throttled.
func TestTally_Repeated(t *testing.T) {
	for _, c := range []struct {
		again            int
		granted, refused int64 // of the others, from one repeated call to the next
		costs, apart     bool
	}{
		{again: 10, granted: 20, refused: 2, apart: true},
		{again: 10, granted: 1, apart: true}, // a few others are enough in the long run
		{again: 2, granted: 20, refused: 2},
		{again: 4, granted: 20, refused: 4},
		{again: 10, granted: 10, refused: 10},
		{again: 20, granted: 0, refused: 10}, // all are
		{again: 10},                          // nothing is known of others
		{again: 10, granted: 20, refused: 2, costs: true},
	} {
		var tl tally
		apart := false
		for i := range 20 {
			call := refusedCall{n: 1, own: 1, granted: tl.granted, refused: tl.refused - 1, costs: c.costs}
			tl.granted += c.granted
			tl.refused += c.refused
			now := time.Duration(i+1) * time.Second
			tl.repeated(&call, now, now-1, i*c.again%20 < c.again)
			apart = apart || tl.apart
		}
		if apart != c.apart {
			t.Errorf("%+v: apart %t, evidence %.1f", c, apart, tl.again)
		}
	}
}

// Three calls that are throttled again together are as much evidence as one. Each was: so a burst at a limit
// was enough.
func TestTally_Repeated_TogetherIsOnce(t *testing.T) {
	evidence := func(apart time.Duration) float64 {
		tl := tally{granted: 6}
		for i := range 3 {
			left := time.Second + time.Duration(i)*apart
			tl.repeated(&refusedCall{n: 1}, left+20*time.Millisecond, left, true)
		}
		return tl.again
	}
	together, one := evidence(time.Millisecond), math.Log(.5/(.5/8))
	if math.Abs(together-one) > 1e-9 {
		t.Errorf("the evidence of three together is %.2f, want that of one, %.2f", together, one)
	}
	if after := evidence(time.Second); after < apartFrom {
		t.Errorf("the evidence of three, one after the other, is %.2f, want at least %v", after, apartFrom)
	}
}

// A throttled answer of a call of a tally, and whether it concerns others.
type throttledAnswer struct {
	call   int
	others bool
}

// answerThem notes the answers, each 10 ms after its call has left, and a second after the one before. Between
// two of them, two others are accepted.
func answerThem(tl *tally, calls []refusedCall, answers ...throttledAnswer) {
	for i, a := range answers {
		now := time.Duration(i+1) * time.Second
		left := now - 10*time.Millisecond
		tl.grant(left - 1)
		tl.grant(left - 1)
		again := calls[a.call].n > 0
		calls[a.call].note(now, left, tl, a.others)
		if a.others {
			tl.refuse(now, left, again)
		}
	}
}

// A burst that a repeated call begins has as many first calls before it as there were: it was one fewer.
func TestTally_BurstOfARepeatedCall(t *testing.T) {
	var tl tally
	calls := make([]refusedCall, 2)
	answerThem(&tl, calls, throttledAnswer{0, true}, throttledAnswer{1, true}, throttledAnswer{0, true})
	if tl.before != 2 {
		t.Errorf("%d first calls were throttled before the burst, want 2", tl.before)
	}
}

// The tally forgets just the answers of a call that is alone, whatever was thought of it before. One that was
// thought to be alone at first remained as repeated.
func TestRefusedCall_IsForgotten(t *testing.T) {
	for name, answers := range map[string][]throttledAnswer{
		"others, others, alone, alone": {{0, true}, {0, true}, {0, false}, {0, false}}, // first as a probe
		"alone, others, alone, alone":  {{0, false}, {0, true}, {0, false}, {0, false}},
	} {
		var tl tally
		calls := make([]refusedCall, 1)
		answerThem(&tl, calls, answers...)
		if tl.refused != 0 || tl.refusedAgain != 0 {
			t.Errorf("%s: %d throttled calls remain, %d of them repeated", name, tl.refused, tl.refusedAgain)
		}
	}
}

// A lockedObject is a server that throttles half of the calls for one object, which is one call of ten.
// From an instant on it may have a limit as well.
type lockedObject struct {
	mu     sync.Mutex
	began  time.Time
	tries  map[int]int
	limit  float64
	from   time.Duration
	tokens float64
	last   time.Duration

	throttled [2]int // by the object, by the limit
	late      int    // throttled by the limit after ten seconds of it
	lost      int    // calls that were given up
}

func (s *lockedObject) call(item int) error {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	if s.limit > 0 && now > s.from {
		s.tokens = math.Min(10, s.tokens+s.limit*(now-max(s.last, s.from)).Seconds())
		if s.last = now; s.tokens < 1 {
			s.throttled[1]++
			if now > s.from+10*time.Second {
				s.late++
			}
			return ThrottledFor(errors.New("limit"), 0)
		}
		s.tokens--
	}
	s.tries[item]++
	if item%10 == 0 && rand.New(rand.NewPCG(1, uint64(item+s.tries[item]<<16))).Float64() < .5 {
		s.throttled[0]++
		return ThrottledFor(errors.New("locked"), 0)
	}
	return nil
}

// run makes 100 calls per second, and returns how much later than without a gate the last call came
// back that was not about the object, and the last one of all.
func (s *lockedObject) run(cfg Config, items int) (others, all time.Duration) {
	g := limits.Must(New(cfg))
	s.began, s.tries = time.Now(), map[int]int{}
	policy := RetryPolicy{Backoff: Constant(300 * time.Millisecond), ThrottleBackoff: Constant(300 * time.Millisecond)}
	var callers sync.WaitGroup
	for item := range items {
		callers.Go(func() {
			due := time.Duration(item) * 10 * time.Millisecond
			time.Sleep(due)
			err := Retry(context.Background(), g, func(context.Context) error { return s.call(item) }, policy)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.lost++
			}
			late := time.Since(s.began) - due - 20*time.Millisecond
			if all = max(all, late); item%10 != 0 {
				others = max(others, late)
			}
		})
	}
	callers.Wait()
	return others, all
}

// One object of ten that throttles half of its calls slows down no others. They took 10 minutes
// longer, and a gate with a rate 20 s.
func TestRetry_ObjectThatThrottlesHalf(t *testing.T) {
	for name, cfg := range map[string]Config{"default": {}, "told": {Rate: Rate{Count: 110, Per: time.Second}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s lockedObject
				others, all := s.run(cfg, 1000)
				t.Logf("others are %v late, all %v; %d throttled", others, all, s.throttled)
				if others > 3*time.Second || all > 6*time.Second || s.lost > 1 {
					t.Errorf("others are %v late, all %v; %d lost", others, all, s.lost)
				}
			})
		})
	}
}

// The server gets a limit of 40 calls per second, which the object must not hide.
func TestRetry_ObjectThatThrottlesHalf_AndALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lockedObject{limit: 40, from: 10 * time.Second}
		others, _ := s.run(Config{}, 2000)
		t.Logf("others are %v late; %d throttled, %d late ones", others, s.throttled, s.late)
		if s.throttled[1] > 800 || s.late > 600 || s.lost > 10 {
			t.Errorf("%d throttled, %d late ones, %d lost", s.throttled, s.late, s.lost)
		}
	})
}

// A throttle that a published limit explains is in the tally as any other, though it teaches nothing: else the
// one of a call that is alone in the end was taken out of it although it had never been in.
func TestGate_ExplainedThrottlesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		explained := ThrottledFor(&errs.Explained{Err: errors.New("429")}, 5*time.Second)
		call := func(loop *RetryLoop, err error) {
			p, refused := loop.Next(t.Context(), 1)
			if refused != nil {
				t.Fatal(refused)
			}
			time.Sleep(time.Millisecond)
			loop.Done(t.Context(), err)
			p.Release()
		}
		want := func(refused int64) {
			t.Helper()
			if got := g.tally.refused; got != refused || g.learner != nil {
				t.Errorf("%d throttled calls are in the tally, want %d; it learns: %v", got, refused, g.learner != nil)
			}
		}
		alone := NewRetryLoop(g, RetryPolicy{})
		call(&alone, explained)
		want(1)
		for range 2 { // first as a probe
			for range 20 {
				other := NewRetryLoop(g, RetryPolicy{})
				call(&other, nil)
			}
			want(1)
			call(&alone, explained)
		}
		want(0)
	})
}

// A gate that has an estimate learns from a throttle that a published limit explains, too: its pace grows until
// calls are throttled. With a Search of its own a gate of a Config.NewGate was throttled 26 times instead of once.
func TestGate_EstimateLearnsFromExplainedThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Adaptive: Adaptive{Search: true}})
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Do(t.Context(), func(context.Context) error {
			return ThrottledFor(&errs.Explained{Err: errors.New("429")}, 5*time.Second)
		})
		if until := g.learner.askedUntil; until != 5*time.Second {
			t.Errorf("it was asked to wait until %v", until)
		}
	})
}

// A slow start after published limits measures no rate: neither after a pause that comes first and explains the
// throttle, nor between the pauses for a limit that is used up.
func TestGate_PublishedLimitsMeasureNoRate(t *testing.T) {
	for name, first := range map[string]func(t *testing.T, g *Gate){
		"an explained throttle during the pause": func(t *testing.T, g *Gate) {
			_ = g.Do(t.Context(), func(context.Context) error {
				g.PauseUntil(time.Now().Add(6*time.Second), "429")
				return ThrottledFor(&errs.Explained{Err: errors.New("429")}, 5*time.Second)
			})
		},
		"nothing remains": func(_ *testing.T, g *Gate) { usedup.Pause(g, time.Now().Add(5*time.Second), "nothing remains") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := New(Config{})
				if err != nil {
					t.Fatal(err)
				}
				fine := func(context.Context) error { return nil }
				first(t, g)
				for range 4 {
					_ = g.Do(t.Context(), fine)
				}
				usedup.Pause(g, time.Now().Add(20*time.Millisecond), "nothing remains")
				began := time.Now()
				for range 4 {
					_ = g.Do(t.Context(), fine)
				}
				if took := time.Since(began); took > 20*time.Millisecond {
					t.Errorf("4 calls after a pause of 20 ms took %v", took)
				}
			})
		})
	}
}

// A pause while it is not known whether a call was throttled, and one after the waits of others, are no throttles:
// the time between them and a throttle is no rate. 12 calls had been 100 ms apart then.
func TestGate_PausesThatAreNoThrottles(t *testing.T) {
	for name, pause := range map[string]func(gate any, until time.Time, why string){"in doubt": usedup.Hold, "of others": usedup.Restart} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := New(Config{})
				if err != nil {
					t.Fatal(err)
				}
				fine := func(context.Context) error { time.Sleep(time.Millisecond); return nil }
				g.PauseUntil(time.Now().Add(time.Second), "429")
				for range 10 {
					_ = g.Do(t.Context(), fine)
				}
				pause(g, time.Now().Add(20*time.Millisecond), "")
				began := time.Now()
				for range 12 {
					_ = g.Do(t.Context(), fine)
				}
				if took := time.Since(began); took > 40*time.Millisecond {
					t.Errorf("12 calls after a pause of 20 ms took %v", took)
				}
			})
		})
	}
}

// If a pause in doubt is one, calls start slowly, although it was as long.
func TestGate_PauseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(20 * time.Millisecond)
		usedup.Hold(g, until, "429")
		if g.ramp != nil {
			t.Error("a slow start in doubt")
		}
		g.PauseUntil(until, "429")
		if g.ramp == nil || !g.ramp.on {
			t.Error("no slow start after a throttle")
		}
	})
}

// Calls of Do that are throttled at random are strays, too.
func TestDo_Strays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		var mu sync.Mutex
		accepted, random := 0, rand.New(rand.NewPCG(1, 2))
		call := func(context.Context) error {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if random.Float64() < .01 {
				return ThrottledFor(errors.New("busy"), 0)
			}
			accepted++
			return nil
		}
		began := time.Now()
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() {
				for time.Since(began) < 10*time.Second {
					_ = g.Do(t.Context(), call)
				}
			})
		}
		callers.Wait()
		if accepted < 28_000 { // of 32,000
			t.Errorf("%d calls accepted", accepted)
		}
	})
}

// A throttled call that changes nothing for others, such as one at random, has its answer: in a slow start it is one
// call less without one. Otherwise each delayed the next call by 10 s, with nothing of it left in flight.
func TestGate_SlowStart_CountsStraysAsAnswered(t *testing.T) {
	const ms = time.Millisecond
	for _, off := range []bool{false, true} {
		for _, asked := range []time.Duration{0, ms} {
			t.Run(fmt.Sprintf("off %t, asked %v", off, asked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := limits.Must(New(Config{Adaptive: Adaptive{Disabled: off}}))
					call := func(takes time.Duration, err error) {
						_ = g.Do(t.Context(), func(context.Context) error { time.Sleep(takes); return err })
					}
					for range 70 { // or it would be one of the first calls
						call(ms, nil)
					}
					var others sync.WaitGroup
					for range 32 { // of which one throttled call is few
						others.Go(func() { call(time.Minute, nil) })
					}
					synctest.Wait()
					g.PauseUntil(time.Now().Add(ms), "")
					time.Sleep(ms)
					began := time.Now()
					call(10*ms, ThrottledFor(errors.New("busy"), asked))
					call(10*ms, nil)
					if took := time.Since(began); took > 25*ms {
						t.Errorf("two calls of 10 ms, of which one was throttled, took %v", took)
					}
					others.Wait()
				})
			})
		}
	}
}

// An estimate is no mistake that was restored after a flight with few throttled calls.
func TestGate_Restore_AfterStray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := limits.Must(New(Config{Adaptive: Adaptive{Search: true, Start: PerSecond(7)}}))
		p := limits.Must(before.Acquire(t.Context()))
		p.Done(ThrottledFor(errors.New("busy"), time.Second))
		g := limits.Must(New(Config{Concurrency: 32})) // otherwise not all of them leave at once
		var calls sync.WaitGroup
		for i := range 32 {
			calls.Go(func() {
				_ = g.Do(t.Context(), func(context.Context) error {
					if time.Sleep(time.Millisecond); i == 0 {
						return ThrottledFor(errors.New("busy"), time.Second)
					}
					return nil
				})
			})
		}
		calls.Wait()
		if g.learner == nil {
			t.Fatal("the gate has not learned")
		}
		if err := g.Restore(before.Snapshot()); err != nil {
			t.Fatal(err)
		}
		restored := g.learner
		if err := g.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if restored == nil || g.learner != restored {
			t.Error("the estimate is forgotten")
		}
	})
}

// Where calls cost different amounts, the few that are throttled are the large ones, not strays.
func TestListener_LargeCallsAreNoStrays(t *testing.T) {
	g := limits.Must(New(Config{}))
	for n, want := range map[int64]bool{1: true, 2: false} {
		g.strays = strays.Counter{}
		now := g.queue.Now() + time.Second
		g.countStray(now, now-1, &Permit{n: n})
		if got := g.strays != (strays.Counter{}); got != want {
			t.Errorf("a call of %d is counted: %t", n, got)
		}
	}
}
