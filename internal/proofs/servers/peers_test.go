package servers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A meeting is a peers.Store of this process, as a Redis would be one.
type meeting struct {
	began time.Time

	groups  peers.Groups
	mu      sync.Mutex
	reports []meetingReport
	fails   bool
	hangs   bool
}

type meetingReport struct {
	at    time.Duration
	group string
	peers.Report
}

var errAway = errors.New("away")

func newMeeting() *meeting { return &meeting{began: time.Now()} }

func (m *meeting) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	m.mu.Lock()
	at, hangs := time.Since(m.began), m.hangs
	m.reports = append(m.reports, meetingReport{at, group, r})
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return peers.Reply{}, ctx.Err()
	}
	m.mu.Lock()
	fails := m.fails
	m.mu.Unlock()
	if fails {
		return peers.Reply{}, errAway
	}
	return m.exchange(at, group, r)
}

func (m *meeting) exchange(at time.Duration, group string, r peers.Report) (peers.Reply, error) {
	return m.groups.Exchange(at.Microseconds(), group, r), nil
}

// tell lets another gate tell that the limit of group is rate per second, and that nothing
// may leave for some time.
func (m *meeting) tell(group string, rate int64, until time.Duration) {
	news := []int64{rate * 1e6, 1e6, 0, 0, 32e6, 0, 0, 0, 0, 0, 0, 0, 0, until.Microseconds(), until.Microseconds(), 0, 0, 0, 2}
	r := peers.Report{ID: "other", Want: peers.WantsAll}
	reply, _ := m.Exchange(context.Background(), group, r)
	r.News, r.Seen = news, reply.Stamp
	_, _ = m.Exchange(context.Background(), group, r)
	m.mu.Lock()
	m.reports = nil
	m.mu.Unlock()
}

// all returns all reports since the last take.
func (m *meeting) all() []meetingReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.reports)
}

// take returns the instants of the reports to group since the last take, and the reports.
func (m *meeting) take(group string) (at []time.Duration, reports []meetingReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.reports {
		if r.group == group {
			at = append(at, r.at)
			reports = append(reports, r)
		}
	}
	m.reports = nil
	return at, reports
}

func sharing(t *testing.T, m peers.Store, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "api"
	}
	cfg.Adaptive.Peers = m
	g := mustGate(t, cfg)
	t.Cleanup(g.Close)
	return g
}

// served is a call that the server serves.
func served(context.Context) error { return nil }

// A gate reports with its first call, then twice a second, and no more when it is not used.
func TestGate_Peers_ReportWhileTheGateIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		time.Sleep(time.Minute)
		if at, _ := m.take("api"); at != nil {
			t.Errorf("before the first call it reported at %v", at)
		}
		for range 3 {
			if err := g.Do(t.Context(), served); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(600 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		at, reports := m.take("api")
		var want []time.Duration
		for i := range 6 {
			want = append(want, time.Minute+time.Duration(i)*500*time.Millisecond)
		}
		if !slices.Equal(at, want) {
			t.Fatalf("it reported at %v, want %v", at, want)
		}
		for i, r := range reports {
			if leaves := r.Want == peers.Leaves; leaves != (i == len(reports)-1) || r.ID != reports[0].ID || r.ID == "" || r.News != nil {
				t.Errorf("report %d: %+v", i, r)
			}
		}
		if r := reports[4]; r.Admitted != 3 {
			t.Errorf("%d granted", r.Admitted)
		}
		if g.Stats().Learned != nil {
			t.Error("it learns although nothing was refused")
		}
	})
}

