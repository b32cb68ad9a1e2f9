package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// callTimeout ends a call that a server does not answer; it is tried
	// again. Reading a response may take as long once more.
	callTimeout = 30 * time.Second
	// maxBody keeps 64 wrong addresses from filling the memory.
	maxBody = 16 << 20
)

// client fetches items. It knows nothing of gates and retries: both pools use
// it, each with its own transport.
type client struct {
	http  *http.Client
	url   string
	meter *meter
	agent string // how it calls itself; "": as http.Client does
}

// newClient returns a client whose requests go through rt.
func newClient(url string, rt http.RoundTripper, m *meter) *client {
	return &client{
		url:   url,
		meter: m,
		http: &http.Client{
			Transport: rt,
			// An item is where its address says, or it is reported where it
			// went instead.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// newBase returns a transport for so many goroutines. It keeps as many idle
// connections as there may be calls: with the two of the default the naive pool
// would open a new one for nearly every call and run out of ports.
func newBase(goroutines int) *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns = goroutines
	base.MaxIdleConnsPerHost = goroutines
	return base
}

// close drops the idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// get returns the body of an item. A response that is not a 2xx is a *statusError.
func (c *client) get(ctx context.Context, id int) ([]byte, error) {
	ctx, cancel := context.WithCancel(withItem(ctx, id))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, itemURL(c.url, id), nil)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err // names the address already
	}
	defer resp.Body.Close()
	defer time.AfterFunc(callTimeout, cancel).Stop()
	// The body is read to its end whatever the status is: only then can the
	// connection carry the next call.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, &statusError{resp.StatusCode, resp.Header.Get("Location")}
	case err != nil:
		return nil, fmt.Errorf("reading the response: %w", err)
	case len(body) > maxBody:
		return nil, errTooLong
	}
	return body, nil
}

// errTooLong reports a response that is longer than maxBody.
var errTooLong = errors.New("the response is longer than 16 MiB")

// statusError is a response that is not an item.
type statusError struct {
	status   int
	location string
}

// Error names the status, and where a redirect leads.
func (e *statusError) Error() string {
	text := fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
	if e.status/100 == 3 && e.location != "" {
		text += " to " + e.location
	}
	return text
}
