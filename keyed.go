package sluice

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/limits"
)

// KeyedConfig configures a [Keyed]. Every field is optional.
type KeyedConfig struct {
	// Idle is how long a gate must have been unused before it is evicted. 0 means 5 min,
	// negative immediately.
	Idle time.Duration

	// MaxKeys is the most gates there may be. Calls for further keys fail with
	// limits.ErrTooManyKeys until one is evicted. 0 means 2²⁹.
	MaxKeys int

	// Forget, if set, is called before a gate is evicted because a new gate would behave the
	// same. It keeps the gate by returning false; after true the gate is not used again. Forget
	// is called with the Keyed locked and must not use it.
	Forget func(gate *Gate) bool

	// Evict, if set, makes room for a further key when there are EvictAt gates and none can be
	// evicted as above: it is called with a gate that is not in use, paused ones and then the
	// longest unused first, and drops it, with its pause and retry budget, by returning true. owes
	// reports that the gate is not paused and that dropping it might let more calls start than you
	// configured. A gate that is kept may be offered again. Forget is not called. Evict is called
	// with the Keyed locked and must not use it.
	Evict func(gate *Gate, owes bool) bool

	// EvictAt is the number of gates from which a further key evicts gates that were unused for less
	// than Idle, or calls Evict. It is a soft limit. 0 means MaxKeys.
	EvictAt int
}

// A Keyed has a gate for each key, such as the host, the tenant or the route of a call. Gates are
// made when a key is first used, and evicted after [KeyedConfig].Idle.
//
// A gate is evicted only if a new one would let no more calls start:
//   - no call is in it or waits, it has no debt, and it is not paused or closed;
//   - it is not the Parent of a gate that is still in use: see Config.Parent;
//   - its retry budget is at least half full and does not space calls out, or there are MaxKeys
//     gates;
//   - none of its [Config].Limits would lose state: each is used by several gates, a
//     [limits.Remote], a key of a leaky.Keyed or window.Keyed, or a limiter of these packages that
//     is as new.
//
// Changes by SetRate and SetConcurrency are lost when the gate is evicted. A NaN is a new key each
// time.
//
// A Keyed is safe for use by multiple goroutines, must be made by [NewKeyed] and must not be copied.
type Keyed[K comparable] struct {
	newGate func(key K) (*Gate, error)
	cfg     KeyedConfig

	mu    sync.Mutex
	gates map[K]*keyedGate[K]
	odd   map[*keyedGate[K]]struct{} // with keys that do not equal themselves

	// The gates that are not in use, in a ring: unused.next is to be looked at next.
	unused keyedGate[K]

	making []*making // running calls of newGate, in the order in which they began
	era    uint64    // counts them

	limiters map[limits.Limiter]*sharedLimiter
}

type keyedGate[K comparable] struct {
	key        K
	gate       *Gate
	making     *making   // nil once the gate is there
	users      int       // calls of Use that have not returned
	since      time.Time // when users became 0
	era        uint64    // of that instant
	prev, next *keyedGate[K]
}

// A making is one call of newGate. Callers of its key wait until it is done.
type making struct {
	era  uint64 // number of it
	done chan struct{}
	err  error // when done
}

// errAbandoned is the result of a newGate that panicked or ended its goroutine. Callers
// that wait for it call newGate themselves.
var errAbandoned = errors.New("sluice: newGate did not return")

// NewKeyed returns a Keyed whose gates newGate makes. It returns an error if MaxKeys is negative or
// more than 2²⁹, or EvictAt is negative. It panics if newGate is nil, or with more than one
// KeyedConfig.
//
// newGate is called once for a key, and for different keys at the same time. It may use the gate of
// another key as the parent, but never its own key, which would wait forever.
func NewKeyed[K comparable](newGate func(key K) (*Gate, error), options ...KeyedConfig) (*Keyed[K], error) {
	cfg := defaults.Option("sluice.NewKeyed", options)
	if newGate == nil {
		panic("sluice: NewKeyed(nil)")
	}
	switch {
	case cfg.MaxKeys < 0:
		return nil, fmt.Errorf("sluice: negative MaxKeys %d", cfg.MaxKeys)
	case cfg.MaxKeys > keyed.Most:
		return nil, fmt.Errorf("sluice: MaxKeys %d is more than %d", cfg.MaxKeys, keyed.Most)
	case cfg.MaxKeys == 0:
		cfg.MaxKeys = keyed.Most
	}
	switch {
	case cfg.EvictAt < 0:
		return nil, fmt.Errorf("sluice: negative EvictAt %d", cfg.EvictAt)
	case cfg.EvictAt == 0 || cfg.EvictAt > cfg.MaxKeys:
		cfg.EvictAt = cfg.MaxKeys
	}
	if cfg.Idle == 0 {
		cfg.Idle = 5 * time.Minute
	}
	k := &Keyed[K]{
		newGate:  newGate,
		cfg:      cfg,
		gates:    make(map[K]*keyedGate[K]),
		odd:      make(map[*keyedGate[K]]struct{}),
		limiters: make(map[limits.Limiter]*sharedLimiter),
	}
	k.unused.prev, k.unused.next = &k.unused, &k.unused
	return k, nil
}

