package sluice_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// Processes that share two limits use them up evenly, whichever of them binds, and are refused
// less than processes that do not.
func TestGate_Peers_UnitsTogether(t *testing.T) {
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
				got := float64(g.Stats().Granted)
				sum += got
				squares += got * got
			}
			goodput = s.ideal.Seconds() / time.Since(began).Seconds()
			refused = float64(s.denied) / float64(s.denied+s.granted)
			jain = sum * sum / squares / float64(n)
		})
		return goodput, refused, jain
	}
	together, alone := 0., 0.
	for _, n := range []int{3} {
		for _, c := range []mix{{10, 100}, {1000, 3000}} {
			for _, names := range []bool{true, false} {
				goodput, refused, jain := run(t, n, c, true, names)
				goodput2, refused2, jain2 := run(t, n, c, false, names)
				text := fmt.Sprintf("%d processes, %v, names %v: goodput %.3f (alone %.3f), refused %.3f (%.3f), Jain %.3f (%.3f)",
					n, c, names, goodput, goodput2, refused, refused2, jain, jain2)
				t.Log(text)
				if goodput < .93 || jain < .99 || refused > .2 {
					t.Error(text)
				}
				together, alone = together+refused, alone+refused2
			}
		}
	}
	if together > alone {
		t.Errorf("of all calls %.3f are refused, and %.3f if nothing is shared", together/4, alone/4)
	}
}
