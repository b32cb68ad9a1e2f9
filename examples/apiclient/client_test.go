package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/0":
			_, _ = w.Write([]byte("body"))
		case "/1":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/2":
			http.Redirect(w, r, "/0", http.StatusFound)
		case "/3":
			_, _ = w.Write(make([]byte, maxBody+1))
		case "/4":
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	m := newMeter()
	c := newClient(server.URL+"/{}", metered{newBase(2), m}, m)
	defer c.close()
	ctx := t.Context()

	if body, err := c.get(ctx, 0); err != nil || string(body) != "body" {
		t.Errorf("200: %q, %v", body, err)
	}
	var answer *statusError
	if _, err := c.get(ctx, 1); !errors.As(err, &answer) || answer.status != 429 {
		t.Errorf("429: %#v", err)
	}
	if _, err := c.get(ctx, 2); !errors.As(err, &answer) || answer.status != 302 || !strings.HasSuffix(err.Error(), " to /0") {
		t.Errorf("a redirect: %v", err)
	}
	if _, err := c.get(ctx, 3); !errors.Is(err, errTooLong) {
		t.Errorf("a body that is too long: %v", err)
	}
	if _, err := c.get(ctx, 4); err == nil || errors.As(err, &answer) && answer.status == 0 {
		t.Errorf("no answer: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.get(cancelled, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	d := c.meter.total()
	if d.calls != 5 || d.attempts != 5 || d.throttled != 1 || d.maxInFlight != 1 {
		t.Errorf("counted %+v", d)
	}
	if d.spacing.Count != 3 { // not the 429, not the one without an answer
		t.Errorf("%d departures counted for the rate, want 3", d.spacing.Count)
	}
}

// A call is in flight until its answer was read, and counted once.
func TestMeterCountsBodies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 1000)) }))
	defer server.Close()
	base, m := newBase(1), newMeter()
	defer base.CloseIdleConnections()
	rt := metered{base, m}
	for _, read := range []int64{0, 10, 2000} {
		req, err := http.NewRequestWithContext(withItem(t.Context(), int(read)), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if inFlight, _ := m.now(); inFlight != 1 {
			t.Errorf("%d in flight before it is read", inFlight)
		}
		_, _ = io.CopyN(io.Discard, resp.Body, read)
		_ = resp.Body.Close()
		_ = resp.Body.Close()
		if inFlight, _ := m.now(); inFlight != 0 {
			t.Errorf("%d in flight after it was closed", inFlight)
		}
	}
	if d := m.total(); d.calls != 3 || d.attempts != 3 || d.maxInFlight != 1 {
		t.Errorf("counted %+v", d)
	}
}
