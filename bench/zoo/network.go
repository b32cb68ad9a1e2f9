package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// The simulated network takes leastDelay and up to -jitter each way.
const (
	leastDelay    = .004 // seconds
	defaultJitter = 2.   // ms
	meanJitter    = defaultJitter / 1000
)

// A network is the way to a handler in virtual time.
type network struct {
	handler http.Handler
	jitter  float64 // seconds
	dice    *dice
}

func (n *network) pass() { time.Sleep(seconds(leastDelay + n.jitter*n.dice.float())) }

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.pass()
	in := req.Clone(req.Context())
	in.RemoteAddr, in.RequestURI = "127.0.0.1:4711", req.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	out := httptest.NewRecorder()
	n.handler.ServeHTTP(out, in)
	in.Body.Close()
	resp := out.Result()
	resp.Request = req
	// As net/http does.
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	resp.ContentLength = int64(out.Body.Len())
	resp.Header.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	n.pass()
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return resp, nil
}

// A sight is one request as the server answered it.
type sight struct {
	back    time.Duration // since the start
	refused bool
}

// A tap is the transport below a client. It notes each request on the wire.
type tap struct {
	base   http.RoundTripper
	server *server
	start  time.Time
	mu     sync.Mutex
	seen   []sight
}

func (t *tap) note(refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = append(t.seen, sight{time.Since(t.start), refused})
}

func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		if req.Context().Err() == nil {
			t.note(true)
		}
		return nil, err
	}
	// The body is as much of the answer as the status is. All bodies here are short.
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.note(true)
		return nil, err
	}
	t.note(t.server.refused(resp.StatusCode, body))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
