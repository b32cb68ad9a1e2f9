package sluice

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Rate is how many calls, or units of cost, may start per period.
type Rate = limits.Rate

// PerSecond is [limits.PerSecond]: PerSecond(10) is one call every 100 ms, without a burst.
func PerSecond(count int64) Rate { return limits.PerSecond(count) }

// Every is [limits.Every]: Every(100*time.Millisecond) is 10 per second.
func Every(interval time.Duration) Rate { return limits.Every(interval) }

// Must returns v, or panics if err is not nil. It is for package variables:
//
//	var gate = sluice.Must(sluice.New(sluice.Config{Name: "api", Rate: sluice.PerSecond(10)}))
func Must[T any](v T, err error) T { return limits.Must(v, err) }

// A Unit is the unit of a limit: Calls, Cost or, in a [Limit], another word such as "tokens", which
// counts the amounts of [WithCosts]. The empty Unit is the default of the field.
type Unit string

const (
	// Calls counts each call as 1, whatever its n.
	Calls Unit = "calls"

	// Cost counts a call as its n and, after Settle, as its actual cost.
	Cost Unit = "cost"
)

// of returns the amount that a call of n counts.
func (u Unit) of(n int64) int64 {
	if u == Cost {
		return n
	}
	return min(n, 1)
}

// check returns an error unless u is empty, Calls or Cost.
func (u Unit) check(field string) error {
	switch u {
	case "", Calls, Cost:
		return nil
	}
	return fmt.Errorf("%s: unknown unit %q", field, u)
}

// Costs are the amounts of several units that one call takes, such as
//
//	sluice.Costs{"tokens": 1200, "input": 200, "output": 1000}
//
// Each amount is taken from the limits of a gate, and of its parents, that have that Unit. A
// missing unit is an amount of 0: the call does not wait for such a limit. No amount may be
// negative.
type Costs map[Unit]int64

type costsKey struct{}

// WithCosts returns a context for calls with costs, in place of those of ctx. Limits with the
// Unit Calls or Cost ignore them and count the n of the call. Calls with n = 0 take nothing,
// and TryAcquire has no context. costs must not be changed afterwards. It panics if an amount
// is negative.
func WithCosts(ctx context.Context, costs Costs) context.Context {
	costs.mustNotBeNegative()
	return context.WithValue(ctx, costsKey{}, costs)
}

// costsOf returns the costs of ctx.
func costsOf(ctx context.Context) Costs {
	costs, _ := ctx.Value(costsKey{}).(Costs)
	return costs
}

func (c Costs) mustNotBeNegative() {
	for unit, n := range c {
		if n < 0 {
			panic(fmt.Sprintf("sluice: %s < 0: %d", unit, n))
		}
	}
}

// amount returns the amount of unit for a call of n with costs.
func (c Costs) amount(unit Unit, n int64) int64 {
	if unit == Calls || unit == Cost {
		return unit.of(n)
	}
	return c[unit]
}

// An ExpectedCall has the expected properties of each call of a [Gate.Estimate].
type ExpectedCall struct {
	// Costs are the amounts that a call takes. The amount of Cost is the n of the call; 0 means 1. If
	// Costs is not nil, a unit that is missing is an amount of 0.
	Costs Costs

	// Duration is how long a call stays in flight. 0 means the mean of the calls so far.
	Duration time.Duration
}

// amount returns the amount of unit that a call takes.
func (c *ExpectedCall) amount(unit Unit) int64 {
	switch unit {
	case Calls:
		return 1
	case Cost:
		return cmp.Or(c.Costs[Cost], 1)
	}
	return c.Costs[unit]
}
