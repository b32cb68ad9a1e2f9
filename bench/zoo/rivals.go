package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

var clients = []client{
	listed("sluice", "sluicehttp with no configuration", ofSluice(func(*server) sluice.Config { return sluice.Config{} })),
	listed("search", "sluicehttp with Adaptive.Search", ofSluice(func(*server) sluice.Config {
		return sluice.Config{Adaptive: sluice.Adaptive{Search: true}}
	})),
	listed("told", "sluicehttp, told the rate or the concurrency", ofSluice(told)),
	listed("xtime", "golang.org/x/time/rate, told the same, in a loop with cenkalti/backoff", client{http: xtimeHTTP, grpc: xtimeGRPC}),
	listed("retryablehttp", "hashicorp/go-retryablehttp: 4 retries; for gRPC its own retries", client{workers: 16, http: retryable, grpc: retryPolicy}),
	listed("aws", "the adaptive mode of aws-sdk-go-v2", client{http: awsAdaptive}),
	listed("failsafe", "the adaptive limiter of failsafe-go, with its retry policy: 4 retries", client{http: failsafeAdaptive}),

	named("backoff", "cenkalti/backoff that respects Retry-After, and nothing else", client{http: backoffHTTP}),
	named("off", "told, with Adaptive.Off", ofSluice(func(s *server) sluice.Config {
		cfg := told(s)
		cfg.Adaptive.Disabled = true
		return cfg
	})),
	named("costly", "sluicehttp with Adaptive.Costly", ofSluice(func(*server) sluice.Config {
		return sluice.Config{Adaptive: sluice.Adaptive{AvoidThrottling: true}}
	})),
	named("policy", "sluicehttp with Published.Spread 1", client{http: overHTTP(func(*server) sluicehttp.Config {
		return sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}
	})}),
	named("idempotent", "sluicehttp; all requests are declared idempotent", client{http: overHTTP(func(*server) sluicehttp.Config {
		return sluicehttp.Config{Idempotent: func(*http.Request, []byte) bool { return true }}
	})}),
	named("refused", "sluicehttp with a Config.Inspect: what the server counts as a refusal is a throttle", client{http: overHTTP(inspected)}),
	named("no-remaining", "sluicehttp without the limits that granted responses publish", client{http: overHTTP(func(*server) sluicehttp.Config {
		return sluicehttp.Config{Inspect: noRemaining}
	})}),
	named("told-no-remaining", "both", client{http: overHTTP(func(s *server) sluicehttp.Config {
		return sluicehttp.Config{Gate: told(s), Inspect: noRemaining}
	})}),
	named("plain", "http.Client: no retries", client{http: func(t *target) (caller, func() string) {
		return t.get(&http.Client{Transport: t.tap}), silent
	}}),
}

func named(name, about string, c client) client {
	c.name, c.about = name, about
	return c
}

func listed(name, about string, c client) client {
	c.listed = true
	return named(name, about, c)
}

func inspected(s *server) sluicehttp.Config {
	return sluicehttp.Config{Inspect: func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		said.Throttled = said.Throttled || s.refused(resp.StatusCode, peek())
	}}
}

func noRemaining(_ *http.Response, _ func() []byte, said *ratelimit.Info) {
	if !said.Throttled {
		said.Limits = nil
	}
}

// xtimeHTTP is what a careful user writes for one server: golang.org/x/time/rate with the
// rate, or a semaphore, in a loop with a backoff that respects Retry-After. It repeats whatever
// this server means by no, but not a request that must not be sent twice.
func xtimeHTTP(t *target) (caller, func() string) {
	return xtime(t, t.get(&http.Client{Transport: t.tap})), silent
}

// backoffHTTP is xtimeHTTP for somebody who knows no limit.
func backoffHTTP(t *target) (caller, func() string) {
	unknown, s := *t, *t.server
	s.limit.kind, unknown.server = open, &s
	return xtime(&unknown, t.get(&http.Client{Transport: t.tap})), silent
}

func xtimeGRPC(t *target) (caller, func() string) { return xtime(t, t.invoke(nil)), silent }

