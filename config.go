package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// Config configures a [Gate]. Every field is optional: the gate of the zero Config admits every
// call and can be paused.
type Config struct {
	// Name is the name of the gate in errors, Stats and Events.
	Name string

	// Concurrency is the most calls in flight. 0 means no limit. A gate that has no other limit either, nor a Parent,
	// starts its first burst in steps, unless it searches or must not learn: 14 calls at once, one more for each
	// response, and twice as many every 100 ms without one, until 50 have come.
	Concurrency int64

	// ConcurrencyUnit is the unit of Concurrency. Empty means Calls.
	ConcurrencyUnit Unit

	// Rate is how often calls may start, evenly spaced; its Burst is how many may start
	// together after the gate was idle. The zero Rate means no limit.
	Rate Rate

	// RateUnit is the unit of Rate. Empty means Calls.
	RateUnit Unit

	// MaxCatchUp is how much is caught up when calls are woken late, see pacer.Config. 0 means
	// 50 ms, negative nothing.
	MaxCatchUp time.Duration

	// TimerResolution is how late calls may be woken to save processor time, see pacer.Config. 0
	// means 1 ms, negative none.
	TimerResolution time.Duration

	// MaxWaiting is the most callers that may wait; further ones fail with
	// limits.ErrQueueFull. 0 means no bound.
	MaxWaiting int

	// Limits are further limits. Those over a network (limits.Remote) are consulted last, as many
	// as possible in one step. Units returned from outside the gate reach the first caller
	// immediately if a limit has OnChange, see [limits.Limiter].
	Limits []Limit

	// Semaphore is a cap on calls in flight that is shared with others. A call takes its permits
	// before it queues in the gate, and holds them while it waits.
	Semaphore limits.Semaphore

	// Parent is a gate that the calls must pass as well, such as one for all hosts together, at the
	// same time: otherwise they take nothing from either. It cannot have a Semaphore. If it is the
	// gate of a [Keyed], make this gate within [Keyed.Use] or that Keyed's newGate; the Keyed then
	// keeps it until this gate is closed, evicted, or garbage.
	Parent *Gate

	// Weight is the share of the Parent's limits that this gate gets while other children also
	// wait: under a parent of 60/s, children of Weight 2 and 1 get 40/s and 20/s. 0 means 1. A
	// child that has not used its share waits for at most one call of each other child. Shares are
	// of the cost of calls if a limit of the parent counts cost, otherwise of their number. Calls of
	// the parent itself wait among the first calls of its children.
	Weight int64

	// Adaptive is how the gate finds a limit that is not configured. The zero Adaptive is on:
	// it changes nothing before the server throttles calls, but for the first burst: see Concurrency.
	Adaptive Adaptive

	// IsThrottle, if set, reports whether an error that is not marked with ThrottledFor means that
	// the server throttled the call, and the wait that it requests, 0 if none.
	IsThrottle func(err error) (throttled bool, wait time.Duration)

	// Observer, if set, is called with each event of the gate, as it happens, by several goroutines.
	// It should return soon, and may use the gate. If it panics, everything is returned, and the
	// panic propagates from the method of the gate; with Adaptive.Peers it may end the program.
	// Package observe has observers.
	Observer func(Event)

	// RetryBudget is the most tokens that the retry budget holds, see [RetryValue]. 0 means 100,
	// negative that retries are free.
	RetryBudget int
}

// New returns the gate that cfg describes. It returns an error if a number in cfg is negative that
// must not be, the rate is invalid (see [limits.Rate]) and not zero, Burst intervals exceed 146
// years, ConcurrencyUnit or RateUnit is unknown, the Unit of a limit is not a word in lower case or
// the limit has no Limiter, or the parent has a Semaphore.
func New(cfg Config) (*Gate, error) {
	g, err := newGate(cfg)
	if err != nil {
		return nil, fmt.Errorf("sluice: config of gate %q: %w", cfg.Name, err)
	}
	return g, nil
}

func init() {
	reroute.Part = func(gate any, name string, more any) (any, error) {
		limits, _ := more.([]Limit)
		return gate.(*Gate).part(name, limits)
	}
}

func (g *Gate) part(name string, more []Limit) (*Gate, error) {
	g.queue.Lock()
	budget := g.budget.capacity
	g.queue.Unlock()
	part, err := New(Config{
		Name: name, Parent: g, Limits: more, MaxWaiting: g.maxWaiting,
		Adaptive: g.adaptive, IsThrottle: g.refusedBy, Observer: g.observer, RetryBudget: budget,
	})
	if err == nil {
		part.account, part.accountAhead = part, 0 // it is there because it has a separate limit
	}
	return part, err
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
		listener: listener{turnstile: turnstile{
			schedule: *s,
			drained:  make(chan struct{}),
			reporter: reporter{name: cfg.Name, observer: cfg.Observer},
		}},
		lending:   lending{semaphore: cfg.Semaphore, maxWaiting: cfg.MaxWaiting},
		refusedBy: cfg.IsThrottle,
	}
	g.room.limit, g.room.unit = cfg.Concurrency, cmp.Or(cfg.ConcurrencyUnit, Calls)
	g.memory.given = cfg.given()
	g.memory.room, g.adaptive, g.catchUp, g.budget = &g.room, cfg.Adaptive, s.CatchUp(), newBudget(cfg.RetryBudget)
	g.life, g.end = context.WithCancel(context.Background())
	if g.peering = newPeering(&g.listener, g.life); g.peering != nil {
		g.sharing = g.peering
	}
	g.ways.lead(g, cfg.Parent)
	g.plain = g.ask == nil && g.semaphore == nil && g.observer == nil
	g.asksMore = g.ask != nil
	g.inQueue = g.asksMore && g.direct == nil
	g.lane.Init()
	g.queue.Init(admitter{&g.turnstile}, queueConfig(g))
	g.flow = queue.Flow{Below: &g.queue, Weight: cfg.Weight}
	g.ways.setAccount(g)
	begin := g.queue.Time(0)
	g.clock = begin.Sub(begin.Truncate(time.Hour))
	if cfg.Parent == nil && cfg.Concurrency == 0 && cfg.Semaphore == nil && !g.adaptive.Disabled && !g.adaptive.searches() && !g.given.any() {
		g.queue.Lock()
		g.opening = newOpening()
		g.answersCount.Store(true)
		g.queue.Unlock()
	}
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

// queueConfig returns the configuration of the queue of g.
func queueConfig(g *Gate) queue.Config {
	r := admitter{&g.turnstile}
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
