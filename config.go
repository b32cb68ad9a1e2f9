package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// Config configures a [Gate]. Every field is optional: the gate of the zero Config admits every
// call and can be paused.
type Config struct {
	// Name is the name of the gate in errors, Stats and Events.
	Name string

	// Concurrency is the most calls in flight. 0 means no limit.
	Concurrency int64

	// ConcurrencyUnit is the unit of Concurrency. Empty means Calls.
	ConcurrencyUnit Unit

	// Rate is how often calls may start, evenly spaced; its Burst is how many may start
	// together after the gate was idle. The zero Rate means no limit.
	Rate Rate

	// RateUnit is the unit of Rate. Empty means Calls.
	RateUnit Unit

	// MaxCatchUp is that of pacer.Config: how much is caught up when calls are woken
	// late. 0 means 50 ms, negative nothing.
	MaxCatchUp time.Duration

	// TimerResolution is that of pacer.Config: how late calls may be woken to save processor
	// time. 0 means 1 ms, negative none: as exactly as the machine can.
	TimerResolution time.Duration

	// MaxWaiting is the most callers that may wait; further ones fail with
	// limits.ErrQueueFull. 0 means no bound.
	MaxWaiting int

	// Limits are further limits. Those over a network (limits.Remote) are consulted last, as many
	// as possible in one step. If a limit is a limits.Notifier, as those of leaky and window are,
	// units returned from outside the gate reach the first caller immediately, otherwise after the
	// wait that the limit returned.
	Limits []Limit

	// Semaphore is a cap on calls in flight that is shared with others. A call takes its permits
	// before it queues in the gate, and holds them while it waits.
	Semaphore limits.Semaphore

	// Parent is a gate that the calls must pass as well, such as one for all hosts together. This
	// gate and its parents admit a call at the same time, or it takes nothing from any. The parent
	// cannot have a Semaphore. If the parent is the gate of a Keyed, make this gate within
	// Keyed.Use or that Keyed's newGate. The Keyed then keeps the parent until this gate is closed,
	// evicted, or garbage.
	Parent *Gate

	// Weight is the share of the Parent's limits that this gate gets while other children also
	// wait: under a parent of 60/s, children of Weight 2 and 1 get 40/s and 20/s. 0 means 1. A
	// child that has not used its share goes first: its calls wait for at most one call of each
	// other child, however many wait there. If a limit of the parent counts cost, shares are of the
	// cost of calls, otherwise of their number. Calls of the parent itself wait in line among the
	// first calls of its children.
	Weight int64

	// Adaptive is how the gate finds a limit that is not configured. The zero Adaptive is on:
	// it changes nothing before the server throttles calls.
	Adaptive Adaptive

	// IsThrottle, if set, reports whether an error of a call means that the server throttled
	// it, and the wait that it requests, 0 if none. It is for errors that are not marked with
	// ThrottledFor or ThrottledUntil.
	IsThrottle func(err error) (throttled bool, wait time.Duration)

	// Observer, if set, is called with each event of the gate.
	Observer Observer

	// RetryBudget is the most tokens that the retry budget holds. 0 means 100. If it is negative,
	// retries are free. With fewer tokens left than a retry takes there are no retries: see
	// RetryValue.
	RetryBudget int
}

// New returns the gate that cfg describes. It returns an error if Concurrency, MaxWaiting or Weight
// is negative, the rate is invalid (see [limits.Rate.Check]) and not zero, Burst intervals exceed
// 146 years, ConcurrencyUnit or RateUnit is unknown, the Unit of a limit is not a word in lower
// case or the limit has no Limiter, or the parent has a Semaphore.
func New(cfg Config) (*Gate, error) {
	g, err := newGate(cfg)
	if err != nil {
		return nil, fmt.Errorf("sluice: config of gate %q: %w", cfg.Name, err)
	}
	return g, nil
}

