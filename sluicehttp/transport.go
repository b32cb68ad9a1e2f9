package sluicehttp

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A Transport is an [http.RoundTripper] that sends requests through gates. It is made by [New]; the
// zero Transport is one with the zero [Config]. It is safe for use by multiple goroutines, and must
// not be copied. None of its own goroutines outlives a request and its body. It belongs to the
// testing/synctest bubble in which it was made or, if zero, first used.
type Transport struct {
	once      sync.Once // sets up a zero Transport
	base      http.RoundTripper
	cfg       Config
	gates     *sluice.Keyed[key]
	tolerated time.Duration  // RetryPolicy.MaxServerWait
	mostPause time.Duration  // Config.MaxPause
	random    func() float64 // in [0, 1), for jitter
	epoch     time.Time

	states sync.Map              // *sluice.Gate to *state
	count  atomic.Int64          // of states
	most   int64                 // number from which gates may be evicted although they owe calls; 0 means never
	recent atomic.Pointer[state] // the state used last; most programs have one host
	global global
	closed atomic.Bool

	latenesses sync.Pool // of *lateness that are stopped
}

// New returns a transport that sends requests by base, or by [http.DefaultTransport] if that is
// nil. More than one Config panics.
//
// New returns an error for a Gate that [sluice.New] rejects, Keys that [sluice.NewKeyed] rejects,
// both Gate and NewGate, a Rate or a Concurrency that Gate also has or together with NewGate, a
// Claimant with a Gate.Semaphore, a negative LeakThreshold, or a Published or AlsoRetry out of its
// range.
func New(base http.RoundTripper, options ...Config) (*Transport, error) {
	t := new(Transport)
	if err := t.setUp(base, defaults.Option("sluicehttp.New", options)); err != nil {
		return nil, err
	}
	return t, nil
}

