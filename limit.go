package sluice

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/flight"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// A Limit is one more limit of a gate: Config.Limits.
type Limit struct {
	Name    string         // the name of the limit in errors and Stats
	Limiter limits.Limiter // required
	Unit    Unit           // what it counts; empty means Cost
}

// of returns what a call of n with ctx counts.
func (l *Limit) of(ctx context.Context, n int64) int64 {
	if l.Unit == Calls || l.Unit == Cost {
		return l.Unit.of(n)
	}
	return costsOf(ctx)[l.Unit]
}

// cause returns what holds calls up if l does.
func (l *Limit) cause() limits.Cause {
	if l.Name == "" {
		return "limit"
	}
	return limits.Cause("limit " + l.Name)
}

func (l *Limit) check() error {
	if l.Limiter == nil {
		return errors.New("no Limiter")
	}
	if strings.Trim(string(l.Unit), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return fmt.Errorf("Unit: unknown unit %q: want a word in lower case", l.Unit)
	}
	return nil
}

// moreLimits are the further limits of a gate: Config.Limits.
type moreLimits []Limit

// A discovery is a limit that is found while calls are made, such as those that a server publishes
// in its responses. Nobody has told the gate the limit of a server that publishes none: when such a
// gate learned only at the third burst of throttled calls, it used half of that limit for a minute.
type discovery interface {
	// Known reports whether there is a limit. It neither blocks nor calls a gate.
	Known() bool

	// Refills reports whether a limit comes back steadily, so that calls are spaced by it as by a
	// rate. It neither blocks nor calls a gate.
	Refills() bool
}

// known reports whether there is a limit, except those that are still to be found.
func (all moreLimits) known() bool {
	return slices.ContainsFunc(all, func(l Limit) bool {
		d, ok := l.Limiter.(discovery)
		return !ok || d.Known()
	})
}

// refill reports whether a limit that is found while calls are made comes back steadily.
func (all moreLimits) refill() bool {
	return slices.ContainsFunc(all, func(l Limit) bool {
		d, ok := l.Limiter.(discovery)
		return ok && d.Refills()
	})
}

// count reports whether a limit counts unit.
func (all moreLimits) count(unit Unit) bool {
	return slices.ContainsFunc(all, func(l Limit) bool { return l.Unit == unit })
}

// limiters yields the limiters that can be keys of a map, each once: a gate may have one twice, such
// as for calls and for cost.
func (all moreLimits) limiters() iter.Seq[limits.Limiter] {
	return func(yield func(limits.Limiter) bool) {
		for i, l := range all {
			if !reflect.ValueOf(l.Limiter).Comparable() || slices.ContainsFunc(all[:i], func(before Limit) bool {
				return reflect.ValueOf(before.Limiter).Comparable() && before.Limiter == l.Limiter
			}) {
				continue
			}
			if !yield(l.Limiter) {
				return
			}
		}
	}
}

// bellOf returns how limiter reports changes, or nil if it does not.
func bellOf(limiter limits.Limiter) *queue.Bell {
	n, ok := limiter.(interface{ OnChange(f func()) (stop func()) })
	if !ok {
		return nil
	}
	b := queue.Bell(n.OnChange)
	return &b
}

// A Rate is how many calls, or units of cost, may start per period.
type Rate = limits.Rate

// PerSecond is [limits.PerSecond]: PerSecond(10) is one call every 100 ms, without a burst.
func PerSecond(count int64) Rate { return limits.PerSecond(count) }

// Every returns the rate of one per interval: Every(100*time.Millisecond) is 10 per second.
func Every(interval time.Duration) Rate { return Rate{Count: 1, Per: interval} }

// Must returns v, or panics if err is not nil. It is for package variables:
//
//	var gate = sluice.Must(sluice.New(sluice.Config{Name: "api", Rate: sluice.PerSecond(10)}))
func Must[T any](v T, err error) T { return limits.Must(v, err) }

// A Unit is the unit of a limit: Calls, Cost or, in a [Limit], another word such as "tokens", which
// counts the amounts of [WithCosts].
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
// Each amount is taken from the limits of a gate, and of its parents, that have that [Unit]. A
// missing unit is an amount of 0. No amount may be negative.
type Costs map[Unit]int64

type costsKey struct{}

// WithCosts returns a context for calls with costs, in place of those of ctx. Limits of [Calls] or
// [Cost] ignore them. Calls with n = 0 take nothing, and TryAcquire has no context. costs must not
// be changed afterwards. It panics if an amount is negative.
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

