package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// callTimeout ends a call that a server never answers; it is tried again.
	callTimeout = 30 * time.Second
	// maxBody keeps 64 wrong addresses from filling the memory.
	maxBody = 16 << 20
)

// client makes single attempts. It knows nothing of gates and retries: both
// pools use it, each with its own meter.
type client struct {
	http  *http.Client
	url   string
	meter *meter
}

// newClient returns a client for so many goroutines. The transport keeps as
// many idle connections as there may be calls: with the two of the default the
// naive pool would open a new one for nearly every call and run out of ports.
func newClient(url string, goroutines int, m *meter) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns = goroutines
	transport.MaxIdleConnsPerHost = goroutines
	return &client{
		url:   url,
		meter: m,
		http: &http.Client{
			Transport: transport,
			Timeout:   callTimeout,
			// A redirect that is followed is a second request the gate
			// knows nothing of. It is reported with its target instead.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// close drops the idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// get makes one attempt for an item and returns the body of a 2xx. Any other
// answer is a *statusError.
func (c *client) get(ctx context.Context, id int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // a request that will not leave is not counted
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, itemURL(c.url, id), nil)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	departed := c.meter.depart(id)
	resp, err := c.http.Do(req)
	if err != nil {
		c.meter.answered(departed, 0)
		return nil, err // names the address already
	}
	// The body is read to its end whatever the status is: only then can the
	// connection carry the next call.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	_ = resp.Body.Close() // the bytes are here, or err says why not
	c.meter.answered(departed, resp.StatusCode)

	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, newStatusError(resp, time.Now())
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case len(body) > maxBody:
		return nil, errTooLong
	}
	return body, nil
}

// errTooLong is the answer that is longer than maxBody.
var errTooLong = errors.New("the answer is longer than 16 MiB")

// statusError is an answer that is no item.
type statusError struct {
	status   int
	location string
	// What Retry-After told: seconds, or a date, or neither.
	wait  time.Duration
	until time.Time
}

func newStatusError(resp *http.Response, now time.Time) *statusError {
	e := &statusError{status: resp.StatusCode, location: resp.Header.Get("Location")}
	e.wait, e.until = parseRetryAfter(resp.Header.Get("Retry-After"), now)
	return e
}

// Error names the status, and where a redirect leads.
func (e *statusError) Error() string {
	text := fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
	if e.status/100 == 3 && e.location != "" {
		text += " to " + e.location
	}
	return text
}

// parseRetryAfter reads the header in both of its forms (RFC 9110, section
// 10.2.3). A value that is neither, or that lies in the past, tells nothing.
func parseRetryAfter(value string, now time.Time) (wait time.Duration, until time.Time) {
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		// A century is as good as for ever and still fits a Duration.
		const century = 100 * 365 * 24 * 3600
		return time.Duration(min(seconds, century)) * time.Second, time.Time{}
	}
	if date, err := http.ParseTime(value); err == nil && date.After(now) {
		return 0, date
	}
	return 0, time.Time{}
}
