package main

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

// banned is the wait that the API requests from callers when it throttles.
const banned = time.Second

// api is the HTTP API that the workers call, POST /items/{id}: it allows a rate, works
// 20 to 40 ms on an item, and does the work for an idempotency key once. A repeated call
// gets the answer of the first one.
type api struct {
	*sluicetest.Server
	made time.Time // which its record counts from
	url  string
	http *http.Server

	mu        sync.Mutex
	began     map[string]chan struct{} // by idempotency key; closed when the work is done
	processed []int                    // how often, by item
	items     int                      // that were processed
	replayed  int                      // calls that repeated one
	throttle  bool                     // the next call
}

// newAPI returns an API that listens on loopback. It tolerates concurrent calls of a quarter of a
// second.
func newAPI(n int, rate limits.Rate) (*api, error) {
	a := &api{began: make(map[string]chan struct{}), processed: make([]int, n)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}", a.item)
	a.Server = sluicetest.NewServer(
		sluicetest.When(a.throttled, sluicetest.Status(http.StatusTooManyRequests, "Retry-After: "+strconv.Itoa(int(banned/time.Second)))),
		sluicetest.Enforce(sluicetest.Limit{Name: "rate", Count: rate.Count, Per: rate.Per, Burst: slots(rate, time.Second/4), HeaderStyle: sluicetest.RetryAfter}),
		sluicetest.Handler(mux),
	)
	a.made = time.Now()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.url = "http://" + listener.Addr().String()
	a.http = &http.Server{Handler: a.Server}
	go func() { _ = a.http.Serve(listener) }() // until close
	return a, nil
}

// close ends the API with all calls.
func (a *api) close() {
	_ = a.http.Close()
	a.Server.Close()
}

// item serves a call.
func (a *api) item(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 0 || id >= len(a.processed) {
		http.NotFound(w, r)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	done, first := a.begin(key)
	if !first {
		<-done
		w.Header().Set("Idempotent-Replayed", "true")
		return
	}
	// What has begun is done, even if the caller has been killed.
	time.Sleep(20*time.Millisecond + time.Duration(id*7919%20_001)*time.Microsecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.processed[id]++; a.processed[id] == 1 {
		a.items++
	}
	close(done)
}

// begin reports whether a call is the first with its key, and what ends with the work.
func (a *api) begin(key string) (done chan struct{}, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if done, ok := a.began[key]; ok && key != "" {
		a.replayed++
		return done, false
	}
	done = make(chan struct{})
	a.began[key] = done
	return done, true
}

// now returns the number of items processed so far.
func (a *api) now() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.items
}

// throttleOne answers the next call with 429, and no other: only the caller that gets it
// knows that all should wait.
func (a *api) throttleOne() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.throttle = true
}

// throttled reports whether a call is the one.
func (a *api) throttled(int, *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.throttle
	a.throttle = false
	return one
}