// What another process has learned is there with the reply to the first report, and calls
// leave at the part of the pace.
func TestGate_Peers_BeginWithWhatOthersHaveLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 10, 0)
		var learned []string
		g := sharing(t, m, sluice.Config{Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventLearned {
				learned = append(learned, e.Reason)
			}
		}})
		if err := g.Do(t.Context(), served); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l := g.Stats().Learned
		if l == nil || l.Phase != "tracking" || l.Rate != 10 || l.Peers != 2 || l.Share > .01 || l.Throttled != 0 {
			t.Fatalf("learned %+v", l)
		}
		if !slices.Equal(learned, []string{"learned by another process"}) {
			t.Errorf("events %q", learned)
		}
		// The other one gives up what it has when it reports next.
		time.Sleep(100 * time.Millisecond)
		_, _ = m.Exchange(t.Context(), "api", peers.Report{ID: "other", Want: peers.WantsAll})
		for range 2 {
			if err := g.Do(t.Context(), served); err != nil {
				t.Fatal(err)
			}
		}
		l = g.Stats().Learned
		if l.Share != .5 || l.Pace < 4.8 || l.Pace > 5 {
			t.Errorf("learned %+v", l)
		}
		if text := l.String(); !strings.Contains(text, "50% of what 2 share") {
			t.Error(text)
		}
		if took := time.Since(m.began); took < 300*time.Millisecond || took > time.Second {
			t.Errorf("three calls took %v", took)
		}
	})
}

// A pause that another process was asked for holds for this one, and Resume ends it.
func TestGate_Peers_ObeyThePausesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 10, time.Minute)
		g := sharing(t, m, sluice.Config{})
		_ = g.Do(t.Context(), served)
		synctest.Wait()
		if _, ok := g.TryAcquire(1); ok {
			t.Error("a call left during the pause")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wait *limits.WaitError
		if err := g.Wait(ctx); !errors.As(err, &wait) || wait.For != limits.ByPause || wait.Need < 59*time.Second {
			t.Errorf("a call that may wait 30 s: %v", err)
		}
		if _, err := g.AcquireWithin(t.Context(), 1, 10*time.Second); !errors.As(err, &wait) {
			t.Errorf("a call that may wait 10 s: %v", err)
		}
		policy := sluice.RetryPolicy{MaxServerWait: 30 * time.Second}
		if err := sluice.Retry(t.Context(), g, served, policy); !errors.Is(err, sluice.ErrServerWait) {
			t.Errorf("a call for which the server may ask for 30 s: %v", err)
		}
		if took := time.Since(m.began); took != 0 {
			t.Errorf("these calls took %v", took)
		}
		if s := g.Stats(); s.PausedUntil.Sub(m.began) != time.Minute || s.PausedWhy != "another process was told to wait" {
			t.Errorf("paused until %v: %s", s.PausedUntil, s.PausedWhy)
		}
		g.Resume()
		if s := g.Stats(); !s.PausedUntil.IsZero() {
			t.Errorf("after Resume it is paused until %v", s.PausedUntil)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.Wait(ctx); err != nil {
			t.Errorf("after Resume: %v", err)
		}
	})
}

// A pause that another process was told ends when the group says so, but not one of this gate.
func TestGate_Peers_APauseOfOthersEnds(t *testing.T) {
	for _, own := range []time.Duration{0, 30 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newMeeting()
			m.tell("api", 10, 10*time.Minute)
			g := sharing(t, m, sluice.Config{})
			_ = g.Do(t.Context(), served)
			synctest.Wait()
			if own > 0 {
				g.PauseUntil(time.Now().Add(own), "mine")
			}
			calls := time.AfterFunc(time.Second, func() { _ = g.Do(t.Context(), served) })
			defer calls.Stop()
			time.Sleep(20 * time.Second)
			m.tell("api", 10, 0) // it was resumed there
			time.Sleep(2 * time.Second)
			want := map[time.Duration]time.Duration{30 * time.Second: 0, time.Hour: time.Hour}[own]
			if s := g.Stats(); want == 0 && !s.PausedUntil.IsZero() || want > 0 && s.PausedUntil.Sub(m.began) != want {
				t.Errorf("a pause of its own of %v: paused until %v", own, s.PausedUntil)
			}
			g.Resume()
			synctest.Wait()
		})
	}
}

