package main

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// awsSDK is the adaptive mode of aws-sdk-go-v2 v1.47.7: package aws/retry with its own
// attempt middleware, which a client of any service has. As the documentation of retry
// offers, attempts are not bounded (AddWithMaxAttempts with 0) and retries cost no quota
// (ratelimit.None), so that calls go on until they succeed. Refusals are
// ThrottlingException. The SDK does not read Retry-After. The backoff is that of
// ExponentialJitterBackoff, with random numbers that a seed repeats.
func awsSDK(p *process) caller {
	adaptive := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
			o.RateLimiter = ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
				if math.Pow(2, float64(attempt)) > o.MaxBackoff.Seconds() {
					return o.MaxBackoff, nil
				}
				return seconds(p.float64() * math.Pow(2, float64(attempt))), nil
			})
		})
	})
	same := func(request any) any { return request }
	attempts := retry.NewAttemptMiddleware(retry.AddWithMaxAttempts(ticking{adaptive}, 0), same)
	return func(ctx context.Context, w *wish) error {
		send := middleware.FinalizeHandlerFunc(func(ctx context.Context, _ middleware.FinalizeInput) (
			out middleware.FinalizeOutput, data middleware.Metadata, err error,
		) {
			r, err := p.attempt(ctx, w)
			switch {
			case err != nil:
				return out, data, err
			case r.outcome == refused:
				return out, data, &smithy.GenericAPIError{Code: "ThrottlingException"}
			case r.outcome == failed:
				response := &http.Response{StatusCode: http.StatusInternalServerError}
				return out, data, &smithyhttp.ResponseError{
					Response: &smithyhttp.Response{Response: response}, Err: errFailed,
				}
			}
			return out, data, nil
		})
		_, _, err := attempts.HandleFinalize(ctx, middleware.FinalizeInput{}, send)
		return err
	}
}

// ticking is an adaptive mode for virtual time. AdaptiveMode.GetAttemptToken sleeps for
// the time that is missing to a token, cut off to nanoseconds. That may be none, and it
// tries again immediately, until the clock has moved on, which it does not in a bubble while
// a goroutine runs. So each of its sleeps takes a microsecond more.
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
