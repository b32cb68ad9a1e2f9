package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A slowPath is a path of gates on which every call has to wait for an hour.
type slowPath struct {
	gate *sluice.Gate
	free func() // ends that, at once
}

var perHour = sluice.Rate{Count: 1, Per: time.Hour}

// slowPaths are the ways in which only the first caller of a gate can know that it has to wait.
var slowPaths = map[string]func(t *testing.T) slowPath{
	"a paused parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		return slowPath{generation(t, p), p.Resume}
	},
	"the rate of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{Rate: perHour})
		_ = p.Wait(bg)
		return slowPath{generation(t, p), func() { _ = p.SetRate(sluice.Rate{}) }}
	},
	"a paused parent of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		return slowPath{generation(t, generation(t, p)), p.Resume}
	},
	"the rate of a parent of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{Rate: perHour})
		_ = p.Wait(bg)
		return slowPath{generation(t, generation(t, p)), func() { _ = p.SetRate(sluice.Rate{}) }}
	},
	"a paused parent that is used directly": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		ctx, cancel := context.WithTimeout(bg, 2*time.Hour)
		go p.Do(ctx, nothing)
		t.Cleanup(cancel)
		synctest.Wait()
		return slowPath{generation(t, p), p.Resume}
	},
	"a limit": func(t *testing.T) slowPath {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(10)
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		return slowPath{g, func() { b.Adjust(bg, -10, 0) }}
	},
	"a limit of a parent": func(t *testing.T) slowPath {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(10)
		p := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		return slowPath{generation(t, p), func() { b.Adjust(bg, -10, 0) }}
	},
	"a limit far away": func(t *testing.T) slowPath {
		b := &bucket{capacity: 1, interval: time.Hour, trip: 200 * ms, full: time.Now().Add(time.Hour)}
		return slowPath{mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}}), nil}
	},
}

func generation(t *testing.T, parent *sluice.Gate) *sluice.Gate {
	return mustGate(t, sluice.Config{Parent: parent})
}

// A call behind one that waits does not wait for what that one knows to take too long.
func TestGate_Hopeless_BehindAnother(t *testing.T) {
	minute := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		return f(ctx)
	}
	verbs := map[string]func(g *sluice.Gate) error{
		"Acquire":       func(g *sluice.Gate) error { return minute(func(ctx context.Context) error { return enter(g, ctx)() }) },
		"AcquireWithin": func(g *sluice.Gate) error { _, err := g.AcquireWithin(bg, 1, time.Minute); return err },
		"AcquireWithin, a large call": func(g *sluice.Gate) error {
			_, err := g.AcquireWithin(bg, 5, time.Minute)
			return err
		},
		"Do": func(g *sluice.Gate) error {
			return minute(func(ctx context.Context) error { return g.Do(ctx, nothing) })
		},
		"Wait": func(g *sluice.Gate) error { return minute(g.Wait) },
		"Retry": func(g *sluice.Gate) error {
			return minute(func(ctx context.Context) error { return sluice.Retry(ctx, g, sluice.RetryPolicy{}, nothing) })
		},
		"Keyed": func(g *sluice.Gate) error {
			gates := must(sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{Parent: g}) }, sluice.KeyedConfig{}))
			return minute(func(ctx context.Context) error {
				return gates.Do(ctx, "a", nothing)
			})
		},
	}
	for path, make := range slowPaths {
		for verb, call := range verbs {
			t.Run(path+"/"+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := make(t)
					ctx, cancel := context.WithCancel(bg)
					l := synclog.New()
					l.Call(0, enter(s.gate, ctx))
					time.Sleep(time.Second) // it has asked
					began := time.Now()
					err := call(s.gate)
					var wait *limits.WaitError
					if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
						t.Errorf("after %v: %v, want a WaitError at once", time.Since(began), err)
					} else if least := time.Hour - 2*time.Second; wait.Need < least || wait.Need > 2*time.Hour {
						t.Errorf("it says %v, want an hour: %v", wait.Need, err)
					}
					cancel()
					l.Want(t, synclog.Failed(0, time.Second, context.Canceled))
				})
			})
		}
	}
}

