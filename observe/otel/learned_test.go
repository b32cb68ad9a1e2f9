package sluiceotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

// Two gates of one name, of which one shares its limit, one that cannot reach those with which it
// shares, one with no pace but a bound of the calls in flight, and one that
// has learned nothing.
func TestObserver_Learned(t *testing.T) {
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
	e := newExporter(t, sluiceotel.Config{Gates: gates})
	got := e.collect(t)
	for k := range got {
		if !strings.HasPrefix(k, "sluice.learned.") && !strings.HasPrefix(k, "sluice.blocked") {
			delete(got, k)
		}
	}
	compare(t, got, map[string]string{
		"sluice.learned.pace 1/s sluice.gate.name=api,sluice.unit=calls":            "19.5 up and down",
		"sluice.learned.rate 1/s sluice.gate.name=api,sluice.unit=calls":            "20 up and down",
		"sluice.learned.proven_rate 1/s sluice.gate.name=api,sluice.unit=calls":     "19 up and down",
		"sluice.learned.refuted_rate 1/s sluice.gate.name=api,sluice.unit=calls":    "20.5 up and down",
		"sluice.learned.refusals {call} sluice.gate.name=api,sluice.unit=calls":     "5 up and down",
		"sluice.blocked_gates {gate} sluice.gate.name=api":                          "1 up and down",
		"sluice.learned.concurrency {call} sluice.gate.name=slow,sluice.unit=calls": "7 up and down",
		"sluice.learned.share 1 sluice.gate.name=api,sluice.unit=calls":             "0.25 up and down",
		"sluice.learned.peers {gate} sluice.gate.name=api,sluice.unit=calls":        "3 up and down",
		"sluice.learned.share 1 sluice.gate.name=cut,sluice.unit=calls":             "0.5 up and down",
		"sluice.learned.peers {gate} sluice.gate.name=cut,sluice.unit=calls":        "0 up and down",
		"sluice.learned.refusals {call} sluice.gate.name=cut,sluice.unit=calls":     "0 up and down",
		"sluice.blocked_gates {gate} sluice.gate.name=cut":                          "0 up and down",
		"sluice.learned.refusals {call} sluice.gate.name=slow,sluice.unit=calls":    "9 up and down",
		"sluice.blocked_gates {gate} sluice.gate.name=slow":                         "0 up and down",
	})
}

// A real gate: its first refusal changes its mind, and one that learns nothing has none of
// these metrics.
func TestObserver_LearnedByAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all gates
		e := newExporter(t, sluiceotel.Config{Gates: all.stats})
		g := mustGate(t, sluice.Config{Name: "api", Observer: e.Observe})
		all = gates{g, mustGate(t, sluice.Config{Name: "idle", Observer: e.Observe})}
		for i := range 20 {
			g.Do(bg, func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.RetryAfter(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		got, l := e.collect(t), g.Stats().Learned
		for name, want := range map[string]string{
			"sluice.learned.refusals {call} sluice.gate.name=api,sluice.unit=calls":               "1 up and down",
			"sluice.blocked_gates {gate} sluice.gate.name=api":                                    "1 up and down",
			"sluice.learned.pace 1/s sluice.gate.name=api,sluice.unit=calls":                      fmt.Sprint(l.Pace, " up and down"),
			"sluice.learned.changes {change} sluice.gate.name=api,sluice.learned.reason=" + l.Why: fmt.Sprint(l.Changes),
		} {
			if got[name] != want {
				t.Errorf("%s is %q, want %s", name, got[name], want)
			}
		}
		for name := range got {
			if strings.Contains(name, "name=idle") && (strings.Contains(name, "learned") || strings.Contains(name, "blocked")) {
				t.Errorf("%s is there", name)
			}
		}
	})
}

// The reasons of later versions cannot make an unlimited number of time series.
func TestObserver_LearnedReasons(t *testing.T) {
	e := newExporter(t, sluiceotel.Config{})
	for i := range 30 {
		e.Observe(sluice.Event{Kind: sluice.EventLearned, Gate: "g", Reason: fmt.Sprint("r", i, "\xff")})
	}
	got := e.collect(t)
	const changes = "sluice.learned.changes {change} sluice.gate.name=g,sluice.learned.reason="
	if got[changes+"r0\ufffd"] != "1" || got[changes+"other"] != "10" {
		t.Errorf("%v", got)
	}
}
