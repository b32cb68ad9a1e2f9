package main

import (
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice/examples/internal/arrivals"
)

// meter counts the calls of one pool at the moment they depart. The built-in
// server has better figures, its own; of any other server these are all there
// is.
type meter struct {
	epoch time.Time

	mu       sync.Mutex
	called   map[int]struct{} // items that at least one attempt was made for
	count    departures
	inFlight int64
	series   arrivals.Series
}

// departures is what a meter has counted.
type departures struct {
	calls       int64 // items called for
	attempts    int64 // requests sent
	throttled   int64 // of them, answered 429
	maxInFlight int64
	spacing     arrivals.Summary // of those answered, but not 429
}

func newMeter() *meter {
	return &meter{epoch: time.Now(), called: make(map[int]struct{})}
}

// depart notes that an attempt for an item is sent now and returns the
// instant, to be handed to answered.
func (m *meter) depart(id int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.called[id] = struct{}{}
	m.count.attempts++
	m.inFlight++
	m.count.maxInFlight = max(m.count.maxInFlight, m.inFlight)
	return time.Since(m.epoch)
}

// answered notes the status of an attempt, 0 for none. Only an answer other
// than 429 tells that the server accepted the call, so only then does its
// departure count for the rate.
func (m *meter) answered(departed time.Duration, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	switch status {
	case 0:
	case http.StatusTooManyRequests:
		m.count.throttled++
	default:
		m.series.Add(departed)
	}
}

// now returns the calls in flight and the counts so far, without the spacing.
func (m *meter) now() (inFlight int64, sofar departures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sofar = m.count
	sofar.calls = int64(len(m.called))
	return m.inFlight, sofar
}

// total returns the counts with the spacing.
func (m *meter) total() departures {
	_, d := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	d.spacing = m.series.Summary()
	return d
}
