package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// inDoubt returns a tally with one throttled call, whose answer came after a second, and so many answers to calls
// that left later. Two of those in flight with it were accepted, and one was throttled.
func inDoubt(accepted, throttled int) (*tally, *refusedCall) {
	var tl tally
	var c refusedCall
	c.note(time.Second, 0, &tl, true)
	tl.refuse(time.Second, 0, false)
	tl.refuse(time.Second, 0, false)
	for range 2 {
		tl.grant(0)
	}
	for range accepted {
		tl.grant(2 * time.Second)
	}
	for range throttled {
		tl.refuse(3*time.Second, 2*time.Second, false)
	}
	return &tl, &c
}

// One more throttle of a call is no chance if enough others are accepted that left later.
func TestTally_InDoubt(t *testing.T) {
	for _, c := range []struct {
		accepted, throttled int
		alone               bool
	}{
		{0, 0, false},
		{5, 0, false},
		{6, 0, true},
		{12, 1, false},
		{13, 1, true},
		{33, 4, false},
		{34, 4, true},
		{48, 6, true},
		{56, 7, false}, // these are nine throttled calls, a crowd
	} {
		tl, call := inDoubt(c.accepted, c.throttled)
		if got := !call.concernsOthers(tl); got != c.alone {
			t.Errorf("%d accepted, %d throttled: alone %t", c.accepted, c.throttled, got)
		}
	}
	for name, call := range map[string]refusedCall{
		"costs differ": {costs: true},
		"gate below":   {below: true},
	} {
		tl, _ := inDoubt(13, 1) // enough only for a call that is plain
		call.n, call.at = 1, time.Second
		if !call.concernsOthers(tl) {
			t.Errorf("%s: it is alone", name)
		}
	}
}

// Each round in which throttled calls are throttled again counts, if others were accepted after the one before.
func TestTally_InDoubt_Rounds(t *testing.T) {
	for _, c := range []struct {
		name         string
		rounds, each int // so many calls are throttled in each
		between      bool
		want         int
		alone        bool
	}{
		{"none", 0, 0, true, 0, false},
		{"one", 1, 1, true, 1, true},
		{"two calls together", 1, 2, true, 1, true},
		{"two", 2, 1, true, 2, true},
		{"two, and nothing was accepted in between", 2, 1, false, 1, true},
	} {
		tl, call := inDoubt(5, 2) // a third of the others is throttled
		for i := range c.rounds {
			at := time.Duration(10*(i+1)) * time.Second
			for range c.each {
				other := refusedCall{n: 1, at: time.Second}
				other.note(at+time.Second, at, tl, true)
			}
			if c.between {
				tl.grant(at + 2*time.Second)
			}
		}
		if got := !call.concernsOthers(tl); got != c.alone || tl.doubt.rounds != c.want {
			t.Errorf("%s: alone %t, chance %.3f after %d rounds, want %d", c.name, got, tl.doubt.chance(), tl.doubt.rounds, c.want)
		}
	}
}

// The two calls that leave next decide about a probe that was throttled.
func TestTally_Probe(t *testing.T) {
	for _, c := range []struct {
		name             string
		next             func(tl *tally)
		alone            int
		pending, in, was bool // the decision is pending; the gate is in doubt; the probe is counted as alone
	}{
		{"none has come", func(*tally) {}, 0, true, true, false},
		{"two that left earlier are accepted", func(tl *tally) { tl.grant(9 * time.Second); tl.grant(10 * time.Second) }, 0, true, true, false},
		{"one that left earlier is throttled", func(tl *tally) { tl.refuse(11*time.Second, 10*time.Second, false) }, 0, true, true, false},
		{"the next is accepted", func(tl *tally) { tl.grant(10*time.Second + 1) }, 0, true, true, false},
		{"the next two are accepted", func(tl *tally) { tl.grant(10*time.Second + 1); tl.grant(10*time.Second + 2) }, 1, false, false, true},
		{"the next is throttled", func(tl *tally) { tl.refuse(11*time.Second, 10*time.Second+1, false) }, 0, false, true, false},
		{"one of two is throttled", func(tl *tally) {
			tl.grant(10*time.Second + 1)
			tl.refuse(11*time.Second, 10*time.Second+2, false)
			tl.grant(10*time.Second + 3)
		}, 0, false, true, false},
	} {
		tl, call := inDoubt(20, 0)
		call.note(10*time.Second+1, 10*time.Second, tl, false)
		c.next(tl)
		if tl.alone != c.alone || (tl.doubt.tried > 0) != c.pending || tl.inDoubt() != c.in || call.confirmed(tl) != c.was {
			t.Errorf("%s: %d alone, in doubt %t, the probe is alone %t: %+v", c.name, tl.alone, tl.inDoubt(), call.confirmed(tl), tl.doubt)
		}
		if call.note(20*time.Second, 19*time.Second, tl, false); c.was && tl.alone != 1 {
			t.Errorf("%s: the probe counts %d times as alone when it is throttled again", c.name, tl.alone)
		}
	}
}

