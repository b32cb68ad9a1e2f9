package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
)

var togetherTake = strictScript("together_take", "instant", "slots", "leaky", "log", "fixed", "pacer", "kinds")

// # Why ask several limits in one script?
//
// "10 a second and 5,000 a day" are two limits, and a call must have both. Asked
// one after the other, what the first gave must be given back when the second
// refuses: two round trips more, meanwhile others are refused what is not used,
// and sometimes it is too late. One script looks at all limits before it writes to
// any:
//
//	second  ███████░░░    fits
//	day     ██████████    does not     nothing is written to either
//
// A server of a cluster has only some of the keys, and a script only those of one
// slot. So the limits must be of one tag: of one family and one key; see keys.go.

// A joinable is a limit that can be decided together with others: a [*BucketLimiter], a
// [*SlidingLimiter], a [*FixedLimiter] or a [*Pacer].
type joinable interface {
	limits.Remote
	member() (*Store, member)

	// current reports whether m, which member returned, is how the limit is asked
	// now: a quota or a rate may have changed.
	current(m member) bool

	// takeOne takes n from the limit alone, if they fit, and returns how to give
	// them back. It asks no server: there is none, or it is away.
	takeOne(n int64, away *AwayError) (limits.Result, func(), error)
}

func (m *BucketLimiter) member() (*Store, member) {
	c := m.leaky.at(m.leaky.quoted.Load().cell, m.key)
	return m.leaky.store, &c
}

func (m *SlidingLimiter) member() (*Store, member) {
	k := m.log.at(m.key)
	return m.log.store, &k
}

func (m *FixedLimiter) member() (*Store, member) {
	k := m.fixed.at(m.key)
	return m.fixed.store, &k
}

func (p *Pacer) member() (*Store, member) { return p.store, &pace{p.at()} }

// Join implements limits.Remote: it is Together, for a gate.
func (m *BucketLimiter) Join(others ...limits.Limiter) limits.Joint { return join(m, others) }

// Join implements limits.Remote: it is Together, for a gate.
func (m *SlidingLimiter) Join(others ...limits.Limiter) limits.Joint { return join(m, others) }

// Join implements limits.Remote: it is Together, for a gate.
func (m *FixedLimiter) Join(others ...limits.Limiter) limits.Joint { return join(m, others) }

// Join implements limits.Remote: it is Together, for a gate.
func (p *Pacer) Join(others ...limits.Limiter) limits.Joint { return join(p, others) }

func join(first joinable, others []limits.Limiter) limits.Joint {
	limits := []joinable{first}
	for _, o := range others {
		l, ok := o.(joinable)
		if !ok {
			return nil
		}
		limits = append(limits, l)
	}
	store, _ := first.member()
	set, err := store.together(limits...)
	if err != nil {
		return nil // not a nil *joint in an interface
	}
	return set
}

// A joint is several limits that are decided in one script: all of them let a call
// through, or it takes from none. Callers of the same limits on one machine share
// scripts, and are decided in the order in which they came.
type joint struct {
	store  *Store
	limits []joinable
	formed atomic.Pointer[form]

	mu   sync.Mutex
	last *joining // the request granted last, if slots were; see AdjustAll
}

var _ limits.Joint = (*joint)(nil)

// together returns those limits as one. It returns an error if there are none, one is
// of another store or has another tag, or one is there twice.
//
// A Pacer in a joint reserves nothing ahead: a call is let through when a slot has
// come and all others agree. So each leaves a round trip and the caller's own delay
// after its slot, and the rate falls short by that, unless it has a burst.
func (s *Store) together(limits ...joinable) (*joint, error) {
	if len(limits) == 0 {
		return nil, errors.New("sluiceredis: no limits to decide together")
	}
	var keys []string
	for _, l := range limits {
		store, m := l.member()
		key := m.keyName()
		switch {
		case store != s:
			return nil, fmt.Errorf("sluiceredis: the limit at %q is of another store: only one can be decided together", key)
		case slices.Contains(keys, key):
			return nil, fmt.Errorf("sluiceredis: the limit at %q is there twice: together with itself it would count double", key)
		case len(keys) > 0 && tagOf(keys[0]) != tagOf(key):
			return nil, fmt.Errorf("sluiceredis: the limits at %q and %q share no tag: name them family/limit, of one family and key",
				keys[0], key)
		}
		keys = append(keys, key)
	}
	t := &joint{store: s, limits: slices.Clone(limits)}
	t.formed.Store(formOf(limits))
	return t, nil
}

