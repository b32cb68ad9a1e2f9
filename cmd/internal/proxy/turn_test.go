package proxy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// A user's call beside 600 calls of a batch, at a limit that the gate has found, waits for two of
// them at most, unless the server refuses it.
func TestTurn_UserBesideBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{patience: time.Hour}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second, Burst: 10}))
		began := time.Now()
		var all sync.WaitGroup
		for range 5 { // find the limit
			all.Go(func() {
				for range 40 {
					h.call("GET", "/api/", "", "Authorization: Bearer batch")
				}
			})
		}
		all.Wait()
		for range 600 {
			all.Go(func() {
				if got := h.call("GET", "/api/", "", "Authorization: Bearer batch"); got.StatusCode != 200 {
					t.Errorf("batch: %d", got.StatusCode)
				}
			})
		}
		time.Sleep(time.Second)
		type wait struct{ from, to time.Duration }
		var waits []wait
		var took []time.Duration
		for range 20 {
			from := time.Since(began)
			got := h.call("GET", "/api/", "", "Authorization: Bearer user")
			if took = append(took, got.took); got.StatusCode != 200 {
				t.Errorf("user: %d", got.StatusCode)
			}
			if !strings.Contains(got.Header.Get("Server-Timing"), "attempts") { // the server refused it, and a retry has no turn
				waits = append(waits, wait{from, time.Since(began)})
			}
			time.Sleep(time.Second)
		}
		all.Wait()
		for _, w := range waits {
			before := 0
			for _, r := range h.upstream.Record().Requests {
				if r.Status == 200 && r.Arrived > w.from && r.Arrived < w.to {
					before++
				}
			}
			if before > 3 {
				t.Errorf("%d calls were served before one of the user, in %v", before, w.to-w.from)
			}
		}
		slices.Sort(took)
		if took[10] > 300*time.Millisecond {
			t.Errorf("half of the calls of the user have waited %v or more, want at most two intervals", took[10])
		}
	})
}

// Tenants with one call at a time and one with many share evenly.
func TestTurn_Tenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{patience: time.Hour}, sluicetest.Enforce(sluicetest.Limit{Count: 20, Per: time.Second, Burst: 20}))
		var all sync.WaitGroup
		var mu sync.Mutex
		served := make(map[int]int)
		until := time.Now().Add(2 * time.Minute)
		for tenant, callers := range []int{1, 1, 1, 1, 50} {
			for range callers {
				all.Go(func() {
					for time.Now().Before(until) {
						got := h.call("GET", "/api/", "", fmt.Sprintf("X-Api-Key: %d", tenant))
						mu.Lock()
						if got.StatusCode == 200 && time.Until(until) < 100*time.Second {
							served[tenant]++
						}
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		sum, squares := 0.0, 0.0
		for _, n := range served {
			sum += float64(n)
			squares += float64(n * n)
		}
		if jain := sum * sum / 5 / squares; jain < 0.95 || sum < 0.85*20*100 {
			t.Errorf("%v: Jain %.3f, %.0f calls", served, jain, sum)
		}
	})
}

// What is certain to be sent before a call that comes now.
func TestTurns_Ahead(t *testing.T) {
	var all turns
	join := func(calls int, who sluice.Claimant) {
		for range calls {
			all.join(turnKey{"g", who})
		}
	}
	join(2, sluice.Claimant{Name: "one", Weight: 1})
	join(100, sluice.Claimant{Name: "three", Weight: 3})
	join(100, sluice.Claimant{Name: "a", Weight: 1, Class: "c", ClassWeight: 4})
	join(100, sluice.Claimant{Name: "b", Weight: 1, Class: "c", ClassWeight: 4})
	join(1, sluice.Claimant{Name: "last", Weight: 9})
	all.join(turnKey{"other", sluice.Claimant{Name: "one", Weight: 1}})
	for name, want := range map[sluice.Claimant]int64{
		{Name: "one", Weight: 1}:                           2 + 9 + 6 + 6 + 1,
		{Name: "three", Weight: 3}:                         2 + 100 + 67 + 67 + 1,
		{Name: "a", Weight: 1, Class: "c", ClassWeight: 4}: 2 + 100 + 100 + 100 + 1,
		{Name: "last", Weight: 9}:                          0 + 0 + 0 + 0 + 1,
	} {
		if got, busy := all.ahead(turnKey{"g", name}); got != want || !busy {
			t.Errorf("%+v: %d, %v, want %d", name, got, busy, want)
		}
	}
	if n, busy := all.ahead(turnKey{"g", sluice.Claimant{Name: "new"}}); n != 0 || busy {
		t.Errorf("one that has no calls: %d, %v", n, busy)
	}
}