// Once one call is alone, so are the others, and new ones, until a throttled call is accepted.
func TestTally_KnowsAlone(t *testing.T) {
	tl, first := inDoubt(20, 0)
	var second, third refusedCall
	second.note(3*time.Second, 2*time.Second, tl, true)
	tl.grant(4 * time.Second)
	first.note(10*time.Second+1, 10*time.Second, tl, false)
	if concerns := third.concernsOthers(tl); !concerns {
		t.Error("a new call is thought to be alone although nothing is decided")
	}
	tl.grant(11 * time.Second)
	tl.grant(11 * time.Second)
	if second.concernsOthers(tl) || third.concernsOthers(tl) || !tl.allAreAlone() {
		t.Errorf("the second concerns others: %t, and a new one: %t", second.concernsOthers(tl), third.concernsOthers(tl))
	}
	tl.doubt.heal()
	if tl.knowsAlone() || !third.concernsOthers(tl) {
		t.Error("a new call is thought to be alone although a throttled call was accepted")
	}
}

// A call that was found to be alone and is accepted after all was not alone.
func TestRetry_AcceptedAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		n := 0
		err := Retry(t.Context(), g, func(context.Context) error {
			for range 20 {
				time.Sleep(time.Millisecond)
				if err := Retry(t.Context(), g, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
			if n++; n < 4 {
				return ThrottledFor(errors.New("busy"), time.Second)
			}
			if g.tally.alone != 1 {
				t.Errorf("%d calls are alone, want 1", g.tally.alone)
			}
			return nil
		})
		if err != nil || g.tally.alone != 0 {
			t.Errorf("%d calls are alone, %v", g.tally.alone, err)
		}
	})
}

// A throttled call lets others go first, but not for ever: if none of them is answered, it has its turn 14 times the
// wait that the server asked for after that wait, 20 seconds at most, or after half of the time that it has.
func TestRetry_LetsOthersGoFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked time.Duration
		limit func(ctx context.Context, p *RetryPolicy) (context.Context, context.CancelFunc)
		want  time.Duration // from the first answer to the next attempt
	}{
		{"a second", time.Second, nil, 15 * time.Second},
		{"a minute", time.Minute, nil, 80 * time.Second},
		{"MaxElapsed", time.Second, func(ctx context.Context, p *RetryPolicy) (context.Context, context.CancelFunc) {
			p.MaxElapsed = 6 * time.Second
			return context.WithCancel(ctx)
		}, 3 * time.Second},
		{"a deadline", time.Second, func(ctx context.Context, p *RetryPolicy) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 6*time.Second)
		}, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := limits.Must(New(Config{Adaptive: Adaptive{Disabled: true}}))
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				policy := RetryPolicy{}
				if c.limit != nil {
					ctx, cancel = c.limit(ctx, &policy)
				}
				defer cancel()
				defer busy(t, g)()
				var at []time.Time
				err := Retry(ctx, g, func(context.Context) error {
					if at = append(at, time.Now()); len(at) == 1 {
						return ThrottledFor(errors.New("busy"), c.asked)
					}
					return nil
				}, policy)
				if err != nil || len(at) != 2 {
					t.Fatalf("%d attempts, %v", len(at), err)
				}
				if got := at[1].Sub(at[0]); got != c.want {
					t.Errorf("the next attempt comes after %v, want %v", got, c.want)
				}
			})
		})
	}
}

// busy keeps two calls in flight through g until done is called.
func busy(t *testing.T, g *Gate) (done func()) {
	over := make(chan struct{})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if err := g.Do(t.Context(), func(context.Context) error { <-over; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	return func() {
		close(over)
		calls.Wait()
	}
}

// A call that lets others go first ends with its context, with the gate, and with its patience.
func TestRetry_LetsOthersGoFirst_Ends(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(g *Gate, cancel context.CancelFunc)
		want error
	}{
		{"context", func(_ *Gate, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"gate", func(g *Gate, _ context.CancelFunc) { g.Close() }, limits.ErrClosed},
		{"a longer pause", func(g *Gate, _ context.CancelFunc) { g.PauseUntil(time.Now().Add(time.Hour), "busy") }, ErrServerWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := limits.Must(New(Config{Adaptive: Adaptive{Disabled: true}}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer busy(t, g)()
				began := time.Now()
				time.AfterFunc(1500*time.Millisecond, func() { c.end(g, cancel) })
				err := Retry(ctx, g, func(context.Context) error { return ThrottledFor(errors.New("busy"), time.Second) })
				if took := time.Since(began); !errors.Is(err, c.want) || took != 1500*time.Millisecond {
					t.Errorf("after %v: %v, want %v", took, err, c.want)
				}
			})
		})
	}
}

// A throttled call goes on soon if the others fail, end without an answer, or if so many were accepted that further
// answers would not have to be counted.
func TestRetry_LetsOthersGoFirst_GoesOn(t *testing.T) {
	fails := errors.New("fails")
	for _, c := range []struct {
		name   string
		others func(ctx context.Context, g *Gate, calls *sync.WaitGroup) // they end with ctx
	}{
		{"others fail", func(ctx context.Context, g *Gate, calls *sync.WaitGroup) {
			for range 3 {
				calls.Go(func() {
					_ = g.Do(ctx, func(context.Context) error { time.Sleep(1500 * time.Millisecond); return fails })
				})
			}
		}},
		{"no answers", func(ctx context.Context, g *Gate, calls *sync.WaitGroup) {
			for range 3 {
				calls.Go(func() {
					p := limits.Must(g.Acquire(ctx))
					time.Sleep(1500 * time.Millisecond)
					p.Release()
				})
			}
		}},
		{"many are accepted", func(ctx context.Context, g *Gate, calls *sync.WaitGroup) {
			for range 300 {
				calls.Go(func() { _ = g.Do(ctx, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }) })
			}
			goOn(ctx, g, calls, 500*time.Millisecond)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := limits.Must(New(Config{Adaptive: Adaptive{Disabled: true}}))
				ctx, cancel := context.WithCancel(t.Context())
				var calls sync.WaitGroup
				c.others(ctx, g, &calls)
				began, n := time.Now(), 0
				err := Retry(ctx, g, func(context.Context) error {
					time.Sleep(time.Microsecond)
					if n++; n == 1 {
						return ThrottledFor(errors.New("busy"), time.Second)
					}
					return nil
				})
				if took := time.Since(began); err != nil || took > 3*time.Second {
					t.Errorf("it took %v, %v", took, err)
				}
				cancel()
				calls.Wait()
			})
		})
	}
}

