package sluicehttp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A Transport is an [http.RoundTripper] that sends requests through gates, retries
// accidental failures, and follows Retry-After and rate-limit headers, within the bounds
// of its [Config]. It is safe for use by multiple goroutines, starts none that outlives a
// request and its body, and must be made by [New]. Made in a testing/synctest
// bubble, it belongs to that bubble.
type Transport struct {
	base      http.RoundTripper
	cfg       Config
	gates     *sluice.Keyed[key]
	tolerated time.Duration  // RetryPolicy.MaxServerWait
	mostPause time.Duration  // Config.MaxPause
	random    func() float64 // in [0, 1), for jitter
	epoch     time.Time

	states sync.Map              // *sluice.Gate to *state
	count  atomic.Int64          // of them
	most   int64                 // from which on no gate is kept for what it owes; 0: all are
	recent atomic.Pointer[state] // the one used last: most programs have one host
	global global
	closed atomic.Bool
}

// New returns a transport that sends requests by base, or by
// [http.DefaultTransport] if that is nil. It returns an error if cfg has one: a
// Gate that [sluice.New] would not make, or Keys that [sluice.NewKeyed] would not
// take; both Gate and NewGate; a negative LongHeld; a Spread that is not from 0 to
// 1; a status of AlsoRetry that is not from 400 to 599, or 501; Headers whose
// Check fails.
func New(base http.RoundTripper, cfg Config) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sluicehttp: %w", err)
	}
	t := &Transport{base: base, cfg: cfg.withDefaults(), random: rand.Float64, epoch: time.Now()}
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
	if err != nil {
		return nil, err
	}
	t.gates = gates
	return t, nil
}

// newGate makes the gate of k, and the state beside it.
func (t *Transport) newGate(k key) (*sluice.Gate, error) {
	name := k.String()
	var gate *sluice.Gate
	var err error
	if t.cfg.NewGate != nil {
		gate, err = t.cfg.NewGate(name)
	} else {
		cfg := t.cfg.Gate
		cfg.Name = name
		gate, err = sluice.New(cfg)
	}
	switch {
	case err != nil:
		return nil, err
	case gate == nil:
		return nil, fmt.Errorf("sluicehttp: no gate was made for %s", name)
	}
	t.states.Store(gate, newState(t, k, gate))
	t.count.Add(1)
	if t.closed.Load() { // Close may not have seen it
		gate.Close()
	}
	return gate, nil
}

// forget is asked before a gate is forgotten that a new one could replace.
func (t *Transport) forget(gate *sluice.Gate) bool {
	may := func(st *state) bool { return st.dispensable(time.Now()) }
	return t.drop(gate, may, t.cfg.Keys.Forget)
}

// evict is asked before a gate is dropped to make room for another. It keeps what
// owes the configured rate something: that is our promise, and no server's doing. But
// without a MaxKeys of the user not even that may fill the memory.
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

// drop lets go of a gate and reports true, if it may, no request uses it, and
// agreed, if set, returns true.
func (t *Transport) drop(gate *sluice.Gate, may func(*state) bool, agreed func(*sluice.Gate) bool) bool {
	st := t.stateOf(gate)
	if t.recent.CompareAndSwap(st, nil) {
		return false // it may be in use all the time; next time we know
	}
	if !may(st) || !st.retire() {
		return false
	}
	if agreed != nil && !agreed(gate) {
		st.gone.Store(false)
		return false
	}
	t.states.Delete(gate)
	t.count.Add(-1)
	return true
}

func (t *Transport) stateOf(gate *sluice.Gate) *state {
	st, _ := t.states.Load(gate)
	return st.(*state)
}

// use calls f with the state of the gate of k, which is not forgotten meanwhile.
//
// The simplest way is to ask gates each time. But most programs call one host
// over and over, and that took a lock and a map twice, an eighth of what a
// transport costs. So the state used last is asked first, and gates now and then
// all the same, for it forgets others when it is asked.
func (t *Transport) use(k key, f func(*state) error) error {
	if st := t.recent.Load(); st != nil && st.key == k && st.enter() {
		defer st.users.Add(-1)
		return f(st)
	}
	return t.gates.Use(k, func(gate *sluice.Gate) error {
		st := t.stateOf(gate)
		t.recent.Store(st)
		return f(st)
	})
}

