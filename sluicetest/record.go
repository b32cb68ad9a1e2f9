package sluicetest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Record is a copy of a server's log so far. Times are durations since the server was made.
type Record struct {
	// Requests are in order of arrival.
	Requests []Request
	// Conns are in the order in which they were opened.
	Conns []Conn
	// Log has the messages of the HTTP server: panics of handlers, failed TLS handshakes.
	Log []string

	bodies []body // of responses to a client under Server.Watch, in that order
}

// A Request is a request that arrived: its header was read to the end.
type Request struct {
	// Number counts from 1, in order of arrival.
	Number int
	// Ended is when the server was done with it, 0 while it is InFlight.
	Arrived, Ended time.Duration
	InFlight       bool

	Method, Proto, Host string
	// Path is the path with the query, as it was sent.
	Path   string
	Header http.Header
	// BodyLen is the number of bytes of the body that were read: see [ReadBody]. Body has the first
	// 64 KiB of them.
	BodyLen int64
	Body    []byte

	// Conn is the number of the connection, 0 on a real socket. NewConn reports the first request on
	// it.
	Conn    int
	NewConn bool

	// Status is the status of the response, 0 if there was none. Sent is the number of bytes of a
	// body that the handlers wrote.
	Status int
	Sent   int64
	// ThrottledBy is the name of the [Limit] that rejected the request, and the reason; empty if none
	// did. RetryAt is the time before which the request should not be sent again, by the limit or by
	// the Retry-After that was sent; 0 if there was neither.
	ThrottledBy string
	RetryAt     time.Duration
	// Broken reports that a fault ended the exchange, GaveUp that the client gave up or the server
	// was closed.
	Broken, GaveUp bool

	began, ended int64 // positions in the order of all arrivals and ends
}

// A Conn is one connection.
type Conn struct {
	// Number counts from 1.
	Number int
	// Addr is the host and the port that were dialed.
	Addr string
	// If Open is true, Closed is 0.
	Opened, Closed time.Duration
	Open           bool
	// Requests is the number of requests that arrived on it.
	Requests int
}

// keptBody is the part of the body of a request that is recorded.
const keptBody = 64 << 10

// Record returns the log so far.
func (s *Server) Record() Record {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	return s.book.copy()
}

// copy returns the content of b, which is locked.
func (b *book) copy() Record {
	r := Record{Log: slices.Clone(b.log)}
	for _, req := range b.requests {
		r.Requests = append(r.Requests, *req)
	}
	for _, c := range b.conns {
		r.Conns = append(r.Conns, c.is)
	}
	for _, body := range b.bodies {
		r.bodies = append(r.bodies, body.is)
	}
	return r
}

// A book is the original of Records. The clock is read under its lock, so that
// events are recorded in the order of their times.
type book struct {
	now func() time.Duration

	mu       sync.Mutex
	order    int64
	requests []*Request
	conns    []*conn
	bodies   []*watched
	log      []string
}

// next returns the next position in the order. b is locked.
func (b *book) next() int64 {
	b.order++
	return b.order
}

func (b *book) arrived(r *http.Request, c *conn) *Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	req := &Request{
		Number: len(b.requests) + 1, Arrived: b.now(), InFlight: true,
		Method: r.Method, Proto: r.Proto, Host: r.Host, Path: r.RequestURI,
		Header: r.Header.Clone(),
		began:  b.next(),
	}
	if c != nil {
		c.is.Requests++
		req.Conn, req.NewConn = c.is.Number, c.is.Requests == 1
	}
	b.requests = append(b.requests, req)
	return req
}

func (b *book) ended(req *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	req.Ended, req.InFlight, req.ended = b.now(), false, b.next()
}

func (b *book) opened(w *wire, address string) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &conn{wire: w, is: Conn{Number: len(b.conns) + 1, Addr: address, Opened: b.now(), Open: true}}
	b.conns = append(b.conns, c)
	return c
}

func (b *book) closed(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.is.Closed, c.is.Open = b.now(), false
}

// Write implements io.Writer for the log of the HTTP server, one message per call.
func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// A conn is the server's end of a connection.
type conn struct {
	*wire
	front net.Conn // the connection to which the HTTP server writes: TLS, or the conn itself
	is    Conn     // guarded by book.mu
}

type connKey struct{}

// withConn implements http.Server.ConnContext.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	c := connOf(nc)
	c.front = nc
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(nc net.Conn) *conn {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	return nc.(*conn)
}

// connIn returns the connection of a request, nil on a real socket.
func connIn(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}
