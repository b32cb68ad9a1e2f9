package sluicehttp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The table in trial.go.
func TestTrial_Proves(t *testing.T) {
	for _, c := range []struct {
		refused, of, othersRefused, ofOthers float64
		want                                 bool
	}{
		{1, 1, 0, 10_000, false}, // one refusal is no evidence
		{2, 2, 0, 16, false},
		{2, 2, 0, 64, true},
		{3, 4, 0, 16, false},
		{3, 4, 0, 30, true},
		{4, 6, 1, 30, false},
		{6, 9, 1, 30, true},
		{30, 60, 30, 60, false}, // all are refused as often
		{10, 60, 30, 60, false}, // the others are refused more often
		{10, 10, 0, 0, false},   // nobody else was answered
	} {
		tr := trial{own: answers{c.of - c.refused, c.refused}, others: answers{c.ofOthers - c.othersRefused, c.othersRefused}}
		if got := tr.proves(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Where calls of all routes are refused with the same probability, hardly a route is thought to have a
// limit of its own, and no more than a few trials are remembered.
func TestTrial_ChanceProvesLittle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, share := range []float64{.01, .05, .2, .5} {
		for _, routes := range []int{2, 10, 1000} {
			t.Run(fmt.Sprintf("%v of %d routes", share, routes), func(t *testing.T) {
				s := &scopes{}
				proven, now := 0, time.Now()
				const calls = 20_000
				for range calls {
					now = now.Add(10 * time.Millisecond)
					w := word{route: 1 + random.Uint64N(uint64(routes)), sent: now, now: now, refused: random.Float64() < share}
					if s.try(&w) {
						proven++
						s.endTrial(w.route)
					}
					if len(s.trials) > mostTrials {
						t.Fatalf("%d trials", len(s.trials))
					}
				}
				if proven > 4 {
					t.Errorf("%d of %d calls are thought to be of a route with a limit of its own", proven, calls)
				}
			})
		}
	}
}
