package sluicetest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An exchange is a request in flight, as the layers share it. Only the goroutine of the
// handler uses it, except where a field says otherwise.
type exchange struct {
	server *Server
	req    *Request // its number and arrival never change; the rest is guarded by book.mu
	conn   *conn    // nil on a real socket
	ctx    context.Context
	marks  []mark
	finish func() // ends the request in the record; for any goroutine, any number of times
	gone   bool   // while the handler waited, the client gave up or the server was closed
	ends   []func()
	// charges are the units that the request took from limits: appended to before the
	// handler runs.
	charges []*charge
}

// A mark calls do at a position in the body of the response.
type mark struct {
	at int64
	do func()
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("sluicetest: a Layer of this package works only in a Server")
	}
	return x
}

// ServeHTTP implements [http.Handler]. It aborts the request if the server is closed.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The connection is already counted, but an HTTP/2 handler may begin after its
	// end, when Close no longer waits.
	if !s.begin(nil) {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	x := &exchange{server: s, conn: connIn(r.Context()), ctx: r.Context()}
	x.req = s.book.arrived(r, x.conn)
	x.finish = sync.OnceFunc(func() {
		for _, f := range x.ends {
			f()
		}
		s.book.ended(x.req)
	})
	// Before the client has the whole response: otherwise a client that calls again
	// immediately could be counted as one too many.
	defer x.finish()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &received{r.Body, x}
	}
	a := &answer{ResponseWriter: w, x: x}
	s.handler.ServeHTTP(a, r)
	if a.status == 0 && !a.hijacked {
		a.WriteHeader(http.StatusOK) // as net/http would do, but recorded
	}
	if x.gone {
		// Not the end of a complete response: a client that gives up over TLS still reads for a moment,
		// and would take an event stream that was given up for one that ended.
		panic(http.ErrAbortHandler)
	}
	if r.Context().Err() != nil { // also if a deadline has passed: then a client may still read the answer
		x.gaveUp()
	}
}

// readBody returns the whole body of r, and leaves it to be read again. If the client gives
// up, it panics with http.ErrAbortHandler.
func (x *exchange) readBody(r *http.Request) []byte {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		x.gaveUp()
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// wait waits for d. If the client gives up or the server is closed, it panics with
// http.ErrAbortHandler.
func (x *exchange) wait(d time.Duration) {
	if !x.waited(d) {
		panic(http.ErrAbortHandler)
	}
}

// waited waits for d, and reports false if the client gave up or the server was closed.
func (x *exchange) waited(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	due := time.NewTimer(d)
	defer due.Stop()
	// The context of the request is not enough: net/http does not notice the end of
	// a connection while the body of the request is unread.
	var gone <-chan struct{}
	if x.conn != nil {
		gone = x.conn.gone
	}
	select {
	case <-due.C:
		return true
	case <-x.ctx.Done():
	case <-gone:
	case <-x.server.done:
	}
	x.gone = true
	x.gaveUp()
	return false
}

func (x *exchange) gaveUp() { x.note(func(r *Request) { r.GaveUp = true }) }

// note changes the record of the request.
func (x *exchange) note(f func(*Request)) {
	x.server.book.mu.Lock()
	defer x.server.book.mu.Unlock()
	f(x.req)
}

// mark makes do happen after n bytes of the body.
func (x *exchange) mark(n int64, do func()) {
	x.marks = append(x.marks, mark{n, do})
	slices.SortStableFunc(x.marks, func(a, b mark) int { return int(max(-1, min(1, a.at-b.at))) })
}

// cut and reset break the exchange and do not return.
func (x *exchange) cut()   { x.broken(func() { _ = x.conn.wire.Close() }) }
func (x *exchange) reset() { x.broken(func() { x.conn.Reset() }) }

func (x *exchange) broken(end func()) {
	x.note(func(r *Request) { r.Broken = true })
	x.finish()
	if x.conn != nil {
		end()
	}
	panic(http.ErrAbortHandler)
}

// received records the bytes that are read of the body of a request.
type received struct {
	io.ReadCloser
	x *exchange
}

func (b *received) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.note(func(r *Request) {
		r.BodyLen += int64(n)
		r.Body = append(r.Body, p[:min(n, keptBody-len(r.Body))]...)
	})
	return n, err
}

// An answer is the http.ResponseWriter of an exchange.
type answer struct {
	http.ResponseWriter
	x        *exchange
	status   int
	sent     int64
	hijacked bool
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush implements [http.Flusher]. It sends the header, as net/http's does.
func (a *answer) Flush() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker]. The record does not contain data that is sent then.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.hijacked = err == nil
	return conn, buf, err
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		x, h := a.x, a.Header()
		now := x.server.now()
		x.note(func(r *Request) {
			r.Status = status
			if wait, ok := retryAfter(h, time.Now()); ok && status != http.StatusOK {
				r.RetryAt = max(r.RetryAt, now+wait)
			}
		})
		a.ResponseWriter.WriteHeader(status)
		a.reached()
		return
	}
	a.ResponseWriter.WriteHeader(status) // informational, or an error that net/http logs
}

// retryAfter reads the Retry-After of a response: seconds, a date or, if it is more than
// 15 years, seconds since 1970. A Retry-After-Ms is more exact and takes precedence.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if ms := h.Get("Retry-After-Ms"); strings.Trim(ms, "0123456789.") == "" {
		if wait, err := time.ParseDuration(ms + "ms"); err == nil {
			return wait, true
		}
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 40); err == nil {
		if seconds > 500_000_000 {
			return time.Unix(seconds, 0).Sub(now), true
		}
		return time.Duration(seconds) * time.Second, seconds >= 0
	}
	at, err := http.ParseTime(value)
	return at.Sub(now), err == nil
}

func (a *answer) Write(p []byte) (n int, err error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	for {
		part := p[n:]
		if len(a.x.marks) > 0 {
			part = part[:min(int64(len(part)), a.x.marks[0].at-a.sent)]
		} else if a.isLast(part) {
			a.x.finish() // the client has all of it before the handler returns
		}
		m, err := a.ResponseWriter.Write(part)
		n += m
		a.sent += int64(m)
		a.x.note(func(r *Request) { r.Sent = a.sent })
		if err != nil {
			return n, err
		}
		a.reached()
		if n == len(p) {
			return n, nil
		}
	}
}

// isLast reports whether part completes a body of declared length.
func (a *answer) isLast(part []byte) bool {
	length, err := strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64)
	return err == nil && a.sent+int64(len(part)) >= length
}

// reached calls the marks at the current position in the body.
func (a *answer) reached() {
	for len(a.x.marks) > 0 && a.x.marks[0].at <= a.sent {
		do := a.x.marks[0].do
		a.x.marks = a.x.marks[1:]
		a.Flush()
		do()
	}
}
