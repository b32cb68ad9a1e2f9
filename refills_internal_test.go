package sluice

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/refills"
)

// A rate that responses show reaches a gate that learns of calls, which says so, and no other one.
func TestRefills_Tell(t *testing.T) {
	learned := 0
	search := func() *Gate {
		return Must(New(Config{Adaptive: Adaptive{Search: true}, Observer: func(e Event) {
			if e.Kind == EventLearned {
				learned++
			}
		}}))
	}
	other, several := search(), search()
	other.learner.unit = Cost
	several.learner.more = []*belief{}
	for name, c := range map[string]struct {
		gate *Gate
		want float64
	}{
		"a gate that searches":         {search(), 10},
		"one that has learned nothing": {Must(New(Config{})), 0},
		"one that learns of a cost":    {other, 0},
		"one of several units":         {several, 0},
	} {
		p, err := c.gate.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		learned = 0
		refills.Tell(c.gate, adaptive.Refill{Rate: 10, Unsure: .1, Proven: true})
		got := 0.
		if known := c.gate.Stats().Learned; known != nil {
			got = known.Rate
		}
		if got != c.want || (learned == 1) != (c.want > 0) {
			t.Errorf("%s: %v per second, told %d times", name, got, learned)
		}
		p.Release()
		c.gate.Close()
	}
}

// A response to a call that left before Forget teaches nothing. Calls started at no pace at all afterwards.
func TestRefills_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Must(New(Config{Adaptive: Adaptive{Search: true}}))
		defer g.Close()
		p, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.Forget()
		refills.Tell(g, adaptive.Refill{Rate: 10, Unsure: .1, Proven: true})
		p.Release()
		began := time.Now()
		for range 40 {
			p, err := g.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("40 calls of a search took %v", took)
		}
	})
}
