package main

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// What the handlers of words are made of.

// tokens is a token bucket. It is full at first.
type tokens struct {
	mu    sync.Mutex
	rate  float64 // per second
	size  float64
	level float64
	last  time.Time
}

func newTokens(rate, size float64) *tokens {
	return &tokens{rate: rate, size: size, level: size, last: time.Now()}
}

// take takes n tokens if there are as many. It returns how many there are then.
func (b *tokens) take(n float64) (left float64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.level = min(b.size, b.level+b.rate*now.Sub(b.last).Seconds())
	b.last = now
	// A call that comes exactly in time must not fail by rounding.
	if b.level < n-1e-6 {
		return b.level, false
	}
	b.level -= n
	return b.level, true
}

// full returns when the bucket is full again if nothing is taken from it, to the millisecond.
func (b *tokens) full() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last.Add(seconds((b.size - b.level) / b.rate)).Round(time.Millisecond)
}

// A queue serves so many at the same time and lets so many wait.
type queue struct {
	serving chan struct{}
	places  chan struct{} // of those that are served and those that wait
	longest time.Duration // a wait; 0: for ever
}

func newQueue(serving, waiting int, longest time.Duration) *queue {
	return &queue{make(chan struct{}, serving), make(chan struct{}, serving+waiting), longest}
}

// enter returns whether the caller is served. It must then call start.
func (q *queue) enter(ctx context.Context) bool {
	select {
	case q.places <- struct{}{}:
	default:
		return false
	}
	var over <-chan time.Time
	if q.longest > 0 {
		t := time.NewTimer(q.longest)
		defer t.Stop()
		over = t.C
	}
	select {
	case q.serving <- struct{}{}:
		return true
	case <-over:
	case <-ctx.Done():
	}
	<-q.places
	return false
}

func (q *queue) leave() {
	<-q.serving
	<-q.places
}

// say writes an answer with these header fields: name, value, name, value …
func say(w http.ResponseWriter, status int, body string, fields ...string) {
	for i := 0; i < len(fields); i += 2 {
		w.Header().Set(fields[i], fields[i+1])
	}
	w.WriteHeader(status)
	w.Write([]byte(body))
}
