package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
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
