package sluicehttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// onLoopback runs f for HTTP/1.1 and HTTP/2 with a client of a real server, whose
// requests go through a gate of one at a time: whoever keeps a permit stops the
// test.
func onLoopback(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, client *http.Client, url string)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		proto := "HTTP/1.1"
		if http2 {
			proto = "HTTP/2.0"
		}
		t.Run(proto, func(t *testing.T) {
			l := newLoopback(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != proto {
					t.Errorf("it came by %s", r.Proto)
				}
				handler(w, r)
			})
			defer l.Close()
			rt := mustTransport(t, l.base(), sluicehttp.Config{
				Gate:  sluice.Config{Concurrency: 1},
				Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond), ThrottleBackoff: sluice.Constant(time.Millisecond)},
			})
			client := &http.Client{Transport: rt, Timeout: time.Minute}
			defer client.CloseIdleConnections()
			f(t, client, l.URL)
			if n := inFlight(rt); n != 0 {
				t.Errorf("%d in flight in the end", n)
			}
		})
	}
}

// send sends a request and reads the answer to its end.
func send(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(body)
}

// Section 9.2.2: what is idempotent may be sent again.
func TestTransport_RFC9110_Methods(t *testing.T) {
	var n atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
	onLoopback(t, handler, func(t *testing.T, client *http.Client, url string) {
		for method, want := range map[string]int64{
			"GET": 2, "HEAD": 2, "OPTIONS": 2, "PUT": 2, "DELETE": 2, "POST": 1, "PATCH": 1,
		} {
			n.Store(0)
			resp, _ := send(t, client, request(t, bg, method, url, strings.NewReader("body")))
			if n.Load() != want || (resp.StatusCode == 200) != (want == 2) {
				t.Errorf("%s was sent %d times and answered %d; want %d", method, n.Load(), resp.StatusCode, want)
			}
		}
	})
}

// Section 10.2.3: Retry-After is a number of seconds or a date.
func TestTransport_RFC9110_RetryAfter(t *testing.T) {
	for name, says := range map[string]func() string{
		"seconds": func() string { return "1" },
		"date":    func() string { return time.Now().Add(time.Second).UTC().Format(http.TimeFormat) },
	} {
		var mu sync.Mutex
		var refusedAt time.Time
		handler := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if refusedAt.IsZero() {
				refusedAt = time.Now()
				w.Header().Set("Retry-After", says())
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if early := time.Second - time.Since(refusedAt); early > 0 && name == "seconds" {
				t.Errorf("%v too early", early)
			}
			refusedAt = time.Time{}
		}
		t.Run(name, func(t *testing.T) {
			onLoopback(t, handler, func(t *testing.T, client *http.Client, url string) {
				if resp, _ := send(t, client, request(t, bg, "GET", url, nil)); resp.StatusCode != 200 {
					t.Errorf("answered %d", resp.StatusCode)
				}
			})
		})
	}
}

// Sections 15.4.8 and 15.4.4: a redirect keeps the method and its body, or makes
// a GET of it.
func TestTransport_RFC9110_RedirectedBodies(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/307":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		case "/303":
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, r.Method, " ", string(body))
		}
	}
	onLoopback(t, handler, func(t *testing.T, client *http.Client, url string) {
		for path, want := range map[string]string{"/307": "POST body", "/303": "GET "} {
			if _, got := send(t, client, request(t, bg, "POST", url+path, strings.NewReader("body"))); got != want {
				t.Errorf("%s came to %q, want %q", path, got, want)
			}
		}
	})
}

// Answers without a body, parts of one, and trailers, are as the server sent them.
func TestTransport_RFC9110_AnswersAreUnchanged(t *testing.T) {
	const content = "0123456789"
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, content)
			w.Header().Set("X-Sum", "45")
		default:
			w.Header().Set("Etag", `"e"`)
			http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader(content))
		}
	}
	onLoopback(t, handler, func(t *testing.T, client *http.Client, url string) {
		for _, c := range []struct {
			method, header, value string
			status                int
			body                  string
		}{
			{"GET", "", "", 200, content},
			{"HEAD", "", "", 200, ""},
			{"GET", "If-None-Match", `"e"`, 304, ""},
			{"GET", "Range", "bytes=2-4", 206, "234"},
			{"GET", "Range", "bytes=20-", 416, "invalid range: failed to overlap\n"},
		} {
			req := request(t, bg, c.method, url, nil)
			if c.header != "" {
				req.Header.Set(c.header, c.value)
			}
			if resp, body := send(t, client, req); resp.StatusCode != c.status || body != c.body {
				t.Errorf("%s %s: %d, %q; want %d, %q", c.method, c.value, resp.StatusCode, body, c.status, c.body)
			}
		}
		resp, body := send(t, client, request(t, bg, "GET", url+"/trailer", nil))
		if body != content || resp.Trailer.Get("X-Sum") != "45" {
			t.Errorf("%q with the trailer %v", body, resp.Trailer)
		}
	})
}

