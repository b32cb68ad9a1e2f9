package sluiceprom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-go/sluice"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

const wantLearned = `
# HELP sluice_blocked Gates whose server grants nothing.
# TYPE sluice_blocked gauge
sluice_blocked{gate="api"} 1
sluice_blocked{gate="cut"} 0
sluice_blocked{gate="slow"} 0
# HELP sluice_learned_concurrency Learned bound of the calls in flight.
# TYPE sluice_learned_concurrency gauge
sluice_learned_concurrency{gate="slow",unit="calls"} 7
# HELP sluice_learned_pace Pace at which calls start, per second.
# TYPE sluice_learned_pace gauge
sluice_learned_pace{gate="api",unit="calls"} 19.5
# HELP sluice_learned_peers Gates that share the learned limit, 0 while the others cannot be reached.
# TYPE sluice_learned_peers gauge
sluice_learned_peers{gate="api",unit="calls"} 3
sluice_learned_peers{gate="cut",unit="calls"} 0
# HELP sluice_learned_proven_rate Lower bound of the rate that the server grants, per second.
# TYPE sluice_learned_proven_rate gauge
sluice_learned_proven_rate{gate="api",unit="calls"} 19
# HELP sluice_learned_rate Rate that the server is believed to grant, per second.
# TYPE sluice_learned_rate gauge
sluice_learned_rate{gate="api",unit="calls"} 20
# HELP sluice_learned_refusals Calls that the server refused.
# TYPE sluice_learned_refusals gauge
sluice_learned_refusals{gate="api",unit="calls"} 5
sluice_learned_refusals{gate="cut",unit="calls"} 0
sluice_learned_refusals{gate="slow",unit="calls"} 9
# HELP sluice_learned_refuted_rate Upper bound of the rate that the server grants, per second.
# TYPE sluice_learned_refuted_rate gauge
sluice_learned_refuted_rate{gate="api",unit="calls"} 20.5
# HELP sluice_learned_share Part of the learned limit that the gate may use.
# TYPE sluice_learned_share gauge
sluice_learned_share{gate="api",unit="calls"} 0.25
sluice_learned_share{gate="cut",unit="calls"} 0.5
`

// What a scrape shows of five gates: two of one name, of which one shares its limit, one that
// cannot reach those with which it shares, one with no pace but a bound of the calls in flight,
// and one that has learned nothing.
func TestCollector_Learned(t *testing.T) {
	gates := func(yield func(sluice.Stats) bool) {
		for _, s := range []sluice.Stats{
			{Name: "api", Learned: &sluice.Learned{Pace: 19, Rate: 20, Proven: 19, Refuted: 20.5, Blocked: true, Refusals: 3, Share: .25, Peers: 3}},
			{Name: "api", Learned: &sluice.Learned{Pace: 0.5, Refusals: 2}},
			{Name: "cut", Learned: &sluice.Learned{Share: .5}},
			{Name: "slow", Learned: &sluice.Learned{Concurrency: 7, Refusals: 9}},
			{Name: "idle"},
		} {
			if !yield(s) {
				return
			}
		}
	}
	c := mustNew(t, sluiceprom.Config{Gates: gates})
	names := []string{"sluice_blocked"}
	for _, name := range []string{"concurrency", "pace", "peers", "proven_rate", "rate", "refusals", "refuted_rate", "share"} {
		names = append(names, "sluice_learned_"+name)
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(wantLearned), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// A real gate: its first refusal changes its mind, and one that learns nothing has none of
// these metrics.
func TestCollector_LearnedByAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all gates
		c := mustNew(t, sluiceprom.Config{Gates: all.stats})
		g := mustGate(t, sluice.Config{Name: "api", Observer: c.Observe})
		all = gates{g, mustGate(t, sluice.Config{Name: "idle", Observer: c.Observe})}
		for i := range 20 {
			g.Do(bg, func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.RetryAfter(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		got, l := gather(t, c), g.Stats().Learned
		for name, want := range map[string]float64{
			"learned_refusals api calls":         1,
			"blocked api":                        1,
			"learned_changes_total api " + l.Why: float64(l.Changes),
			"learned_pace api calls":             l.Pace,
			"learned_refuted_rate api calls":     l.Refuted,
		} {
			if v, ok := got[name]; !ok && want != 0 || v != want {
				t.Errorf("%s is %v, %v, want %v", name, v, ok, want)
			}
		}
		if l.Changes == 0 {
			t.Errorf("the gate has learned nothing: %v", l)
		}
		for name := range got {
			if strings.Contains(name, " idle") && (strings.Contains(name, "learned") || strings.HasPrefix(name, "blocked")) {
				t.Errorf("%s is there", name)
			}
		}
	})
}

// The reasons of later versions cannot make an unlimited number of time series.
func TestCollector_LearnedReasons(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{})
	for i := range 30 {
		c.Observe(sluice.Event{Kind: sluice.EventLearned, Gate: "g", Reason: fmt.Sprint(i, "\xff")})
	}
	got := gather(t, c)
	if got["learned_changes_total g 0\ufffd"] != 1 || got["learned_changes_total g other"] != 10 {
		t.Errorf("%v", got)
	}
}
