package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// idle checks that h holds nothing for any call.
func (h *house) idle() {
	h.Helper()
	synctest.Wait()
	if n, turns, room := h.proxy.calls.Load(), h.proxy.turns.waiting(), h.proxy.room.InFlight(); n != 0 || turns != 0 || room != 0 {
		h.Errorf("%d calls, %d turns and %d bytes of bodies are left", n, turns, room)
	}
}

// A server that does not do what it should costs the calls that meet it, and none afterwards.
func TestFault_Upstream(t *testing.T) {
	for _, test := range []struct {
		name  string
		layer sluicetest.Layer
		want  []int // statuses for the caller; 0 is a response that breaks off
	}{
		{"slow", sluicetest.Delay(2 * time.Minute), []int{504}},
		{"resets", sluicetest.Reset(), []int{502}},
		{"hangs up", sluicetest.Cut(), []int{502}},
		{"no HTTP", sluicetest.Garbage("SSH-2.0-OpenSSH_9.6\r\n"), []int{502}},
		{"a header of a megabyte", sluicetest.Header("X: " + strings.Repeat("x", 1<<20)), []int{502}},
		{"half a response", sluicetest.CutBody(1), []int{0}},
		{"errors", sluicetest.Status(500), []int{500}},
		{"a Retry-After of centuries", sluicetest.Reply(429, "no", "Retry-After: 99999999999"), []int{429}},
		{"a Retry-After that is none", sluicetest.Reply(429, "no", "Retry-After: -7, NaN"), []int{429}},
		{"impossible limits", sluicetest.Reply(200, "ok", "RateLimit: \"x\";r=-5;t=99999999999999999999", "X-RateLimit-Remaining: 1e400", "X-RateLimit-Reset: -1"), []int{200}},
		{"switches without being asked", sluicetest.Garbage("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), []int{0, 502}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := sluicetest.NewServer(sluicetest.Path("/v1/bad", test.layer))
				defer server.Close()
				base := server.Transport()
				base.ResponseHeaderTimeout, base.MaxResponseHeaderBytes = time.Minute, maxHeader // as newBase
				h := build(t, &options{base: base})
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						got, err := h.try(t.Context(), "POST", "/api/bad", "body", "Sluice-Patience: 60")
						status := 0
						if err == nil {
							status = got.StatusCode
						}
						for _, want := range append(test.want, 429) { // those behind may learn that they wait too long
							if status == want {
								return
							}
						}
						t.Errorf("%d, %v, want one of %v", status, err, test.want)
					})
				}
				all.Wait()
				h.idle()
				if got := h.call("GET", "/other/", ""); got.StatusCode != 200 {
					t.Errorf("another server: %d", got.StatusCode)
				}
			})
		})
	}
}

// An away is an upstream that refuses connections until a time.
type away struct {
	until time.Time
	base  http.RoundTripper
}

func (a away) RoundTrip(req *http.Request) (*http.Response, error) {
	if time.Now().Before(a.until) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return a.base.RoundTrip(req)
}

// While a server is away, calls end within their patience; when it is back, they pass.
func TestFault_UpstreamAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sluicetest.NewServer()
		base := server.Transport()
		h := build(t, &options{base: away{time.Now().Add(10 * time.Minute), base}})
		var all sync.WaitGroup
		var unreachable atomic.Int64
		for range 300 {
			all.Go(func() {
				got := h.call("POST", "/api/", "body")
				switch is := got.Header.Get("Proxy-Status"); {
				case got.took > 2*time.Minute:
					t.Errorf("%d after %v", got.StatusCode, got.took)
				case got.StatusCode == 502 && is == "sluice; error=destination_unavailable":
					unreachable.Add(1)
				case got.StatusCode == 429 && is == "sluice; error=connection_limit_reached": // calls are spaced while all fail
				default:
					t.Errorf("%d %v", got.StatusCode, got.Header)
				}
			})
		}
		all.Wait()
		h.idle()
		if unreachable.Load() == 0 {
			t.Error("no call says that the server is away")
		}
		time.Sleep(10 * time.Minute)
		for range 300 {
			all.Go(func() {
				if got := h.call("POST", "/api/", "body"); got.StatusCode != 200 {
					t.Errorf("it is back: %d", got.StatusCode)
				}
			})
		}
		all.Wait()
		h.idle()
		base.CloseIdleConnections()
		server.Close()
	})
}

// Clients that hang, in the middle of a body or while they wait, cost others nothing, and leave
// nothing behind.
func TestFault_ClientsHang(t *testing.T) {
	clients := 500
	if os.Getenv("SLUICE_FULL") != "" {
		clients = 10_000
	}
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{patience: time.Hour}, sluicetest.Path("/v1/held", sluicetest.Stall(1, time.Hour)))
		ctx, hangUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var stalled, ended, other int
		var mu sync.Mutex
		for i := range clients {
			all.Go(func() {
				if i%2 == 1 { // it waits for its turn, and hangs up
					_, err := h.try(ctx, "POST", "/api/held", strings.Repeat("x", 1000))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						ended++
					}
					return
				}
				from, to := io.Pipe() // it sends a body that never arrives
				defer to.Close()
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/", from)
				req.ContentLength = 1000
				resp, err := h.client.Do(req)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					other++
					return
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusRequestTimeout {
					stalled++
				}
			})
		}
		time.Sleep(10 * time.Second)
		if n := h.proxy.calls.Load(); n != int64(clients) {
			t.Errorf("%d calls are under way, want %d", n, clients)
		}
		if got := h.call("GET", "/other/", ""); got.StatusCode != 200 || got.took > time.Second {
			t.Errorf("a call to another server: %d after %v", got.StatusCode, got.took)
		}
		time.Sleep(time.Minute)
		hangUp()
		all.Wait()
		if stalled+other != clients/2 || stalled < clients/4 || ended != clients/2 {
			t.Errorf("%d bodies ended with 408 and %d with an error, and %d calls were hung up, of %d", stalled, other, ended, clients)
		}
		h.idle()
	})
}
