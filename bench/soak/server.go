package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A server throttles beyond a rate, and of its other answers a few are bad, late or cut.
type server struct {
	limit    bucket
	mu       sync.Mutex
	dice     *rand.Rand
	requests atomic.Int64
	inFlight atomic.Int64
	most     atomic.Int64
	http     *http.Server
	listener net.Listener
	ended    chan struct{}
}

// serve starts a server on l.
func serve(s *soak, l net.Listener, rate float64, seed uint64) *server {
	v := &server{limit: bucket{rate: rate, at: time.Now()}, dice: s.dice(seed), listener: l, ended: make(chan struct{})}
	v.http = &http.Server{Handler: v, ErrorLog: nil}
	go func() {
		defer close(v.ended)
		_ = v.http.Serve(l) // until it is closed
	}()
	return v
}

func (v *server) close() {
	_ = v.http.Close()
	<-v.ended
}

func (v *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.requests.Add(1)
	now := v.inFlight.Add(1)
	for most := v.most.Load(); now > most && !v.most.CompareAndSwap(most, now); most = v.most.Load() {
	}
	gone := sync.OnceFunc(func() { v.inFlight.Add(-1) })
	defer gone()
	if _, ok := v.limit.take(); !ok {
		gone()
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	}
	v.mu.Lock()
	dice := v.dice.IntN(100)
	v.mu.Unlock()
	const body = "a body that is long enough to be cut in the middle"
	switch {
	case dice < 3:
		gone()
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case dice < 4:
		gone()
		panic(http.ErrAbortHandler) // before the response
	case dice < 5:
		w.Header().Set("Content-Length", strconv.Itoa(2*len(body)))
		_, _ = io.WriteString(w, body)
		gone()
		panic(http.ErrAbortHandler) // within it
	case dice < 7:
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
		fallthrough
	default:
		gone()
		_, _ = io.WriteString(w, body)
	}
}

// A pipes is a listener in memory, for a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- a:
		return b, nil
	case <-p.closed:
		return nil, errors.New("closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// A watch sees the requests that a transport sends: how many are in flight until their bodies are
// closed, and when a server has asked to wait.
type watch struct {
	base     http.RoundTripper
	tally    *tally
	most     int64
	slack    time.Duration
	inFlight atomic.Int64
	mu       sync.Mutex
	from, to time.Time
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.tally.started()
	if now := w.inFlight.Add(1); now > w.most {
		w.tally.breaks("%d requests in flight", now)
	}
	now := time.Now()
	w.mu.Lock()
	if now.After(w.from.Add(w.slack)) && now.Before(w.to.Add(-10*time.Millisecond)) {
		w.tally.breaks("a request during a pause")
	}
	w.mu.Unlock()
	resp, err := w.base.RoundTrip(r)
	if err != nil {
		w.inFlight.Add(-1)
		return nil, err
	}
	if after, _ := strconv.Atoi(resp.Header.Get("Retry-After")); after > 0 {
		w.mu.Lock()
		now := time.Now()
		if w.from = now; now.Add(time.Duration(after) * time.Second).After(w.to) {
			w.to = now.Add(time.Duration(after) * time.Second)
		}
		w.mu.Unlock()
	}
	resp.Body = &watched{resp.Body, sync.OnceFunc(func() { w.inFlight.Add(-1) })}
	return resp, nil
}

type watched struct {
	io.ReadCloser
	over func()
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over()
	}
	return n, err
}

func (b *watched) Close() error {
	b.over()
	return b.ReadCloser.Close()
}

// get makes one request and reads its body.
func get(ctx context.Context, c *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return errors.New(resp.Status)
	case !strings.HasPrefix(string(body), "a body"):
		return errors.New("another body")
	}
	return nil
}