// Calls that wait already fail as soon as the first one learns that it takes too long.
func TestGate_Hopeless_WhenTheFirstLearnsIt(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (g *sluice.Gate, learns func()){
		"a parent is paused": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			return generation(t, p), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent is paused, and the gate has a rate": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Parent: p})
			return g, func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent is used directly": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			go p.AcquireWithin(bg, 1, 40*time.Hour)
			synctest.Wait()
			return generation(t, p), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent of a parent is paused": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			return generation(t, generation(t, p)), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent gets a rate": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 20 * time.Second}})
			_ = p.Wait(bg)
			return generation(t, p), func() { _ = p.SetRate(perHour) }
		},
		"the answer of a limit far away": func(t *testing.T) (*sluice.Gate, func()) {
			b := &bucket{capacity: 1, interval: time.Hour, trip: 10 * time.Second, full: time.Now().Add(time.Hour)}
			return mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}}), func() {}
		},
		"a call of another child": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1, Rate: perHour})
			permit, _ := p.Acquire(bg, 1)
			_ = p.SetRate(sluice.Rate{})
			go generation(t, p).Wait(bg) // is the first there
			synctest.Wait()
			return generation(t, p), func() {
				_ = p.SetRate(perHour)
				permit.Release()
			}
		},
	} {
		for _, many := range []int{1, 100} { // that wait before it, and in the second case make an index worth while
			t.Run(fmt.Sprint(name, "/", many), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, learns := make(t)
					ctx, cancel := context.WithCancel(bg)
					defer cancel()
					l := synclog.New()
					for range many {
						go g.Acquire(ctx, 1)
						synctest.Wait()
					}
					deadline, stop := context.WithTimeout(bg, time.Minute)
					defer stop()
					l.Call(1, enter(g, deadline))
					l.Call(2, func() error { _, err := g.AcquireWithin(bg, 1, 2*time.Minute); return err })
					l.Call(3, func() error { _, err := g.AcquireWithin(bg, 1, 48*time.Hour); return err })
					time.Sleep(10 * time.Second)
					learns()
					l.Want(t, synclog.Failed(1, 10*time.Second, context.DeadlineExceeded), synclog.Failed(2, 10*time.Second, context.DeadlineExceeded))
					for _, left := range l.Sofar() {
						var wait *limits.WaitError
						if !errors.As(left.Err, &wait) || wait.Need < 50*time.Minute {
							t.Errorf("call %d: %v, want a WaitError of an hour", left.Caller, left.Err)
						}
					}
					g.Close()
					time.Sleep(48 * time.Hour)
				})
			})
		}
	}
}

// The first call learns what holds it up in the parent only when it has left its own gate.
func TestGate_Hopeless_WhenTheFirstGetsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustGate(t, sluice.Config{})
		g := mustGate(t, sluice.Config{Parent: p, Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}})
		if err := g.Wait(bg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, enter(g, ctx)) // to the parent in 10 s
		l.Call(1, func() error { _, err := g.AcquireWithin(bg, 1, 5*time.Minute); return err })
		time.Sleep(5 * time.Second)
		l.Call(2, enter(generation(t, p), ctx))
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		l.Call(3, enter(p, ctx))
		time.Sleep(10 * time.Minute)
		cancel()
		at := 10*time.Minute + 5*time.Second
		l.Want(t, synclog.At(2, 5*time.Second), synclog.Failed(1, 10*time.Second, context.DeadlineExceeded),
			synclog.Failed(0, at, context.Canceled), synclog.Failed(3, at, context.Canceled))
	})
}

// A wait that has just become shorter is no reason to refuse a call, although the first caller has
// not asked again yet.
func TestGate_Hopeless_NoMore(t *testing.T) {
	for path, make := range slowPaths {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make(t)
				if s.free == nil {
					return // it cannot say so
				}
				l := synclog.New()
				l.Call(0, func() error { return s.gate.Do(bg, nothing) })
				time.Sleep(time.Second)
				s.free()
				p, err := s.gate.AcquireWithin(bg, 1, time.Second)
				if err != nil {
					t.Errorf("the first has room: %v", err)
				}
				p.Release()
				l.Want(t, synclog.At(0, time.Second))
			})
		})
		t.Run(path+"/the first gives up", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make(t)
				if s.free == nil {
					return
				}
				ctx, cancel := context.WithCancel(bg)
				l := synclog.New()
				l.Call(0, enter(s.gate, ctx))
				cancel()
				s.free()
				if _, err := s.gate.AcquireWithin(bg, 1, time.Second); err != nil {
					t.Errorf("nobody waits: %v", err)
				}
				l.Want(t, synclog.Failed(0, 0, context.Canceled))
			})
		})
	}
}

// A large call that waits for a limit holds up those behind it only while it waits.
func TestGate_Hopeless_NotAfterALargeCallGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(5)
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, func() error { _, err := g.Acquire(ctx, 10); return err })
		if _, err := g.AcquireWithin(bg, 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind a call that waits for 5 h: %v", err)
		}
		cancel()
		if _, err := g.AcquireWithin(bg, 1, time.Minute); err != nil {
			t.Errorf("behind a call whose context is done: %v", err)
		}
		l.Want(t, synclog.Failed(0, 0, context.Canceled))
	})
}

// What one call has learned from a limit is not said of the next one, which is still asking.
func TestGate_Hopeless_NotWhileTheNextOneAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{capacity: 10, interval: time.Hour, trip: 200 * ms, full: time.Now().Add(5 * time.Hour)}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, func() error { _, err := g.Acquire(ctx, 10); return err })
		l.Call(1, enter(g, bg))
		time.Sleep(time.Second)
		cancel()
		time.Sleep(100 * ms)
		l.Call(2, func() error { _, err := g.AcquireWithin(bg, 1, time.Minute); return err })
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(0, time.Second, context.Canceled), synclog.At(1, 1200*ms), synclog.At(2, 1400*ms))
	})
}
