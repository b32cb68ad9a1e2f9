package sluice

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/limits"
)

// A Claimant is on whose behalf calls are made: a tenant, a user, a batch. The claimants of a gate
// take turns by their weights, see Config.Weight. The zero Claimant has weight 1 and is for calls
// that name none.
type Claimant struct {
	Name   string // such as the id of a tenant
	Weight int64  // its share of the gate's limits, or of those of its class; 0 means 1

	// Class, if set, is the class of the call, such as "batch". Classes and claimants without a
	// class take turns by their ClassWeight and Weight; the claimants of one class divide its
	// share.
	Class       string
	ClassWeight int64 // 0 means 1
}

// mostIdleClaimants is the number of claimants from which on those without a call are dropped soon.
const mostIdleClaimants = 1000

// For calls f with the gate of a claimant of g, which it makes if there is none. Its Parent is
// g, or the gate of its class, and it has no separate limit. A throttled call pauses g, which
// adapts to it, unless only calls of this claimant are throttled, as with Adaptive.Children.
// The same name with another weight is another claimant.
//
// Acquire calls of the gate in f; permits may be released later. The gate is dropped after 5
// min without a call, or earlier if there are 1,000. MaxWaiting of g applies to each. An
// Observer of g sees calls when they reach g. For returns the error of f, or one if a weight is
// negative or g has a Semaphore.
func (g *Gate) For(who Claimant, f func(gate *Gate) error) error {
	k := g.claimants.Load()
	if k == nil {
		fresh := limits.Must(NewKeyed(g.newClaimant, KeyedConfig{
			EvictAt: mostIdleClaimants, Evict: func(*Gate, bool) bool { return true },
		}))
		if !g.claimants.CompareAndSwap(nil, fresh) {
			fresh = g.claimants.Load()
		}
		k = fresh
	}
	return k.Use(who, f)
}

// newClaimant makes the gate of a claimant of g, or of a class if it has no name.
func (g *Gate) newClaimant(who Claimant) (gate *Gate, err error) {
	parent := g
	cfg := Config{Name: g.nameFor(who.Name), Weight: who.Weight, MaxWaiting: g.maxWaiting, IsThrottle: g.refusedBy}
	switch {
	case who.Class != "" && who.Name != "":
		err = g.claimants.Load().Use(Claimant{Class: who.Class, ClassWeight: who.ClassWeight}, func(class *Gate) error {
			parent = class
			cfg.Parent = class
			gate, err = New(cfg) // the Keyed keeps the class for as long as this
			return err
		})
	case who.Class != "":
		cfg.Name, cfg.Weight = g.nameFor(who.Class), who.ClassWeight
		fallthrough
	default:
		cfg.Parent = g
		gate, err = New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("sluice: claimant %+v: %w", who, err)
	}
	if parent == g {
		gate.tie.end() // the other way round: it goes when g does
		gate.tie = nil
	}
	gate.account = g.learnsIn()
	gate.accountAhead = gate.queue.Epoch().Sub(gate.account.queue.Epoch())
	return gate, nil
}

// nameFor returns the name of the gate of a claimant or class.
func (g *Gate) nameFor(name string) string {
	if name == "" {
		return g.name
	}
	return strings.TrimSpace(g.name + " for " + name)
}

// Claimants calls f with each claimant of g, and the Stats of its gate, in no
// particular order, until f returns false.
func (g *Gate) Claimants(f func(who Claimant, s Stats) bool) {
	if k := g.claimants.Load(); k != nil {
		k.Stats(f)
	}
}
