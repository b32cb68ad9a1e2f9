package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluiceredis"
)

const (
	// catchUp is the default of -catch-up: how much of the rate may be caught up, if a
	// process did not get to run. The API must tolerate as many concurrent calls.
	catchUp = 50 * time.Millisecond
	// leastLate is the delay that a call may always have whatever -catch-up says.
	leastLate = 5 * time.Millisecond
	// ahead is the time for which a worker reserves slots in one round trip: a Redis that stalls for
	// less delays no call. So calls of other workers leave for as long after a 429.
	ahead = 50 * time.Millisecond
	// askAgain is the interval at which a worker asks a Redis that does not answer.
	askAgain = 200 * time.Millisecond
	// callTimeout ends a call that the API does not answer; it is tried again.
	callTimeout = 10 * time.Second
)

// newTransport returns the transport of a worker. It is the one that a single process
// would have, but its gate has a limit in a Redis instead of its own rate, and its
// pauses reach all workers.
func newTransport(o options, client *redis.Client) (*sluicehttp.Transport, error) {
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		return nil, err
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
	if err != nil {
		return nil, err
	}
	rate, config := pace(o)
	pacer, err := store.Pacer(o.name, rate, config)
	if err != nil {
		return nil, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = o.goroutines, o.goroutines
	return sluicehttp.New(base, sluicehttp.Config{
		Gate: sluice.Config{
			Limits:   []sluice.Limit{{Name: "shared", Limiter: patient{pacer}}},
			Observer: pauseAll(pacer),
		},
		Key:   func(*http.Request) string { return "items" }, // one limit, whatever the address
		Retry: sluice.RetryPolicy{AttemptTimeout: callTimeout},
	})
}

// pace returns the rate that all workers share. What -catch-up allows counts twice: for
// calls after an idle time, and for calls that were late for their slots. Some are always
// late by a few milliseconds.
func pace(o options) (limits.Rate, sluiceredis.PacerConfig) {
	rate := o.rate
	rate.Burst = slots(rate, o.catchUp)
	return rate, sluiceredis.PacerConfig{MaxLateness: max(o.catchUp, leastLate), Prefetch: ahead}
}

// pauseAll returns an observer that shares each pause of this worker's gate, such as
// that after a 429, with all workers. If the Redis does not answer, nothing leaves anyway.
func pauseAll(pacer *sluiceredis.Pacer) sluice.Observer {
	return func(e sluice.Event) {
		if e.Kind == sluice.EventPaused {
			_ = pacer.PauseUntil(context.Background(), time.Now().Add(e.Wait))
		}
	}
}

// patient is a limit that lets calls wait, instead of failing, while the Redis is unavailable.
type patient struct{ pacer *sluiceredis.Pacer }

// Admit implements limits.Limiter.
func (p patient) Admit(ctx context.Context, n int64) (time.Duration, error) {
	wait, err := p.pacer.Admit(ctx, n)
	if errors.Is(err, sluiceredis.ErrOutage) && ctx.Err() == nil {
		return askAgain, nil
	}
	return wait, err
}

// Adjust implements limits.Limiter.
func (p patient) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	return p.pacer.Adjust(ctx, delta, age)
}

var _ limits.Limiter = patient{}

// newRedis returns a client that leaves retries to sluiceredis.
func newRedis(addr string) *redis.Client {
	redis.SetLogger(quiet{})
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: time.Second, DialerRetries: 1, MaxRetries: -1,
	})
}

// ping returns an error if no Redis answers at addr.
func ping(addr string) error {
	client := newRedis(addr)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("-redis %s: it does not answer: %w", addr, err)
	}
	return nil
}

// quiet is a logger that keeps silent: what go-redis would log is in its errors.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
