package recipes

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// What the libraries do after failures, and what else they have: the other cells of TestRivals.

var errDown = errors.New("down")

// delayed returns whom a Retry-After of 30 s delays: the server sends it to the first of three
// calls that are made a second apart.
func delayed(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper) string {
	s := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 30")))
	defer s.Close()
	base := s.Transport()
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: wrap(base)}
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			resp, err := client.Get("https://api.test/")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
		time.Sleep(time.Second)
	}
	calls.Wait()
	at := s.Record().Arrivals()
	switch {
	case len(at) == 4 && at[1] >= 30*time.Second:
		return "all callers"
	case len(at) == 4 && at[2] == 2*time.Second && at[3] >= 30*time.Second:
		return "one call"
	}
	return "none"
}

func gateRetryAfter(t *testing.T) string {
	return delayed(t, func(base http.RoundTripper) http.RoundTripper {
		return limits.Must(sluicehttp.New(base))
	})
}

func failsafeRetryAfter(t *testing.T) string {
	return delayed(t, func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
	})
}

// spaced reports whether the attempts of one call that always fails start no closer than gap.
func spaced(gap time.Duration, run func(attempt func() error)) bool {
	var at []time.Time
	run(func() error {
		at = append(at, time.Now())
		return errDown
	})
	for i := 1; i < len(at); i++ {
		if at[i].Sub(at[i-1]) < gap {
			return false
		}
	}
	return len(at) > 1
}

func gateRetries(t *testing.T) string {
	g := limits.Must(sluice.New(sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}))
	if !spaced(time.Minute, func(attempt func() error) {
		err := sluice.Retry(t.Context(), g, func(context.Context) error { return attempt() })
		if !errors.Is(err, errDown) {
			t.Error(err)
		}
	}) {
		return "no"
	}
	return "yes"
}

func failsafeRetries(t *testing.T) string {
	with := func(outer, inner failsafe.Policy[any]) bool {
		return spaced(100*time.Millisecond, func(attempt func() error) {
			if err := failsafe.With(outer, inner).Run(attempt); err == nil {
				t.Error("no error")
			}
		})
	}
	retry := retrypolicy.NewBuilder[any]().WithMaxRetries(5).Build()
	limiter := ratelimiter.NewSmoothBuilder[any](10, time.Second).WithMaxWaitTime(time.Minute).Build()
	switch before, behind := with(retry, limiter), with(limiter, retry); {
	case before && behind:
		return "yes"
	case before:
		return "if the retry policy comes first"
	}
	return "no"
}

// attemptsOf returns how many attempts 100 calls make together, one after the other, at a
// server that is down.
func attemptsOf(call func(attempt func() error)) (n int) {
	for range 100 {
		call(func() error { n++; return errDown })
	}
	return n
}

func gateBudget(t *testing.T) string {
	g := limits.Must(sluice.New(sluice.Config{}))
	policy := sluice.RetryPolicy{Attempts: 3, Backoff: sluice.Constant(time.Nanosecond)}
	if n := attemptsOf(func(attempt func() error) {
		_ = sluice.Retry(t.Context(), g, func(context.Context) error { return attempt() }, policy)
	}); n > 150 {
		return "no"
	}
	return "yes, by default"
}

// failsafeBudget: 10 retries at the same time, a fifth of the calls in flight, but not fewer than 3,
// is how its budget is described. Calls that fail one after the other never exceed that; calls at
// the same time do.
func failsafeBudget(t *testing.T) string {
	run := func(b retrypolicy.Builder[any]) (n int64) {
		var attempts atomic.Int64
		var calls sync.WaitGroup
		retry := b.WithMaxRetries(2).WithDelay(time.Second).Build()
		for range 100 {
			calls.Go(func() {
				_ = failsafe.With[any](retry).Run(func() error { attempts.Add(1); time.Sleep(time.Second); return errDown })
			})
		}
		calls.Wait()
		return attempts.Load()
	}
	without := run(retrypolicy.NewBuilder[any]())
	with := run(retrypolicy.NewBuilder[any]().WithBudget(budget.New()))
	t.Logf("100 calls at a server that is down: %d attempts, %d with a budget", without, with)
	if without == 300 && with < 200 {
		return "yes, if configured"
	}
	return "no"
}

