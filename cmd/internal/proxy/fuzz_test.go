package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzConfig reads anything as the file of -config, and as a route. It is an error, or flags that can
// be parsed.
func FuzzConfig(f *testing.F) {
	f.Add(`{"listen": "localhost:7777", "patience": "2m", "route": ["/jira=https://example.atlassian.net"]}`)
	f.Add(`/llm=http://10.0.0.7:8000 preset=openai rate=10/s concurrency=4`)
	f.Add(`{"config": "x", "-token": 1, "route": [[]], "": null}`)
	f.Add("/=http://%zz concurrency=-1")
	name := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if args, err := readConfig(name, nil); err == nil {
			if err := newFlags(new(options)).Parse(args, nil); err != nil {
				t.Errorf("%q was accepted as %q: %v", text, args, err)
			}
		}
		if s, err := parseRoute(text); err == nil && s == (routeSpec{}) {
			t.Errorf("%q is a route without a name", text)
		}
	})
}

// A sink is an upstream that answers each request and records where it was for.
type sink struct{ hosts []string }

func (s *sink) RoundTrip(r *http.Request) (*http.Response, error) {
	s.hosts = append(s.hosts, r.URL.Host)
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r,
	}, nil
}

// FuzzRequest hands the proxy any request that net/http can read. It is answered, and what is sent goes
// to the server of a route and to no other.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /api/zen HTTP/1.1\r\nHost: localhost:7777\r\nSluice-Patience: 5s\r\n\r\n"))
	f.Add([]byte("POST /api/../other//x?a=b;c HTTP/1.1\r\nHost: localhost:7777\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n"))
	f.Add([]byte("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n"))
	f.Add([]byte("GET http://evil.test/api/ HTTP/1.1\r\nHost: localhost:7777\r\nConnection: Upgrade, Sluice-Patience\r\nUpgrade: x\r\nExpect: 100-continue\r\n\r\n"))
	f.Add([]byte("GET /api/%2e%2e/%00 HTTP/1.0\r\nHost: localhost:7777\r\nOrigin: null\r\nSluice-Attempts: -1\r\nContent-Length: 3\r\n\r\nab"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			base := new(sink)
			o := &options{patience: time.Minute, timeout: time.Minute, base: base}
			o.routes = append(o.routes, routeOf(t, "/api=http://api.test/v1/"), routeOf(t, "/other=http://other.test"))
			p, err := newProxy(o)
			if err != nil {
				t.Fatal(err)
			}
			r.RemoteAddr = "127.0.0.1:1234"
			w := httptest.NewRecorder()
			func() {
				defer func() {
					if v := recover(); v != nil && v != any(http.ErrAbortHandler) {
						panic(v)
					}
				}()
				p.ServeHTTP(w, r.WithContext(t.Context()))
			}()
			own := p.set.Load().table
			for _, host := range base.hosts {
				if host != "api.test" && host != "other.test" && !strings.Contains(strings.Join(own.names(), " "), host) {
					t.Errorf("%q was sent to %q", raw, host)
				}
			}
			if w.Code < 100 || w.Code > 599 {
				t.Errorf("%q: status %d", raw, w.Code)
			}
		})
	})
}
