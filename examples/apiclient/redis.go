package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

const (
	// lease is the time for which an instance that was killed keeps its permits.
	lease = 5 * time.Second
	// patience is the time for which an instance waits for a Redis that is unavailable before it
	// gives up. Until then nothing is called.
	patience = 10 * time.Second
	// askAgain is the interval at which it asks until then.
	askAgain = 200 * time.Millisecond
)

// shared is the limits in a Redis, for all processes that use the same one and the
// same -name.
type shared struct {
	addr   string
	budget string
	named  bool // so that others may use it, too
	notify func(string)

	client    *redis.Client
	store     *sluiceredis.Store
	pacer     *sluiceredis.Pacer
	semaphore *sluiceredis.Semaphore

	mu    sync.Mutex
	since time.Time // of when the Redis has not answered; zero: it does
}

// quiet is a logger that keeps silent: what go-redis would log is in the errors that
// it returns, and its own line would go through those of the progress.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// openShared returns the limits of o in its Redis. It asks the Redis whether it is
// there, unless o is for one of several instances: whoever started them has asked,
// and if it has gone since they wait for it as they always do.
func openShared(o options, notify func(string)) (*shared, error) {
	s := &shared{addr: o.redis, budget: o.budget, named: o.named, notify: notify}
	redis.SetLogger(quiet{})
	s.client = redis.NewClient(&redis.Options{
		Addr: o.redis, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: time.Second, DialerRetries: 1, MaxRetries: -1, // we ask again ourselves
	})
	err := s.open(o)
	if err != nil {
		_ = s.client.Close()
		return nil, err
	}
	return s, nil
}

func (s *shared) open(o options) error {
	if o.share.of == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := s.client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("-redis %s: it does not answer: %w", o.redis, err)
		}
	}
	adapter, err := sluiceredis.NewGoRedis(s.client)
	if err != nil {
		return err
	}
	if s.store, err = sluiceredis.New(adapter, sluiceredis.Config{Prefix: s.prefix()}); err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	if s.pacer, err = s.store.Pacer("items", o.rate, sluiceredis.PacerConfig{Horizon: max(time.Minute, 2*o.rate.Interval())}); err != nil {
		return fmt.Errorf("-rate: %w", err)
	}
	s.semaphore, err = s.store.Semaphore("items", o.concurrency, sluiceredis.SemaphoreConfig{Lease: lease, Poll: 10 * time.Millisecond})
	if err != nil {
		return fmt.Errorf("-concurrency: %w", err)
	}
	return nil
}

// prefix is the prefix of all keys of the shared limits.
func (s *shared) prefix() string { return "apiclient " + s.budget }

// limits returns the limits for a gate.
func (s *shared) configOf() sluice.Config {
	return sluice.Config{
		Semaphore: sharedPermits{s},
		Limits:    []sluice.Limit{{Name: "rate", Limiter: sharedRate{s}, Unit: sluice.Calls}},
	}
}

// close closes the connections and deletes limits that only this run shares.
// One with a name may be in use by others, whose limits would start over.
func (s *shared) close() {
	if !s.named {
		if err := s.forget(); err != nil {
			s.notify(fmt.Sprintf("what is left of this run stays in the Redis at %s: %v", s.addr, err))
		}
	}
	_ = s.client.Close()
}

// forget removes the keys of the shared limits. They would go on their own, but for one:
// the last token of the semaphore.
func (s *shared) forget() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	keys := s.client.Scan(ctx, 0, s.prefix()+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := s.client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// awayError says that the Redis did not answer for longer than our patience.
type awayError struct {
	addr string
	err  error
}

// Error names the Redis.
func (e *awayError) Error() string {
	return fmt.Sprintf("the Redis at %s has not answered for %v, and without it no call may leave: %v", e.addr, patience, e.err)
}

// Unwrap returns what happened last.
func (e *awayError) Unwrap() error { return e.err }

// judge returns whether to ask again after err, or the error to give up with. What
// a limit or the context says goes through; that the Redis is unavailable, or rejects,
// does not lose an item immediately. asked says that a success came from the Redis.
func (s *shared) judge(ctx context.Context, err error, asked bool) (again bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var server *sluiceredis.ServerError
	away := err != nil && ctx.Err() == nil && !errors.Is(err, limits.ErrTimeout) && !errors.Is(err, limits.ErrTooLarge) &&
		!errors.Is(err, sluiceredis.ErrData)
	switch {
	case !away:
		if err == nil && asked && !s.since.IsZero() {
			s.notify(fmt.Sprintf("the Redis at %s answers again, after %v", s.addr, time.Since(s.since).Round(100*time.Millisecond)))
			s.since = time.Time{}
		}
		return false, err
	case s.since.IsZero():
		s.since = time.Now()
		why := "does not answer"
		if errors.As(err, &server) {
			why = "refuses"
		}
		s.notify(fmt.Sprintf("the Redis at %s %s: no calls until it does, for at most %v (%v)", s.addr, why, patience, err))
	case time.Since(s.since) > patience:
		return false, &awayError{s.addr, err}
	}
	return true, nil
}

// sharedRate is the pacer, with patience.
type sharedRate struct{ *shared }

// Admit implements limits.Limiter.
func (r sharedRate) Admit(ctx context.Context, n int64) (time.Duration, error) {
	wait, err := r.pacer.Admit(ctx, n)
	// A slot that was reserved before is answered for without asking.
	if again, err := r.judge(ctx, err, false); !again {
		return wait, err
	}
	return askAgain, nil
}

// Adjust implements limits.Limiter.
func (r sharedRate) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	return r.pacer.Adjust(ctx, delta, age)
}

// sharedPermits is the semaphore, with patience.
type sharedPermits struct{ *shared }

// Acquire implements limits.Semaphore.
func (p sharedPermits) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	began := time.Now()
	for {
		left := longest
		if longest != limits.Never {
			left = longest - time.Since(began)
		}
		l, err := p.semaphore.Acquire(ctx, n, left)
		again, err := p.judge(ctx, err, true)
		if !again {
			return l, err
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
