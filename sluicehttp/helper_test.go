package sluicehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

var bg = context.Background()

const ms = time.Millisecond

// seconds is a policy whose every backoff is 1 s, so that instants are exact.
var seconds = sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), Throttled: sluice.Constant(time.Second)}

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