// A call that has to wait takes its gate back into the group, whatever it asks before it starts:
// what the gate was told of its part is of the past. Beside a busy process, callers that ask a
// parent or a limit, or take several units, waited up to 100 s for a second call.
func TestGate_Peers_ACallThatWaitsJoinsTheGroup(t *testing.T) {
	for name, cfg := range map[string]func() sluice.Config{
		"plain":  func() sluice.Config { return sluice.Config{} },
		"parent": func() sluice.Config { return sluice.Config{Parent: limits.Must(sluice.New(sluice.Config{}))} },
		"limit": func() sluice.Config {
			return sluice.Config{Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(sluice.Rate{Count: 1000, Per: time.Second, Burst: 1000}))}}}
		},
	} {
		for _, unit := range []sluice.Unit{sluice.Cost, "tokens"} {
			t.Run(name+", "+string(unit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMeeting()
					server := limits.Must(leaky.New(sluice.Rate{Count: 20000, Per: time.Second, Burst: 20000}))
					busy, rare := sharing(t, m, cfg()), sharing(t, m, cfg())
					stop, cancel := context.WithCancel(t.Context())
					var calls sync.WaitGroup
					for range 20 {
						calls.Go(func() {
							for {
								if _, err := takeTokens(stop, busy, server, unit); err != nil {
									return
								}
							}
						})
					}
					time.Sleep(2 * time.Minute)
					var long []time.Duration
					for range 20 {
						_, _ = takeTokens(t.Context(), rare, server, unit)
						time.Sleep(2 * time.Second)
						if waited, _ := takeTokens(t.Context(), rare, server, unit); waited > 4*time.Second {
							long = append(long, waited)
						}
						time.Sleep(20 * time.Second)
					}
					// They wait for 1.4 s at most. Once, of some 3,000, it was 8.7 s.
					if len(long) > 1 || len(long) == 1 && long[0] > 20*time.Second {
						t.Errorf("of 20 second calls %d waited for long: %v", len(long), long)
					}
					cancel()
					calls.Wait()
				})
			})
		}
	}
}

// takeTokens makes a call of 2,000 tokens, and returns how long it waited.
func takeTokens(ctx context.Context, g *sluice.Gate, server *leaky.Bucket, unit sluice.Unit) (time.Duration, error) {
	n := int64(2000)
	if unit != sluice.Cost {
		ctx, n = sluice.WithCosts(ctx, sluice.Costs{unit: n}), 1
	}
	began := time.Now()
	p, err := g.Acquire(ctx, n)
	if err != nil {
		return 0, err
	}
	defer p.Release()
	waited := time.Since(began)
	granted := server.Take(2000).Allowed()
	time.Sleep(50 * time.Millisecond)
	if granted {
		p.Done(nil)
	} else {
		p.Done(sluice.ThrottledBy(sluice.ThrottledFor(errors.New("busy"), 0), unit))
	}
	return waited, nil
}

// No call waits for an exchange, and one that has no reply changes nothing.
func TestGate_Peers_NoCallWaitsForThem(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMeeting()
			m.hangs, m.fails = hangs, !hangs
			g := sharing(t, m, sluice.Config{})
			for range 100 {
				if err := g.Do(t.Context(), served); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(m.began); took != 0 {
				t.Errorf("100 calls took %v", took)
			}
			time.Sleep(10 * time.Second)
			if l := g.Stats().Learned; l != nil {
				t.Errorf("learned %+v", l)
			}
			if at, _ := m.take("api"); len(at) < 3 || len(at) > 5 {
				t.Errorf("it reported at %v", at)
			}
		})
	}
}

