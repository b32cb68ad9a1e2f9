// Package apiserver is a rate-limited HTTP API on loopback for the examples to
// call. It enforces what third-party APIs enforce: so many calls in flight, so
// many calls per period with a small bucket for calls that come together, and 429
// with Retry-After beyond either. Some of its responses are a 503.
//
// It also keeps the books. What a client sent too early or too often is
// judged here, by the receiving end, and read with [Server.Report].
package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// Config says what a Server offers and what it enforces.
type Config struct {
	// Items is the number of items: GET /items/0 to GET /items/{Items-1}.
	Items int
	// Count calls per Per are let in, evenly, on average.
	Count int64
	Per   time.Duration
	// Bucket is the number of calls that may come together after a pause. 0 stands for 5.
	Bucket int64
	// Concurrency is the maximum number of calls in flight.
	Concurrency int64
	// NoFaults leaves out the 503s. Otherwise about 1 % of the items fail at
	// their first call, always the same ones, none of them in the last tenth.
	NoFaults bool
	// Family, if set, writes into every response the number of remaining calls.
	Family sluicetest.HeaderStyle
}

// Server is the API: an http.Handler that can listen on its own.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	epoch  time.Time
	ledger atomic.Pointer[ledger]

	http   *http.Server
	url    string
	served chan struct{}
}

// New returns a server that does not listen yet. An error is about cfg.
func New(cfg Config) (*Server, error) {
	if cfg.Bucket == 0 {
		cfg.Bucket = 5
	}
	if cfg.Items <= 0 {
		return nil, fmt.Errorf("apiserver: %d items: must be above 0", cfg.Items)
	}
	if cfg.Concurrency <= 0 {
		return nil, fmt.Errorf("apiserver: a concurrency of %d: must be above 0", cfg.Concurrency)
	}
	if _, err := newBucket(cfg.Count, cfg.Per, cfg.Bucket); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), epoch: time.Now()}
	s.mux.HandleFunc("GET /items/{id}", s.item)
	s.Reset()
	return s, nil
}

// Listen begins to serve on a free port of 127.0.0.1, until Close. It is called
// once at most.
func (s *Server) Listen() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	s.url = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // returns when Close closes the listener
	}()
	return nil
}

// URL is where the server listens, without a slash at the end; "" before Listen.
func (s *Server) URL() string { return s.url }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close stops listening and drops the connections. Calls in flight are given
// up. It does nothing without a Listen, and nothing more the second time.
func (s *Server) Close() error {
	if s.http == nil {
		return nil
	}
	err := s.http.Close()
	<-s.served
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("apiserver: %w", err)
	}
	return nil
}

// Reset begins new books: a full bucket, nothing in flight, no item failed
// yet. Calls still in flight are finished in the old ones.
func (s *Server) Reset() { s.ledger.Store(newLedger(s.cfg)) }

// Report returns what has happened since New or the last Reset.
func (s *Server) Report() Report { return s.ledger.Load().report() }

// Now returns what can be said while calls arrive.
func (s *Server) Now() Moment { return s.ledger.Load().now() }

// Callers returns what was seen of each caller since New or the last Reset, by its
// User-Agent.
func (s *Server) Callers() map[string]Tally {
	l := s.ledger.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.callers)
}

// MostPerPeriod returns the most accepted calls that arrived in any period of the
// rate, wherever it begins, and how many the limit lets in.
func (s *Server) MostPerPeriod() (seen, allowed int64) {
	l := s.ledger.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.series.Most(s.cfg.Per), s.cfg.Count + s.cfg.Bucket
}

// item serves GET /items/{id}.
func (s *Server) item(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 0 || id >= s.cfg.Items {
		http.NotFound(w, r)
		return
	}
	books := s.ledger.Load()
	entry := books.arrive(s.clock, id, r.UserAgent())
	if s.cfg.Family != nil {
		s.cfg.Family(w.Header(), s.standing(entry))
	}
	switch entry.verdict {
	case tooFast:
		refuse(w, "rate limit exceeded", entry.wait)
		return
	case tooMany:
		refuse(w, "too many calls in flight", 0)
		return
	}

	work := time.NewTimer(latencyOf(id))
	defer work.Stop()
	select {
	case <-work.C:
	case <-r.Context().Done():
	}
	// The work is done, so the call is no longer in flight. Counted only after
	// the response is written, a client that calls again the moment it has read
	// that answer would now and then be seen as one too many.
	books.leave()

	if entry.fault {
		answer(w, http.StatusServiceUnavailable, problem{Error: "temporarily out of order"})
		return
	}
	answer(w, http.StatusOK, ItemOf(id))
}

// standing is how the caller stands with the rate after a call. The window is that
// in which a bucket of that size is filled.
func (s *Server) standing(e entry) sluicetest.LimitState {
	return sluicetest.LimitState{
		Name: "default", Limit: s.cfg.Bucket, Window: s.cfg.Per * time.Duration(s.cfg.Bucket) / time.Duration(s.cfg.Count),
		Remaining: e.left, Reset: e.full, Wait: e.next, Throttled: e.verdict != accepted, Now: time.Now(),
	}
}

// clock is the monotonic time since the server was made.
func (s *Server) clock() time.Duration { return time.Since(s.epoch) }

// problem is the body of every response that is not an item.
type problem struct {
	Error string `json:"error"`
}

// refuse answers 429. Retry-After is in whole seconds (RFC 9110), so the wait
// is rounded up: rounded down it would tell the client to come too early.
func refuse(w http.ResponseWriter, why string, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(retryAfter(wait), 10))
	answer(w, http.StatusTooManyRequests, problem{Error: why})
}

// retryAfter is the wait in whole seconds, rounded up, at least 1.
func retryAfter(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return max(seconds, 1)
}

// answer writes a JSON body. A failing write means that the client has gone, so its
// error is ignored.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
