package proxy

import (
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/sluicehttp"
)

// An upstream is a server that calls are sent to, with all that is known about its limits.
type upstream struct {
	transport *sluicehttp.Transport
	base      http.RoundTripper
	wanted    wanted
	key       func(*http.Request) string
	name      string // the key of its gate without a function
}

// A wanted is how an upstream was configured.
type wanted struct {
	target  *url.URL // a request of which to make; of several routes to one server, any
	open    bool     // it may be private, because a -route leads to it
	timeout time.Duration
	limit   limit
}

// longestServerWait is the longest wait that a server may request, whatever the patience of the
// caller.
const longestServerWait = 2 * time.Hour

// newUpstream makes an upstream.
func newUpstream(want wanted, o *options, m *memory) (*upstream, error) {
	at := originOf(want.target)
	u := &upstream{wanted: want, name: at.scheme + "://" + at.host}
	var cfg sluicehttp.Config
	if make := makeOf(want.limit.preset); make != nil {
		cfg = make()
	}
	gate := sluice.Config{Rate: want.limit.rate, Concurrency: want.limit.concurrency}
	gate.Adaptive.Peers = o.shared
	u.key = cfg.Key
	cfg.Claimant = func(req *http.Request) sluice.Claimant { return callOf(req.Context()).who }
	cfg.Retry.Retryable = retryable
	cfg.Retry.MaxServerWait = max(cfg.Retry.MaxServerWait, longestServerWait)
	gate.Observer = noteCause
	if o.log != nil {
		gate.Observer = observe.Multi(noteCause, observe.NewLogger(o.log))
	}
	if cfg.Cost == nil {
		cfg.NewGate = func(name string) (*sluice.Gate, error) { return m.newGate(name, gate) }
		cfg.Keys.Forget = m.forget
	} else { // published limits hold only for gates that the transport makes
		cfg.Gate = gate
	}
	u.base = o.base
	if u.base == nil {
		u.base = newBase(want.target, want.open, want.timeout)
	}
	var err error
	u.transport, err = sluicehttp.New(departing{u.base}, cfg)
	return u, err
}

// close ends all waits at the upstream.
func (u *upstream) close() { u.transport.Close() }

// noteCause is an Observer: it notes the cause of a wait in the call.
func noteCause(e sluice.Event) {
	if e.Kind != sluice.EventQueued || e.Context == nil {
		return
	}
	if c := callOf(e.Context); c != nil {
		c.heldBy(e.LimitedBy)
	}
}
