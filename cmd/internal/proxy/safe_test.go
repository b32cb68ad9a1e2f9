package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// The tests of this file are named in the threat model of docs/proxy.md.

func TestSafe_Guard(t *testing.T) {
	open, closed := newGuard([]string{"Sluice.internal"}, ""), newGuard(nil, "0123456789abcdef")
	request := func(method, target, host string, fields ...string) *http.Request {
		r := httptest.NewRequest(method, target, nil)
		r.Host = host
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return r
	}
	for _, test := range []struct {
		name  string
		guard *guard
		r     *http.Request
		want  int // 0: accepted
	}{
		{"localhost", open, request("GET", "/x", "localhost:7777"), 0},
		{"an address", open, request("GET", "/x", "127.0.0.1:7777"), 0},
		{"an address of IPv6", open, request("GET", "/x", "[::1]:7777"), 0},
		{"an allowed name", open, request("GET", "/x", "sluice.INTERNAL.:7777"), 0},
		{"a name that an attacker resolves to loopback", open, request("GET", "/x", "evil.example:7777"), 403},
		{"a name that ends like one", open, request("GET", "/x", "evil.localhost.example"), 403},
		{"no host", open, request("GET", "/x", ""), 403},
		{"a page of another origin", open, request("POST", "/x", "localhost:7777", "Origin", "https://evil.example"), 403},
		{"a page without an origin", open, request("POST", "/x", "localhost:7777", "Origin", "null"), 403},
		{"an image on a page", open, request("GET", "/x", "localhost:7777", "Sec-Fetch-Site", "cross-site"), 403},
		{"another port of this machine", open, request("GET", "/x", "localhost:7777", "Sec-Fetch-Site", "same-site"), 403},
		{"a page of the proxy", open, request("GET", "/live", "localhost:7777", "Origin", "http://localhost:7777", "Sec-Fetch-Site", "same-origin"), 0},
		{"the address line of a browser", open, request("GET", "/live", "localhost:7777", "Sec-Fetch-Site", "none"), 0},
		{"CONNECT", open, request("CONNECT", "api.openai.com:443", "api.openai.com:443"), 405},
		{"a forward proxy", open, request("GET", "http://localhost/x", "localhost"), 400},
		{"no token", closed, request("GET", "/x", "localhost:7777"), 407},
		{"a wrong token", closed, request("GET", "/x", "localhost:7777", headerToken, "0123456789abcdeF"), 407},
		{"the token", closed, request("GET", "/x", "localhost:7777", headerToken, "0123456789abcdef"), 0},
		{"the token as a password for a route", closed, request("GET", "/x", "localhost:7777", "Authorization", "Basic OjAxMjM0NTY3ODlhYmNkZWY="), 407},
		{"the token as a password for a page of the proxy", closed, request("GET", "/metrics", "localhost:7777", "Authorization", "Basic OjAxMjM0NTY3ODlhYmNkZWY="), 0},
	} {
		if refused := test.guard.check(test.r); test.want == 0 && refused != nil || test.want != 0 && (refused == nil || refused.status != test.want) {
			t.Errorf("%s: %+v, want %d", test.name, refused, test.want)
		}
	}
}

// Beyond loopback nothing is served without a token.
func TestSafe_Listen(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if l, err := listen(address, false); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%s without a token: %v, %v", address, l, err)
		}
	}
	for _, test := range []struct {
		address string
		token   bool
	}{{"localhost:0", false}, {"127.0.0.1:0", false}, {"0.0.0.0:0", true}} {
		all, err := listen(test.address, test.token)
		if err != nil {
			t.Errorf("%s: %v", test.address, err)
		}
		for _, l := range all {
			l.Close()
		}
	}
	if _, err := listen("localhost", false); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("no port: %v", err)
	}
}

func TestSafe_TokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := parseOptions([]string{"-token-file", file}); !errors.Is(err, cli.ErrUsage) || strings.Contains(err.Error(), "short") {
		t.Errorf("a short token: %v", err)
	}
	if _, err := parseOptions([]string{"-token-file", file + "x"}); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := parseOptions([]string{"-token-file", file}); err != nil || o.token != "0123456789abcdef" {
		t.Errorf("%v", err)
	}
}

