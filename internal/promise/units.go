package promise

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-go/sluice"
)

// ofTokens is the cost of a call of the columns with costs takes: 2 tokens and 3 points.
var ofTokens = sluice.Costs{"tokens": 2, "points": 3}

// newTokens and newPoints return limits that count these.
func newTokens() (sluice.Limit, Quota) {
	l, quota := newBucket(ofTokens["tokens"])
	l.Name, l.Unit, quota.Name = "tokens", "tokens", "tokens"
	return l, quota
}

func newPoints() (sluice.Limit, Quota) {
	l, quota := newLog(ofTokens["points"])
	l.Name, l.Unit, quota.Name = "points", "points", "points"
	return l, quota
}

// taking lets the calls of s take costs.
func taking(s *Subject, costs sluice.Costs) *Subject {
	do, call := s.Do, s.Call
	s.Do = func(ctx context.Context, ask Ask, f func() error) error {
		return do(sluice.WithCosts(ctx, costs), ask, f)
	}
	s.Call = func(ctx context.Context, f func() error) error { return call(sluice.WithCosts(ctx, costs), f) }
	s.Try = nil // which has no context
	return s
}

// withCosts has calls with an amount of each of two units, and limits that count them, one
// of them in a parent.
func withCosts(tb testing.TB, l Limits) *Subject {
	tokens, quota := newTokens()
	points, quota2 := newPoints()
	parent := mustGate(tb, sluice.Config{Limits: []sluice.Limit{points}})
	cfg := l.Config()
	cfg.Parent, cfg.Limits = parent, []sluice.Limit{tokens}
	g := mustGate(tb, cfg)
	return taking(OfGate(l, g, NewLevel("gate", g, quota), NewLevel("parent", parent, quota2)), ofTokens)
}

// withCostsInParent has limits of both units in the gate and in its parent.
func withCostsInParent(tb testing.TB, l Limits) *Subject {
	var levels []*Level
	var g *sluice.Gate
	for _, name := range []string{"parent", "gate"} {
		tokens, quota := newTokens()
		points, quota2 := newPoints()
		cfg := l.Config()
		cfg.Parent, cfg.Limits = g, []sluice.Limit{tokens, points}
		g = mustGate(tb, cfg)
		levels = append([]*Level{NewLevel(name, g, quota, quota2)}, levels...)
	}
	return taking(OfGate(l, g, levels...), ofTokens)
}

// withFarCosts has limits of both units, of which the tokens are a round trip away.
func withFarCosts(tb testing.TB, l Limits) *Subject {
	tokens, quota := newTokens()
	points, quota2 := newPoints()
	tokens.Limiter, quota.Rings = far{tokens.Limiter, trip}, false
	cfg := l.Config()
	cfg.Limits = []sluice.Limit{points, tokens}
	g := mustGate(tb, cfg)
	return taking(farGate{g, []*Level{NewLevel("gate", g, quota, quota2)}}.subject(l), ofTokens)
}

// costs returns setup with limits of both units in the gate that it makes from Limits.Config.
func costs(setup Setup) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		tokens, quota := newTokens()
		points, quota2 := newPoints()
		l.more = []sluice.Limit{tokens, points}
		s := setup(tb, l)
		s.Levels[0].Quotas = append(s.Levels[0].Quotas, quota, quota2)
		return taking(s, ofTokens)
	}
}

// withSettledCosts has calls that return a token when they end, and take two more points.
func withSettledCosts(tb testing.TB, l Limits) *Subject {
	setup := costs(func(tb testing.TB, l Limits) *Subject {
		g := mustGate(tb, l.Config())
		v := verbs{cost: 1, settle: sluice.Costs{"tokens": 1, "points": 5}}
		return v.subject(l, func(use func(*sluice.Gate) error) error { return use(g) }, []*Level{NewLevel("gate", g)})
	})
	s := setup(tb, l)
	s.Levels[0].Quotas[0].Cost, s.Levels[0].Quotas[1].Cost = 1, 5
	return s
}

// withExhausted has a server whose rejections name the unit.
func withExhausted(tb testing.TB, l Limits) *Subject {
	s := costs(plain)(tb, l)
	do, call := s.Do, s.Call
	named := func(f func() error) func() error {
		return func() error {
			err := f()
			var wait *ServerWait
			if errors.As(err, &wait) {
				return sluice.ThrottledBy(err, "tokens")
			}
			return err
		}
	}
	s.Do = func(ctx context.Context, ask Ask, f func() error) error { return do(ctx, ask, named(f)) }
	s.Call = func(ctx context.Context, f func() error) error { return call(ctx, named(f)) }
	return s
}
