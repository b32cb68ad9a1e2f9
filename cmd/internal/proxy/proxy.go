package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/sluicehttp"
)

// maxCalls is the largest number of calls under way, most of them waiting.
const maxCalls = 20_000

// A proxy passes calls on to the upstreams of its routes, when those allow it.
//
//	guard ──► route ──► body ──► turn of the tenant ──► gate ──► upstream
//	                             └──── wait: at most patience ────┘
type proxy struct {
	set      atomic.Pointer[setup]
	tenants  *tenants
	memory   *memory
	page     *live.Handler
	counts   counts
	turns    turns
	room     *semaphore.Weighted // for bodies
	reverse  httputil.ReverseProxy
	calls    atomic.Int64
	draining atomic.Bool
	handlers sync.WaitGroup
}

// A setup is replaced by a reload.
type setup struct {
	o     *options
	guard *guard
	table *table
}

func newProxy(o *options) (*proxy, error) {
	m, err := newMemory(o.state, o.log)
	if err != nil {
		return nil, err
	}
	t, err := newTable(o.routes, o, m, nil)
	if err != nil {
		return nil, err
	}
	p := &proxy{memory: m, tenants: newTenants(), room: semaphore.NewWeighted(maxKept)}
	if err := p.tenants.readKey(o.state); err != nil {
		return nil, err
	}
	p.set.Store(&setup{o: o, guard: newGuard(o.hosts, o.token), table: t})
	p.page = live.New(p.shown)
	p.page.Title = "sluice proxy"
	p.reverse = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      p,
		ModifyResponse: p.respond,
		ErrorHandler:   p.fail,
		ErrorLog:       log.New(io.Discard, "", 0), // it has URLs with their queries
		BufferPool:     &buffers,
	}
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.handlers.Add(1)
	defer p.handlers.Done()
	sw := newSlowWriter(w, r)
	if r.Body != nil && r.Body != http.NoBody {
		// The server reads the rest of a body, or some of it, to use the connection again.
		defer func() {
			if !sw.stalled.Load() {
				_ = sw.control.SetReadDeadline(time.Now().Add(slowest))
			}
		}()
	}
	if refused := p.serve(sw, r); refused != nil {
		refused.write(sw)
	}
}

// serve answers r, or returns why it does not.
func (p *proxy) serve(w *slowWriter, r *http.Request) *problem {
	set := p.set.Load()
	if refused := set.guard.check(r); refused != nil {
		return refused
	}
	if isOwn(r) {
		return p.serveOwn(w, r)
	}
	route, rest, job := set.table.find(r)
	switch {
	case route == nil:
		return &problem{status: http.StatusNotFound, title: "No such route", detail: "The path must begin with the host of a known API, such as /api.openai.com/, or with the NAME of a route; before it there may be the name of a job, such as /~nightly. For another API start the proxy with -route /NAME=URL. The page /live has the gates.", proxy: "destination_not_found"}
	case climbs(rest):
		return &problem{status: http.StatusBadRequest, title: "The path has . or .. in it", proxy: "http_request_error"}
	}
	patience, err := set.o.patienceOf(r)
	if err != nil {
		return &problem{status: http.StatusBadRequest, title: err.Error(), proxy: "http_request_error"}
	}
	defer p.calls.Add(-1)
	if p.calls.Add(1) > maxCalls {
		return &problem{status: http.StatusServiceUnavailable, title: "Too many calls are under way", proxy: "connection_limit_reached", after: time.Second}
	}
	c := newCall(r, patience)
	defer c.finish()
	c.route, c.rest, c.who = route, rest, set.o.shares.claimant(p.tenants, r, route, job)
	if err := c.body.read(c, w, r, p.room); err != nil {
		p.fail(w, r.WithContext(c), err)
		return nil
	}
	r = r.WithContext(c)
	if err := p.takeTurn(c, r); err != nil {
		p.fail(w, r, err)
		return nil
	}
	p.reverse.ServeHTTP(w, r)
	return nil
}

// refusal is problemOf, for handlers.
func (c *call) refusal(err error) *problem {
	refused := problemOf(c, err)
	if refused == nil {
		panic(http.ErrAbortHandler) // the caller has hung up
	}
	return refused
}

// respond is a ModifyResponse.
func (p *proxy) respond(resp *http.Response) error {
	c := callOf(resp.Request.Context())
	c.say(resp.Header)
	p.counts.response(c, "upstream", resp.StatusCode)
	return nil
}

// fail is an ErrorHandler.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	refused := c.refusal(err)
	c.say(w.Header())
	p.counts.response(c, "proxy", refused.status)
	refused.write(w)
}