// If the probe ends otherwise than throttled or accepted, another call is the next one.
func TestRetry_ProbeEnds(t *testing.T) {
	fails := errors.New("fails")
	for name, end := range map[string]func() error{
		"permanent error": func() error { return Permanent(fails) },
		"panic":           func() error { panic(fails) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := limits.Must(New(Config{Adaptive: Adaptive{Disabled: true}}))
				ctx, cancel := context.WithCancel(t.Context())
				var others, calls sync.WaitGroup
				goOn(ctx, g, &others, 0)
				began, ended := time.Now(), false // the first probe
				for range 2 {
					calls.Go(func() {
						defer func() { _ = recover() }()
						n := 0
						_ = Retry(ctx, g, func(context.Context) error {
							time.Sleep(time.Microsecond)
							switch n++; {
							case n == 1:
								return ThrottledFor(errors.New("busy"), time.Second)
							case !ended:
								ended = true
								return end()
							}
							return nil
						})
						if took := time.Since(began); took > 3*time.Second {
							t.Errorf("a call took %v", took)
						}
					})
				}
				calls.Wait()
				cancel()
				others.Wait()
			})
		})
	}
}

// goOn makes calls that are accepted, after a while, four at a time, until ctx is done.
func goOn(ctx context.Context, g *Gate, calls *sync.WaitGroup, after time.Duration) {
	for range 4 {
		calls.Go(func() {
			for time.Sleep(after); ctx.Err() == nil; {
				_ = g.Do(ctx, func(context.Context) error { time.Sleep(50 * time.Millisecond); return nil })
			}
		})
	}
}

// A gate that was told a limit lets no others go first.
func TestRetry_LetsNoOthersGoFirst_Told(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{Rate: Rate{Count: 10, Per: time.Second}}))
		defer busy(t, g)()
		var last time.Time
		if err := Retry(t.Context(), g, func(context.Context) error {
			if last.IsZero() {
				last = time.Now()
				return ThrottledFor(errors.New("busy"), time.Second)
			}
			if waited := time.Since(last); waited != time.Second {
				t.Errorf("the next attempt comes after %v, want 1s", waited)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// A call with no others waits for the pause, and no longer; so do two that were throttled, one of which is in
// line.
func TestRetry_LetsNoOthersGoFirst(t *testing.T) {
	for _, callers := range []int{1, 2} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, began := limits.Must(New(Config{})), time.Now()
				done := make(chan time.Duration, callers)
				for range callers {
					go func() {
						n := 0
						err := Retry(t.Context(), g, func(context.Context) error {
							time.Sleep(time.Millisecond)
							if n++; n == 1 {
								return ThrottledFor(errors.New("busy"), time.Second)
							}
							return nil
						})
						if err != nil {
							t.Error(err)
						}
						done <- time.Since(began)
					}()
				}
				for range callers {
					if took := <-done; took > 1500*time.Millisecond {
						t.Errorf("one of %d took %v", callers, took)
					}
				}
			})
		})
	}
}

// Calls that let others go first are among those that wait.
func TestGate_Stats_LetOthersGoFirst(t *testing.T) {
	g := limits.Must(New(Config{}))
	g.countLetting(3)
	if s := g.Stats(); s.Waiting != 3 || s.LimitedBy != limits.ByLearned {
		t.Errorf("three let others go first: %+v", s)
	}
	g.countLetting(-3)
	if s := g.Stats(); s.Waiting != 0 || s.LimitedBy != "" {
		t.Errorf("none lets others go first: %+v", s)
	}
}
