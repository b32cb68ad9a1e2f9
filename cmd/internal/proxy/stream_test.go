package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// Events arrive when they are sent.
func TestStream_Events(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				http.NewResponseController(w).Flush()
				time.Sleep(2 * slowestRead)
			}
		})))
		began := time.Now()
		resp := h.open("/api/")
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 5 {
			lines.Scan()
			if at := time.Since(began); lines.Text() != fmt.Sprintf("data: %d", i) || at != time.Duration(i)*2*slowestRead {
				t.Errorf("%q at %v", lines.Text(), at)
			}
			lines.Scan()
		}
	})
}

// A response of a known length that comes slowly is passed on byte by byte, its header with the first one.
func TestStream_SlowResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4")
			for range 4 {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(2 * slowestRead)
			}
		})))
		began := time.Now()
		resp := h.open("/api/")
		defer resp.Body.Close()
		for i := range time.Duration(4) {
			n, err := resp.Body.Read(make([]byte, 4))
			if at := time.Since(began); n != 1 || err != nil && err != io.EOF || at != 2*i*slowestRead {
				t.Errorf("%d bytes at %v, %v", n, at, err)
			}
		}
	})
}

// A body of unknown length is passed on as it comes, and the response as well.
func TestStream_Upload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			for lines := bufio.NewScanner(r.Body); lines.Scan(); {
				fmt.Fprintln(w, strings.ToUpper(lines.Text()))
				_ = http.NewResponseController(w).Flush()
			}
		})))
		from, to := io.Pipe()
		go func() {
			for _, line := range []string{"a", "b", "c"} {
				time.Sleep(10 * time.Second)
				fmt.Fprintln(to, line)
			}
			to.Close()
		}()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/", from)
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || string(text) != "A\nB\nC\n" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A small body is sent again after a refusal, a large one is not: the caller gets the refusal.
func TestStream_Replay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.ReadBody(), sluicetest.Every(2, sluicetest.Status(200)), sluicetest.Reply(429, "", "Retry-After: 1"))
		for _, test := range []struct{ size, want, sent int }{{1 << 10, 200, 2}, {maxReplay, 200, 2}, {maxReplay + 1, 429, 1}} {
			before := len(h.upstream.Record().Requests)
			got := h.call("POST", "/api/", strings.Repeat("x", test.size))
			all := h.upstream.Record().Requests[before:]
			if got.StatusCode != test.want || len(all) != test.sent || all[len(all)-1].BodyLen != int64(test.size) {
				t.Errorf("%d bytes: %d, sent %d times", test.size, got.StatusCode, len(all))
			}
		}
	})
}

// serve serves p as the program does, on loopback.
func serve(t *testing.T, p *proxy) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(p, t.Context())
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
		p.close()
	})
	return l.Addr().String()
}

// close is for tests: goroutines of idle connections count as leaks.
func (p *proxy) close() {
	for _, u := range p.set.Load().table.upstreams {
		u.transport.CloseIdleConnections()
	}
}

func upgrade(w http.ResponseWriter, r *http.Request) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	both.Flush()
	for {
		line, err := both.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(both, strings.ToUpper(line))
		both.Flush()
	}
}

func TestStream_Upgrade(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(upgrade))
	defer server.Close()
	p, err := newProxy(&options{routes: []routeSpec{routeOf(t, "/up="+server.URL)}, patience: time.Minute, timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, p)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /up/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "shout" {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, text := range []string{"hello\n", "again\n"} {
		fmt.Fprint(conn, text)
		if got, err := from.ReadString('\n'); err != nil || got != strings.ToUpper(text) {
			t.Errorf("%q, %v", got, err)
		}
	}
	conn.Close()
	p.handlers.Wait()
}

// HTTP/2 without TLS, as containers use it, in both directions at once.
func TestStream_HTTP2(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Status")
		io.Copy(w, r.Body)
		w.Header().Set("Status", "done")
	}))
	defer server.Close()
	p, err := newProxy(&options{routes: []routeSpec{routeOf(t, "/up="+server.URL)}, patience: time.Minute, timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, p)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(context.Background(), "POST", "http://"+address+"/up/", strings.NewReader("body"))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || string(text) != "body" || resp.Trailer.Get("Status") != "done" {
		t.Errorf("%s %q %v, %v", resp.Proto, text, resp.Trailer, err)
	}
}