// A gate that has lost the others goes on with its part, and is told so.
func TestGate_Peers_Away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		m.tell("api", 100, 0)
		other := peers.Report{ID: "other", Want: peers.WantsAll}
		call := func(seconds int, others bool) {
			for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
				if err := g.Do(t.Context(), served); err != nil {
					t.Fatal(err)
				}
				if others {
					_, _ = m.Exchange(t.Context(), "api", other)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		call(3, true)
		if l := g.Stats().Learned; l.Share != .5 || l.Peers != 2 {
			t.Fatalf("%+v", l)
		}
		m.fails = true
		call(5, false)
		if l := g.Stats().Learned; l.Share != .5 || l.Peers != 0 || !strings.Contains(l.String(), "without news of the others") {
			t.Errorf("away: %v", l)
		}
		m.fails = false
		call(2, false)
		if l := g.Stats().Learned; l.Share != 1 || l.Peers != 1 {
			t.Errorf("when it is back, alone: %v", l)
		}
	})
}

// Impossible news are as good as none.
func TestGate_Peers_ImpossibleNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.groups.Exchange(0, "api", peers.Report{ID: "other", News: []int64{1e6, 2}})
		g := sharing(t, m, sluice.Config{})
		_ = g.Do(t.Context(), served)
		synctest.Wait()
		if l := g.Stats().Learned; l != nil {
			t.Errorf("learned %+v", l)
		}
	})
}

// Callers that wait count as use, and a refused call as not granted.
func TestGate_Peers_WhatTheyReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{RateUnit: sluice.Cost, Rate: sluice.Rate{Count: 1000, Per: time.Second, Burst: 1000}})
		for range 3 {
			p, err := g.Acquire(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		p, err := g.Acquire(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		p.Done(sluice.ThrottledFor(errors.New("too many"), 0))
		p.Release()
		g.PauseUntil(time.Now().Add(time.Minute), "test")
		waits := make(chan error, 1)
		go func() { waits <- g.Wait(t.Context()) }()
		time.Sleep(30*time.Second + time.Millisecond)
		at, reports := m.take("api")
		if len(at) != 61 {
			t.Errorf("%d reports in 30 s in which a call waits", len(at))
		}
		for i, r := range reports {
			if i > 0 && r.Admitted != 30 || r.Want == peers.Leaves {
				t.Fatalf("report %d: %+v", i, r)
			}
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// Each key is a group of its own, and a key that is not used reports nothing and is forgotten.
func TestKeyed_Peers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		hosts, err := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
			return sluice.New(sluice.Config{Name: host, Adaptive: sluice.Adaptive{Peers: m}})
		}, sluice.KeyedConfig{Idle: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"a", "b"} {
			if err := hosts.Do(t.Context(), host, served); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		for range 3 {
			_ = hosts.Do(t.Context(), "a", served)
		}
		if n := hosts.Len(); n != 1 {
			t.Errorf("%d gates", n)
		}
		synctest.Wait()
		m.mu.Lock()
		n := map[string]int{}
		for _, r := range m.reports {
			n[r.group]++
		}
		m.mu.Unlock()
		if n["b"] != 3 || n["a"] != 4 { // joins, is idle, leaves; a has joined again
			t.Errorf("reports %v", n)
		}
		time.Sleep(time.Minute)
	})
}

func TestConfig_Peers(t *testing.T) {
	m := newMeeting()
	if _, err := sluice.New(sluice.Config{Adaptive: sluice.Adaptive{Peers: m}}); err == nil || !strings.Contains(err.Error(), "Peers without a Name") {
		t.Errorf("without a name: %v", err)
	}
	g := sharing(t, m, sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}})
	_ = g.Do(t.Context(), served)
	if at, _ := m.take("api"); at != nil {
		t.Error("a gate that does not learn reported")
	}
}