// A decision is what became of a call. The zero decision, which comes beside an error,
// is one that did not let it through.
type decision struct {
	// by says which limit refuses, −1 if none does. If several do it is the first
	// that will never let so many through or, if there is none, the one that refuses
	// longest.
	by int

	// results are what the limits say: of a call that was let through what each Take
	// would have returned; of another whether this limit would have let it through,
	// and what it holds. The limit of a pacer is how many calls of 1 may leave at once
	// after idleness.
	results []limits.Result
}

// allowed reports whether all limits let the call through. Otherwise nothing was
// taken from any.
func (d decision) allowed() bool { return d.by < 0 }

// refuses returns the result of the limit that does, or of any if none does.
func (d decision) refuses() limits.Result {
	if len(d.results) == 0 {
		return limits.Result{}
	}
	return d.results[max(0, d.by)]
}

// err returns nil, or what Err of the result of the limit that refuses does: that
// it is limits.ErrTooLarge means that no wait helps.
func (d decision) err() error { return d.refuses().Err() }

// retryAfter returns how long it takes, if nobody else takes anything, until the
// call would be let through; 0 if it was, and limits.Never if it never will.
func (d decision) retryAfter() time.Duration { return d.refuses().RetryAfter }

// take takes n from each limit if all have them, and otherwise changes nothing and
// says which refuses and for how long. n = 0 takes nothing and is always allowed.
// Errors are those of [Bucket.Take]; a [*DataError] says which key it is, and then
// nothing was taken from any. It panics if n < 0.
func (t *joint) take(ctx context.Context, n int64) (decision, error) {
	return t.takeEach(ctx, slices.Repeat([]int64{n}, len(t.limits))...)
}

// takeEach is take of n[i] from limit i. It panics unless there is one n for each
// limit.
func (t *joint) takeEach(ctx context.Context, n ...int64) (decision, error) {
	if len(n) != len(t.limits) {
		panic(fmt.Sprintf("sluiceredis: %d numbers for %d limits", len(n), len(t.limits)))
	}
	for _, n := range n {
		mustNotBeNegative(n)
	}
	j := &joining{set: t, form: t.form(), n: slices.Clone(n)}
	if err := t.store.sets.do(ctx, j.form.sign, j); err != nil {
		return decision{}, err
	}
	if j.decision.allowed() && slices.Max(j.ends) > 0 {
		t.mu.Lock()
		t.last = j
		t.mu.Unlock()
	}
	return j.decision, nil
}

// peek returns what take of 0 does: the limits as they are, at one instant. It
// never writes.
func (t *joint) peek(ctx context.Context) (decision, error) { return t.take(ctx, 0) }

// AdmitAll implements limits.Joint: it is takeEach.
func (t *joint) AdmitAll(ctx context.Context, n []int64) (wait time.Duration, which int, err error) {
	d, err := t.takeEach(ctx, n...)
	if err != nil {
		return 0, t.about(err), err
	}
	if err := d.err(); err != nil {
		return 0, max(0, d.by), err
	}
	return d.retryAfter(), max(0, d.by), nil
}

// about returns which limit err is about, 0 if that cannot be said.
func (t *joint) about(err error) int {
	var data *DataError
	if !errors.As(err, &data) {
		return 0
	}
	return max(0, slices.IndexFunc(t.form().members, func(m member) bool { return m.keyName() == data.Key }))
}

// AdjustAll implements limits.Joint: it is Adjust of limit i by delta[i]. If the
// server cannot be asked, or one key holds what it must not, none is corrected.
//
// Slots of a pacer are given back only as a gate does it: with an age of 0, what
// the set has granted last, and if nobody has taken a slot since.
func (t *joint) AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error {
	all := make([]correction, len(t.limits))
	for i, m := range t.form().members {
		all[i] = correction{member: m, delta: delta[i], age: age}
		if l, ok := t.limits[i].(*BucketLimiter); ok {
			all[i].age = l.leaky.quoted.Load().age(-delta[i], age)
		}
	}
	if age == 0 {
		t.mu.Lock()
		if last := t.last; last != nil {
			for i := range all {
				if delta[i] < 0 && delta[i] == -last.n[i] && last.ends[i] > 0 {
					all[i].member, all[i].end, t.last = last.form.members[i], last.ends[i], nil
				}
			}
		}
		t.mu.Unlock()
	}
	t.store.adjust(ctx, all)
	var errs []error
	for i, c := range all {
		if c.err != nil && errs == nil {
			errs = make([]error, len(all))
		}
		if c.err != nil {
			errs[i] = c.err
		}
	}
	return errs
}

