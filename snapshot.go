package sluice

import (
	"encoding/json"
	"fmt"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/snapshot"
)

// A snapshot of a gate of one unit is that of its controller. Otherwise it has the snapshots of all
// controllers, by unit.
type unitSnapshot struct {
	Unit    Unit            `json:"unit"`
	Learned json.RawMessage `json:"rule"`
}

const unitsKind = "units"

// Snapshot returns the estimate of the gate, for Restore: see [Adaptive].
func (g *Gate) Snapshot() []byte {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.learner
	switch {
	case l == nil:
		return adaptive.New(adaptive.Config{}).Snapshot()
	case l.blamed == nil:
		return l.controller.Snapshot()
	}
	var units []unitSnapshot
	l.each(func(b *belief) {
		if b.limited() {
			units = append(units, unitSnapshot{b.unit, b.controller.Snapshot()})
		}
	})
	return snapshot.Seal(unitsKind, units)
}

// Restore adopts the estimates of a Snapshot, such as one of an earlier run of the program. The
// configured rate and concurrency stay maxima. Restore changes nothing if the snapshot has no
// estimates, or if Adaptive is off. It returns an error and changes nothing if data is not a
// snapshot of a gate.
func (g *Gate) Restore(data []byte) error {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.newLearner()
	if err := l.restore(data); err != nil {
		return fmt.Errorf("sluice: restore of gate %q: %w", g.name, err)
	}
	if l.changes() > 0 && !g.adaptive.Disabled {
		if g.rate.Count > 0 && l.controller.Changes() == 0 && !g.adaptive.searches() {
			g.takeOver(l, g.sofar(g.queue.Now()), 1) // its limit was not exhausted: it begins at the rate
		}
		g.setLearner(l)
		g.queue.Recheck()
		g.wake(g.queue.Now())
	}
	return nil
}

// restore restores a new learner.
func (l *learner) restore(data []byte) error {
	units, err := snapshot.Open[[]unitSnapshot](data, unitsKind)
	if err != nil {
		return l.controller.Restore(data)
	}
	for _, u := range units {
		if err := l.restoreUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (l *learner) restoreUnit(u unitSnapshot) error {
	b := &l.belief
	if u.Unit != l.unit {
		if b = l.add(u.Unit); b == nil || b.controller != nil {
			return snapshot.Impossible() // too many, or one of them twice
		}
		b.controller = l.controllers.further(u.Unit)
	}
	if err := b.controller.Restore(u.Learned); err != nil {
		return err
	}
	if known := b.controller.Belief(); known.Changes > 0 {
		b.suspect.Restore(known.Rate)
		l.blamed = b
	}
	return nil
}
