package promise

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// Gates are the setups of the columns that are about gates of the core.
var Gates = map[string]Setup{
	"bubble":             plain,
	"real_clock":         plain,
	"parent":             withParent,
	"grandparent":        withGrandparent,
	"class":              withClass,
	"quota":              withQuotas,
	"quota_far_away":     withFarQuota,
	"far_quota_parent":   withFarQuotaAndParent,
	"cost":               withCost,
	"costs":              withCosts,
	"pause":              paused,
	"no_rate":            withoutRate,
	"empty_retry_budget": spent,
	"deadline":           withDeadline,
	"acquire_within":     withAcquireWithin,
	"reservation":        reserved,
	"keyed":              inKeyed,
	"shutdown":           besideShutdown,
	"rate_change":        changed,

	"learned":                 learned(plain),
	"learned_no_rate":         learned(searching(withoutRate)),
	"learned_parent":          learned(withParent),
	"account":                 inAccount,
	"account_no_rate":         withoutRateIn(inAccount),
	"account_learned":         learnedInAccount,
	"learned_quota":           learned(withQuotas),
	"learned_cost":            learned(withCost),
	"learned_costs":           learned(costs(plain)),
	"learned_keyed":           learned(inKeyed),
	"learned_peers":           sharing(learned(plain)),
	"learned_deadline":        learned(withDeadline),
	"settled":                 settled,
	"learned_settled":         learned(settled),
	"settled_no_rate":         settledWithoutRate,
	"learned_settled_no_rate": learned(searching(settledWithoutRate)),
	"settled_cost":            settledByCost,
	"learned_settled_cost":    learned(searching(settledByCost)),
	"told_elsewhere":          toldElsewhere,
	"parent_no_rate":          withParentAndNoRate,
	"cost_parent":             withCostAndParent,
	"room_of_cost_parent":     withRoomOfCost,

	"costs_parent":             withCostsInParent,
	"costs_quota_far_away":     withFarCosts,
	"costs_pause":              costs(paused),
	"costs_no_rate":            costs(withoutRate),
	"costs_empty_retry_budget": costs(spent),
	"costs_deadline":           costs(withDeadline),
	"costs_acquire_within":     costs(withAcquireWithin),
	"costs_keyed":              costs(inKeyed),
	"costs_rate_change":        costs(changed),
	"costs_settled":            withSettledCosts,
	"costs_exhausted":          withExhausted,
	"grain_costs":              grain(20*time.Millisecond, withCosts),

	"peers":       sharing(plain),
	"peers_away":  sharingAway(plain),
	"peers_pause": sharing(paused),
	"peers_costs": sharing(costs(plain)),
	"peers_keyed": sharing(inKeyed),

	"real_clock_grain":  grain(20*time.Millisecond, withParent),
	"grain":             grain(20*time.Millisecond, plain),
	"fine_grain":        grain(-1, withParent),
	"grain_parent":      grain(20*time.Millisecond, withParent),
	"grain_quota":       grain(20*time.Millisecond, withQuotas),
	"grain_cost":        grain(20*time.Millisecond, withCost),
	"grain_pause":       grain(20*time.Millisecond, paused),
	"grain_no_rate":     grain(20*time.Millisecond, withoutRate),
	"grain_deadline":    grain(20*time.Millisecond, withDeadline),
	"grain_reservation": grain(20*time.Millisecond, reserved),
	"grain_rate_change": grain(20*time.Millisecond, changed),
}

// grain returns setup with a grain.
func grain(grain time.Duration, setup Setup) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		l.Grain = grain
		return setup(tb, l)
	}
}

// Every returns the rate of one call per interval, the zero Rate for none.
func Every(interval time.Duration) sluice.Rate {
	if interval <= 0 {
		return sluice.Rate{}
	}
	return sluice.Rate{Count: 1, Per: interval}
}

// NewLevel returns the level of a gate, with the limits that it was made with.
func NewLevel(name string, g *sluice.Gate, quotas ...Quota) *Level {
	s := g.Stats()
	return &Level{Name: name, Control: g, Paced: s.Rate != sluice.Rate{}, Roomy: s.Concurrency > 0, Quotas: quotas}
}