func newGate(cfg Config) (*Gate, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s, err := schedule.New(schedule.Config{Rate: cfg.Rate, MaxCatchUp: cfg.MaxCatchUp, TimerResolution: cfg.TimerResolution})
	if err != nil {
		return nil, err
	}
	g := &Gate{
		name:       cfg.Name,
		semaphore:  cfg.Semaphore,
		ways:       ways{parent: cfg.Parent},
		observer:   cfg.Observer,
		observed:   cfg.Observer != nil || cfg.Parent != nil && cfg.Parent.observed,
		maxWaiting: cfg.MaxWaiting,
		lifetime:   lifetime{drained: make(chan struct{})},
		refusedBy:  cfg.IsThrottle,
		schedule:   *s,
	}
	g.room.limit, g.room.unit = cfg.Concurrency, cmp.Or(cfg.ConcurrencyUnit, Calls)
	g.memory.given = cfg.given()
	g.memory.room, g.adaptive, g.catchUp, g.budget = &g.room, cfg.Adaptive, s.CatchUp(), newBudget(cfg.RetryBudget)
	g.peering = newPeering(g)
	g.steps = stepsOf(g)
	if len(g.limits) > 0 || g.parent != nil {
		g.ask = newPath(g, nil).asks[0]
	}
	g.plain = g.ask == nil && g.semaphore == nil && g.observer == nil
	g.lane.Init()
	g.life, g.end = context.WithCancel(context.Background())
	g.tie = newTie(g)
	g.direct = directPath(g)
	if len(g.steps) == 0 && g.semaphore == nil && !g.observed {
		g.open = g.direct
	}
	g.behind.Count = g.shareUnit().of
	g.queue.Init((*admitter)(g), queueConfig(g))
	g.flow = queue.Flow{Below: &g.queue, Weight: cfg.Weight}
	if g.parent != nil {
		g.behind.Above = &g.parent.queue
		g.ahead = g.queue.Epoch().Sub(g.parent.queue.Epoch())
		if g.account = g.parent.account; g.parent.adaptive.Children {
			g.account = g.parent
		}
		if g.account != nil {
			g.accountAhead = g.queue.Epoch().Sub(g.account.queue.Epoch())
		}
	}
	begin := g.queue.Time(0)
	g.clock = begin.Sub(begin.Truncate(time.Hour))
	if g.adaptive.searches() {
		g.queue.Lock() // calls that leave without the lock are not seen
		g.search()
		g.queue.Unlock()
	}
	return g, nil
}

// given returns what a gate of cfg is told about the limits of its server.
func (cfg *Config) given() given {
	k := given{rate: cfg.Rate, rateUnit: cmp.Or(cfg.RateUnit, Calls)}
	for _, l := range cfg.Limits {
		l.Unit = cmp.Or(l.Unit, Cost)
		k.limits = append(k.limits, l)
	}
	if p := cfg.Parent; p != nil {
		p.queue.Lock()
		k.paced = p.given.any()
		p.queue.Unlock()
	}
	return k
}

// check returns the error of New for c, except for the rate.
func (cfg *Config) check() error {
	switch {
	case cfg.Concurrency < 0:
		return fmt.Errorf("negative concurrency %d", cfg.Concurrency)
	case cfg.MaxWaiting < 0:
		return fmt.Errorf("negative MaxWaiting %d", cfg.MaxWaiting)
	case cfg.Weight < 0:
		return fmt.Errorf("negative weight %d", cfg.Weight)
	case cfg.Parent != nil && cfg.Parent.semaphore != nil:
		return errors.New("a parent cannot have a Semaphore: calls would hold its permits while they wait")
	}
	if err := cfg.ConcurrencyUnit.check("ConcurrencyUnit"); err != nil {
		return err
	}
	if err := cfg.RateUnit.check("RateUnit"); err != nil {
		return err
	}
	if err := cfg.Adaptive.check(); err != nil {
		return err
	}
	if cfg.Adaptive.Peers != nil && cfg.Name == "" {
		return errors.New("Adaptive.Peers without a Name: gates of one name share a limit")
	}
	for i, l := range cfg.Limits {
		if err := l.check(); err != nil {
			return fmt.Errorf("limit %d %q: %w", i, l.Name, err)
		}
	}
	return nil
}

// shareUnit returns the unit of the shares of the children of g.
func (g *Gate) shareUnit() Unit {
	for ; g != nil; g = g.parent {
		if g.rateUnit == Cost || g.room.unit == Cost || g.limits.count(Cost) {
			return Cost
		}
	}
	return Calls
}

// queueConfig returns the configuration of the queue of g.
func queueConfig(g *Gate) queue.Config {
	r := (*admitter)(g)
	cfg := queue.Config{
		MaxWaiting: int32(min(g.maxWaiting, math.MaxInt32)),
		Behind:     &g.behind,
		Refuse:     g.room.refuse,
		GiveUp:     r.giveUp,
		Blame:      r.blame,
		Weigh:      g.rateUnit.of,
		Fine:       g.schedule.Fine,
		Hold:       g.schedule.Hold,
		Latch:      r,
	}
	if g.observer != nil {
		cfg.Waits = func(ctx context.Context, n int64) {
			g.report(r.queues(ctx, n))
		}
	}
	return cfg
}

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
