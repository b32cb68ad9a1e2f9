package main

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// retryableHTTP is go-retryablehttp v0.7.8 of HashiCorp as NewClient returns it: waits of
// 1, 2, 4 … 30 s, and the Retry-After of a 429 or 503 instead. It gives up after four
// retries; here it does not.
func retryableHTTP(p *process) caller {
	c := retryablehttp.NewClient()
	c.RetryMax = math.MaxInt
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: transport{p}}
	return func(ctx context.Context, w *wish) error {
		request, err := retryablehttp.NewRequestWithContext(context.WithValue(ctx, wishKey{}, w), http.MethodGet, "http://upstream.example/", nil)
		if err != nil {
			return err
		}
		_, err = c.Do(request)
		return err
	}
}

// sluiceHTTP is a sluicehttp.Transport in an http.Client: the whole stack, which reads
// the status and the header of each response. Sluice's Config is cfg, except that it
// never gives up.
func (p *process) sluiceHTTP(cfg sluice.Config) caller {
	cfg.RetryBudget = -1
	over, err := sluicehttp.New(transport{p}, sluicehttp.Config{Gate: cfg, Retry: p.forever()})
	if err != nil {
		panic(err)
	}
	c := &http.Client{Transport: over}
	return func(ctx context.Context, w *wish) error {
		ctx = sluicehttp.WithOverrides(context.WithValue(ctx, wishKey{}, w), sluicehttp.Overrides{Cost: int64(w.cost)})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream.example/", nil)
		if err != nil {
			return err
		}
		response, err := c.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
}

// A transport is the upstream as an http.RoundTripper.
type transport struct{ p *process }

type wishKey struct{}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	r, err := t.p.attempt(ctx, ctx.Value(wishKey{}).(*wish))
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: statusOf[r.outcome],
		Status:     http.StatusText(statusOf[r.outcome]),
		Header:     headersOf(r),
		Body:       http.NoBody,
		Request:    request,
	}, nil
}

var statusOf = [...]int{
	granted: http.StatusOK,
	refused: http.StatusTooManyRequests,
	failed:  http.StatusInternalServerError,
}

// headersOf returns what a reply says as HTTP has it: in whole seconds, rounded up.
func headersOf(r reply) http.Header {
	h := http.Header{}
	whole := func(name string, d time.Duration) {
		if d >= 0 {
			h.Set(name, strconv.Itoa(int(math.Ceil(d.Seconds()))))
		}
	}
	whole("Retry-After", r.retryAfter)
	whole("X-RateLimit-Reset", r.reset)
	if r.remaining >= 0 {
		h.Set("X-RateLimit-Remaining", strconv.Itoa(int(r.remaining)))
	}
	return h
}
