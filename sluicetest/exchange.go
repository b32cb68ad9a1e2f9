package sluicetest

import (
	"bufio"
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

// An exchange is one request while it is in flight, as the layers share it.
// One goroutine uses it, that of the handler, but for what is said.
type exchange struct {
	server *Server
	req    *Request // its number and arrival never change; the rest belongs to the book
	conn   *conn    // nil on a socket that is not ours
	ctx    context.Context
	skew   time.Duration
	marks  []mark
	finish func() // counts the request out of flight; any goroutine, any number of times
	leave  []func()
}

// A mark is a place in the body of the answer at which something happens.
type mark struct {
	at int64
	do func()
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("sluicetest: a Layer of this package works in a Server only")
	}
	return x
}

// ServeHTTP answers a request through the layers. It is what the server's own
// connections call, and can be given to another [http.Server]. Once the server is
// closed it breaks requests off.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The connection is counted already, but over HTTP/2 a handler may begin when
	// that has ended, and Close no longer waits.
	if !s.enter(nil) {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	x := &exchange{server: s, conn: connIn(r.Context()), ctx: r.Context()}
	x.req = s.book.arrived(r, x.conn)
	x.finish = sync.OnceFunc(func() {
		for _, f := range x.leave {
			f()
		}
		s.book.ended(x.req)
	})
	// Before the answer is complete at the client: one that calls again the
	// moment it has read it would now and then be seen as one too many.
	defer x.finish()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &received{r.Body, x}
	}
	a := &answer{ResponseWriter: w, x: x}
	s.handler.ServeHTTP(a, r)
	if a.status == 0 && !a.hijacked {
		a.WriteHeader(http.StatusOK) // as net/http would; here it is noted
	}
	if r.Context().Err() != nil {
		x.gaveUp()
	}
}

// clock is the time of day as the server tells it.
func (x *exchange) clock() time.Time { return time.Now().Add(x.skew) }

// wait waits for d, or for ever if d < 0. If the client gives up, or the server
// is closed, it does not return: the request is over.
func (x *exchange) wait(d time.Duration) {
	if d == 0 {
		return
	}
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	// The context of a request is not enough: net/http does not look for the end
	// of a connection while the body of the request is unread.
	var gone <-chan struct{}
	if x.conn != nil {
		gone = x.conn.gone
	}
	select {
	case <-due:
		return
	case <-x.ctx.Done():
	case <-gone:
	case <-x.server.done:
	}
	x.gaveUp()
	panic(http.ErrAbortHandler)
}

func (x *exchange) gaveUp()   { x.note(func(r *Request) { r.GaveUp = true }) }
func (x *exchange) switched() { x.note(func(r *Request) { r.Status = http.StatusSwitchingProtocols }) }

// note changes what the book has of the request.
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

// cut, reset and abort break the exchange and do not return.
func (x *exchange) cut()   { x.broken(func() { _ = x.conn.wire.Close() }) }
func (x *exchange) reset() { x.broken(func() { x.conn.Reset() }) }
func (x *exchange) abort() { x.broken(func() {}) }

func (x *exchange) broken(end func()) {
	x.note(func(r *Request) { r.Broken = true })
	x.finish()
	if x.conn != nil {
		end()
	}
	panic(http.ErrAbortHandler)
}

// received notes what was read of the body of a request.
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

// Hijack implements [http.Hijacker]. What is sent then is not in the record.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.hijacked = err == nil
	return conn, buf, err
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		x, h := a.x, a.Header()
		if x.skew != 0 && h["Date"] == nil {
			h.Set("Date", x.clock().UTC().Format(http.TimeFormat))
		}
		now := x.server.now()
		x.note(func(r *Request) {
			r.Status = status
			if wait, ok := toldWait(h, x.clock()); ok && status != http.StatusOK {
				r.RetryAt = max(r.RetryAt, now+wait)
			}
		})
		a.ResponseWriter.WriteHeader(status)
		a.reached()
		return
	}
	a.ResponseWriter.WriteHeader(status) // informational, or net/http complains of it
}

// toldWait reads the Retry-After that a layer or a handler sent: seconds, a date,
// or, if it is more than 15 years, seconds since 1970. A Retry-After-Ms beside it is
// more exact, and clients go by it.
func toldWait(h http.Header, now time.Time) (time.Duration, bool) {
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
			a.x.finish() // the client has it all before the handler returns
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

// reached does what is marked at the place that the body has got to.
func (a *answer) reached() {
	for len(a.x.marks) > 0 && a.x.marks[0].at <= a.sent {
		do := a.x.marks[0].do
		a.x.marks = a.x.marks[1:]
		a.Flush()
		do()
	}
}
