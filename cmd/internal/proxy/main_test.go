package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A house is a proxy between callers and an upstream, in memory.
type house struct {
	*testing.T
	proxy    *proxy
	upstream *sluicetest.Server
	client   *http.Client
}

// build makes a house with the routes /api and /other, to http://api.test/v1 and
// http://other.test, besides those of presets.
func build(t *testing.T, o *options, layers ...sluicetest.Layer) *house {
	t.Helper()
	h := &house{T: t, upstream: sluicetest.NewServer(layers...)}
	o.routes = append(o.routes, routeOf(t, "/api=http://api.test/v1/"), routeOf(t, "/other=http://other.test"))
	if o.base == nil {
		o.base = h.upstream.Transport()
	}
	if o.patience == 0 {
		o.patience = time.Minute
	}
	if o.timeout == 0 {
		o.timeout = time.Minute
	}
	var err error
	if h.proxy, err = newProxy(o); err != nil {
		t.Fatal(err)
	}
	front := sluicetest.NewServer(sluicetest.Handler(h.proxy))
	h.client = front.Client()
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		front.Close()
		if c, ok := o.base.(*http.Transport); ok {
			c.CloseIdleConnections()
		}
		h.upstream.Close()
	})
	return h
}

func routeOf(t *testing.T, text string) routeSpec {
	t.Helper()
	s, err := parseRoute(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open gets a path of the proxy. The body of the response is still to be read, and closed.
func (h *house) open(path string) *http.Response {
	h.Helper()
	req, err := http.NewRequestWithContext(h.Context(), "GET", "http://localhost:7777"+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.Fatal(err)
	}
	return resp
}

// An answer is a response, read.
type answer struct {
	*http.Response
	body string
	took time.Duration
}

// call makes a request to a path of the proxy, with fields of the header such as "Name: value".
func (h *house) call(method, path, body string, fields ...string) answer {
	h.Helper()
	a, err := h.try(h.Context(), method, path, body, fields...)
	if err != nil {
		h.Error(err)
		return answer{Response: &http.Response{Header: http.Header{}}}
	}
	return a
}

func (h *house) try(ctx context.Context, method, path, body string, fields ...string) (answer, error) {
	began := time.Now()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost:7777"+path, from)
	if err != nil {
		return answer{}, err
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp, string(text), time.Since(began)}, err
}