// Config returns the configuration of a gate with these limits.
func (l Limits) Config() sluice.Config {
	return sluice.Config{
		Name: "gate", Rate: Every(l.Interval), Concurrency: l.Room, TimerResolution: l.Grain, Limits: l.more,
		Adaptive: sluice.Adaptive{Peers: l.peers, Search: l.search.Count > 0, Start: l.search},
	}
}

func mustGate(tb testing.TB, cfg sluice.Config) *sluice.Gate {
	tb.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// OfGate returns the subject of a gate and the levels of its path.
func OfGate(l Limits, g *sluice.Gate, levels ...*Level) *Subject {
	v := verbs{cost: 1}
	return v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, levels)
}

// verbs are the ways in which the calls of a subject enter a gate.
type verbs struct {
	cost     int64         // cost of a call
	deadline time.Duration // of each context, 0 for none
	within   time.Duration // for AcquireWithin, 0 for Acquire and Do
	settle   sluice.Costs  // the units a call has really taken when it ends, nil for the amount with which it was admitted
	took     int64         // likewise its cost, 0 for the amount with which it was admitted
}

// subject returns a subject whose calls enter the gate that use passes on.
func (v verbs) subject(l Limits, use func(func(*sluice.Gate) error) error, levels []*Level) *Subject {
	return &Subject{
		Do: func(ctx context.Context, ask Ask, f func() error) error {
			return use(func(g *sluice.Gate) error { return v.do(ctx, g, ask, f) })
		},
		Call: func(ctx context.Context, f func() error) error {
			return use(func(g *sluice.Gate) error { return v.call(ctx, g, l.Policy, f) })
		},
		Try: func() (ok bool) {
			_ = use(func(g *sluice.Gate) error {
				var p *sluice.Permit
				if p, ok = g.TryAcquire(v.cost); ok {
					p.Release()
				}
				return nil
			})
			return ok
		},
		Levels: levels,
		Paced:  l.Interval > 0,
	}
}

func (v verbs) do(ctx context.Context, g *sluice.Gate, ask Ask, f func() error) error {
	n := max(1, ask.N) * v.cost
	limit := ask.Within
	if v.within == 0 && limit == 0 {
		limit = v.deadline
	}
	if v.within == 0 && limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var p *sluice.Permit
	var err error
	switch {
	case v.within > 0 && limit == 0:
		p, err = g.AcquireWithin(ctx, n, v.within)
	case v.within > 0:
		p, err = g.AcquireWithin(ctx, n, limit)
	case n == 1 && !v.settles():
		return g.Do(ctx, func(context.Context) error { return marked(f()) })
	default:
		p, err = g.Acquire(ctx, n)
	}
	if err != nil {
		return err
	}
	defer p.Release()
	defer v.end(p) // if f panics
	err = marked(f())
	v.end(p)
	p.Done(err)
	return err
}

// settles reports whether a call takes something else than it was admitted with.
func (v verbs) settles() bool { return v.settle != nil || v.took > 0 }

// end settles the call of p.
func (v verbs) end(p *sluice.Permit) {
	p.SettleCosts(v.settle)
	if v.took > 0 {
		p.Settle(v.took)
	}
}

func (v verbs) call(ctx context.Context, g *sluice.Gate, policy sluice.RetryPolicy, f func() error) error {
	if v.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.deadline)
		defer cancel()
	}
	if v.cost == 1 && !v.settles() {
		return sluice.Retry(ctx, g, func(context.Context) error { return marked(f()) }, policy)
	}
	a := sluice.NewRetryLoop(g, policy)
	for {
		p, err := a.Next(ctx, v.cost)
		if err != nil {
			return err
		}
		again, err := a.Try(ctx, p, func(context.Context) error { return marked(f()) })
		v.end(p)
		p.Release()
		if !again {
			return err
		}
	}
}

// marked returns err as package sluice marks it.
func marked(err error) error {
	var wait *ServerWait
	if errors.As(err, &wait) {
		return sluice.ThrottledFor(err, wait.After)
	}
	return err
}

func plain(tb testing.TB, l Limits) *Subject {
	g := mustGate(tb, l.Config())
	return OfGate(l, g, NewLevel("gate", g))
}
