package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A page is one line of the output: an address that was gone to, or why not.
// Together the lines are a graph, from URL to Links and Location.
type page struct {
	URL   string `json:"url"`
	Depth int    `json:"depth"`          // links from the first pages
	From  string `json:"from,omitempty"` // the page that had it first

	Skipped string `json:"skipped,omitempty"` // why it was not asked for
	Error   string `json:"error,omitempty"`   // why there is no page

	Status   int      `json:"status,omitempty"`
	Type     string   `json:"type,omitempty"`
	Bytes    int      `json:"bytes,omitempty"` // of the body that were read
	Cut      bool     `json:"cut,omitempty"`   // there were more than -max-body
	Title    string   `json:"title,omitempty"`
	Location string   `json:"location,omitempty"` // where a redirect goes
	Links    []string `json:"links,omitempty"`

	Attempts int     `json:"attempts,omitempty"`
	Sent     string  `json:"sent,omitempty"`    // the last attempt, RFC 3339 in UTC
	WaitMS   float64 `json:"wait_ms,omitempty"` // for the gate, before the first attempt
	TookMS   float64 `json:"took_ms,omitempty"` // the last attempt
}

// answer fills in what a host answered.
func (p *page) answer(a answer) {
	p.Status, p.Type, p.Bytes, p.Cut = a.status, a.header.Get("Content-Type"), len(a.body), a.cut
	p.Attempts = a.attempts
	if a.attempts > 0 {
		p.Sent = a.sent.UTC().Format(time.RFC3339Nano)
		p.WaitMS, p.TookMS = milliseconds(a.waited), milliseconds(a.took)
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// A sink writes pages as JSON Lines. It is safe for use by multiple goroutines.
type sink struct {
	onError func() // called once

	mu     sync.Mutex
	w      io.Writer
	failed error
}

func newSink(w io.Writer) *sink { return &sink{w: w} }

// write writes a page: the line is with the system when it returns. After an
// error nothing more is written.
func (s *sink) write(p page) {
	var line strings.Builder
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // addresses have &
	err := enc.Encode(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return
	}
	if err == nil {
		_, err = io.WriteString(s.w, line.String())
	}
	if err != nil {
		s.failed = fmt.Errorf("writing the pages: %w", err)
		s.onError()
	}
}

// err returns the first error.
func (s *sink) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
