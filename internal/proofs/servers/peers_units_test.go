package servers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

const ofTokens = "api\x1ftokens" // the group of the unit tokens of gates called api

// withTokens returns a context of calls that take n tokens.
func withTokens(t *testing.T, n int64) context.Context {
	return sluice.WithCosts(t.Context(), sluice.Costs{"tokens": n})
}

// ofUnit returns what was learned of one unit.
func ofUnit(t *testing.T, g *sluice.Gate, unit sluice.Unit) sluice.Learned {
	t.Helper()
	l := g.Stats().Learned
	if l == nil {
		t.Fatal("nothing was learned")
	}
	for _, one := range append(l.Units, *l) {
		if one.Unit == unit {
			return one
		}
	}
	t.Fatalf("nothing was learned of %s: %v", unit, l)
	return *l
}

// blameTokens makes 100 calls of 100 tokens, so far apart, of which the server refuses two
// because of their tokens. It is for bubbles.
func blameTokens(t *testing.T, g *sluice.Gate, apart time.Duration) {
	for i := range 100 {
		_ = g.Do(withTokens(t, 100), func(context.Context) error {
			if i == 80 || i == 99 {
				return sluice.ThrottledBy(sluice.ThrottledFor(errBusy, time.Millisecond), "tokens")
			}
			return nil
		})
		time.Sleep(apart)
	}
}

// another lets another gate be in the groups until the test ends. It wants all.
func (m *meeting) another(t *testing.T, groups ...string) {
	go func() {
		for ; t.Context().Err() == nil; doze(t.Context(), 200*time.Millisecond) {
			for _, group := range groups {
				_, _ = m.exchange(time.Since(m.began), group, peers.Report{ID: "other", Want: peers.WantsAll})
			}
		}
	}()
}

// doze is a Sleep that ends with ctx.
func doze(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A gate whose calls take tokens begins with what others have learned of them, and takes its
// part. One whose calls take none has nothing to do with it.
func TestGate_Peers_BeginWithTheLimitOfAUnit(t *testing.T) {
	for _, rate := range []sluice.Rate{{}, {Count: 100, Per: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMeeting()
			m.tell(ofTokens, 1000, 0)
			m.another(t, ofTokens)
			var events []string
			g := sharing(t, m, sluice.Config{Rate: rate, Observer: func(e sluice.Event) {
				if e.Kind == sluice.EventLearned {
					events = append(events, e.Why)
				}
			}})
			plain := sharing(t, m, sluice.Config{Rate: rate})
			_ = g.Do(withTokens(t, 100), served)
			synctest.Wait()
			began, most := time.Now(), 250*time.Millisecond
			if rate.Count == 0 {
				most = 0
			}
			for range 20 { // which take no tokens
				_ = g.Do(t.Context(), served)
			}
			if took := time.Since(began); took > most {
				t.Errorf("20 calls without tokens took %v", took)
			}
			for range 10 {
				if err := g.Do(withTokens(t, 100), served); err != nil {
					t.Fatal(err)
				}
				if err := plain.Do(t.Context(), served); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			l := g.Stats().Learned
			if l == nil || l.Unit != "tokens" || l.Rate != 1000 || l.Share != .5 || l.Peers != 2 || l.Throttled != 0 {
				t.Fatalf("learned %+v", l)
			}
			if len(events) != 1 || l.Why != "learned by another process" {
				t.Errorf("events %q, why %q", events, l.Why)
			}
			if l := plain.Stats().Learned; l != nil {
				t.Errorf("without tokens it has learned %v", l)
			}
			const n = 50
			began = time.Now()
			for range n {
				if err := g.Do(withTokens(t, 100), served); err != nil {
					t.Fatal(err)
				}
			}
			if rate := float64(100*n) / time.Since(began).Seconds(); rate < 450 || rate > 520 {
				t.Errorf("%.0f tokens per second, want half of 1000", rate)
			}
		})
	}
}

// What a gate knows itself of a unit when that is blamed first is a part of what all know.
func TestGate_Peers_AUnitIsBlamed(t *testing.T) {
	learned := func(t *testing.T, others bool) (l sluice.Learned) {
		synctest.Test(t, func(t *testing.T) {
			m := newMeeting()
			if others {
				m.another(t, "api", ofTokens)
			}
			g := sharing(t, m, sluice.Config{})
			blameTokens(t, g, 50*time.Millisecond)
			l = ofUnit(t, g, "tokens")
		})
		return l
	}
	alone, half := learned(t, false), learned(t, true)
	if alone.Share != 1 || half.Share != .5 || alone.ThrottledRate < 1000 || half.ThrottledRate < 1.5*alone.ThrottledRate || half.ThrottledRate > 2.5*alone.ThrottledRate {
		t.Errorf("alone %v, with another one %v", alone, half)
	}
}

// How much is used of a unit is compared with the part of the gate, whoever has learned the
// limit: here nearly all of the calls is used, and little of the tokens.
func TestGate_Peers_BlamesAUnitByItsPart(t *testing.T) {
	for _, restores := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMeeting()
			m.tell("api", 10, 0)
			m.tell(ofTokens, 1000, 0)
			m.another(t, "api", ofTokens)
			g := sharing(t, m, sluice.Config{})
			call := func(err error) {
				if got := g.Do(withTokens(t, 1), func(context.Context) error { return err }); !errors.Is(got, err) {
					t.Fatal(got)
				}
				synctest.Wait()
			}
			for range 100 {
				call(nil)
			}
			if restores {
				data := g.Snapshot()
				g = sharing(t, newMeeting(), sluice.Config{})
				if err := g.Restore(data); err != nil {
					t.Fatal(err)
				}
				for range 100 {
					call(nil)
				}
			}
			for range 3 {
				call(sluice.ThrottledFor(errBusy, time.Millisecond))
			}
			if calls, tokens := ofUnit(t, g, sluice.Calls), ofUnit(t, g, "tokens"); calls.Throttled == 0 || tokens.Throttled > 0 {
				t.Errorf("restored %v: %v; %v", restores, calls, tokens)
			}
		})
	}
}

