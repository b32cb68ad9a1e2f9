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