// Use calls f with the gate of key and returns its error. If there is no gate, it makes one. It
// returns the error of newGate, or [limits.ErrTooManyKeys].
//
//	err := hosts.Use(host, func(gate *sluice.Gate) error {
//		return sluice.Retry(ctx, gate, fetch)
//	})
//
// The gate is not evicted before f returns. Make no further calls through it afterwards; a permit
// may be held for longer.
func (k *Keyed[K]) Use(key K, f func(gate *Gate) error) error {
	e, err := k.pin(key)
	if err != nil {
		return err
	}
	defer k.unpin(e)
	return f(e.gate)
}

// Do is Gate.Do on the gate of key. If ctx is already done, it returns ctx.Err() and makes
// no gate.
func (k *Keyed[K]) Do(ctx context.Context, key K, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return k.Use(key, func(gate *Gate) error { return gate.Do(ctx, f) })
}

// Len returns the number of gates, including those that are being made.
func (k *Keyed[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.len()
}

func (k *Keyed[K]) len() int { return len(k.gates) + len(k.odd) }

// Stats calls f with the key and the Stats of each gate, in no particular order, until f
// returns false. f may use k.
func (k *Keyed[K]) Stats(f func(key K, s Stats) bool) {
	for gate, key := range k.all() {
		if !f(key, gate.Stats()) {
			return
		}
	}
}

// all yields the gates and their keys. The Keyed is not locked meanwhile.
func (k *Keyed[K]) all() iter.Seq2[*Gate, K] {
	k.mu.Lock()
	all := make([]*keyedGate[K], 0, k.len())
	for _, e := range k.gates {
		if e.making == nil {
			all = append(all, e)
		}
	}
	for e := range k.odd {
		if e.making == nil {
			all = append(all, e)
		}
	}
	k.mu.Unlock()
	return func(yield func(*Gate, K) bool) {
		for _, e := range all {
			if !yield(e.gate, e.key) {
				return
			}
		}
	}
}

// pin returns the entry of key with its gate, and one user more.
func (k *Keyed[K]) pin(key K) (*keyedGate[K], error) {
	for {
		e, m, mine, err := k.find(key)
		switch {
		case err != nil:
			return nil, err
		case mine:
			return e, k.make(e)
		case m != nil:
			<-m.done
			err = m.err
		}
		if err != errAbandoned {
			return e, err
		}
	}
}

// find returns the entry of key, with one user more. If its gate is not made yet, m is
// the call that makes it; mine reports that the caller must make that call.
func (k *Keyed[K]) find(key K) (e *keyedGate[K], m *making, mine bool, err error) {
	errs.Made(k.newGate != nil, "sluice.Keyed", "sluice.NewKeyed")
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.gates[key]; e != nil {
		if e.users++; e.users == 1 {
			e.unlink()
		}
		return e, e.making, false, nil
	}
	if k.crowded() {
		k.forget(lookAt, k.cfg.Idle, false, time.Now())
	}
	if k.crowded() {
		k.forget(lookAtIfFull, 0, k.full(), time.Now())
	}
	for range 2 { // so that there are fewer again after a time when all were in use
		if k.crowded() && k.cfg.Evict != nil {
			k.evict()
		}
	}
	if k.full() {
		return nil, nil, false, limits.ErrTooManyKeys
	}
	// The entry is there before the gate: two callers that come first together must
	// not make two gates. Making it under the lock was simpler, but then a slow newGate
	// delayed all other keys, and one that used the Keyed hung.
	k.era++
	m = &making{era: k.era, done: make(chan struct{})}
	e = &keyedGate[K]{key: key, users: 1, making: m}
	if key == key {
		k.gates[key] = e
	} else {
		k.odd[e] = struct{}{}
	}
	k.making = append(k.making, m)
	return e, m, true, nil
}

// make makes the gate of e and wakes the callers that wait for it.
func (k *Keyed[K]) make(e *keyedGate[K]) (err error) {
	m := e.making
	m.err = errAbandoned // unless newGate returns
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.making = slices.DeleteFunc(k.making, func(other *making) bool { return other == m })
		e.making = nil
		if m.err != nil {
			k.remove(e)
		} else {
			k.lend(e.gate)
		}
		close(m.done)
	}()
	gate, err := k.newGate(e.key)
	if err == nil && gate == nil {
		err = fmt.Errorf("sluice: no gate was made for key %v", e.key)
	}
	e.gate, m.err = gate, err
	return err
}

