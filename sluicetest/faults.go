package sluicetest

import (
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Status answers with a status and its text as the body. Header lines are written as on
// the wire:
//
//	Status(503, "Retry-After: 120")
//	Status(307, "Location: https://other.test/")
//
// It panics if status is not from 200 to 999 or a line has no colon.
func Status(status int, header ...string) Layer {
	return Reply(status, http.StatusText(status)+"\n", header...)
}

// Reply is Status with a body. It is not sent for a HEAD request or a status that has no
// body.
func Reply(status int, body string, header ...string) Layer {
	if status < 200 || status > 999 {
		panic(fmt.Sprintf("sluicetest: status %d", status))
	}
	set := headerLines(header)
	return Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set(w.Header())
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
}

// Header adds lines to the header of the response of the layers further in. It panics if
// a line has no colon.
func Header(lines ...string) Layer {
	set := headerLines(lines)
	return before(func(w http.ResponseWriter, _ *exchange) { set(w.Header()) })
}

// headerLines returns a function that adds lines to a header.
func headerLines(lines []string) func(http.Header) {
	add := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			panic(fmt.Sprintf("sluicetest: header line %q has no colon", line))
		}
		add.Add(name, textproto.TrimString(value))
	}
	return func(h http.Header) {
		for name, values := range add {
			h[name] = append(h[name], values...)
		}
	}
}

// before is a layer that calls do and then the next layer.
func before(do func(http.ResponseWriter, *exchange)) Layer {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			do(w, exchangeOf(r))
			next.ServeHTTP(w, r)
		})
	}
}

// ReadBody reads the body of the request to its end before the next layer, so that it
// is in the record.
func ReadBody() Layer {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // if the client gives up, the context is done
			next.ServeHTTP(w, r)
		})
	}
}

// Delay waits for d before the next layer; for limits.Never, until the server is closed. If the
// client gives up first, the request ends.
func Delay(d time.Duration) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) { x.wait(d) })
}

// Stall waits for d after the first n bytes of the body; for limits.Never, until the client
// gives up or the server is closed. A shorter body does not stall. It panics if n < 0.
func Stall(n int64, d time.Duration) Layer {
	mustNotBeNegative("Stall", n)
	return before(func(_ http.ResponseWriter, x *exchange) {
		x.mark(n, func() { x.wait(d) })
	})
}

// Cut closes the connection, with all other requests on it, instead of answering; the client reads
// an unexpected EOF.
func Cut() Layer { return breaking((*exchange).cut) }

// Reset is Cut with a connection reset by the peer.
func Reset() Layer { return breaking((*exchange).reset) }

func breaking(how func(*exchange)) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) { how(x) })
}

// CutBody closes the connection after n bytes of the body; with HTTP/2, 1 ms later. If
// the body is shorter, the connection stays open. It panics if n < 0.
func CutBody(n int64) Layer {
	mustNotBeNegative("CutBody", n)
	return before(func(_ http.ResponseWriter, x *exchange) {
		x.mark(n, func() {
			// The HTTP/2 server of net/http writes in its own goroutine and
			// does not report when it has: a flush only requests it.
			if x.req.Proto == "HTTP/2.0" {
				x.wait(time.Millisecond)
			}
			x.cut()
		})
	})
}

// Garbage sends raw, which need not be HTTP, instead of a response and closes the
// connection.
func Garbage(raw string) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) {
		if x.conn != nil {
			_, _ = io.WriteString(x.conn.front, raw)
		}
		x.cut()
	})
}

func mustNotBeNegative(what string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluicetest: %s after %d bytes", what, n))
	}
}