// gateFinds: a server takes 10 calls per second and 20 at the same time; what the gate learned
// from its 429s is within a tenth of that after a minute.
func gateFinds(t *testing.T) string {
	s := sluicetest.NewServer(
		sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second}), sluicetest.Delay(50*time.Millisecond))
	defer s.Close()
	base := s.Transport()
	defer base.CloseIdleConnections()
	transport := limits.Must(sluicehttp.New(base))
	client := &http.Client{Transport: transport}
	var calls sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 8 {
		calls.Go(func() {
			for ctx.Err() == nil {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", nil)
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	calls.Wait()
	last := s.Record().Filter(func(r sluicetest.Request) bool { return r.Arrived >= time.Minute })
	refused := last.Throttled()
	t.Logf("%d of 600 requests in the second minute, %d throttled", len(last.Requests), refused)
	if sent := len(last.Requests); sent-refused >= 540 && refused <= 60 {
		return "rate and concurrency, from throttling"
	}
	return "no"
}

// failsafeFinds: the latency of a server grows with each call beyond 10 in flight.
func failsafeFinds(t *testing.T) string {
	limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, 200, 100).WithMaxWaitTime(time.Hour).Build()
	var inFlight atomic.Int64
	var calls sync.WaitGroup
	end := time.Now().Add(5 * time.Minute)
	for range 200 {
		calls.Go(func() {
			for time.Now().Before(end) {
				permit, err := limiter.AcquirePermit(context.Background())
				if err != nil {
					time.Sleep(10 * time.Millisecond) // it rejects at once what exceeds the limit
					continue
				}
				n := inFlight.Add(1)
				time.Sleep(10 * time.Millisecond * time.Duration(max(1, n/10)))
				inFlight.Add(-1)
				permit.Record()
			}
		})
	}
	calls.Wait()
	t.Logf("its limit is %d", limiter.Limit())
	if limiter.Limit() <= 50 {
		return "concurrency, from latency"
	}
	return "no"
}

// failsafePriorities: when half of its queue is taken, by callers of all priorities, the limiter
// rejects calls of the lowest one and not those of the highest.
func failsafePriorities(*testing.T) string {
	prioritizer := adaptivelimiter.NewPrioritizer()
	limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).WithQueueing(1, 50).BuildPrioritized(prioritizer)
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	for i := range 26 {
		calls.Go(func() {
			if permit, err := limiter.AcquirePermitWithPriority(ctx, priority.Priority(i%5)); err == nil {
				<-ctx.Done()
				permit.Drop()
			}
		})
		synctest.Wait()
	}
	prioritizer.Calibrate()
	low, high := limiter.CanAcquirePermitWithPriority(ctx, priority.VeryLow), limiter.CanAcquirePermitWithPriority(ctx, priority.VeryHigh)
	cancel()
	calls.Wait()
	if !low && high {
		return "yes, which calls are rejected"
	}
	return "no"
}

// failsafeHedges: a second attempt of a slow call begins after the delay, and an open circuit lets
// no call pass.
func failsafeHedges(t *testing.T) string {
	var attempts atomic.Int64
	began := time.Now()
	hedge := hedgepolicy.NewWithDelay[any](time.Second)
	_ = failsafe.With[any](hedge).RunWithExecution(func(e failsafe.Execution[any]) error {
		if attempts.Add(1) > 1 {
			return nil
		}
		select {
		case <-time.After(time.Minute):
		case <-e.Canceled():
		}
		return nil
	})
	breaker := circuitbreaker.NewBuilder[any]().WithFailureThreshold(3).Build()
	var words []string
	if attempts.Load() == 2 && time.Since(began) == time.Second {
		words = append(words, "yes")
	}
	if n := attemptsOf(func(attempt func() error) { _ = failsafe.With[any](breaker).Run(attempt) }); n == 3 {
		words = append(words, "yes")
	}
	return strings.Join(slices.Compact(words), "")
}
