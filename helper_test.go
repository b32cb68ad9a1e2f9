package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // messages have times of day
	goleak.VerifyTestMain(m)
}

const ms = time.Millisecond

// bg is for waits that nothing but the gate ends.
var bg = context.Background()

func nothing(context.Context) error { return nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tenPerSecond is one call each 100 ms.
var tenPerSecond = sluice.Rate{Count: 10, Per: time.Second}

// fixedGate is mustGate for tests of what a gate does that learns nothing.
func fixedGate(t testing.TB, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	cfg.Adaptive.Disabled = true
	return mustGate(t, cfg)
}

func mustGate(t testing.TB, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// hold acquires one permit and releases it after d.
func hold(g *sluice.Gate, d time.Duration) error {
	return g.Do(bg, func(context.Context) error {
		time.Sleep(d)
		return nil
	})
}

// enter acquires a permit and keeps it.
func enter(g *sluice.Gate, ctx context.Context) func() error {
	return func() error {
		_, err := g.Acquire(ctx, 1)
		return err
	}
}

// generations returns the youngest of a family of gates, the oldest first.
func generations(t *testing.T, cfgs ...sluice.Config) (g *sluice.Gate) {
	for _, cfg := range cfgs {
		cfg.Parent = g
		g = mustGate(t, cfg)
	}
	return g
}

// A bucket is a token bucket, the textbook limiter: capacity tokens at first,
// one more each interval. An answer takes trip, as from far away; if err is not nil
// it is the answer.
type bucket struct {
	mu       sync.Mutex
	capacity int64
	interval time.Duration
	trip     time.Duration
	err      error

	full  time.Time // when all tokens will be there
	asked int
}

func (b *bucket) Admit(ctx context.Context, n int64) (time.Duration, error) {
	if b.trip > 0 {
		select {
		case <-time.After(b.trip):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	switch {
	case b.err != nil:
		return 0, b.err
	case n > b.capacity:
		return 0, limits.ErrTooLarge
	}
	now := time.Now()
	full := b.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Duration(n) * b.interval)
	if wait := full.Sub(now) - time.Duration(b.capacity)*b.interval; wait > 0 {
		return wait, nil
	}
	b.full = full
	return 0, nil
}

func (b *bucket) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = b.full.Add(time.Duration(delta) * b.interval)
	return b.err
}

// asks returns how often the bucket was asked.
func (b *bucket) asks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// missing returns how many tokens the bucket lacks, partly refilled ones
// included.
func (b *bucket) missing() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64((max(0, time.Until(b.full)) + b.interval - 1) / b.interval)
}

// An answering is a limiter that answers with a function.
type answering func(ctx context.Context, n int64) (time.Duration, error)

func (a answering) Admit(ctx context.Context, n int64) (time.Duration, error) { return a(ctx, n) }
func (a answering) Adjust(context.Context, int64, time.Duration) error        { return nil }

// withBurst returns rate with a burst, and no limit as no limit.
func withBurst(rate sluice.Rate, burst int64) sluice.Rate {
	if rate.Count > 0 {
		rate.Burst = burst
	}
	return rate
}

var (
	errDown = errors.New("503 Service Unavailable")
	errBusy = errors.New("429 Too Many Requests")
)