func xtime(t *target, do caller) caller {
	wait, done := func(context.Context) error { return nil }, func() {}
	switch l := t.server.limit; l.kind {
	case inFlight:
		sem := semaphore.NewWeighted(int64(l.n))
		wait, done = func(ctx context.Context) error { return sem.Acquire(ctx, 1) }, func() { sem.Release(1) }
	case open, down:
	default:
		burst := 1 // as its package comment recommends
		if t.server.bursts {
			burst = int(l.burst)
		}
		wait = rate.NewLimiter(rate.Limit(l.perSecond()), burst).Wait
	}
	return func(ctx context.Context, item int) error {
		var last error
		_, err := backoff.Retry(ctx, func() (struct{}, error) {
			if err := wait(ctx); err != nil {
				return struct{}{}, backoff.Permanent(err)
			}
			defer done()
			last = do(ctx, item)
			var a *answer
			if errors.As(last, &a) {
				if t.server.once && a.status != http.StatusTooManyRequests {
					return struct{}{}, backoff.Permanent(last)
				}
				if n, err := strconv.Atoi(a.retryAfter); err == nil && n > 0 {
					return struct{}{}, backoff.RetryAfter(n)
				}
			}
			return struct{}{}, last
		})
		if err != nil && last != nil {
			return last
		}
		return err
	}
}

// retryable is go-retryablehttp as NewClient returns it.
func retryable(t *target) (caller, func() string) {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: t.tap}
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return t.get(c.StandardClient()), silent
}

// awsAdaptive is the adaptive mode of aws-sdk-go-v2 with its defaults and its attempt
// middleware, on plain HTTP: 429 and 503 are throttling errors, other statuses are those of
// a response. What is in the body of a 200 it does not see.
func awsAdaptive(t *target) (caller, func() string) {
	do := t.get(&http.Client{Transport: t.tap})
	same := func(request any) any { return request }
	attempts := retry.NewAttemptMiddleware(ticking{retry.NewAdaptiveMode()}, same)
	return func(ctx context.Context, item int) error {
		var last error
		send := middleware.FinalizeHandlerFunc(func(ctx context.Context, _ middleware.FinalizeInput) (
			out middleware.FinalizeOutput, data middleware.Metadata, err error,
		) {
			last = do(ctx, item)
			var a *answer
			switch {
			case !errors.As(last, &a):
				return out, data, last
			case a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable:
				return out, data, &smithy.GenericAPIError{Code: "ThrottlingException"}
			case a.status >= 400:
				return out, data, &smithyhttp.ResponseError{
					Response: &smithyhttp.Response{Response: &http.Response{StatusCode: a.status}}, Err: fmt.Errorf("status %d", a.status),
				}
			}
			return out, data, nil
		})
		_, _, err := attempts.HandleFinalize(ctx, middleware.FinalizeInput{}, send)
		if last != nil {
			return last
		}
		return err
	}, silent
}

// ticking is an adaptive mode for virtual time, as in bench/league: where the SDK sleeps for
// the time that is missing to a token, cut off to nanoseconds, that may be none, and it tries
// again immediately, until the clock has moved on, which it does not in a bubble while a goroutine
// runs. So each of its sleeps takes a microsecond more.
type ticking struct{ *retry.AdaptiveMode }

func (t ticking) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	return t.AdaptiveMode.GetAttemptToken(tickingContext{ctx})
}

// A tickingContext is asked for its channel once in each sleep.
type tickingContext struct{ context.Context }

func (c tickingContext) Done() <-chan struct{} {
	time.Sleep(time.Microsecond)
	return c.Context.Done()
}

// failsafeAdaptive is the adaptive limiter of failsafe-go with its defaults; callers block in
// it. Around it is the retry policy for HTTP of the same library, with a backoff and as many
// retries as those of go-retryablehttp.
func failsafeAdaptive(t *target) (caller, func() string) {
	l := adaptivelimiter.NewWithDefaults[any]()
	policy := failsafehttp.NewRetryPolicyBuilder().WithBackoff(time.Second, 30*time.Second).WithMaxRetries(4).ReturnLastFailure().Build()
	return t.get(&http.Client{Transport: failsafehttp.NewRoundTripper(limited{l, t.tap}, policy)}), silent
}

type limited struct {
	limiter adaptivelimiter.AdaptiveLimiter[any]
	base    http.RoundTripper
}

func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	permit, err := l.limiter.AcquirePermit(req.Context())
	if err != nil {
		return nil, err
	}
	resp, err := l.base.RoundTrip(req)
	if err != nil {
		permit.Drop()
		return nil, err
	}
	permit.Record()
	return resp, nil
}

// retryPolicy is gRPC's own: the tap sees only the last attempt of each call.
func retryPolicy(t *target) (caller, func() string) {
	return t.invoke(nil, grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
		"maxAttempts":5,"initialBackoff":"1s","maxBackoff":"30s","backoffMultiplier":2,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`)), silent
}
