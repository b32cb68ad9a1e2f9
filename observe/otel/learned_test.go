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

// A real gate: its first rejection changes its mind, and one that learns nothing has none of
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
					return sluice.ThrottledFor(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		got, l := e.collect(t), g.Stats().Learned
		for name, want := range map[string]string{
			"sluice.learned.throttled {call} sluice.gate.name=api,sluice.unit=calls":              "1 up and down",
			"sluice.blocked_gates {gate} sluice.gate.name=api":                                    "1 up and down",
			"sluice.learned.pace 1/s sluice.gate.name=api,sluice.unit=calls":                      fmt.Sprint(l.Pace, " up and down"),
			"sluice.learned.updates {change} sluice.gate.name=api,sluice.learned.reason=" + l.Why: fmt.Sprint(l.Updates),
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
