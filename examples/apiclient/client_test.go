package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(90 * time.Second)
	century := 100 * 365 * 24 * time.Hour
	tests := []struct {
		value string
		wait  time.Duration
		until time.Time
	}{
		{"", 0, time.Time{}},
		{"0", 0, time.Time{}},
		{"7", 7 * time.Second, time.Time{}},
		{"9223372036854775807", century, time.Time{}},
		{"99999999999999999999", 0, time.Time{}},
		{"-7", 0, time.Time{}},
		{"1.5", 0, time.Time{}},
		{"soon", 0, time.Time{}},
		{later.Format(http.TimeFormat), 0, later},
		{later.Format("Monday, 02-Jan-06 15:04:05 GMT"), 0, later}, // the old forms a client must still read
		{later.Format(time.ANSIC), 0, later},
		{now.Format(http.TimeFormat), 0, time.Time{}},
		{now.Add(-time.Hour).Format(http.TimeFormat), 0, time.Time{}},
	}
	for _, tt := range tests {
		wait, until := parseRetryAfter(tt.value, now)
		if wait != tt.wait || !until.Equal(tt.until) {
			t.Errorf("%q: %v, %v; want %v, %v", tt.value, wait, until, tt.wait, tt.until)
		}
	}
}

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
	c := newClient(server.URL+"/{}", 2, newMeter())
	defer c.close()
	ctx := t.Context()

	if body, err := c.get(ctx, 0); err != nil || string(body) != "body" {
		t.Errorf("200: %q, %v", body, err)
	}
	var answer *statusError
	if _, err := c.get(ctx, 1); !errors.As(err, &answer) || answer.status != 429 || answer.wait != 3*time.Second {
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
