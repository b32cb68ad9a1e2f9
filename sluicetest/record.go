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

// A Record is what a server has seen so far, or since [Server.Forget]: a copy, which
// nothing changes any more. Instants are durations since the making of the server.
// It grows with each request, by some 700 bytes and its body.
type Record struct {
	// Requests are in the order in which they arrived.
	Requests []Request
	// Conns are in the order in which they were opened.
	Conns []Conn
	// Dials is how many attempts to connect there were, the failed ones
	// included, since the last [Server.Forget].
	Dials int
	// Bodies are the bodies of answers that a client under [Server.Watch] was
	// given, in that order.
	Bodies []Body
	// Log has what the server complained of: panics of handlers, failed TLS
	// handshakes.
	Log []string
}

// A Request is one request that arrived: its header was read to the end.
type Request struct {
	// Number counts from 1, in order of arrival.
	Number int
	// Arrived and Ended are instants. A request ends when the server is done
	// with it, just before the client can have the whole answer. InFlight says
	// that it has not ended; Ended is then 0.
	Arrived, Ended time.Duration
	InFlight       bool

	Method, Proto, Host string
	// Path is the path with the query, as it was sent.
	Path   string
	Header http.Header
	// BodyLen is how many bytes of the body were read, which a handler or a
	// layer must do: see [ReadBody]. Body has the first 64 KiB of them.
	BodyLen int64
	Body    []byte

	// Conn is the number of its connection, 0 on a socket that is not ours.
	// NewConn says that it was the first request there.
	Conn    int
	NewConn bool

	// Status is what was answered, 0 if nothing was. Sent is how many bytes of
	// a body the handlers wrote.
	Status int
	Sent   int64
	// Refused is the reason, and the name of the [Limit] if it has one, if a
	// limit refused the request, and otherwise empty. RetryAt is the instant
	// before which it should not be sent again, by a limit or by the
	// Retry-After that was sent; 0 if nobody said.
	Refused string
	RetryAt time.Duration
	// Broken says that a fault broke the exchange off, GaveUp that it ended
	// early in another way: the client gave up, or it was Close or CutConns.
	Broken, GaveUp bool

	began, ended int64 // places in the order of all arrivals and ends
}

// A Conn is one connection.
type Conn struct {
	// Number counts the dials from 1; one that failed leaves a gap.
	Number int
	// Addr is the host and the port that were dialled.
	Addr string
	// Opened and Closed are instants. Open says that it is; Closed is then 0.
	Opened, Closed time.Duration
	Open           bool
	// Requests is how many requests arrived on it.
	Requests int

	opened, closed int64 // places in the order, as of a Request
}

// keptBody is how much of the body of a request stays in the record.
const keptBody = 64 << 10

// Record returns what has happened until now.
func (s *Server) Record() Record {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	return s.book.copy()
}

// Forget returns the record and drops what is over from it: requests that have
// ended, connections and bodies that are closed, the log. Numbers and instants go
// on. For a test that judges a long run in parts, or a server on a real socket that
// stays: without it the record holds every request.
//
// A verdict on the next record knows nothing of this one: it does not see that two
// requests are too close if one is here and one there.
func (s *Server) Forget() Record {
	b := &s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.copy()
	b.requests = kept(b.requests, func(q *Request) bool { return q.InFlight })
	b.conns = kept(b.conns, func(c *conn) bool { return c.is.Open })
	b.bodies = kept(b.bodies, func(b *watched) bool { return !b.is.Closed })
	b.log, b.forgotten = nil, b.dials
	return r
}

// kept returns a new slice of those of all that are to be kept: the array of the old
// one would hold as much memory as before.
func kept[T any](all []T, keep func(T) bool) []T {
	var left []T
	for _, x := range all {
		if keep(x) {
			left = append(left, x)
		}
	}
	return left
}

// copy returns what is in b, which is locked.
func (b *book) copy() Record {
	r := Record{Dials: b.dials - b.forgotten, Log: slices.Clone(b.log)}
	for _, req := range b.requests {
		r.Requests = append(r.Requests, *req)
	}
	for _, c := range b.conns {
		r.Conns = append(r.Conns, c.is)
	}
	for _, body := range b.bodies {
		r.Bodies = append(r.Bodies, body.is)
	}
	return r
}

// A book is what a Record is copied from. Instants are read under its lock: read
// before it, two events could be noted in the other order than they came.
type book struct {
	now func() time.Duration

	mu        sync.Mutex
	order     int64
	arrivals  int // requests since the making of the server
	dials     int // the same of dials
	forgotten int // of the dials
	requests  []*Request
	conns     []*conn
	bodies    []*watched
	log       []string
}

// next returns the next place in the order. b is locked.
func (b *book) next() int64 {
	b.order++
	return b.order
}

func (b *book) arrived(r *http.Request, c *conn) *Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrivals++
	req := &Request{
		Number: b.arrivals, Arrived: b.now(), InFlight: true,
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

func (b *book) dialled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dials++
	return b.dials
}

func (b *book) opened(w *wire, number int, address string) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &conn{wire: w, is: Conn{Number: number, Addr: address, Opened: b.now(), Open: true, opened: b.next()}}
	b.conns = append(b.conns, c)
	return c
}

func (b *book) closed(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.is.Closed, c.is.Open, c.is.closed = b.now(), false, b.next()
}

// Write implements io.Writer for the log of the HTTP server: one message each.
func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// A conn is the server's end of a connection.
type conn struct {
	*wire
	front net.Conn // what the HTTP server writes to: TLS, or the conn itself
	is    Conn     // belongs to the book
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

// connIn returns the connection of a request, nil if it is not one of ours.
func connIn(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}
