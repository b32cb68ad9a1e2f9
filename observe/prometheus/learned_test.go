package sluiceprom_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

// A real gate: its first rejection changes its mind, and one that learns nothing has none of
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
					return sluice.ThrottledFor(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		got, l := gather(t, c), g.Stats().Learned
		for name, want := range map[string]float64{
			"learned_throttled api calls":        1,
			"blocked api":                        1,
			"learned_updates_total api " + l.Why: float64(l.Updates),
			"learned_pace api calls":             l.Pace,
			"learned_throttled_rate api calls":   l.ThrottledRate,
		} {
			if v, ok := got[name]; !ok && want != 0 || v != want {
				t.Errorf("%s is %v, %v, want %v", name, v, ok, want)
			}
		}
		if l.Updates == 0 {
			t.Errorf("the gate has learned nothing: %v", l)
		}
		for name := range got {
			if strings.Contains(name, " idle") && (strings.Contains(name, "learned") || strings.HasPrefix(name, "blocked")) {
				t.Errorf("%s is there", name)
			}
		}
	})
}