// Section 10.1.1: a body is sent when the server expects it, and section 15.2:
// informational answers come before the final one.
func TestTransport_RFC9110_ExpectAndEarlyHints(t *testing.T) {
	var read atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if r.ProtoMajor == 1 { // net/http's client of HTTP/2 forgets the 100 after a 103
			w.WriteHeader(http.StatusEarlyHints)
		}
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}
	onLoopback(t, handler, func(t *testing.T, client *http.Client, url string) {
		for path, status := range map[string]int{"/no": 413, "/yes": 200} {
			read.Store(false)
			var codes []int
			ctx := httptrace.WithClientTrace(bg, &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					codes = append(codes, code)
					return nil
				},
			})
			body := &noticed{Reader: strings.NewReader("a body of unknown length"), read: &read}
			req := request(t, ctx, "POST", url+path, body)
			req.Header.Set("Expect", "100-continue")
			resp, got := send(t, client, req)
			if resp.StatusCode != status || read.Load() != (status == 200) {
				t.Errorf("%s: %d, body read: %v", path, resp.StatusCode, read.Load())
			}
			if status == 200 && (got != "a body of unknown length" || resp.ProtoMajor == 1 && (len(codes) == 0 || codes[0] != 103)) {
				t.Errorf("%q, informed %v", got, codes)
			}
		}
	})
}

// noticed is a reader that tells whether it was read.
type noticed struct {
	io.Reader
	read *atomic.Bool
}

func (n *noticed) Read(p []byte) (int, error) {
	n.read.Store(true)
	return n.Reader.Read(p)
}

// Both directions at once, over HTTP/2: the answer begins before the request ends.
func TestTransport_FullDuplex(t *testing.T) {
	l := newLoopback(t, true, func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w)
		flush.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, "echo", lines.Text())
			flush.Flush()
		}
	})
	defer l.Close()
	client := &http.Client{Transport: mustTransport(t, l.base(), sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}})}
	defer client.CloseIdleConnections()
	r, w := io.Pipe()
	resp, err := client.Do(request(t, bg, "POST", l.URL, r))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		fmt.Fprintln(w, i)
		if !lines.Scan() || lines.Text() != fmt.Sprint("echo ", i) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	w.Close()
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("%q, %v", lines.Text(), lines.Err())
	}
}

// Section 7.8: what a connection is upgraded to is not HTTP any more.
func TestTransport_RFC9110_Upgrade(t *testing.T) {
	l := newLoopback(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(conn, buf) // until the client closes its half
	})
	defer l.Close()
	rt := mustTransport(t, l.base(), sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}})
	req := request(t, bg, "GET", l.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body is a %T", resp.Body)
	}
	fmt.Fprint(conn, "hello")
	if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Error("the half that is written to cannot be closed")
	}
	if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n := inFlight(rt); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// A server that was restarted has closed the connections that were kept.
func TestTransport_RestartedServer(t *testing.T) {
	var l *loopback
	restart := func(addr string) {
		l = newLoopback(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
		if addr != "" {
			l.Close()
			listener, err := net.Listen("tcp", addr)
			if err != nil {
				t.Skip("somebody else has taken the port:", err)
			}
			server := &http.Server{Handler: l.Config.Handler}
			go server.Serve(listener)
			t.Cleanup(func() { server.Close() })
		}
	}
	restart("")
	base := l.base()
	defer base.CloseIdleConnections()
	rt := mustTransport(t, base, sluicehttp.Config{
		Gate:  sluice.Config{Concurrency: 1, RetryBudget: -1},
		Retry: sluice.RetryPolicy{Backoff: sluice.Constant(10 * time.Millisecond), Attempts: -1},
	})
	client := &http.Client{Transport: rt, Timeout: time.Minute}
	url, addr := l.URL, l.Listener.Addr().String()
	send(t, client, request(t, bg, "GET", url, nil))
	l.Close()
	client.CloseIdleConnections() // what is written to one of these may have been read
	ctx, report := sluicehttp.WithReport(bg)
	done := make(chan struct{})
	go func() { // while no server listens: no connection is made, so that a POST may be tried again
		defer close(done)
		if resp, body := send(t, client, request(t, ctx, "POST", url, strings.NewReader("x"))); resp.StatusCode != 200 || body != "ok" {
			t.Errorf("%d, %q", resp.StatusCode, body)
		}
	}()
	eventually(t, "an attempt was refused", func() bool { return len(report.Last().Attempts) > 0 })
	restart(addr)
	<-done
}