// A room is where the calls of a gate are in flight: the limit, and the calls that take of it. The
// limit and the unit are guarded by the lock of the gate's queue.
//
// Calls that start without the lock take their places in calls at the same time, if those are what
// the limit counts: see admitUnlocked. So code that holds the lock takes a place in one step, too.
type room struct {
	limit int64 // 0: none
	unit  Unit
	calls flight.Counter
	cost  atomic.Int64 // of these calls, if the limit counts that
}

// take takes the room for a call of n, and reports whether there was any.
func (r *room) take(n int64) bool {
	if r.unit != Cost {
		return r.calls.Add(r.places())
	}
	if !r.has(n) || !r.calls.Add(flight.Most) {
		return false
	}
	r.cost.Add(n)
	return true
}

// giveBack undoes take. The lock was held since: a caller that found no room meanwhile asks again
// under the lock before it waits.
func (r *room) giveBack(n int64) {
	r.calls.End()
	if r.unit == Cost {
		r.cost.Add(-n)
	}
}

// has reports whether a call of n may be in flight, too.
func (r *room) has(n int64) bool {
	most := r.limit
	if most == 0 {
		most = math.MaxInt64
	}
	return r.unit.of(n) <= most-r.used()
}

// refuse implements queue.Config.Refuse: a call that has no room even if it is alone never starts.
func (r *room) refuse(n int64) error {
	if r.limit > 0 && r.unit.of(n) > r.limit {
		return limits.ErrTooLarge
	}
	return nil
}

// used returns the amount in flight, in the unit of the limit.
func (r *room) used() int64 {
	if r.unit == Cost {
		return r.cost.Load()
	}
	return r.calls.Calls()
}

// places returns how many calls may be in flight, as far as a flight.Counter can count.
func (r *room) places() int64 {
	if r.limit == 0 {
		return flight.Most
	}
	return min(r.limit, flight.Most)
}

// mostCalls returns how many calls may be in flight as configured, 0 if that is not limited. r may be
// nil: the memory of the zero Gate has none.
func (r *room) mostCalls() int {
	if r == nil || r.unit != Calls {
		return 0
	}
	return int(min(r.limit, math.MaxInt32))
}

// settle adds delta to the cost of a call in flight, as far as that can be counted, and returns by
// how much that is.
func (r *room) settle(delta int64) int64 {
	delta = min(delta, math.MaxInt64-r.cost.Load())
	r.cost.Add(delta)
	return delta
}

// inFlightFor returns the forecast of a number of places for calls that stay for hold. So many are
// taken, for at most as long.
func inFlightFor(hold time.Duration, places, taken int64) limits.Forecast {
	return forecast.NewSliding(places, hold, func(yield func(time.Duration, int64) bool) { yield(0, taken) })
}

// A lending is the Config.Semaphore of a gate, from which its calls borrow permits before they wait
// for the gate.
type lending struct {
	semaphore  limits.Semaphore // or nil
	maxWaiting int              // for it and in the queue of the gate together; 0: no limit
	borrowers  list.List        // when each caller came that waits for it, in this order; guarded by the gate's queue
}

// borrow takes n permits, waiting for longest at most, and returns how long that took. It ends with life,
// when the gate is closed, whose queue is q.
func (l *lending) borrow(ctx, life context.Context, q *queue.Queue, n int64, longest time.Duration) (limits.Lease, time.Duration, error) {
	began, done, err := l.queueUp(q)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	asking, stop := context.WithCancel(errs.Honest(ctx))
	defer stop()
	defer context.AfterFunc(life, stop)()
	lease, err := l.semaphore.Acquire(asking, n, longest)
	if err != nil && life.Err() != nil && ctx.Err() == nil {
		err = limits.ErrClosed
	}
	return lease, q.Now() - began, err
}

// queueUp counts a caller that waits from now on, until it calls done.
func (l *lending) queueUp(q *queue.Queue) (now time.Duration, done func(), err error) {
	q.Lock()
	defer q.Unlock()
	switch err := q.Closed(); {
	case err != nil:
		return 0, nil, err
	case l.maxWaiting > 0 && q.Len()+l.borrowers.Len() >= l.maxWaiting:
		return 0, nil, limits.ErrQueueFull
	}
	now = q.Now()
	place := l.borrowers.PushBack(now)
	return now, func() {
		q.Lock()
		l.borrowers.Remove(place)
		q.Unlock()
	}, nil
}

// waiting returns how many callers wait, and when the first of them came. The gate's queue is locked.
func (l *lending) waiting() (n int64, came time.Duration) {
	if first := l.borrowers.Front(); first != nil {
		came = first.Value.(time.Duration)
	}
	return int64(l.borrowers.Len()), came
}
