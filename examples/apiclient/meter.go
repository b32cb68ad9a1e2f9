package main

import (
	"context"
	"io"
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

// depart notes that an attempt for an item is sent now and returns the time, to be handed to answered.
func (m *meter) depart(id int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.called[id] = struct{}{}
	m.count.attempts++
	m.inFlight++
	m.count.maxInFlight = max(m.count.maxInFlight, m.inFlight)
	return time.Since(m.epoch)
}

// answered notes the status of an attempt, 0 for none. Only a response other
// than 429 shows that the server accepted the call, so only then does its
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

type itemKey struct{}

// withItem returns a context for the requests of an item.
func withItem(ctx context.Context, id int) context.Context {
	return context.WithValue(ctx, itemKey{}, id)
}

// metered is a transport that has a meter count what really leaves: it stands
// below the gate and sees every attempt.
type metered struct {
	base  http.RoundTripper
	meter *meter
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err // a request that will not leave is not counted
	}
	id, _ := req.Context().Value(itemKey{}).(int)
	departed := t.meter.depart(id)
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		t.meter.answered(departed, 0)
		return nil, err
	}
	status := resp.StatusCode
	resp.Body = &meteredBody{ReadCloser: resp.Body, over: sync.OnceFunc(func() { t.meter.answered(departed, status) })}
	return resp, nil
}

// CloseIdleConnections is what http.Client looks for.
func (t metered) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// meteredBody records when a response was read to its end or closed: until then
// its call is in flight.
type meteredBody struct {
	io.ReadCloser
	over func()
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over()
	}
	return n, err
}

func (b *meteredBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
