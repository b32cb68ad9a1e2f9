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

// # Why ask several limits in one script?
//
// "10 a second and 5,000 a day" are two limits, and a call must have both. Asked
// one after the other, the units of the first must be returned when the second
// rejects: two round trips more, and until then others are rejected although the units are not used,
// and sometimes it is too late. One script looks at all limits before it writes to
// any:
//
//	second  ███████░░░    fits
//	day     ██████████    does not     nothing is written to either
//
// A server of a cluster has only some of the keys, and a script only those of one
// slot. So the limits must be of one tag: of one family and one key; see keys.go.

// A joinable is a limit that can be decided together with others: a [*limiter] or a
// [*Pacer].
type joinable interface {
	limits.Remote

	// asked returns the store, and how the limit is asked now: its rate may change.
	asked() (*Store, spot)
}

func (p *Pacer) asked() (*Store, spot) { return p.store, p.at() }

// Join implements limits.Remote. The key of a pacer is "".
func (p *Pacer) Join(others ...limits.Limiter) limits.Joint { return join(p, others) }

func join(first joinable, others []limits.Limiter) limits.Joint {
	if p, paces := first.(*Pacer); paces && len(others) == 0 {
		return lone{p} // which reserves slots, as a joint cannot
	}
	limits := []joinable{first}
	for _, o := range others {
		l, ok := o.(joinable)
		if !ok {
			return nil
		}
		limits = append(limits, l)
	}
	store, _ := first.asked()
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
	stock  stock

	mu   sync.Mutex
	last *request // the request admitted last, if slots were; see AdjustAll
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
		store, a := l.asked()
		key := a.key
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
	t.form()
	return t, nil
}

// A form is how the limits of a joint are asked.
type form struct {
	spots []spot
	sign  sign
}

// form returns how the limits of t are asked now. To create it again for each call would
// take longer than all else that is done here for one.
func (t *joint) form() *form {
	f := t.formed.Load()
	same := f != nil
	for i := 0; same && i < len(f.spots); i++ {
		_, a := t.limits[i].asked()
		same = a.limit == f.spots[i].limit
	}
	if !same {
		f = new(form)
		for _, l := range t.limits {
			_, a := l.asked()
			f.spots = append(f.spots, a)
		}
		f.sign = signOf(f.spots)
		t.formed.Store(f)
	}
	return f
}

// take takes n[i] from limit i if all have them, and otherwise changes nothing. n = 0
// takes nothing and is always allowed. It panics if a number is negative, or unless there
// is one for each limit.
func (t *joint) take(ctx context.Context, n ...int64) (*request, error) {
	return t.takeUpTo(ctx, 1, n)
}

// takeUpTo is take for as many calls of n as fit, up to calls.
func (t *joint) takeUpTo(ctx context.Context, calls int64, n []int64) (*request, error) {
	mustBeNumbers(n, len(t.limits))
	f := t.form()
	r := &request{parts: make([]part, len(n)), calls: calls}
	for i, a := range f.spots {
		r.parts[i] = part{spot: a, n: n[i]}
	}
	if err := t.store.decide(ctx, f.sign, r); err != nil {
		return nil, err
	}
	if r.granted() && slices.ContainsFunc(r.parts, func(p part) bool { return p.end != 0 && p.Kind().ByEnd() }) {
		t.mu.Lock()
		t.last = r
		t.mu.Unlock()
	}
	return r, nil
}

// mustBeNumbers panics if a number is negative, or unless there is one for each of so many limits.
func mustBeNumbers(all []int64, limits int) {
	if len(all) != limits {
		panic(fmt.Sprintf("sluiceredis: %d numbers for %d limits", len(all), limits))
	}
	for _, n := range all {
		mustNotBeNegative(n)
	}
}

// AdmitAll implements limits.Joint. It takes ahead as stock.go says.
func (t *joint) AdmitAll(ctx context.Context, n, behind []int64) (wait time.Duration, which int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	calls := int64(1)
	if behind != nil {
		mustBeNumbers(n, len(t.limits))
		mustBeNumbers(behind, len(t.limits))
		if t.stock.use(n) {
			return 0, 0, nil
		}
		calls = t.ahead(n, behind)
	}
	r, err := t.ask(ctx, calls, n)
	var data *keyError
	switch {
	case errors.As(err, &data):
		return 0, max(0, slices.IndexFunc(t.form().spots, func(a spot) bool { return a.key == data.key })), err
	case err != nil || r.granted():
		return 0, 0, err
	}
	res := r.parts[r.by].res
	if err := res.Err(); err != nil {
		return 0, r.by, err
	}
	return res.RetryAfter, r.by, nil
}

// ask is takeUpTo that keeps what it takes for further calls in stock.
func (t *joint) ask(ctx context.Context, calls int64, n []int64) (r *request, err error) {
	t.stock.begin()
	sent := time.Now()
	defer func() {
		admitted := r
		if err != nil || r == nil || !r.granted() { // or it has panicked
			admitted = nil
		}
		t.stock.end(admitted, sent, t.expire)
	}()
	return t.takeUpTo(ctx, calls, n)
}

// AdjustAll implements limits.Joint: it is Adjust of limit i by delta[i]. If the
// server cannot be asked, or one key has invalid content, none is corrected.
//
// Slots of a pacer are returned only as a gate does it: with an age of 0, those that the set has
// admitted last, and if no slot was taken since.
func (t *joint) AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error {
	all := make([]correction, len(t.limits))
	for i, a := range t.form().spots {
		all[i] = correction{spot: a, delta: delta[i], age: age}
	}
	if age == 0 && t.stock.put(delta) {
		return nil
	}
	if age == 0 {
		t.mu.Lock()
		if last := t.last; last != nil {
			for i := range all {
				if p := &last.parts[i]; delta[i] < 0 && delta[i] == -p.n && p.end > 0 && p.Kind().ByEnd() {
					all[i].spot, all[i].end, t.last = p.spot, p.end, nil
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