// A Restore that fails or changes nothing leaves the group alone: the gate has nothing more to
// tell than before.
func TestGate_Restore_ThatChangesNothing_TellsNothing(t *testing.T) {
	news := func(t *testing.T, data []byte) (n int) {
		synctest.Test(t, func(t *testing.T) {
			m, s := newMeeting(), newLimited(t, 100, 10)
			g := sharing(t, m, sluice.Config{})
			calls := func(lasting time.Duration) {
				ctx, cancel := context.WithTimeout(bg, lasting)
				defer cancel()
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = g.Do(ctx, s.call)
						}
					})
				}
				if data != nil {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = g.Restore(data)
							time.Sleep(time.Second)
						}
					})
				}
				all.Wait()
			}
			calls(time.Minute)
			m.take("api")
			calls(time.Minute)
			_, reports := m.take("api")
			for _, r := range reports {
				if r.News != nil {
					n++
				}
			}
		})
		return n
	}
	var unlearned []byte
	synctest.Test(t, func(t *testing.T) { unlearned = mustGate(t, sluice.Config{}).Snapshot() })
	usual := news(t, nil)
	for _, data := range [][]byte{[]byte("x"), unlearned} {
		if n := news(t, data); n > usual+usual/2 {
			t.Errorf("with a Restore of %.20q each second: %d reports with news in a minute, %d without", data, n, usual)
		}
	}
}

// # Goodbye

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
					if r.Want == peers.Leaves {
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

func (m deafMeeting) Exchange(_ context.Context, group string, r peers.Report) (peers.Reply, error) {
	<-m.hangs
	return peers.Reply{}, errAway
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
		if all := m.all(); len(all) != 2 || all[1].group != "busy" || all[1].Want != peers.Leaves {
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
		p.Done(sluice.ThrottledFor(errors.New("too many"), 0))
		p.Release()
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if all := m.all(); len(all) != n || all[n-1].Want != peers.Leaves {
			t.Errorf("reports %+v", all)
		}
	})
}

// A gate that a Keyed evicts leaves its groups at once: the next gate of its key is not one more.
// If it is used all the same, it joins them again.
func TestKeyed_Peers_GoodbyeOfTheEvicted(t *testing.T) {
	// In 1 of 200 runs a call overtakes the goodbye of its gate, which then joins at its next report.
	for range 3 {
		if goodbyeOfTheEvicted(t) {
			return
		}
	}
	t.Error("a forgotten gate that is used does not join again")
}

func goodbyeOfTheEvicted(t *testing.T) (joins bool) {
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
					leaves = r.Want == peers.Leaves
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
		joins = !left("api") && ofUnit(t, first, sluice.Calls).Peers == 3
	})
	return joins
}

// Users in one process are not held up by the batches of others that share the limit, although their gates
// know nothing of classes: a process that wants less than an equal share gets that first. One that was silent
// for a second has to wait until the others have reported.
func TestPeers_AUserBesideBatchesElsewhere(t *testing.T) {
	built.SkipRaced(t)
	const rate, burst, batches, waiting = 10., 10., 3, 600
	for _, every := range []time.Duration{time.Second, 10 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeeting()
				var mu sync.Mutex
				used, at := 0., time.Now()
				take := func() bool {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					used, at = max(0, used-now.Sub(at).Seconds()*rate), now
					if used > burst-1 {
						return false
					}
					used++
					return true
				}
				call := func(ctx context.Context, g *sluice.Gate) {
					_ = sluice.Retry(ctx, g, func(context.Context) error {
						ok := take()
						time.Sleep(20 * time.Millisecond)
						if !ok {
							return sluice.Throttled(errAway)
						}
						return nil
					}, sluice.RetryPolicy{})
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range batches {
					g := sharing(t, m, sluice.Config{})
					for range waiting {
						all.Go(func() {
							for ctx.Err() == nil {
								call(ctx, g)
							}
						})
					}
				}
				time.Sleep(time.Minute)
				users := sharing(t, m, sluice.Config{})
				var took []time.Duration
				for range 100 {
					time.Sleep(every)
					start := time.Now()
					call(ctx, users)
					took = append(took, time.Since(start))
				}
				cancel()
				all.Wait()
				slices.Sort(took)
				// One that is throttled several times in a row waits for long backoffs, by chance.
				if took[50] > 100*time.Millisecond || took[90] > 2*time.Second || took[98] > 10*time.Second || took[99] > 30*time.Second {
					t.Errorf("calls of users took %v in the median, nine of ten at most %v, all but one at most %v, all at most %v",
						took[50], took[90], took[98], took[99])
				}
			})
		})
	}
}