// What is reported of a unit is what the calls took of it, settled, and without what was refused.
func TestGate_Peers_WhatIsReportedOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		call := func(n int64, use func(p *sluice.Permit)) {
			p, err := g.Acquire(withTokens(t, 100), n)
			if err != nil {
				t.Fatal(err)
			}
			use(p)
			p.Release()
		}
		busy := sluice.ThrottledFor(errors.New("too many"), 0)
		call(5, func(p *sluice.Permit) { p.SettleCosts(sluice.Costs{"tokens": 30, sluice.Cost: 7}) })
		call(1, func(*sluice.Permit) {})
		call(1, func(p *sluice.Permit) { p.Done(busy) })
		call(5, func(p *sluice.Permit) {
			p.Done(busy)
			p.SettleCosts(sluice.Costs{"tokens": 0, sluice.Cost: 0})
		})
		call(5, func(p *sluice.Permit) {
			p.SettleCosts(sluice.Costs{"tokens": 0, sluice.Cost: 0})
			p.Done(busy)
		})
		time.Sleep(time.Minute)
		for group, want := range map[string]int64{"api": 2, "api\x1fcost": 1 + 7, ofTokens: 100 + 30} {
			var last peers.Report
			for _, r := range m.all() {
				if r.group == group {
					last = r.Report
				}
			}
			if last.Admitted != want || last.Want != peers.Leaves {
				t.Errorf("of %q it reported %+v, want %d granted", group, last, want)
			}
		}
	})
}

// A gate leaves the group of a unit that no call takes any more, and comes back.
func TestGate_Peers_LeaveTheGroupOfAUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		use := func(ctx context.Context, n int) {
			for range n {
				if err := g.Do(ctx, served); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
		wants := func() (first, tokens []int64) {
			for _, r := range m.all() {
				if r.group == ofTokens {
					tokens = append(tokens, r.Want)
				} else {
					first = append(first, r.Want)
				}
			}
			m.take("")
			return first, tokens
		}
		use(withTokens(t, 100), 4)
		use(t.Context(), 10)
		first, tokens := wants()
		if len(first) < 13 || slices.Contains(first, peers.Leaves) || len(tokens) > 7 || tokens[len(tokens)-1] != peers.Leaves {
			t.Errorf("it reported of calls %v, of tokens %v", first, tokens)
		}
		use(withTokens(t, 100), 2)
		if _, tokens = wants(); len(tokens) == 0 || tokens[0] != peers.WantsAll {
			t.Errorf("when it came back it reported %v", tokens)
		}
	})
}

// A program that invents units does not fill the Redis.
func TestGate_Peers_FewUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		g := sharing(t, m, sluice.Config{})
		for i := range 30 {
			ctx := sluice.WithCosts(t.Context(), sluice.Costs{sluice.Unit(fmt.Sprint(i)): 1, "": 1})
			_ = g.Do(ctx, served)
		}
		time.Sleep(time.Minute)
		groups := map[string]bool{}
		for _, r := range m.all() {
			groups[r.group] = true
		}
		if len(groups) != 8 {
			t.Errorf("%d groups", len(groups))
		}
	})
}

