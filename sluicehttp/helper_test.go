package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // messages have times of day
	goleak.VerifyTestMain(m)
}

var bg = context.Background()

const ms = time.Millisecond

// seconds is a policy whose every backoff is 1 s, so that instants are exact.
var seconds = sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(time.Second)}

// A world is a server in memory and a client that comes to it through a transport
// that adds nothing at random.
type world struct {
	*testing.T
	srv    *sluicetest.Server
	rt     *sluicehttp.Transport
	client *http.Client
	start  time.Time
}

// inWorld runs f in a bubble in which the server answers through layers.
func inWorld(t *testing.T, cfg sluicehttp.Config, layers []sluicetest.Layer, f func(w *world)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { withWorld(t, cfg, layers, f) })
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// withWorld is inWorld within a bubble, such as for limits that are made there.
func withWorld(t *testing.T, cfg sluicehttp.Config, layers []sluicetest.Layer, f func(w *world)) {
	t.Helper()
	srv := sluicetest.NewServer(layers...)
	defer srv.Close()
	base := srv.Transport()
	defer base.CloseIdleConnections()
	w := &world{T: t, srv: srv, rt: mustTransport(t, base, cfg), start: time.Now()}
	w.client = &http.Client{Transport: srv.Watch(w.rt)}
	f(w)
	for _, line := range srv.Record().Log {
		if !strings.Contains(line, "TLS handshake") {
			t.Errorf("the server says: %s", line)
		}
	}
}

func mustTransport(t testing.TB, base http.RoundTripper, cfg sluicehttp.Config) *sluicehttp.Transport {
	t.Helper()
	rt, err := sluicehttp.New(base, cfg)
	if err != nil {
		t.Fatal(err)
	}
	rt.SetRandom(func() float64 { return 0 })
	return rt
}

func layers(l ...sluicetest.Layer) []sluicetest.Layer { return l }

func (w *world) now() time.Duration { return time.Since(w.start) }

// request returns a request with ctx.
func request(t testing.TB, ctx context.Context, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// do sends a request and reads the answer to its end.
func (w *world) do(req *http.Request) (status int, body string, err error) {
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

// get is do for a GET.
func (w *world) get(ctx context.Context, url string) (status int, body string, err error) {
	w.Helper()
	return w.do(request(w, ctx, http.MethodGet, url, nil))
}

// wantGet checks the status of a GET.
func (w *world) wantGet(url string, status int) {
	w.Helper()
	if got, _, err := w.get(bg, url); err != nil || got != status {
		w.Errorf("GET %s: %d, %v; want %d", url, got, err, status)
	}
}

// wantCame checks when requests arrived.
func (w *world) wantCame(want ...time.Duration) {
	w.Helper()
	if got := w.srv.Record().Arrivals(); !slices.Equal(got, want) {
		w.Errorf("requests arrived at\n\t%v\nwant\n\t%v", got, want)
	}
}

// inFlight returns what is in flight at all gates.
func inFlight(rt *sluicehttp.Transport) (n int64) {
	rt.Stats(func(_ string, s sluicehttp.Stats) bool {
		n += s.InFlight
		return true
	})
	return n
}

// stats returns the Stats of the only gate.
func stats(t testing.TB, rt *sluicehttp.Transport) (only sluicehttp.Stats) {
	t.Helper()
	n := 0
	rt.Stats(func(key string, s sluicehttp.Stats) bool {
		n++
		only = s
		return true
	})
	if n != 1 {
		t.Fatalf("there are %d gates, want 1", n)
	}
	return only
}

// wantWhy checks why there was no other attempt.
func wantWhy(t testing.TB, r *sluicehttp.Report, why error, attempts int) {
	t.Helper()
	hop := r.Last()
	if why == nil && hop.Why != nil || why != nil && !errors.Is(hop.Why, why) || len(hop.Attempts) != attempts {
		t.Errorf("%d attempts, why: %v; want %d, %v", len(hop.Attempts), hop.Why, attempts, why)
	}
}

// # A server

// Ways for a dial to fail.
var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errNoHost  = &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}
	errDropped = errors.New("connected, and closed at once")
)

// onDial makes the n-th dial of base end as f says, counted from 1: nil connects.
func onDial(base http.RoundTripper, f func(ctx context.Context, n int) error) {
	transport := base.(*http.Transport)
	dial, dials := transport.DialContext, new(atomic.Int64) // an abandoned dial may still run
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		switch err := f(ctx, int(dials.Add(1))); err {
		case nil:
			return dial(ctx, network, addr)
		case errDropped:
			client, server := net.Pipe()
			return client, server.Close()
		default:
			return nil, err
		}
	}
}

// firstDial makes the first dial of base fail.
func firstDial(base http.RoundTripper, err error) {
	onDial(base, func(_ context.Context, n int) error {
		if n == 1 {
			return err
		}
		return nil
	})
}

// abort aborts the response: the connection in HTTP/1.1, the stream in HTTP/2.
func abort() sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// events answers with a stream of n events, the first of them at once.
func events(n int, every time.Duration) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			if i > 0 {
				time.Sleep(every)
			}
			fmt.Fprintf(w, "data: %d\n\n", i+1)
			w.(http.Flusher).Flush()
		}
	}))
}

// echo switches protocols and sends back the first n bytes.
func echo(t testing.TB, n int64) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(conn, buf, n)
	}))
}

// earlyHints sends a 103 before the response.
func earlyHints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		next.ServeHTTP(w, r)
	})
}

// Families that few servers use. Times are rounded up to a second.

func untilWholeSecond(s sluicetest.LimitState, wait time.Duration) time.Time {
	return s.Now.Add(wait + time.Second - 1).Truncate(time.Second)
}

func retryAfterDate(h http.Header, s sluicetest.LimitState) {
	if s.Throttled {
		h.Set("Retry-After", untilWholeSecond(s, s.Wait).UTC().Format(http.TimeFormat))
	}
}

func retryAfterEpoch(h http.Header, s sluicetest.LimitState) {
	if s.Throttled {
		h.Set("Retry-After", fmt.Sprint(untilWholeSecond(s, s.Wait).Unix()))
	}
}

func retryAfterMillis(h http.Header, s sluicetest.LimitState) {
	sluicetest.RetryAfter(h, s)
	if s.Throttled {
		h.Set("Retry-After-Ms", fmt.Sprint(max(1, (s.Wait+time.Millisecond-1).Milliseconds())))
	}
}

func draft7(h http.Header, s sluicetest.LimitState) {
	h.Set("Ratelimit-Policy", fmt.Sprintf("%d;w=%d", s.Limit, int64(s.Window.Seconds())))
	h.Set("Ratelimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", s.Limit, s.Remaining, resetSeconds(s)))
}

func draft3(h http.Header, s sluicetest.LimitState) {
	h.Set("Ratelimit-Limit", fmt.Sprintf("%d, %d;w=%d", s.Limit, s.Limit, int64(s.Window.Seconds())))
	h.Set("Ratelimit-Remaining", fmt.Sprint(s.Remaining))
	h.Set("Ratelimit-Reset", fmt.Sprint(resetSeconds(s)))
}

func resetSeconds(s sluicetest.LimitState) int64 {
	wait := s.Reset
	if s.Remaining == 0 {
		wait = s.Wait
	}
	return int64((wait + time.Second - 1) / time.Second)
}