func TestSafe_PrivateAddresses(t *testing.T) {
	for _, text := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "198.18.0.1",
		"::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "::127.0.0.1", "fec0::1",
	} {
		if public(netip.MustParseAddr(text)) {
			t.Errorf("%s is public", text)
		}
	}
	for _, text := range []string{"1.1.1.1", "140.82.121.6", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"} {
		if !public(netip.MustParseAddr(text)) {
			t.Errorf("%s is not public", text)
		}
	}
}

// The check is at the connection, after the name was resolved, and its refusal is final.
func TestSafe_PrivateAddress_AtDial(t *testing.T) {
	reached := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	defer server.Close()
	target, _ := url.Parse(server.URL)
	_, port, _ := net.SplitHostPort(target.Host)
	target.Host = "localhost:" + port // a name
	t.Setenv("NO_PROXY", "localhost")
	for _, open := range []bool{false, true} {
		up, err := newUpstream(wanted{target: target, open: open, timeout: time.Minute}, new(options), memoryOf(t))
		if err != nil {
			t.Fatal(err)
		}
		c := newCall(httptest.NewRequest("GET", "/", nil), time.Minute)
		req, _ := http.NewRequestWithContext(c, "GET", target.String(), nil)
		resp, err := up.transport.RoundTrip(req)
		_, private := errors.AsType[*privateError](err)
		if open && err != nil || !open && (!private || problemOf(c, err).proxy != "destination_ip_prohibited" || len(c.report.Last().Attempts) != 1) {
			t.Errorf("open %v: %v", open, err)
		}
		if err == nil {
			resp.Body.Close()
		}
		c.finish()
		up.base.(*http.Transport).CloseIdleConnections()
	}
	if len(reached) != 1 {
		t.Errorf("the server was reached %d times, want 1", len(reached))
	}
}

// The hosts of presets are checked, the targets of routes are the choice of the user.
func TestSafe_OnlyRoutesAreOpen(t *testing.T) {
	o := &options{routes: []routeSpec{routeOf(t, "/local=http://localhost:8080"), routeOf(t, "/hub=https://api.github.com/x")}, timeout: time.Minute}
	table, err := newTable(o.routes, o, memoryOf(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"api.openai.com": false, "api.anthropic.com": false, "local": true, "hub": true, "api.github.com": true} {
		if got := table.routes[name].upstream.wanted.open; got != want {
			t.Errorf("%s: open %v", name, got)
		}
	}
	if table.routes["hub"].upstream != table.routes["api.github.com"].upstream {
		t.Error("two routes to one server have two gates")
	}
}

func TestSafe_NoTLSErrors(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	o := &options{routes: []routeSpec{routeOf(t, "/tls="+server.URL)}, patience: time.Minute, timeout: time.Minute}
	p, err := newProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/tls/", nil)
	r.Host = "localhost"
	p.ServeHTTP(w, r)
	if w.Code != 502 || !strings.Contains(w.Header().Get("Proxy-Status"), "tls_certificate_error") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestSafe_Redirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Status(302, "Location: http://169.254.169.254/secret"))
		if got := h.call("GET", "/api/", ""); got.StatusCode != 302 || got.Header.Get("Location") != "http://169.254.169.254/secret" || len(h.upstream.Record().Requests) != 1 {
			t.Errorf("%d %v", got.StatusCode, got.Header)
		}
	})
}

// A path does not lead out of the path of its route.
func TestSafe_Paths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{})
		for _, path := range []string{"/api/../x", "/api/%2e%2e/x", "/api/a/%2E./x", "/api/./x", "/api/a%2f..%2fx", "/api/..%5cx", "/api/a%2f%2e%2e"} {
			if got := h.call("GET", path, ""); got.StatusCode != 400 {
				t.Errorf("%s: %d", path, got.StatusCode)
			}
		}
		if n := len(h.upstream.Record().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
		for _, path := range []string{"/api/...", "/api/a..b", "/api/.well-known"} {
			if got := h.call("GET", path, ""); got.StatusCode != 200 {
				t.Errorf("%s: %d", path, got.StatusCode)
			}
		}
	})
}

