package recipes

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	gitlab "gitlab.com/gitlab-org/api/client-go"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicetest"
)

func waitingClient(base http.RoundTripper, token string) (*gitlab.Client, error) {
	// begin wait
	gate, err := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}})
	if err != nil {
		return nil, err
	}
	client, err := gitlab.NewClient(token,
		gitlab.WithHTTPClient(&http.Client{Transport: base}),
		gitlab.WithCustomLimiter(gate),
	)
	// end wait
	return client, err
}

// begin x/time/rate
// A shaped limiter is a pacer with more methods of a *rate.Limiter; Wait is that of the pacer.
type shaped struct{ *pacer.Pacer }

func (s shaped) WaitN(ctx context.Context, n int) error { return s.Acquire(ctx, int64(n)) }
func (s shaped) Allow() bool                            { return s.TryAcquire(1) }
func (s shaped) Limit() rate.Limit                      { return rate.Every(s.Interval()) }

// end x/time/rate

// begin go.uber.org/ratelimit
// A taker is a pacer as a ratelimit.Limiter. Make the pacer without MaxWaiting: Take has no error.
type taker struct{ *pacer.Pacer }

func (t taker) Take() time.Time {
	_ = t.Acquire(context.Background(), 1)
	return time.Now()
}

// end go.uber.org/ratelimit

// GitLab's client waits for the gate before each call.
func TestInterfaces_Wait(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := waitingClient(base, "token")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error { return getProject(ctx, client) })
	}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second}), sluicetest.Reply(200, `{"id":1}`, jsonType))
	promised{ok: 50}.check(t, seen)
	if err := seen.CheckSpacing(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
}

// The retries that the client makes by itself do not wait for the gate.
func TestInterfaces_WaitOnce(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := waitingClient(base, "token")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error { return getProject(ctx, client) })
	}, sluicetest.On(20, sluicetest.Status(502)), sluicetest.Reply(200, `{"id":1}`, jsonType))
	promised{ok: 50, failed: 1}.check(t, seen)
	if seen.CheckSpacing(100*time.Millisecond) == nil {
		t.Error("retries are paced, and the documentation says that they are not")
	}
}

// resty asks a limiter that decides at once, so that calls beyond the rate fail.
func TestInterfaces_Allow(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second, Burst: 3}))
		client := resty.New().SetTransport(base).SetRateLimiter(shaped{p})
		time.Sleep(time.Second)
		failed := 0
		for range 5 {
			if _, err := client.R().SetContext(ctx).Get("https://api.test/"); err == resty.ErrRateLimitExceeded {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 2 {
			t.Errorf("%d of 5 calls failed, want those beyond the burst of 3", failed)
		}
	})
	promised{ok: 3}.check(t, seen)
}

// A limiterOfOthers is what libraries ask for that were written for a *rate.Limiter.
type limiterOfOthers interface {
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
	Allow() bool
	Limit() rate.Limit
}

var _ limiterOfOthers = (*rate.Limiter)(nil)

func TestInterfaces_Rate(t *testing.T) {
	for name, c := range map[string]struct {
		limiter func() limiterOfOthers
		want    []time.Duration
	}{
		"rate": {
			func() limiterOfOthers { return rate.NewLimiter(10, 5) },
			// A call leaves when all that it costs has come in.
			[]time.Duration{0, 0, 0, 100 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond},
		},
		"pacer": {
			func() limiterOfOthers {
				return shaped{limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second, Burst: 5}))}
			},
			// A call leaves at its slot, and the next one waits for what it cost.
			[]time.Duration{0, 0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := c.limiter()
			time.Sleep(time.Second) // a new pacer has no burst saved up, a new rate.Limiter has
			began, left := time.Now(), []time.Duration(nil)
			for _, n := range []int{1, 2, 2, 1, 3} {
				if err := l.WaitN(t.Context(), n); err != nil {
					t.Error(err)
				}
				left = append(left, time.Since(began))
			}
			if l.Allow() || l.Limit() != 10 {
				t.Errorf("%s: a call is allowed beyond the rate, or that is %v", name, l.Limit())
			}
			if err := l.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if left = append(left, time.Since(began)); !slices.Equal(left, c.want) {
				t.Errorf("%s: calls of 1, 2, 2, 1, 3 and 1 leave at %v, want %v", name, left, c.want)
			}
		})
	}
}

func TestInterfaces_Take(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 100, Per: time.Second}))
		for name, l := range map[string]ratelimit.Limiter{"ratelimit": ratelimit.New(100, ratelimit.WithoutSlack), "pacer": taker{p}} {
			began := time.Now()
			for n := range 10 {
				if at := l.Take().Sub(began); at != time.Duration(n)*10*time.Millisecond || at != time.Since(began) {
					t.Errorf("%s: call %d at %v, said %v", name, n, time.Since(began), at)
				}
			}
		}
	})
}
