package sluice

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// The record of a call is its own, in whatever order calls end, and is used again then.
func TestDepartures(t *testing.T) {
	var d departures
	random := rand.New(rand.NewPCG(1, 2))
	live := map[uint32]float64{}
	var order []uint32
	most := 0
	for i := range 100_000 {
		if len(order) < 50 || random.IntN(2) == 0 && len(order) < 1000 {
			r := d.add()
			r.charges = append(r.charges, charge{amount: float64(i)})
			number := d.receipt()
			if _, used := live[number]; used || number == 0 {
				t.Fatalf("number %d is in use", number)
			}
			live[number] = float64(i)
			order = append(order, number)
			most = max(most, len(order))
			continue
		}
		at := random.IntN(len(order))
		number := order[at]
		order[at] = order[len(order)-1]
		order = order[:len(order)-1]
		if got := d.end(number); len(got) != 1 || got[0].amount != live[number] {
			t.Fatalf("record %d: %v, want %v", number, got, live[number])
		}
		delete(live, number)
	}
	if len(d.records) != most || d.used != len(order) {
		t.Errorf("%d records, %d used, for %d calls and never more than %d", len(d.records), d.used, len(order), most)
	}
	for _, number := range order {
		d.end(number)
	}
	if d.used != 0 || len(d.records) != 0 {
		t.Errorf("%d records are kept for none, %d in use", len(d.records), d.used)
	}
	if d.end(0) != nil || d.receipt() != 0 {
		t.Error("a call without a record has one")
	}
}

// anyAmount is a limit that never refuses.
type anyAmount struct{}

func (anyAmount) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (anyAmount) Adjust(context.Context, int64, time.Duration) error  { return nil }

// Of two calls of one cost that left at one instant, each is corrected by what it was charged
// itself, however it came through the gate.
func TestPermit_KeepsItsRecord(t *testing.T) {
	acquire := func(t *testing.T, g *Gate) *Permit { return limits.Must(g.Acquire(t.Context(), 5)) }
	try := func(t *testing.T, g *Gate) *Permit {
		p, ok := g.TryAcquire(5)
		if !ok {
			t.Fatal("refused")
		}
		return p
	}
	queued := func(t *testing.T, g *Gate) (p *Permit) {
		for top := g; ; top = top.parent {
			if top.parent == nil {
				limits.Must(0, top.SetConcurrency(top.flight.calls()+1))
				defer top.SetConcurrency(0)
				break
			}
		}
		first := limits.Must(g.Acquire(t.Context(), 1))
		done := make(chan struct{})
		go func() {
			p = acquire(t, g)
			close(done)
		}()
		synctest.Wait()
		first.Release()
		<-done
		return p
	}
	plain := func() *Gate { return limits.Must(New(Config{})) }
	limited := func() *Gate { return limits.Must(New(Config{Limits: []Limit{{Limiter: anyAmount{}}}})) }
	under := func(parent *Gate) *Gate { return limits.Must(New(Config{Parent: parent})) }
	for name, c := range map[string]struct {
		gate    func() *Gate
		acquire func(*testing.T, *Gate) *Permit
	}{
		"Acquire":                  {plain, acquire},
		"TryAcquire":               {plain, try},
		"queued":                   {plain, queued},
		"a limit":                  {limited, acquire},
		"a limit, TryAcquire":      {limited, try},
		"a limit, queued":          {limited, queued},
		"a parent":                 {func() *Gate { return under(plain()) }, acquire},
		"a parent, TryAcquire":     {func() *Gate { return under(plain()) }, try},
		"a parent, queued":         {func() *Gate { return under(plain()) }, queued},
		"two parents and a limit":  {func() *Gate { return under(under(limited())) }, acquire},
		"two parents, all queued":  {func() *Gate { return under(under(plain())) }, queued},
		"a limit, two, TryAcquire": {func() *Gate { return under(under(limited())) }, try},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := c.gate()
				learns := g // or any of its parents
				for ; learns != nil; learns = learns.parent {
					learns.queue.Lock()
					learns.learn(learns.queue.Now(), 5)
					learns.queue.Unlock()
				}
				settle := func(p *Permit, actual int64) {
					p.Settle(actual)
					p.Release()
				}
				early := acquire(t, g)
				a := c.acquire(t, g)
				settle(early, 25) // from now on calls are charged five times their estimate
				b := c.acquire(t, g)
				took := func(g *Gate) float64 {
					g.queue.Lock()
					defer g.queue.Unlock()
					return g.learner.known(Cost).suspect.Past(0).Cost
				}
				var before []float64
				for learns = g; learns != nil; learns = learns.parent {
					before = append(before, took(learns))
				}
				settle(a, 5) // as it was charged
				for learns = g; learns != nil; learns = learns.parent {
					if got := took(learns); got != before[0] {
						t.Errorf("%v taken, want %v as before", got, before[0])
					}
					before = before[1:]
				}
				settle(b, 5)
				for learns = g; learns != nil; learns = learns.parent {
					if n := learns.departures.used; n != 0 {
						t.Errorf("%d records are left", n)
					}
				}
			})
		})
	}
}
