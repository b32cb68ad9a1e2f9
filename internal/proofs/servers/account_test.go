package servers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// An accountServer serves so many calls per second of all tenants together, after an idle time as many
// at the same time, and fewer of some tenants.
type accountServer struct {
	told  time.Duration     // of a refusal; 0 if it names no time
	rate  float64           // of the account
	rates map[int]float64   // of tenants
	mu    sync.Mutex        //
	next  map[int]time.Time // slots by tenant, -1 for the account
	got   map[int]int       // served, by tenant

	banned int           // tenant that is told to wait for ban, -1 for all,
	ban    time.Duration // and how long; 0 if none is. That of all
	banAt  time.Time     // is once, from then on

	calls, refused int
}

func newAccountServer(rate float64, told time.Duration) *accountServer {
	return &accountServer{told: told, rate: rate, rates: map[int]float64{}, next: map[int]time.Time{}, got: map[int]int{}}
}

var errTooMany = errors.New("too many calls")

func (s *accountServer) call(tenant int) error {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer func() { s.mu.Unlock(); time.Sleep(20 * time.Millisecond) }()
	s.calls++
	now := time.Now()
	if left := s.banAt.Add(s.ban).Sub(now); s.ban > 0 && (s.banned == tenant || s.banned < 0 && now.After(s.banAt) && left > 0) {
		s.refused++
		if s.banned == tenant {
			left = s.ban
		}
		return sluice.ThrottledFor(errTooMany, left)
	}
	for i, rate := range map[int]float64{-1: s.rate, tenant: s.rates[tenant]} {
		if rate > 0 && s.next[i].Sub(now) > time.Second {
			s.refused++
			if s.told > 0 {
				return sluice.ThrottledFor(errTooMany, s.told)
			}
			return sluice.ThrottledFor(errTooMany, 0)
		}
	}
	for i, rate := range map[int]float64{-1: s.rate, tenant: s.rates[tenant]} {
		if rate > 0 {
			if s.next[i].Before(now) {
				s.next[i] = now
			}
			s.next[i] = s.next[i].Add(time.Duration(float64(time.Second) / rate))
		}
	}
	s.got[tenant]++
	return nil
}

// play lets callers of each gate make calls for a while, after a while.
func (s *accountServer) play(t *testing.T, gates []*sluice.Gate, callers int, before, lasts time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, g := range gates {
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					err := sluice.Retry(ctx, g, func(context.Context) error { return s.call(i) }, sluice.RetryPolicy{MaxServerWait: time.Hour})
					if err != nil {
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
						}
					}
				}
			})
		}
	}
	time.Sleep(before)
	s.mu.Lock()
	s.calls, s.refused, s.got = 0, 0, map[int]int{}
	s.mu.Unlock()
	time.Sleep(lasts)
	cancel()
	all.Wait()
}

func (s *accountServer) served() (n int) {
	for _, got := range s.got {
		n += got
	}
	return n
}

// jain returns the index of fairness of Jain: 1 if all have got the same.
func (s *accountServer) jain(tenants int) float64 {
	sum, squares := 0., 0.
	for i := range tenants {
		sum += float64(s.got[i])
		squares += float64(s.got[i]) * float64(s.got[i])
	}
	return sum * sum / squares / float64(tenants)
}

// account returns gates of tenants, under one that learns for them.
func account(t *testing.T, tenants int) (parent *sluice.Gate, gates []*sluice.Gate) {
	return accountOf(t, tenants, sluice.Adaptive{Children: true})
}

// accountOf is account with the configuration of the parent.
func accountOf(t *testing.T, tenants int, a sluice.Adaptive) (parent *sluice.Gate, gates []*sluice.Gate) {
	parent = mustGate(t, sluice.Config{Name: "account", Adaptive: a})
	for i := range tenants {
		gates = append(gates, mustGate(t, sluice.Config{Name: fmt.Sprint("tenant", i), Parent: parent}))
	}
	return parent, gates
}

// Fifty gates under one that learns for them are as one gate, at a server whose limit is not known.
func TestAdaptive_Children_AsOneGate(t *testing.T) {
	built.SkipRaced(t)
	const tenants, callers = 50, 2
	for _, told := range []time.Duration{0, time.Second, 30 * time.Second} {
		t.Run(told.String(), func(t *testing.T) {
			var one, many *accountServer
			synctest.Test(t, func(t *testing.T) {
				one = newAccountServer(50, told)
				one.play(t, []*sluice.Gate{mustGate(t, sluice.Config{Name: "one"})}, tenants*callers, 0, 6*time.Minute)
			})
			synctest.Test(t, func(t *testing.T) {
				many = newAccountServer(50, told)
				_, gates := account(t, tenants)
				many.play(t, gates, callers, 0, 6*time.Minute)
			})
			share := func(s *accountServer) float64 { return float64(s.refused) / float64(s.calls) }
			t.Logf("one gate: %d served, %.2f %% refused; %d gates: %d, %.2f %%, Jain %.4f", one.served(), 100*share(one), tenants, many.served(), 100*share(many), many.jain(tenants))
			least := 98
			if told == 30*time.Second {
				least = 94 // each ban costs so many calls that one sooner or later is 2 %
			}
			if many.served() < one.served()*least/100 || share(many) > share(one)+0.01 || many.jain(tenants) < 0.99 {
				t.Errorf("one gate: %d served, %.2f %% refused; %d gates: %d, %.2f %%, Jain %.4f", one.served(), 100*share(one), tenants, many.served(), 100*share(many), many.jain(tenants))
			}
		})
	}
}

