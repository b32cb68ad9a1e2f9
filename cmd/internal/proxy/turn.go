package proxy

import (
	"context"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/semaphore"
)

// # How do tenants share a gate?
//
// A gate serves its callers in the order in which they came: a user behind 600 calls of a batch
// waits for all of them. A gate for each tenant would share the rate evenly, but each would have
// to find the limit of the server separately, and a refusal of one would pause only that one.
//
// So all tenants wait at one gate, which adapts to all their calls, as its claimants: it serves
// them by their weights, see [sluice.Claimant], and a tenant alone uses what the others leave. Of each
// tenant one call at a time waits there. The others wait behind it, in their order, for the turn: so
// a waiting call needs little memory. It gives its turn back when it is sent, not when it has been
// answered, so a tenant alone is as fast as the gate allows.
//
// A call that is sent again needs no turn: its tenant has been served, and the retry budget bounds
// their number.

// turns has the turns of all gates and tenants that have calls waiting.
type turns struct {
	mu sync.Mutex
	m  map[turnKey]*turn

	// idle has turns that nobody holds, to be used again: a new one for each call was a twelfth of the
	// memory that a call allocates.
	idle sync.Pool
}

type turnKey struct {
	gate string
	who  sluice.Claimant
}

// A turn is the place of a tenant at a gate.
type turn struct {
	turns *turns
	key   turnKey
	one   *semaphore.Weighted
	calls int64 // that have the turn or wait for it; turns.mu guards it
}

// take waits for the turn of key until ctx is done.
func (t *turns) take(ctx context.Context, key turnKey) (*turn, error) {
	turn := t.join(key)
	if err := turn.one.Acquire(ctx, 1); err != nil {
		turn.leave()
		return nil, err
	}
	return turn, nil
}

func (t *turns) join(key turnKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.m[key]
	if of == nil {
		if of, _ = t.idle.Get().(*turn); of == nil {
			of = &turn{turns: t, one: semaphore.NewWeighted(1)}
		}
		of.key = key
		if t.m == nil {
			t.m = make(map[turnKey]*turn)
		}
		t.m[key] = of
	}
	of.calls++
	return of
}

// give lets the next call of the tenant come to the gate.
func (t *turn) give() {
	t.one.Release(1)
	t.leave()
}

func (t *turn) leave() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.calls--; t.calls == 0 {
		delete(t.turns.m, t.key)
		t.key = turnKey{}
		t.turns.idle.Put(t)
	}
}

// ahead returns the number of calls that will be sent before one that comes now, and busy whether it
// would have to wait for its turn. For each of its own, another tenant sends as many as its weight is
// larger, and at most that more.
func (t *turns) ahead(key turnKey) (n int64, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.m[key]
	if mine == nil {
		return 0, false
	}
	inClass := make(map[string]int64) // the weights of those in a class
	for other := range t.m {
		if other.gate == key.gate {
			inClass[other.who.Class] += max(1, other.who.Weight)
		}
	}
	share := func(who sluice.Claimant) float64 {
		w := float64(max(1, who.Weight))
		if who.Class != "" {
			w *= float64(max(1, who.ClassWeight)) / float64(inClass[who.Class])
		}
		return w
	}
	turns := float64(mine.calls+1) / share(key.who)
	for other, of := range t.m {
		if other.gate == key.gate {
			n += min(of.calls, int64(turns*share(other.who)))
		}
	}
	return n, true
}

// each calls f with each turn and the number of its calls.
func (t *turns) each(f func(key turnKey, calls int64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, of := range t.m {
		f(key, of.calls)
	}
}

// waiting returns the number of calls that wait.
func (t *turns) waiting() (n int64) {
	t.each(func(_ turnKey, calls int64) { n += calls })
	return n
}
