package sluicetest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// get returns what a GET comes to: "200 ok", or the error.
func get(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Sprintf("%d %q %v", resp.StatusCode, body, err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSuffix(string(body), "\n"))
}

// openConns returns how many connections are open.
func openConns(r sluicetest.Record) int {
	n := 0
	for _, c := range r.Conns {
		if c.Open {
			n++
		}
	}
	return n
}

// protocols are the ways to talk to a server.
var protocols = []struct {
	name, scheme, proto string
	set                 func(*http.Transport)
}{
	{"http/1.1", "http", "HTTP/1.1", func(*http.Transport) {}},
	{"https/1.1", "https", "HTTP/1.1", func(t *http.Transport) { t.ForceAttemptHTTP2 = false }},
	{"http/2", "http", "HTTP/2.0", func(t *http.Transport) {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}},
	{"https/2", "https", "HTTP/2.0", func(*http.Transport) {}},
}

// A way is one of the protocols, in a bubble.
type way struct {
	*testing.T
	scheme, proto string
	set           func(*http.Transport)
}

// serve returns a server and a client that talks to it in this way.
func (w way) serve(layers ...sluicetest.Layer) (*sluicetest.Server, *http.Client) {
	srv := sluicetest.NewServer(layers...)
	w.Cleanup(srv.Close)
	tr := srv.Transport()
	w.set(tr)
	return srv, &http.Client{Transport: srv.Watch(tr)}
}

// everyWay runs f in a bubble with each protocol.
func everyWay(t *testing.T, f func(t way)) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(way{t, p.scheme, p.proto, p.set}) })
		})
	}
}

func TestServer_EveryHostAndProtocol(t *testing.T) {
	everyWay(t, func(t way) {
		start := time.Now()
		srv, c := t.serve()
		for _, host := range []string{"a.test", "b.test:8080", "127.0.0.1", "[::1]:99", "a.test"} {
			if got := get(c, t.scheme+"://"+host+"/x?y=z"); got != "200 ok" {
				t.Errorf("%s: %s", host, got)
			}
		}
		rec := srv.Record()
		if len(rec.Requests) != 5 || len(rec.Conns) != 4 {
			t.Fatalf("%d requests on %d connections, want 5 on 4", len(rec.Requests), len(rec.Conns))
		}
		for i, q := range rec.Requests {
			if q.Proto != t.proto || q.Path != "/x?y=z" || q.Status != 200 || q.Sent != 3 || q.NewConn != (i < 4) {
				t.Errorf("%+v", q)
			}
		}
		if len(rec.Log) > 0 {
			t.Errorf("log: %q", rec.Log)
		}
		srv.Close()
		if d := time.Since(start); d != 0 {
			t.Errorf("all that took %v, want no time", d)
		}
	})
}

func TestServer_ManyAtOnce(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.Delay(time.Second))
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				resp, err := c.Post(t.scheme+"://a.test", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "ok\n" || err != nil {
					t.Errorf("%q, %v", b, err)
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		if got := srv.Record().MostInFlight(); got != 100 {
			t.Errorf("%d in flight, want 100", got)
		}
	})
}

func TestServer_CertificateIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer()
		defer srv.Close()
		c := &http.Client{Transport: &http.Transport{DialContext: srv.Transport().DialContext}}
		if got := get(c, "https://a.test"); !strings.Contains(got, "unknown authority") {
			t.Error(got)
		}
		synctest.Wait()
		if log := srv.Record().Log; len(log) != 1 || !strings.Contains(log[0], "TLS handshake error") {
			t.Errorf("log: %q", log)
		}
	})
}

// An HTTP/2 handler may begin after its connection and the server have ended.
func TestServer_HandlerBeginsAfterClose(t *testing.T) {
	s := sluicetest.NewServer()
	s.Close()
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("it ends with %v", r)
		}
		if n := len(s.Record().Requests); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	}()
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://a.test/", nil))
}

func TestServer_DialOfAContextThatIsDone(t *testing.T) {
	srv := sluicetest.NewServer()
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := srv.Transport().DialContext(ctx, "tcp", "a.test:80"); err != context.Canceled {
		t.Error(err)
	}
}