// A joining is a request for n[i] units of each limit of a set, and what was
// answered.
type joining struct {
	set  *joint
	form *form
	n    []int64

	decision decision
	now      int64     // the server's clock, µs since 1970
	sent     time.Time // when the script was, or a little earlier
	ends     []int64   // of slots taken, ns since 1970; 0: none
}

// nothing reports whether j asks for that.
func (j *joining) nothing() bool { return slices.Max(j.n) == 0 }

// ever reports whether what j asks for can fit.
func (j *joining) ever() bool {
	for i, m := range j.form.members {
		if j.n[i] > m.most() {
			return false
		}
	}
	return true
}

// decide is what becomes of j at limits that hold states.
func (j *joining) decide(states []state) {
	results := make([]limits.Result, len(states))
	for i, s := range states {
		results[i] = result(s, j.n[i])
	}
	d := decisionOf(results)
	j.ends = make([]int64, len(states))
	if d.allowed() {
		for i, s := range states {
			s.take(j.n[i])
			d.results[i].Remaining, _, d.results[i].ResetAfter = s.holds()
			if p, ok := s.(*paceState); ok && j.n[i] > 0 {
				j.ends[i] = j.now*1000 + p.free
			}
		}
	}
	j.decision = d
}

// decisionOf returns what becomes of a call for which limits have these results.
func decisionOf(results []limits.Result) decision {
	d := decision{by: -1, results: results}
	worst := time.Duration(0)
	for i, res := range results {
		if res.RetryAfter > worst {
			worst, d.by = res.RetryAfter, i
		}
	}
	return d
}

// runsOf splits requests into runs of equal ones.
func runsOf(requests []*joining) (runs [][]*joining) {
	for i, j := range requests {
		if i > 0 && slices.Equal(requests[i-1].n, j.n) {
			runs[len(runs)-1] = append(runs[len(runs)-1], j)
		} else {
			runs = append(runs, []*joining{j})
		}
	}
	return runs
}

// takeTogether has requests for the same limits answered, in order, at one instant.
func takeTogether(s *Store, ctx context.Context, _ string, requests []*joining) error {
	members := requests[0].form.members
	for _, m := range members {
		if err := m.tell(ctx, s); err != nil {
			return err
		}
	}
	name, sent := s.unique(), time.Now()
	var keys, args []string
	for _, m := range members {
		keys = append(keys, m.keyName())
		args = append(args, m.header(name)...)
	}
	runs, asked := runsOf(requests), 0
	for _, run := range runs {
		if run[0].nothing() {
			continue
		}
		asked++
		if run[0].ever() {
			args = append(args, format(int64(len(run))))
		} else {
			args = append(args, "0") // only when the logs will have room is asked
		}
		for i, m := range members {
			args = append(args, format(min(run[0].n[i], m.most())*m.unit()))
		}
	}
	reply, err := s.run(ctx, togetherTake, keys, args)
	if err == nil {
		err = expect(togetherTake, reply, 3+(3+asked)*len(members))
	}
	if err != nil {
		return err
	}
	now, rest, clamped := reply[len(reply)-1], reply[2:], int64(0)
	states := make([]state, len(members))
	for i, m := range members {
		states[i] = m.state(rest, now)
		clamped += rest[0]
		rest = rest[3:]
	}
	granted, units := int64(0), make([]int64, len(members))
	for _, run := range runs {
		if !run[0].nothing() {
			for i, s := range states {
				if l, ok := s.(*logState); ok {
					l.when = rest[i]
				}
			}
			rest = rest[len(states):]
		}
		for _, j := range run {
			j.now, j.sent = now, sent
			j.decide(states)
			if j.decision.allowed() && !j.nothing() {
				granted++
				for i, n := range j.n {
					units[i] += n
				}
			}
		}
	}
	for i, state := range states {
		state.keep(s, units[i], now)
	}
	return s.decided(togetherTake, len(requests), []int64{0, reply[1], clamped}, granted)
}

// giveBackTogether gives back what was taken for callers who had gone, the last
// first, so that the slots of those before it are at the tail then.
func giveBackTogether(s *Store, _ string, requests []*joining) {
	for _, j := range slices.Backward(requests) {
		if !j.decision.allowed() {
			continue
		}
		all := make([]correction, len(j.n))
		for i, m := range j.form.members {
			all[i] = correction{member: m, delta: -j.n[i], age: time.Since(j.sent), end: j.ends[i]}
			if _, ok := m.(*logKey); ok {
				all[i].end = j.now
			}
		}
		s.adjust(context.Background(), all) // counted if it fails
	}
}