// The calls of its children count in a parent that shares.
func TestGate_Peers_UnitsOfAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell(ofTokens, 1000, 0)
		parent := sharing(t, m, sluice.Config{})
		child := mustGate(t, sluice.Config{Parent: parent})
		if err := child.Do(withTokens(t, 100), served); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l := ofUnit(t, parent, "tokens"); l.Rate != 1000 || child.Stats().Learned != nil {
			t.Errorf("learned %v", l)
		}
	})
}

// While the others are away a gate goes on with its parts of all units.
func TestGate_Peers_UnitsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 100, 0)
		m.tell(ofTokens, 10000, 0)
		m.another(t, "api", ofTokens)
		g := sharing(t, m, sluice.Config{})
		call := func(seconds int) {
			for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
				if err := g.Do(withTokens(t, 100), served); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		set := func(fails, hangs bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fails, m.hangs = fails, hangs
		}
		check := func(when string, share float64, peers int64) {
			t.Helper()
			for _, unit := range []sluice.Unit{sluice.Calls, "tokens"} {
				if l := ofUnit(t, g, unit); l.Share != share || l.Peers != peers {
					t.Errorf("%s: %v", when, l)
				}
			}
		}
		call(3)
		check("together", .5, 2)
		set(true, false)
		call(5)
		check("away", .5, 0)
		set(false, true)
		call(5)
		check("it hangs", .5, 0)
		set(false, false)
		call(2)
		check("it is back", .5, 2)
	})
}

// A snapshot has what the gate used itself of each unit. A gate that shares begins with it only if
// the others know nothing.
func TestGate_Peers_UnitsAndSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeeting()
		m.tell("api", 100, 0)
		m.tell(ofTokens, 10000, 0)
		m.another(t, "api", ofTokens)
		g := sharing(t, m, sluice.Config{})
		for range 40 {
			_ = g.Do(withTokens(t, 100), served)
			synctest.Wait()
		}
		data := g.Snapshot()
		alone := mustGate(t, sluice.Config{})
		if err := alone.Restore(data); err != nil {
			t.Fatal(err)
		}
		again := func(m *meeting) *sluice.Gate {
			g := sharing(t, m, sluice.Config{})
			if err := g.Restore(data); err != nil {
				t.Fatal(err)
			}
			_ = g.Do(withTokens(t, 100), served)
			synctest.Wait()
			return g
		}
		first := newMeeting()
		together, alone2 := again(m), again(first)
		for unit, rate := range map[sluice.Unit]float64{sluice.Calls: 100, "tokens": 10000} {
			if l := ofUnit(t, alone, unit); l.Rate != rate/2 || l.Share != 0 {
				t.Errorf("alone: %v", l)
			}
			if l := ofUnit(t, together, unit); l.Rate != rate || l.Peers != 3 {
				t.Errorf("with others: %v", l)
			}
			if l := ofUnit(t, alone2, unit); l.Rate != rate/2 || l.Peers != 1 {
				t.Errorf("the first one of a group: %v", l)
			}
		}
		if _, reports := first.take(ofTokens); len(reports) != 1 || len(reports[0].News) == 0 || reports[0].News[0] != 5e9 {
			t.Errorf("the first one of a group reported %+v", reports)
		}
	})
}

// A snapshot with the limit of a further unit only does not make a gate search for its rate.
func TestGate_Restore_AUnitAndARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		blameTokens(t, g, 50*time.Millisecond)
		next := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}})
		if err := next.Restore(g.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if l := ofUnit(t, next, "tokens"); l.Rate == 0 {
			t.Errorf("restored %v", l)
		}
		began := time.Now()
		for range 20 { // which take no tokens
			_ = next.Do(t.Context(), served)
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("20 calls at 100/s took %v: %v", took, next)
		}
	})
}

// A gate with a parent learns of each unit, too, also while no caller waits.
func TestGate_Units_UnderAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Parent: mustGate(t, sluice.Config{})})
		blameTokens(t, g, 300*time.Millisecond)
		if l := ofUnit(t, g, "tokens"); l.Throttled != 1 || l.Rate == 0 {
			t.Errorf("learned %v", l)
		}
	})
}

// A slowMeeting is a meeting whose answers take long.
type slowMeeting struct {
	*meeting
	takes time.Duration

	mu       sync.Mutex
	answered map[string]int
}

func (m *slowMeeting) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	select {
	case <-time.After(m.takes):
	case <-ctx.Done():
		return peers.Reply{}, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[group]++
	return m.meeting.Exchange(ctx, group, r)
}

