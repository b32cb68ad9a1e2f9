package adaptive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// The clock of a store may jump, as after a failover to a machine with another one. The processes go on
// with their rate and share the limit as before.
func TestPeers_TheClockOfTheStoreJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, 10 * time.Second, -2 * time.Second, -10 * time.Second, -time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			c := newCompany(t, bucket(10, steady(100)))
			c.ahead = 2 * time.Hour
			for range 3 {
				c.join(20)
			}
			c.until(120)
			c.ahead += jump
			c.until(130)
			if n := c.granted(120, 130); n < 850 {
				t.Errorf("in the 10 s after the jump, %d of 1,000 calls were granted", n)
			}
			c.until(190)
			if g, f := c.granted(130, 190), c.refused(130, 190); g < 5520 || f > g/20 {
				t.Errorf("in the minute after that, %d of 6,000 calls were granted, %d refused", g, f)
			}
			for _, p := range c.procs {
				if p.peer.peers != 3 || math.Abs(p.peer.part-1./3) > .01 {
					t.Errorf("process %s has the part %g of %d", p.peer.id, p.peer.part, p.peer.peers)
				}
			}
		})
	}
}

// odd returns a number that a store may reply that is broken.
func odd(random *rand.Rand) int64 {
	some := [...]int64{math.MaxInt64, math.MinInt64, -1, 0, 1, mostNews, random.Int64N(1e9), random.Int64()}
	return some[random.IntN(len(some))]
}

// A store that replies garbage for two minutes leaves no pace that is no number, and when it has
// recovered the processes use the limit again.
func TestPeers_AStoreThatRepliesGarbage(t *testing.T) {
	built.SkipRaced(t)
	for name, spoil := range map[string]func(r *peers.Reply, random *rand.Rand){
		"all": func(r *peers.Reply, random *rand.Rand) {
			*r = peers.Reply{
				Peers: odd(random), Share: odd(random), Due: odd(random),
				Admitted: odd(random), Stamp: odd(random), Age: time.Duration(odd(random)),
			}
			for range random.IntN(20) {
				r.News = append(r.News, odd(random))
			}
		},
		"admitted": func(r *peers.Reply, random *rand.Rand) { r.Admitted = odd(random) },
		"shares":   func(r *peers.Reply, random *rand.Rand) { r.Share, r.Due = odd(random), odd(random) },
		"stamp":    func(r *peers.Reply, random *rand.Rand) { r.Age, r.Stamp = time.Duration(odd(random)), odd(random) },
		"peers":    func(r *peers.Reply, random *rand.Rand) { r.Peers = odd(random) },
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				c := newCompany(t, bucket(10, steady(50)))
				c.join(10)
				c.join(10)
				c.mangle = func(r *peers.Reply) { spoil(r, random) }
				c.each = func() {
					for _, p := range c.procs {
						b := p.controller.Belief()
						for _, x := range []float64{b.Pace, b.Rate, b.Share} {
							if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
								t.Fatalf("at %v: %+v", c.now, b)
							}
						}
					}
				}
				c.until(120)
				c.mangle = nil
				c.until(480)
				if g := c.granted(420, 480); g < 2700 {
					t.Errorf("5 min after it has recovered, %d of 3,000 calls were granted in a minute", g)
				}
			})
		}
	}
}
