package sluice

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/limits"
)

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
// two of them, others are accepted.
func answerThem(tl *tally, calls []refusedCall, answers ...throttledAnswer) {
	for i, a := range answers {
		now := time.Duration(i+1) * time.Second
		left := now - 10*time.Millisecond
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
		"others, others, alone": {{0, true}, {0, true}, {0, false}},
		"alone, others, alone":  {{0, false}, {0, true}, {0, false}},
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
		for range 20 {
			other := NewRetryLoop(g, RetryPolicy{})
			call(&other, nil)
		}
		call(&alone, explained)
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