// NewClient returns a client with a new Transport above [http.DefaultTransport], and without a
// Timeout. Its errors are those of [New].
func NewClient(options ...Config) (*http.Client, error) {
	t, err := New(nil, options...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// init sets up a Transport that was not made by New.
func (t *Transport) init() {
	t.once.Do(func() {
		if t.gates == nil {
			if err := t.setUp(nil, Config{}); err != nil {
				panic(err) // impossible
			}
		}
	})
}

func (t *Transport) setUp(base http.RoundTripper, cfg Config) error {
	if base == nil {
		base = http.DefaultTransport
	}
	if err := cfg.unite(); err != nil {
		return fmt.Errorf("sluicehttp: %w", err)
	}
	if err := cfg.check(); err != nil {
		return fmt.Errorf("sluicehttp: %w", err)
	}
	t.base, t.cfg, t.random, t.epoch = base, cfg.withDefaults(), rand.Float64, time.Now()
	switch t.tolerated = cfg.Retry.MaxServerWait; {
	case t.tolerated == 0:
		t.tolerated = defaults.MaxServerWait
	case t.tolerated < 0:
		t.tolerated = limits.Never
	}
	t.mostPause = cfg.mostPause()
	keys := t.cfg.Keys
	if keys.MaxKeys == 0 && keys.EvictAt == 0 {
		keys.EvictAt = defaultEvictAt
	}
	if keys.MaxKeys == 0 {
		t.most = 10 * int64(keys.EvictAt)
	}
	keys.Forget, keys.Evict = t.forget, t.evict
	gates, err := sluice.NewKeyed(t.newGate, keys)
	t.gates = gates
	return err
}

// newGate makes the gate of k and its state.
func (t *Transport) newGate(k key) (*sluice.Gate, error) {
	name := k.String()
	var gate *sluice.Gate
	var shown *published
	var err error
	var more []sluice.Limit
	if t.cfg.NewGate == nil && t.cfg.Cost != nil && !t.cfg.Published.Disabled && k.route != askName {
		shown = &published{most: t.mostPause, tolerated: t.tolerated, use: t.cfg.Published}
		more = []sluice.Limit{{Name: "of the server", Limiter: shown, Unit: sluice.Calls}}
	}
	switch {
	case k.route != "":
		gate, err = t.newPart(k, name, more)
	case t.cfg.NewGate != nil:
		gate, err = t.cfg.NewGate(name)
	default:
		cfg := t.cfg.Gate
		cfg.Name = name
		cfg.Limits = append(slices.Clip(cfg.Limits), more...)
		gate, err = sluice.New(cfg)
	}
	switch {
	case err != nil:
		return nil, err
	case gate == nil:
		return nil, fmt.Errorf("sluicehttp: no gate was made for %s", name)
	}
	t.states.Store(gate, newState(t, k, gate, shown))
	t.count.Add(1)
	if t.closed.Load() { // Close may not have seen it
		gate.Close()
	}
	return gate, nil
}

// forget implements KeyedConfig.Forget.
func (t *Transport) forget(gate *sluice.Gate) bool {
	may := func(st *state) bool { return st.dispensable(time.Now()) }
	return t.drop(gate, may, t.cfg.Keys.Forget)
}

// evict implements KeyedConfig.Evict. It keeps a gate whose configured rate would delay a
// call, unless there is no configured MaxKeys and there are too many gates.
func (t *Transport) evict(gate *sluice.Gate, owes bool) bool {
	may := func(st *state) bool {
		return !owes || st.slowed() || t.most > 0 && t.count.Load() >= t.most
	}
	return t.drop(gate, may, func(gate *sluice.Gate) bool {
		switch {
		case t.cfg.Keys.Evict != nil:
			return t.cfg.Keys.Evict(gate, owes)
		case t.cfg.Keys.Forget != nil:
			return t.cfg.Keys.Forget(gate)
		}
		return true
	})
}

// drop drops the state of a gate and reports true if may returns true, no request uses the
// gate, and agreed, if set, returns true.
func (t *Transport) drop(gate *sluice.Gate, may func(*state) bool, agreed func(*sluice.Gate) bool) bool {
	st := t.stateOf(gate)
	if t.recent.CompareAndSwap(st, nil) {
		return false // it may be in constant use; the next call will show
	}
	if !may(st) || !st.retire() {
		return false
	}
	if agreed != nil && !agreed(gate) {
		st.revive()
		return false
	}
	t.states.Delete(gate)
	t.count.Add(-1)
	st.gone.Store(true)
	return true
}

func (t *Transport) stateOf(gate *sluice.Gate) *state {
	st, _ := t.states.Load(gate)
	return st.(*state)
}

// pinned returns the state of k, to be unpinned, if that was used last, or nil.
func (t *Transport) pinned(k key) *state {
	if st := t.recent.Load(); st != nil && st.key == k && st.pin() {
		return st
	}
	return nil
}

// use calls f with the state of k, whose gate is not evicted meanwhile.
func (t *Transport) use(k key, f func(*state) error) error {
	return t.gates.Use(k, func(gate *sluice.Gate) error {
		st := t.stateOf(gate)
		t.recent.Store(st)
		return f(st)
	})
}

// CloseIdleConnections closes the idle connections of the base transport, if it supports that.
func (t *Transport) CloseIdleConnections() {
	t.init()
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Close closes all gates, including those made by NewGate: requests that wait or come later fail
// with [limits.ErrClosed]. Requests in flight go on. A Transport need not be closed.
func (t *Transport) Close() {
	t.closed.Store(true)
	for gate := range t.states.Range {
		gate.(*sluice.Gate).Close()
	}
}

// Shutdown closes the transport and waits until nothing is in flight and all bodies are read
// or closed. If ctx is done first, it returns ctx.Err().
func (t *Transport) Shutdown(ctx context.Context) error {
	t.Close()
	for gate := range t.states.Range {
		if err := gate.(*sluice.Gate).Shutdown(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stats is the state of one key.
type Stats struct {
	// Stats is that of the gate. InFlight includes responses that are being read.
	sluice.Stats

	// Limits are those of the last response that had any, and SeenAt is when it
	// arrived; zero if none had.
	Limits []ratelimit.Limit
	SeenAt time.Time

	// Published reports that the rate or the concurrency that applies is not the configured one but
	// follows published limits, see Published.Spread.
	Published bool

	// Held is how many permits are held by responses that are neither read to the end nor closed,
	// HeldLong how many of them for Config.LeakThreshold or longer, and HeldLongest the longest time.
	Held, HeldLong int
	HeldLongest    time.Duration

	// Warnings is how many header fields were ignored or looked wrong. Warning is
	// the last of them.
	Warnings uint64
	Warning  ratelimit.Warning
}

// Gates yields the Stats of all gates, for the exporters of package observe.
func (t *Transport) Gates() iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		for gate := range t.states.Range {
			if !yield(gate.(*sluice.Gate).Stats()) {
				return
			}
		}
	}
}

// Limits yields the key of each gate whose server publishes limits, and those limits as of the last
// response that had any.
func (t *Transport) Limits() iter.Seq2[string, []ratelimit.Limit] {
	return func(yield func(string, []ratelimit.Limit) bool) {
		for _, st := range t.states.Range {
			st := st.(*state)
			if said := st.said(); len(said) > 0 && !yield(st.key.String(), said) {
				return
			}
		}
	}
}

// Stats calls f with each key and its Stats, in no particular order, until f returns false.
// f may use t.
func (t *Transport) Stats(f func(key string, s Stats) bool) {
	t.states.Range(func(gate, st any) bool {
		s := st.(*state).stats(time.Now())
		s.Stats = gate.(*sluice.Gate).Stats()
		return f(st.(*state).key.String(), s)
	})
}

// Claimants calls f with each key, each claimant of it, and the Stats of the claimant's gate, in no
// particular order, until f returns false. f may use t.
func (t *Transport) Claimants(f func(key string, who sluice.Claimant, s sluice.Stats) bool) {
	for gate, st := range t.states.Range {
		more := true
		gate.(*sluice.Gate).Claimants(func(who sluice.Claimant, s sluice.Stats) bool {
			more = f(st.(*state).key.String(), who, s)
			return more
		})
		if !more {
			return
		}
	}
}