// Fields for the proxy, and fields that lie about callers, are not passed on; credentials are.
func TestSafe_Header(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{token: "0123456789abcdef"})
		got := h.call("GET", "/api/", "", "Sluice-Token: 0123456789abcdef", "Sluice-Patience: 10", "X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "Proxy-Authorization: Basic eA==", "Connection: X-Hop", "X-Hop: 1", "Authorization: Bearer x", "Cookie: a=b")
		if got.StatusCode != 200 {
			t.Fatalf("%d %s", got.StatusCode, got.body)
		}
		sent := h.upstream.Record().Requests[0].Header
		for _, name := range []string{"Sluice-Token", "Sluice-Patience", "X-Forwarded-For", "Forwarded", "Proxy-Authorization", "X-Hop"} {
			if sent.Get(name) != "" {
				t.Errorf("%s: %s", name, sent.Get(name))
			}
		}
		if sent.Get("Authorization") != "Bearer x" || sent.Get("Cookie") != "a=b" {
			t.Errorf("%v", sent)
		}
		if got := h.call("GET", "/api/", ""); got.StatusCode != 407 {
			t.Errorf("without a token: %d", got.StatusCode)
		}
	})
}

// Logs and answers of the proxy have no credential, query or body of a call, whatever becomes of it.
func TestSafe_NoSecretsInLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := build(t, &options{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			sluicetest.On(1, sluicetest.Reply(429, "SECRET", "Retry-After: 30")),
			sluicetest.On(2, sluicetest.Cut()),
			sluicetest.On(3, sluicetest.Garbage("HTTP/9 SECRET\r\n\r\n")),
			sluicetest.On(4, sluicetest.Status(500)))
		for i := range 6 {
			fields := []string{"Authorization: Bearer SECRET", "X-Api-Key: SECRET", "Cookie: SECRET"}
			if i == 1 {
				fields = append(fields, "Sluice-Patience: 1")
			}
			got := h.call("POST", "/api/SECRET?key=SECRET", "SECRET", fields...)
			if got.Header.Get("Proxy-Status") != "" && strings.Contains(got.body+fmt.Sprint(got.Header), "SECRET") {
				t.Errorf("an answer of the proxy: %v %s", got.Header, got.body)
			}
		}
		if strings.Contains(log.String(), "SECRET") || log.Len() == 0 {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}

// The name of a tenant is not a digest that others can compute.
func TestSafe_TenantsAreKeyed(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	a, b := newTenants(), newTenants()
	if a.of(r) != nobody {
		t.Errorf("without a credential: %s", a.of(r))
	}
	r.Header.Set("Authorization", "Bearer x")
	one := a.of(r)
	if b.of(r) == one || a.of(r) != one {
		t.Error("two installations have the same names, or one has two")
	}
}

// A header that is too long, and a body that stalls, end.
func TestSafe_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{})
		from, to := io.Pipe()
		defer to.Close()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/", from)
		req.ContentLength = 100
		began := time.Now()
		go io.WriteString(to, "a part")
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if took := time.Since(began); resp.StatusCode != 408 || took != slowest {
			t.Errorf("a body that stalls: %d after %v", resp.StatusCode, took)
		}
		req, _ = http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/", http.NoBody)
		req.Body, req.ContentLength = io.NopCloser(from), maxBody+1
		if resp, err = h.client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != 413 {
				t.Errorf("a large body: %d", resp.StatusCode)
			}
		}
		if n := len(h.upstream.Record().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
	s := newServer(nil, t.Context()) // as the program makes it
	if s.MaxHeaderBytes != maxHeader || s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 {
		t.Errorf("%+v", s)
	}
}

// A caller that does not read its response is cut off.
func TestSafe_SlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// httputil.ReverseProxy flushes the header in a goroutine. If that waits for the mutex of a writer that
			// is blocked, the clock of the bubble waits, too.
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		})))
		resp := h.open("/api/")
		defer resp.Body.Close()
		time.Sleep(2 * slowestRead)
		synctest.Wait()
		if n := h.proxy.calls.Load(); n != 0 {
			t.Errorf("%d calls are under way", n)
		}
	})
}

// All kept bodies share a bound.
func TestSafe_BodiesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{})
		if !h.proxy.room.TryAcquire(maxKept - 3) {
			t.Fatal("no room")
		}
		if got := h.call("POST", "/api/", "abcd", "Sluice-Patience: 5"); got.StatusCode != 429 || got.took != 5*time.Second || !strings.Contains(got.body, string(byRoom)) {
			t.Errorf("%d after %v: %s", got.StatusCode, got.took, got.body)
		}
		if got := h.call("POST", "/api/", "abc", "Sluice-Patience: 5"); got.StatusCode != 200 {
			t.Errorf("%d", got.StatusCode)
		}
	})
}
