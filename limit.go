package sluice

import (
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

	"github.com/sluice-go/sluice/internal/bell"
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
	n, ok := limiter.(limits.Notifier)
	if !ok {
		return nil
	}
	b := queue.Bell(n.OnChange)
	return &b
}

// # The order in which limits are consulted
//
// A limit of this process costs next to nothing to consult and to return. A remote
// one costs a round trip to consult and another to return; meanwhile other callers are
// refused what was taken, and returning can fail. So limits of this process come
// first, those of a call's gate and of its parents; then the remote ones, as many as
// possible in one joint step, which takes from all of them or from none. Only what one
// step took before another step refused is returned.

// A step takes from one limit, or from several limits at once.
type step struct {
	joint limits.Joint // nil if there is one limit
	of    []ownedLimit
}

// An ownedLimit is a limit and its gate.
type ownedLimit struct {
	*Limit
	gate *Gate
	bell *queue.Bell // of its Limiter; nil if that has none
}

// slow reports whether a limit of s may take long to answer: it is remote, or does not say that
// it is a limits.Notifier, which is of this process.
func (s step) slow() bool {
	return slices.ContainsFunc(s.of, func(l ownedLimit) bool {
		_, remote := l.Limiter.(limits.Remote)
		return remote || l.bell == nil
	})
}

// stepsOf returns the steps for the limits of g and of its parents.
func stepsOf(g *Gate) []step {
	var local, remote []step
	for gate := g; gate != nil; gate = gate.parent {
		for i := range gate.limits {
			l := ownedLimit{&gate.limits[i], gate, bellOf(gate.limits[i].Limiter)}
			switch _, ok := l.Limiter.(limits.Remote); {
			case !ok:
				local = append(local, step{of: []ownedLimit{l}})
			case gate == g || len(remote) > 0:
				remote = join(remote, l)
			}
		}
	}
	if len(remote) == 0 && g.parent != nil {
		// The same as those of its parent: the Joint may have taken ahead for all children.
		remote = slices.DeleteFunc(slices.Clone(g.parent.steps), func(s step) bool { return !s.remote() })
	}
	return append(local, remote...)
}

// remote reports whether s asks over a network.
func (s step) remote() bool {
	_, ok := s.of[0].Limiter.(limits.Remote)
	return ok
}

// join adds l, which is remote, to the first step that it can join, or as a new step.
func join(steps []step, l ownedLimit) []step {
	for i := range steps {
		s := &steps[i]
		var others []limits.Limiter
		for _, o := range s.of[1:] {
			others = append(others, o.Limiter)
		}
		if joint := s.of[0].Limiter.(limits.Remote).Join(append(others, l.Limiter)...); joint != nil {
			s.joint, s.of = joint, append(s.of, l)
			return steps
		}
	}
	return append(steps, step{l.Limiter.(limits.Remote).Join(), []ownedLimit{l}})
}

// A behind is the calls that wait behind one.
type behind struct{ calls, cost int64 }

// of returns what the calls of b will take of l, as far as that is known.
func (b behind) of(l ownedLimit) int64 {
	switch l.Unit {
	case Calls:
		return b.calls
	case Cost:
		return b.cost
	}
	return 0
}

// take takes for a call of n, or returns how long to wait and the limit that refuses. b waits
// behind it.
func (s *step) take(ctx context.Context, n int64, b behind) (wait time.Duration, by ownedLimit, err error) {
	if s.joint == nil {
		if n = s.of[0].of(ctx, n); n > 0 {
			wait, err = s.of[0].Limiter.Admit(ctx, n)
		}
		return wait, s.of[0], err
	}
	all, any := make([]int64, 2*len(s.of)), false
	all, ahead := all[:len(s.of)], all[len(s.of):]
	for i, l := range s.of {
		all[i], ahead[i] = l.of(ctx, n), b.of(l)
		any = any || all[i] > 0
	}
	if !any {
		return 0, s.of[0], nil
	}
	wait, which, err := s.joint.AdmitAll(ctx, all, ahead)
	return wait, s.of[which], err
}

// takeAll takes from all steps for a call of n, or from none and returns how long to wait and the
// limit that refuses.
func takeAll(ctx context.Context, n int64, steps []step, b behind) (wait time.Duration, by ownedLimit, err error) {
	taken := 0
	defer func() {
		if taken < len(steps) { // a limit refuses, or has panicked
			giveBack(ctx, n, steps[:taken])
		}
	}()
	for i := range steps {
		if wait, by, err = steps[i].take(ctx, n, b); wait > 0 || err != nil {
			return wait, by, err
		}
		taken++
	}
	return 0, by, nil
}

// giveBack undoes takeAll for a call of n, also if ctx is done.
func giveBack(ctx context.Context, n int64, steps []step) {
	if len(steps) == 0 {
		return
	}
	ctx = bell.Quietly(context.WithoutCancel(ctx))
	for i := range steps {
		steps[i].adjust(ctx, 0, func(l ownedLimit) int64 { return -l.of(ctx, n) })
	}
}

// settle corrects by delta what the limits that count cost gave age ago.
func (s *step) settle(ctx context.Context, delta int64, age time.Duration) {
	s.adjust(ctx, age, func(l ownedLimit) int64 {
		if l.Unit == Cost {
			return delta
		}
		return 0
	})
}

func (s *step) adjust(ctx context.Context, age time.Duration, by func(ownedLimit) int64) {
	delta, any := make([]int64, len(s.of)), false
	for i, l := range s.of {
		delta[i] = by(l)
		any = any || delta[i] != 0
	}
	if !any {
		return
	}
	var lost []error
	if s.joint != nil {
		lost = s.joint.AdjustAll(ctx, delta, age)
	} else {
		lost = []error{s.of[0].Limiter.Adjust(ctx, delta[0], age)}
	}
	for i, err := range lost {
		if err != nil {
			s.of[i].gate.stranded.Add(1)
		}
	}
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