// RoundTrip implements [http.RoundTripper]. It blocks until the gate of the
// request lets it leave and an answer is there that is worth having, or nothing
// better is to be had: an answer is returned with a nil error, whatever its
// status. Why there was no other attempt says the [Report].
//
// Without an answer the error is that of the base transport, if one attempt was
// all there could be; the error of ctx; a [*sluice.RetryError] that tells the last
// error and why there was no other attempt; or that of the gate, if it let nothing
// through. A wait that cannot end before the deadline of the context, which
// http.Client.Timeout sets, is refused at once: the error is a
// [*sluice.WaitError], and matches [context.DeadlineExceeded].
//
// Request.Cancel is deprecated but obeyed: closing it ends the call at once, in the
// queue, in a backoff or in an attempt, with the error of net/http.
//
// The permit of the request is released when the body of the response has been
// read to its end or has failed, or is closed. RoundTrip never changes req, and
// always closes its body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{t: t, req: req, ctx: req.Context()}
	if err := c.begin(); err != nil {
		if req.Body != nil {
			req.Body.Close() // nobody is left to tell
		}
		return nil, err
	}
	defer c.unwatch()
	var err error
	if c.body, err = newReplay(c.ctx, req, !c.o.NoRetry); err != nil {
		if err == c.ctx.Err() {
			err = c.ended()
		}
		c.stop(err, time.Time{})
		return nil, err
	}
	defer c.body.end()
	entered := false
	err = t.use(c.key, func(st *state) (err error) {
		entered = true
		c.resp, err = c.run(st)
		return err
	})
	if !entered { // there is no gate
		c.stop(err, time.Time{})
	}
	return c.resp, err
}

// begin reads what c must know before it can choose a gate.
func (c *call) begin() (err error) {
	switch {
	case c.req.URL == nil:
		return errors.New("sluicehttp: the request has no URL")
	case c.req.Header == nil:
		return errors.New("sluicehttp: the request has no header")
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if _, bounded := c.ctx.Deadline(); bounded {
		c.began = time.Now()
	}
	c.o = overridesOf(c.ctx)
	if c.weight, err = c.o.weight(); err != nil {
		return err
	}
	c.key, c.safe = c.t.keyOf(c.req, c.o), c.idempotent()
	c.page = newPage(c.ctx, c.key)
	if cancelOf(c.req) != nil {
		c.canceling = watchCancel(c.ctx, c.req)
		c.ctx = c.canceling.ctx
		if c.canceling.notice() { // before: it takes nothing
			err = c.ended()
			c.unwatch()
		}
	}
	return err
}

// CloseIdleConnections closes the idle connections of the base transport, if that
// can. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Unwrap returns the base transport.
func (t *Transport) Unwrap() http.RoundTripper { return t.base }

// Close closes all gates: requests that wait, or come later, get
// [sluice.ErrClosed]. Those in flight are not disturbed. Closing twice is harmless.
// It need not be closed. A gate that NewGate made is closed, too.
func (t *Transport) Close() {
	t.closed.Store(true)
	for gate := range t.states.Range {
		gate.(*sluice.Gate).Close()
	}
}

// Shutdown closes the transport and blocks until nothing is in flight any more:
// all bodies are read or closed. If ctx is done before, it returns ctx.Err().
func (t *Transport) Shutdown(ctx context.Context) error {
	t.Close()
	for gate := range t.states.Range {
		if err := gate.(*sluice.Gate).Shutdown(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stats is what goes on at the gate of one key.
type Stats struct {
	// Stats is that of the gate. Its InFlight counts what is being read, too.
	sluice.Stats

	// Limits are those that the last answer told that told any, and SeenAt is
	// when that was; zero if none did.
	Limits []ratelimit.Limit
	SeenAt time.Time

	// FromPolicy reports that the rate or the concurrency in force is the
	// server's, Spread that the pace is slower than that so that what remains
	// lasts.
	FromPolicy, Spread bool

	// Held is how many permits are held by answers that nobody has read to
	// the end or closed, HeldLong those for Config.LongHeld or longer, and
	// HeldLongest is how long the oldest was. A program that leaks them forgets
	// to close bodies.
	Held, HeldLong int
	HeldLongest    time.Duration

	// Warnings is how many header fields could not be used, or looked wrong;
	// Warning is the last of them.
	Warnings uint64
	Warning  ratelimit.Warning
}

// Stats calls f with each key and the Stats of its gate, in no order, until f
// returns false. f may use t.
func (t *Transport) Stats(f func(key string, s Stats) bool) {
	t.states.Range(func(gate, st any) bool {
		s := st.(*state).learnt(time.Now())
		s.Stats = gate.(*sluice.Gate).Stats()
		return f(st.(*state).key.String(), s)
	})
}
