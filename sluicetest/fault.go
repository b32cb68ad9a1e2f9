package sluicetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Forever, as a time to wait, lasts until the client gives up or the server is
// closed.
const Forever time.Duration = -1

// Status answers with a status and its text as the body, without asking what
// comes next. Header lines are written as on the wire:
//
//	Status(503, "Retry-After: 120")
//	Status(307, "Location: https://other.test/")
//
// It panics if the status is not from 200 to 999 or a line has no colon.
func Status(status int, header ...string) Layer {
	return Reply(status, http.StatusText(status)+"\n", header...)
}

// Reply is Status with a body. A HEAD request, and a status that has no body,
// gets none.
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

// Header adds lines to the header of whatever is answered. It panics if a line
// has no colon.
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

// before is a layer that does something and then asks what comes next.
func before(do func(http.ResponseWriter, *exchange)) Layer {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			do(w, exchangeOf(r))
			next.ServeHTTP(w, r)
		})
	}
}

// Skew makes the clock of the server wrong by d, ahead if d > 0: the Date of
// the answer, and the times of day in the headers of limits in further layers.
func Skew(d time.Duration) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) { x.skew += d })
}

// Delay waits for d before it asks what comes next, or [Forever]. If the client
// gives up first the request ends.
func Delay(d time.Duration) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) { x.wait(d) })
}

// Stall sends the first n bytes of the body, waits for d, or [Forever], and goes
// on. A shorter body is not stalled. It panics if n < 0.
func Stall(n int64, d time.Duration) Layer {
	mustNotBeNegative("Stall", n)
	return before(func(_ http.ResponseWriter, x *exchange) {
		x.mark(n, func() { x.wait(d) })
	})
}

// Cut closes the connection, whatever else is in flight on it, instead of
// answering: the client reads an unexpected end. Requests that may be sent
// again net/http's client then sends again by itself, if the connection was not
// new.
func Cut() Layer { return breaking((*exchange).cut) }

// Reset is Cut with a connection reset by the peer.
func Reset() Layer { return breaking((*exchange).reset) }

// Abort aborts the answer: by closing the connection in HTTP/1.1, by resetting
// this one stream in HTTP/2.
func Abort() Layer { return breaking((*exchange).abort) }

func breaking(how func(*exchange)) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) { how(x) })
}

// CutBody closes the connection after n bytes of the body; in HTTP/2, 1 ms after
// them. After a shorter body it is not closed. It panics if n < 0.
func CutBody(n int64) Layer {
	mustNotBeNegative("CutBody", n)
	return before(func(_ http.ResponseWriter, x *exchange) {
		x.mark(n, func() {
			// net/http's server for HTTP/2 writes in a goroutine of its own, and
			// does not say when it has: a flush only asks for it.
			if x.req.Proto == "HTTP/2.0" {
				x.wait(time.Millisecond)
			}
			x.cut()
		})
	})
}

// Garbage sends raw instead of an answer, which need not be HTTP at all, and
// closes the connection.
func Garbage(raw string) Layer {
	return before(func(_ http.ResponseWriter, x *exchange) {
		if x.conn != nil {
			_, _ = io.WriteString(x.conn.front, raw)
		}
		x.cut()
	})
}

// GoAway answers and asks the client to open another connection for what it
// sends next: GOAWAY in HTTP/2, "Connection: close" in HTTP/1.1.
func GoAway() Layer {
	return before(func(w http.ResponseWriter, _ *exchange) { w.Header().Set("Connection", "close") })
}

// Inform sends an informational answer, such as 103 Early Hints, and then asks
// what comes next. It panics if the status is not from 100 to 199, is 101 or a
// line has no colon.
func Inform(status int, header ...string) Layer {
	if status < 100 || status > 199 || status == http.StatusSwitchingProtocols {
		panic(fmt.Sprintf("sluicetest: informational status %d", status))
	}
	set := headerLines(header)
	return before(func(w http.ResponseWriter, _ *exchange) {
		final := w.Header().Clone()
		set(w.Header())
		w.WriteHeader(status)
		clear(w.Header())
		for name, values := range final {
			w.Header()[name] = values
		}
	})
}

// Upgrade answers 101 Switching Protocols and lets talk have the connection,
// which is closed when talk returns. What is not HTTP/1.1 gets 505. It panics if
// talk is nil.
func Upgrade(protocol string, talk func(io.ReadWriter)) Layer {
	if talk == nil {
		panic("sluicetest: nil talk")
	}
	return Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, "an upgrade needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
			return
		}
		defer conn.Close()
		x.switched()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		talk(hijacked{conn, buf.Reader})
	}))
}

// hijacked reads what the server has read already, and then the connection.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

func (h hijacked) Read(p []byte) (int, error) { return h.r.Read(p) }

// Events answers with an event stream of n events, the first of them at once
// and each other one every after the one before. Their data are the numbers
// from 1. n < 0 goes on until the client gives up. It panics if every < 0, or is
// 0 for events without end.
func Events(n int, every time.Duration) Layer {
	if every < 0 || n < 0 && every == 0 {
		panic(fmt.Sprintf("sluicetest: %d events every %v", n, every))
	}
	return Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		_ = flush.Flush()
		for i := 1; n < 0 || i <= n; i++ {
			if i > 1 {
				x.wait(every)
			}
			if _, err := fmt.Fprintf(w, "data: %d\n\n", i); err != nil {
				return
			}
			_ = flush.Flush()
		}
	}))
}

func mustNotBeNegative(what string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluicetest: %s after %d bytes", what, n))
	}
}

// ReadBody reads the body of the request to its end before it asks what comes
// next, so that the record has it.
func ReadBody() Layer {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a client that breaks off shows in the context
			next.ServeHTTP(w, r)
		})
	}
}
