package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A gate that is closed leaves its groups, and its parts are free at once: another gate has
// them with its next report, and need not wait until they time out.
func TestGate_Peers_GoodbyeAtClose(t *testing.T) {
	for name, end := range map[string]func(g *sluice.Gate){
		"Close":    (*sluice.Gate).Close,
		"Shutdown": func(g *sluice.Gate) { _ = g.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeeting()
				m.tell("api", 100, 0)
				m.tell(ofTokens, 10000, 0)
				goes, stays := sharing(t, m, sluice.Config{}), sharing(t, m, sluice.Config{})
				call := func(g *sluice.Gate) {
					for g.Do(withTokens(t, 100), served) == nil && t.Context().Err() == nil {
						doze(t.Context(), time.Millisecond)
					}
				}
				go call(goes)
				go call(stays)
				time.Sleep(5 * time.Second)
				for _, unit := range []sluice.Unit{sluice.Calls, "tokens"} {
					if l := ofUnit(t, stays, unit); l.Peers != 2 || l.Share < .45 || l.Share > .55 {
						t.Errorf("together: %v", l)
					}
				}
				m.take("")
				end(goes)
				end(goes)
				synctest.Wait()
				n := 0
				for _, r := range m.all() {
					if r.Want == limits.PeerLeaves {
						n++
					}
				}
				if n != 2 {
					t.Errorf("%d goodbyes, want one of each unit: %+v", n, m.all())
				}
				time.Sleep(600 * time.Millisecond)
				for _, unit := range []sluice.Unit{sluice.Calls, "tokens"} {
					if l := ofUnit(t, stays, unit); l.Peers != 1 || l.Share != 1 {
						t.Errorf("0.6 s after the other one was closed: %v", l)
					}
				}
			})
		})
	}
}

// Close waits for no goodbye, and Shutdown for a second at most, or until its context is done.
// It says whether calls are in flight, as always.
func TestGate_Peers_GoodbyeToNobody(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(g *sluice.Gate) error
		took time.Duration
	}{
		"Close":    {func(g *sluice.Gate) error { g.Close(); return nil }, 0},
		"Shutdown": {func(g *sluice.Gate) error { return g.Shutdown(context.Background()) }, time.Second},
		"Shutdown with a deadline": {func(g *sluice.Gate) error {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			return g.Shutdown(ctx)
		}, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeeting()
				g := sharing(t, m, sluice.Config{})
				_ = g.Do(withTokens(t, 1), served)
				synctest.Wait()
				m.mu.Lock()
				m.hangs = true
				m.mu.Unlock()
				began := time.Now()
				if err := c.end(g); err != nil || time.Since(began) != c.took {
					t.Errorf("%v after %v, want %v", err, time.Since(began), c.took)
				}
				time.Sleep(time.Minute)
				at, _ := m.take("api")
				if len(at) != 2 || at[1] != 0 { // it joined, and left
					t.Errorf("it reported at %v", at)
				}
				if err := g.Do(t.Context(), served); !errors.Is(err, limits.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// A deafMeeting does not end an exchange when its context is done.
type deafMeeting struct {
	*meeting
	hangs chan struct{}
}

func (m deafMeeting) Exchange(_ context.Context, group string, r limits.PeerReport) (limits.PeerReply, error) {
	<-m.hangs
	return limits.PeerReply{}, errAway
}

// Shutdown ends although the store of a gate ignores its context, and if an observer calls it
// from the goroutine that leaves the group.
func TestGate_Peers_ShutdownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := deafMeeting{newMeeting(), make(chan struct{})}
		g := sharing(t, m, sluice.Config{})
		_ = g.Do(t.Context(), served)
		synctest.Wait()
		began := time.Now()
		if err := g.Shutdown(context.Background()); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(m.hangs)
	})
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 10, 0)
		var g *sluice.Gate
		var took time.Duration
		g = sharing(t, m, sluice.Config{Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventLearned {
				began := time.Now()
				_ = g.Shutdown(context.Background())
				took = time.Since(began)
			}
		}})
		_ = g.Do(t.Context(), served)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A gate that is closed during an exchange ends it, and then leaves. One that was not used, or
// is not used any more, has nothing to leave.
func TestGate_Peers_GoodbyeOnlyOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.hangs = true
		busy, idle, unused := sharing(t, m, sluice.Config{Name: "busy"}), sharing(t, m, sluice.Config{Name: "idle"}), sharing(t, m, sluice.Config{Name: "unused"})
		_ = idle.Do(t.Context(), served)
		time.Sleep(time.Minute)
		m.take("")
		_ = busy.Do(t.Context(), served)
		synctest.Wait()
		for _, g := range []*sluice.Gate{busy, idle, unused} {
			g.Close()
		}
		time.Sleep(time.Minute)
		if all := m.all(); len(all) != 2 || all[1].group != "busy" || all[1].Want != limits.PeerLeaves {
			t.Errorf("reports %+v", all)
		}
		began := time.Now()
		for _, g := range []*sluice.Gate{idle, unused} {
			if err := g.Shutdown(t.Context()); err != nil || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
	})
}

// What calls in flight take that end after the goodbye belongs to no group any more, and
// Shutdown waits for them first.
func TestGate_Peers_GoodbyeWithCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		p, err := g.Acquire(withTokens(t, 100), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a call in flight: %v", err)
		}
		n := len(m.all())
		p.SettleCosts(sluice.Costs{"tokens": 50})
		p.Ended(sluice.RetryAfter(errors.New("too many"), 0))
		p.Release()
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if all := m.all(); len(all) != n || all[n-1].Want != limits.PeerLeaves {
			t.Errorf("reports %+v", all)
		}
	})
}

// A gate that a Keyed evicts leaves its groups at once: the next gate of its key is not one more.
// If it is used all the same, it joins them again.
func TestKeyed_Peers_GoodbyeOfTheEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 100, 0)
		m.tell(ofTokens, 10000, 0)
		k := limits.Must(sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
			return sharing(t, m, sluice.Config{Name: key}), nil
		}, sluice.KeyedConfig{MaxKeys: 1, Evict: func(*sluice.Gate, bool) bool { return true }}))
		use := func(key string) (used *sluice.Gate) {
			t.Helper()
			err := k.Use(key, func(g *sluice.Gate) error {
				used = g
				return g.Do(withTokens(t, 100), served)
			})
			synctest.Wait()
			if err != nil {
				t.Fatal(err)
			}
			return used
		}
		left := func(group string) (leaves bool) {
			for _, r := range m.all() {
				if r.group == group {
					leaves = r.Want == limits.PeerLeaves
				}
			}
			return leaves
		}
		first := use("api")
		time.Sleep(10 * time.Millisecond)
		use("b")
		if !left("api") || !left(ofTokens) || left("b") {
			t.Errorf("not only the evicted gate has left its groups: %+v", m.all())
		}
		if second := use("api"); second == first || ofUnit(t, second, sluice.Calls).Peers != 2 { // with the one that tells
			t.Errorf("the next gate: %v", second.Stats().Learned)
		}
		_ = first.Do(t.Context(), served)
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		if left("api") || ofUnit(t, first, sluice.Calls).Peers != 3 {
			t.Errorf("a forgotten gate that is used: %v", first.Stats().Learned)
		}
	})
}