func (k *Keyed[K]) unpin(e *keyedGate[K]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	defer func() { // also if Forget panics
		if e.users--; e.users == 0 {
			e.since, e.era = now, k.era
			e.link(&k.unused)
		}
	}()
	k.forget(lookAt, k.cfg.Idle, false, now) // and not in find: this clock serves both
}

func (k *Keyed[K]) crowded() bool { return k.len() >= k.cfg.EvictAt }

func (k *Keyed[K]) full() bool { return k.len() >= k.cfg.MaxKeys }

func (k *Keyed[K]) remove(e *keyedGate[K]) {
	delete(k.gates, e.key) // if the key is odd there is none
	delete(k.odd, e)
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

// A Claimant is on whose behalf calls are made: a tenant, a user, a batch. The claimants of a gate
// take turns by their weights, see Config.Weight. The zero Claimant is for calls that name none.
type Claimant struct {
	Name   string // such as the id of a tenant
	Weight int64  // its share of the gate's limits, or of those of its class; 0 means 1

	// Class, if set, is the class of the call, such as "batch". Classes and claimants without a
	// class take turns by their ClassWeight and Weight; the claimants of one class divide its
	// share.
	Class       string
	ClassWeight int64 // 0 means 1
}

// mostIdleClaimants is the number of claimants from which on those without a call are dropped soon.
const mostIdleClaimants = 1000

// For calls f with the gate of a claimant of g, which it makes if there is none. Its Parent is g,
// or the gate of its class. A throttled call pauses g, unless only calls of this claimant are
// throttled, as with [Adaptive].Children. The same name with another weight is another claimant.
//
// Acquire calls of the gate in f; permits may be released later. The gate is dropped after 5 min
// without a call, or earlier if there are 1,000. MaxWaiting of g applies to each. For returns the
// error of f, or one if a weight is negative or g has a Semaphore.
func (g *Gate) For(who Claimant, f func(gate *Gate) error) error {
	k := g.claimants.Load()
	if k == nil {
		fresh := limits.Must(NewKeyed(g.newClaimant, KeyedConfig{
			EvictAt: mostIdleClaimants, Evict: func(*Gate, bool) bool { return true },
		}))
		if !g.claimants.CompareAndSwap(nil, fresh) {
			fresh = g.claimants.Load()
		}
		k = fresh
	}
	return k.Use(who, f)
}

// newClaimant makes the gate of a claimant of g, or of a class if it has no name.
func (g *Gate) newClaimant(who Claimant) (gate *Gate, err error) {
	parent := g
	cfg := Config{Name: g.nameFor(who.Name), Weight: who.Weight, MaxWaiting: g.maxWaiting, IsThrottle: g.refusedBy}
	switch {
	case who.Class != "" && who.Name != "":
		err = g.claimants.Load().Use(Claimant{Class: who.Class, ClassWeight: who.ClassWeight}, func(class *Gate) error {
			parent = class
			cfg.Parent = class
			gate, err = New(cfg) // the Keyed keeps the class for as long as this
			return err
		})
	case who.Class != "":
		cfg.Name, cfg.Weight = g.nameFor(who.Class), who.ClassWeight
		fallthrough
	default:
		cfg.Parent = g
		gate, err = New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("sluice: claimant %+v: %w", who, err)
	}
	if parent == g {
		gate.tie.end() // the other way round: it goes when g does
		gate.tie = nil
	}
	gate.claims, gate.account = true, g.account
	gate.accountAhead = gate.queue.Epoch().Sub(gate.account.queue.Epoch())
	return gate, nil
}

// nameFor returns the name of the gate of a claimant or class.
func (g *Gate) nameFor(name string) string {
	if name == "" {
		return g.name
	}
	return strings.TrimSpace(g.name + " for " + name)
}

// Claimants calls f with each claimant of g, and the Stats of its gate, in no
// particular order, until f returns false.
func (g *Gate) Claimants(f func(who Claimant, s Stats) bool) {
	if k := g.claimants.Load(); k != nil {
		k.Stats(f)
	}
}