// With a slow store every unit has its turn: the last of five never heard anything.
func TestGate_Peers_ASlowStoreServesAllUnits(t *testing.T) {
	for _, takes := range []time.Duration{50 * time.Millisecond, 220 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m := &slowMeeting{meeting: newMeeting(), takes: takes, answered: make(map[string]int)}
			g := sharing(t, m, sluice.Config{})
			ctx := sluice.WithCosts(t.Context(), sluice.Costs{"input": 1, "output": 1, "images": 1})
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				p, err := g.Acquire(ctx, 5)
				if err != nil {
					t.Fatal(err)
				}
				p.Release()
			}
			_ = g.Shutdown(t.Context())
			m.mu.Lock()
			defer m.mu.Unlock()
			least, most := math.MaxInt, 0
			for _, n := range m.answered {
				least, most = min(least, n), max(most, n)
			}
			if len(m.answered) != 5 || least < 5 || most > 2*least {
				t.Errorf("with %v, answered in a minute: %v", takes, m.answered)
			}
		})
	}
}

// With SetRate the unit of the rate becomes the first one. The group that it had before is left,
// once: it is the group of the gate's name that counts it now.
func TestGate_Peers_SetRate_LeavesTheGroupOfItsUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ofCost = "api\x1fcost"
		m := newMeeting()
		g := sharing(t, m, sluice.Config{RateUnit: sluice.Cost})
		call := func() {
			p, err := g.Acquire(t.Context(), 5)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			time.Sleep(100 * time.Millisecond)
		}
		for range 20 {
			call()
		}
		synctest.Wait() // for the report that is due now
		if _, reports := m.take(ofCost); len(reports) < 3 {
			t.Fatalf("%d reports of cost", len(reports))
		}
		if err := g.SetRate(sluice.Rate{Count: 1000, Per: time.Second}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			call()
		}
		if _, reports := m.take(ofCost); len(reports) != 1 || reports[0].Want != peers.Leaves {
			t.Errorf("%d reports of cost after SetRate: %+v", len(reports), reports)
		}
	})
}

// # Two limits that processes share

// Processes that share two limits use them up evenly, whichever of them binds, and are refused
// no more than processes that do not.
func TestGate_Peers_UnitsTogether(t *testing.T) {
	built.SkipRaced(t)
	type mix struct{ from, to int64 }
	run := func(t *testing.T, n int, c mix, shares, names bool) (goodput, refused, jain float64) {
		synctest.Test(t, func(t *testing.T) {
			m, s, began := newMeeting(), newMeteredServer(), time.Now()
			s.names = names
			var gates []*sluice.Gate
			var work sync.WaitGroup
			for range n {
				cfg := sluice.Config{Name: "api", RetryBudget: -1}
				g := mustGate(t, cfg)
				if shares {
					g = sharing(t, m, cfg)
				}
				gates = append(gates, g)
				work.Go(func() { s.work(g, 20*time.Minute, c.from, c.to) })
			}
			work.Wait()
			sum, squares := 0., 0.
			for _, g := range gates {
				got := float64(g.Stats().Admitted)
				sum += got
				squares += got * got
			}
			goodput = s.ideal.Seconds() / time.Since(began).Seconds()
			refused = float64(s.denied) / float64(s.denied+s.granted)
			jain = sum * sum / squares / float64(n)
		})
		return goodput, refused, jain
	}
	together, alone, used, even := 0., 0., 0., 0.
	for _, n := range []int{3} {
		for _, c := range []mix{{10, 100}, {1000, 3000}} {
			for _, names := range []bool{true, false} {
				goodput, refused, jain := run(t, n, c, true, names)
				goodput2, refused2, jain2 := run(t, n, c, false, names)
				text := fmt.Sprintf("%d processes, %v, names %v: goodput %.3f (alone %.3f), refused %.3f (%.3f), Jain %.3f (%.3f)",
					n, c, names, goodput, goodput2, refused, refused2, jain, jain2)
				t.Log(text)
				// One run of a row may meet a ban at a bad moment: of 150 one had a goodput of .911, and one
				// refused .303.
				if goodput < .8 || jain < .9 || refused > .45 {
					t.Error(text)
				}
				together, alone = together+refused, alone+refused2
				used, even = used+goodput, even+jain
			}
		}
	}
	if used/4 < .95 || even/4 < .97 {
		t.Errorf("goodput %.3f, Jain %.3f", used/4, even/4)
	}
	if together > 1.5*alone { // less in 9 of 10 runs, which have .10 and .11 in the mean
		t.Errorf("of all calls %.3f are refused, and %.3f if nothing is shared", together/4, alone/4)
	}
}