// patienceOf returns for how long r may wait.
func (o *options) patienceOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(headerPatience)
	if text == "" {
		return o.patience, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	if d, err := time.ParseDuration(text + "s"); err == nil && d >= 0 {
		return d, nil
	}
	return 0, errors.New("the field " + headerPatience + " is not a time, such as 30s")
}

// rewrite makes the request to the upstream out of the request of the caller.
func rewrite(r *httputil.ProxyRequest) {
	c, out := callOf(r.In.Context()), r.Out
	if err := c.route.rewrite(out.URL, c.rest); err != nil {
		out.URL.Host = "" // the server has parsed it: this cannot happen, and would fail
	}
	out.URL.RawQuery = r.In.URL.RawQuery // ReverseProxy drops parameters that it cannot parse
	out.Host = c.route.target.Host
	for name := range out.Header {
		if strings.HasPrefix(name, ours) {
			delete(out.Header, name)
		}
	}
	c.body.attach(out)
	if c.body.held > 0 {
		out.Header.Del("Expect") // the body is here
	}
	// net/http then requests gzip, and unpacks it: a preset reads the usage in the response. It does
	// not for a range of a body.
	if accepts := out.Header.Get("Accept-Encoding"); strings.Contains(accepts, "gzip") && out.Header.Get("Range") == "" {
		out.Header.Del("Accept-Encoding")
	}
}

// takeTurn waits for the turn of c, whose request is r, unless it is known that it would wait too
// long. It waits here and not behind the ReverseProxy, which would hold a copy of the header and a
// deeper stack meanwhile.
func (p *proxy) takeTurn(c *call, r *http.Request) (err error) {
	if c.key, err = c.gateKey(r); err != nil {
		return err
	}
	c.wait()
	at := turnKey{c.key, c.who}
	if ahead, busy := p.turns.ahead(at); busy {
		c.heldBy(byTurn)
		if wait := c.route.upstream.forecast(c.key, ahead); wait.Need > c.patience() {
			return wait
		}
	}
	c.turn, err = p.turns.take(c, at)
	return err
}

// gateKey returns the key of the gate that c must pass.
func (c *call) gateKey(r *http.Request) (string, error) {
	up := c.route.upstream
	if up.key == nil {
		return up.name, nil
	}
	probe := &http.Request{Method: r.Method, URL: new(url.URL), Header: r.Header, ContentLength: r.ContentLength, Host: c.route.target.Host}
	if err := c.route.rewrite(probe.URL, c.rest); err != nil {
		return "", err
	}
	probe.URL.RawQuery = r.URL.RawQuery
	c.body.attach(probe)
	return up.key(probe), nil
}

// RoundTrip implements http.RoundTripper: it sends a call, which has its turn, when its gate lets
// it.
func (p *proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	defer c.answer()
	up := c.route.upstream
	if up.key != nil {
		req = req.WithContext(sluicehttp.WithOverrides(req.Context(), sluicehttp.Overrides{Key: c.key}))
	}
	return up.transport.RoundTrip(req)
}

// byTurn is the cause of a wait for the turn of the tenant.
const byTurn limits.Cause = "calls of the same tenant ahead"

// leaveTurn gives the turn of c back, if it has it.
func (c *call) leaveTurn() {
	if c.turn != nil {
		c.turn.give()
		c.turn = nil
	}
}

// patience returns for how long c may still wait.
func (c *call) patience() time.Duration {
	at, ok := c.Deadline()
	if !ok {
		return limits.Never
	}
	return time.Until(at)
}

// buffers are those that responses are copied with.
var buffers bufferPool

type bufferPool struct{ sync.Pool }

const bufferSize = 32 << 10

func (b *bufferPool) Get() []byte {
	if p, ok := b.Pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *bufferPool) Put(p []byte) {
	if len(p) == bufferSize {
		b.Pool.Put((*[bufferSize]byte)(p))
	}
}

// drain ends the proxy: calls go on until ctx is done, then those that wait are refused and the
// rest is cut.
func (p *proxy) drain(ctx context.Context, server *http.Server, cut context.CancelFunc) error {
	p.draining.Store(true)
	err := server.Shutdown(ctx)
	done := make(chan struct{})
	go func() {
		p.handlers.Wait() // upgraded connections are not known to the server
		close(done)
	}()
	defer p.closeUpstreams() // the other proxies have their part then
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	p.closeUpstreams()
	select {
	case <-done:
	case <-time.After(refuseWithin):
	}
	cut()
	err = errors.Join(err, server.Close())
	<-done
	return err
}

// closeUpstreams ends all waits.
func (p *proxy) closeUpstreams() {
	for _, u := range p.set.Load().table.upstreams {
		u.close()
	}
}

// refuseWithin is the time for telling waiting calls that the proxy ends.
const refuseWithin = time.Second
