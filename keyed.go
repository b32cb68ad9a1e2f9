package sluice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/keyed"
)

// ErrTooManyKeys reports a call for a key beyond KeyedConfig.MaxKeys. It is that
// of packages leaky and window, too.
var ErrTooManyKeys = errs.ErrTooManyKeys

// MostKeys is the largest MaxKeys.
const MostKeys = keyed.Most

// KeyedConfig is what [NewKeyed] may be told.
type KeyedConfig struct {
	// Idle is how long a gate must have been unused before it is forgotten.
	// 0 means 5 min, negative at once.
	Idle time.Duration

	// MaxKeys is the most gates there may be; calls for further keys fail
	// with ErrTooManyKeys until some can be forgotten. 0 means MostKeys.
	MaxKeys int

	// Forget, if set, is asked before a gate is forgotten that a new one could
	// replace, and keeps it by returning false. Who keeps something beside
	// each gate can drop it when it returns true: the gate is not used again.
	// It is called with the Keyed locked and must not use that.
	Forget func(gate *Gate) bool
}

// A Keyed is a gate for each key, such as the host, the tenant or the route of
// a call. Gates are made when a key is first used and forgotten when they have
// not been used for a while.
//
// A gate is forgotten only if a new one would let through no more than it:
// nobody is in it or waits, nothing is owed, it is not paused or closed, its
// retry budget is full, and it has no quotas, which may remember what a new
// gate would not know. What SetRate and SetConcurrency changed is forgotten
// with it. There is no goroutine that looks for such gates; each use of a Keyed
// looks at two.
//
// For a limit that all of them share give the gates a Parent.
//
// A Keyed is safe for use by multiple goroutines, must be made by [NewKeyed]
// and must not be copied.
type Keyed[K comparable] struct {
	newGate func(key K) (*Gate, error)
	cfg     KeyedConfig

	mu    sync.Mutex
	gates map[K]*keyedGate[K]
	// The gates that nobody uses, in a ring in the order in which they became
	// so: unused.next is the one that was unused for longest.
	unused keyedGate[K]
}

type keyedGate[K comparable] struct {
	key        K
	gate       *Gate
	users      int       // calls of Use that have not returned
	since      time.Time // when users became 0
	prev, next *keyedGate[K]
}

// NewKeyed returns a Keyed whose gates are made by newGate, one at a time. It
// returns an error if cfg.MaxKeys is negative or more than [MostKeys], and panics
// if newGate is nil.
//
//	hosts, err := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
//		return sluice.New(sluice.Config{Name: host, Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: all})
//	}, sluice.KeyedConfig{})
func NewKeyed[K comparable](newGate func(key K) (*Gate, error), cfg KeyedConfig) (*Keyed[K], error) {
	if newGate == nil {
		panic("sluice: NewKeyed(nil)")
	}
	switch {
	case cfg.MaxKeys < 0:
		return nil, fmt.Errorf("sluice: negative MaxKeys %d", cfg.MaxKeys)
	case cfg.MaxKeys > MostKeys:
		return nil, fmt.Errorf("sluice: MaxKeys %d is more than %d", cfg.MaxKeys, MostKeys)
	case cfg.MaxKeys == 0:
		cfg.MaxKeys = MostKeys
	}
	if cfg.Idle == 0 {
		cfg.Idle = 5 * time.Minute
	}
	k := &Keyed[K]{newGate: newGate, cfg: cfg, gates: make(map[K]*keyedGate[K])}
	k.unused.prev, k.unused.next = &k.unused, &k.unused
	return k, nil
}

// Use calls f with the gate of key, which it makes if there is none, and
// returns what f returns. The gate is not forgotten before f has returned, and
// must not be entered after that: by then there may be another for the key. A
// permit may be held for longer: a gate with something in flight is not forgotten
// either. Use returns the error of newGate, or [ErrTooManyKeys].
//
//	err := hosts.Use(host, func(gate *sluice.Gate) error {
//		return sluice.Do(ctx, gate, sluice.Policy{}, fetch)
//	})
func (k *Keyed[K]) Use(key K, f func(gate *Gate) error) error {
	e, err := k.pin(key)
	if err != nil {
		return err
	}
	defer k.unpin(e)
	return f(e.gate)
}

// Do is Gate.Do on the gate of key. If ctx is done before the call it returns
// ctx.Err() and makes no gate.
func (k *Keyed[K]) Do(ctx context.Context, key K, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return k.Use(key, func(gate *Gate) error { return gate.Do(ctx, f) })
}

// Len returns how many gates there are.
func (k *Keyed[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.gates)
}

// Stats calls f with the key and the Stats of each gate, in no order, until f
// returns false. f may use k.
func (k *Keyed[K]) Stats(f func(key K, s Stats) bool) {
	k.mu.Lock()
	all := make([]*keyedGate[K], 0, len(k.gates))
	for _, e := range k.gates {
		all = append(all, e)
	}
	k.mu.Unlock()
	for _, e := range all {
		if !f(e.key, e.gate.Stats()) {
			return
		}
	}
}

const (
	lookAt       = 2  // gates that each use looks at whether to forget them
	lookAtIfFull = 16 // the same for a new key that there is no room for
)

// pin returns the gate of key, with one user more.
func (k *Keyed[K]) pin(key K) (*keyedGate[K], error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.gates[key]; e != nil {
		if e.users++; e.users == 1 {
			e.unlink()
		}
		k.forget(lookAt, k.cfg.Idle)
		return e, nil
	}
	k.forget(lookAt, k.cfg.Idle)
	if k.full() {
		k.forget(lookAtIfFull, 0)
	}
	if k.full() {
		return nil, ErrTooManyKeys
	}
	// Made under the lock: two callers who come first at the same time must
	// not make two gates, of which one would be lost with all that it let
	// through.
	gate, err := k.newGate(key)
	switch {
	case err != nil:
		return nil, err
	case gate == nil:
		return nil, fmt.Errorf("sluice: no gate was made for key %v", key)
	}
	e := &keyedGate[K]{key: key, gate: gate, users: 1}
	k.gates[key] = e
	return e, nil
}

func (k *Keyed[K]) unpin(e *keyedGate[K]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.users--; e.users == 0 {
		e.since = time.Now()
		e.link(&k.unused)
	}
}

func (k *Keyed[K]) full() bool {
	return len(k.gates) >= k.cfg.MaxKeys
}

// forget looks at up to n gates that were unused for idle and forgets those
// that it may. The others go to the end, so that the next call looks at more.
func (k *Keyed[K]) forget(n int, idle time.Duration) {
	for ; n > 0; n-- {
		e := k.unused.next
		if e == &k.unused || time.Since(e.since) < idle {
			return
		}
		e.unlink()
		if e.gate.asNew() && (k.cfg.Forget == nil || k.cfg.Forget(e.gate)) {
			delete(k.gates, e.key)
		} else {
			e.link(&k.unused)
		}
	}
}

// asNew reports whether a new gate would let through no more than g.
func (g *Gate) asNew() bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	return len(g.quotas) == 0 &&
		g.flight.calls() == 0 && g.queue.Len() == 0 && g.queue.Closed() == nil &&
		g.schedule.Wait(g.queue.Now(), 0) == 0 &&
		g.budget.at(g.queue.Now()).recovered()
}

// link puts e at the end of ring.
func (e *keyedGate[K]) link(ring *keyedGate[K]) {
	e.prev, e.next = ring.prev, ring
	e.prev.next, ring.prev = e, e
}

func (e *keyedGate[K]) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
