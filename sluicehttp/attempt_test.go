package sluicehttp_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestTransport_AttemptTimeout(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 10 * time.Second
	for _, c := range []struct {
		name, method string
		o            sluicehttp.Overrides
		fault        sluicetest.Layer
		status       int
		at           time.Duration
	}{
		{"hangs", "GET", sluicehttp.Overrides{}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 200, 11 * time.Second},
		{"hangs, not to be sent twice", "POST", sluicehttp.Overrides{}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 0, 10 * time.Second},
		{"by override", "GET", sluicehttp.Overrides{AttemptTimeout: time.Second}, sluicetest.On(1, sluicetest.Delay(limits.Never)), 200, 2 * time.Second},
		{"slow, without bound", "GET", sluicehttp.Overrides{AttemptTimeout: -1}, sluicetest.Delay(time.Minute), 200, time.Minute},
		{"a long body is no failure", "GET", sluicehttp.Overrides{}, events(100, time.Second), 200, 99 * time.Second},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				inWorld(t, sluicehttp.Config{Retry: policy, Gate: sluice.Config{Concurrency: 1}}, layers(c.fault), func(w *world) {
					status, _, err := w.do(request(t, sluicehttp.With(bg, c.o), c.method, scheme+"://a.test/", nil))
					if status != c.status || w.now() != c.at || (err == nil) != (status != 0) {
						t.Errorf("%d, %v at %v; want %d at %v", status, err, w.now(), c.status, c.at)
					}
					if err != nil {
						timeout, ok := errors.AsType[interface {
							error
							Timeout() bool
						}](err)
						if !ok || !timeout.Timeout() || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no answer within the 10s of an attempt") {
							t.Errorf("got %v", err)
						}
					}
				})
			})
		}
	}
}

// A dial that hangs has written nothing, so that a POST may be tried again.
func TestTransport_AttemptTimeout_Dial(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 10 * time.Second
	inWorld(t, sluicehttp.Config{Retry: policy}, nil, func(w *world) {
		onDial(w.rt.Unwrap(), func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.do(request(t, bg, "POST", "http://a.test/", strings.NewReader("x")))
		w.wantCame(11 * time.Second)
	})
}

func TestTransport_RetryBudget_RetriesOfAnSDK(t *testing.T) {
	for _, c := range []struct {
		header, value string
		tokens        int
	}{
		{"X-Stainless-Retry-Count", "0", 20},
		{"X-Stainless-Retry-Count", "1", 15},
		{"X-Stainless-Retry-Count", "many", 20},
		{"Amz-Sdk-Request", "attempt=1; max=3", 20},
		{"Amz-Sdk-Request", "attempt=2; max=3", 15},
		{"Amz-Sdk-Request", "ttl=x;attempt=3;max=3", 15},
		{"Amz-Sdk-Request", "max=3", 20},
		{"grpc-previous-rpc-attempts", "2", 15},
		{"grpc-previous-rpc-attempts", "-2", 20},
		{"X-Other", "7", 20},
	} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{RetryBudget: 20}}, layers(sluicetest.Status(501)), func(w *world) {
			req := request(t, bg, "GET", "http://a.test/", nil)
			req.Header.Set(c.header, c.value)
			w.do(req)
			if got := stats(t, w.rt).RetryTokens; got != c.tokens {
				t.Errorf("%s: %s: %d tokens are left, want %d", c.header, c.value, got, c.tokens)
			}
		})
	}
}

// The herd of a failing server is held back by the budget of its key alone.
func TestTransport_RetryBudget_PerKey(t *testing.T) {
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{RetryBudget: 10}}
	inWorld(t, cfg, layers(sluicetest.Host("down.test", sluicetest.Status(500)), sluicetest.Every(2, sluicetest.Status(500))), func(w *world) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { w.wantGet("http://down.test/", 500) })
		}
		wg.Wait()
		if n := len(w.srv.Record().Host("down.test").Requests); n != 22 {
			t.Errorf("%d requests came for 20 calls and a budget of two retries", n)
		}
		w.wantGet("http://fine.test/", 200)
		w.wantGet("http://fine.test/", 200) // the second of its attempts
	})
}