// What was found is there for a new child: its first call waits for the pause of the account, and its
// pace.
func TestAdaptive_Children_NewChild(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		parent, gates := account(t, 2)
		err := gates[0].Do(bg, func(context.Context) error { return sluice.ThrottledFor(errTooMany, 30*time.Second) })
		if !errors.Is(err, errTooMany) {
			t.Error(err)
		}
		if s := parent.Stats(); s.Learned == nil || s.Learned.Throttled != 1 || s.PausedUntil.IsZero() {
			t.Errorf("the parent has learned %v, paused until %v", s.Learned, s.PausedUntil)
		}
		if s := gates[0].Stats(); s.Learned != nil || !s.PausedUntil.IsZero() {
			t.Errorf("the child has learned %v, paused until %v", s.Learned, s.PausedUntil)
		}
		late := mustGate(t, sluice.Config{Parent: parent})
		began := time.Now()
		for i, g := range []*sluice.Gate{late, gates[1]} {
			if err := g.Do(bg, nothing); err != nil || time.Since(began) < 30*time.Second || i == 0 && time.Since(began) > 31*time.Second {
				t.Errorf("gate %d: %v after %v", i, err, time.Since(began))
			}
		}
	})
}

// A tenant that has a limit of its own, or is refused always, learns that by itself, and holds up the
// others only until that is known.
func TestAdaptive_Children_LimitOfOne(t *testing.T) {
	built.SkipRaced(t)
	for name, rate := range map[string]float64{"slow": 1, "disabled": 1e-9} {
		for _, told := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprint(name, told), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newAccountServer(100, told)
					s.rates[0] = rate
					if name == "disabled" {
						s.next[0] = time.Now().Add(1000 * time.Hour)
					}
					_, gates := account(t, 5)
					s.play(t, gates, 5, 2*time.Minute, 4*time.Minute)
					others := s.served() - s.got[0]
					t.Logf("%d of the tenant, %d of the others, %d of %d refused", s.got[0], others, s.refused, s.calls)
					if others < 240*90 || name == "slow" && s.got[0] < 240*8/10 || s.refused > s.calls/20 {
						t.Errorf("%d of the tenant, %d of the others, %d of %d refused", s.got[0], others, s.refused, s.calls)
					}
				})
			})
		}
	}
}

// Permits of children are reported as calls of Do are, and the clocks of the gates differ.
func TestAdaptive_Children_Permits(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		parent := mustGate(t, sluice.Config{Name: "account", Adaptive: sluice.Adaptive{Children: true}})
		time.Sleep(time.Hour)
		class := mustGate(t, sluice.Config{Name: "class", Parent: parent})
		time.Sleep(time.Hour)
		g := mustGate(t, sluice.Config{Name: "gate", Parent: class, IsThrottle: func(err error) (bool, time.Duration) {
			return errors.Is(err, errTooMany), 5 * time.Second
		}})
		for range 2 {
			p, err := g.Acquire(bg, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Done(errTooMany)
			p.Release()
			if left := time.Until(parent.Stats().PausedUntil); left != 5*time.Second {
				t.Errorf("the parent is paused for %v, want 5s", left)
			}
		}
		for _, g := range []*sluice.Gate{class, g} {
			if s := g.Stats(); s.Learned != nil || !s.PausedUntil.IsZero() || s.InFlight != 0 {
				t.Errorf("%s: %v", s.Name, s)
			}
		}
	})
}

// The tenants of an account are served by weight while it learns.
func TestAdaptive_Children_Weight(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		s := newAccountServer(50, 0)
		parent, gates := account(t, 2)
		gates = append(gates, mustGate(t, sluice.Config{Parent: parent, Weight: 2}))
		s.play(t, gates, 20, time.Minute, 10*time.Minute)
		got := []int{s.got[0], s.got[1], s.got[2]}
		if slices.Min(got[:2]) < s.served()*24/100 || got[2] < s.served()*48/100 {
			t.Errorf("%v calls, want 1 : 1 : 2", got)
		}
	})
}

// A tenant that the server bans for ten minutes each time does not pause the others, even if it is throttled with them
// in the first burst.
func TestAdaptive_Children_BanOfOne(t *testing.T) {
	built.SkipRaced(t)
	for _, avoid := range []bool{false, true} {
		for _, tenants := range []int{2, 5} {
			t.Run(fmt.Sprint(tenants, avoid), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newAccountServer(50, time.Second)
					s.banned, s.ban = 0, 10*time.Minute
					_, gates := accountOf(t, tenants, sluice.Adaptive{Children: true, AvoidThrottling: avoid})
					for _, g := range gates[1:] { // before others have made a call, none of them can be asked
						_ = g.Do(t.Context(), func(context.Context) error { return nil })
					}
					s.play(t, gates, 4, 10*time.Minute, 30*time.Minute)
					least := 80
					t.Logf("%d served, %d of %d refused", s.served(), s.refused, s.calls)
					if s.served() < 30*60*50*least/100 || s.refused > s.calls/20 {
						t.Errorf("%d served, %d of %d refused", s.served(), s.refused, s.calls)
					}
				})
			})
		}
	}
}

// A ban of all tenants pauses all of them, after at most a few calls that ask for whom it is.
func TestAdaptive_Children_BanOfAll(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		s := newAccountServer(50, time.Second)
		s.banned, s.ban = -1, 5*time.Minute
		_, gates := account(t, 5)
		s.mu.Lock()
		s.banAt = time.Now().Add(time.Minute)
		s.mu.Unlock()
		s.play(t, gates, 2, time.Minute, 6*time.Minute)
		t.Logf("%d served, %d of %d refused", s.served(), s.refused, s.calls)
		if s.refused > 25 || s.served() < 25*50 {
			t.Errorf("%d served, %d of %d refused", s.served(), s.refused, s.calls)
		}
	})
}
