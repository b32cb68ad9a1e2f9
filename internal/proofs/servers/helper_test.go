// Tests of gates at servers that fail, limit, throttle and are shared, through their exported names:
// what Retry and its budget do, what a gate learns, and whether its estimates come true.
package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

	full time.Time // when all tokens will be there
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

// hook is a limiter that calls a function and lets everything through.
type hook func()

func (h hook) Admit(context.Context, int64) (time.Duration, error) { h(); return 0, nil }
func (hook) Adjust(context.Context, int64, time.Duration) error    { return nil }

// free is a limiter that lets everything through.
type free struct{}

func (free) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (free) Adjust(context.Context, int64, time.Duration) error  { return nil }

// withBurst returns rate with a burst, and no limit as no limit.
func withBurst(rate sluice.Rate, burst int64) sluice.Rate {
	if rate.Count > 0 {
		rate.Burst = burst
	}
	return rate
}

// # A server

var (
	errDown = errors.New("503 Service Unavailable")
	errBusy = errors.New("429 Too Many Requests")
)

// An answer is how a server ends an attempt.
type answer func(ctx context.Context) error

func always(err error) answer { return func(context.Context) error { return err } }

var (
	fine = always(nil)
	down = always(errDown)
	busy = always(sluice.ThrottledFor(errBusy, 0))  // without a time
	late = always(os.ErrDeadlineExceeded)           // as a connection that timed out
	gone = always(sluice.Permanent(os.ErrNotExist)) // and will be next time
)

// retryAfter answers that the server must not be called again before d has passed.
func retryAfter(d time.Duration) answer {
	return func(context.Context) error { return sluice.ThrottledFor(errBusy, d) }
}

// after takes d to answer.
func after(d time.Duration, a answer) answer {
	return func(ctx context.Context) error {
		time.Sleep(d)
		return a(ctx)
	}
}

// notBefore fails, and this call alone must wait for d.
func notBefore(d time.Duration) answer {
	return func(context.Context) error { return sluice.RetryAfter(errDown, d) }
}

// A server gives its answers to the attempts in order, and the last answer to all
// further attempts.
type server struct {
	start time.Time

	mu      sync.Mutex
	answers []answer
	came    []time.Duration // when the attempts came
}

func (s *server) call(ctx context.Context) error {
	s.mu.Lock()
	s.came = append(s.came, time.Since(s.start))
	a := s.answers[min(len(s.came), len(s.answers))-1]
	s.mu.Unlock()
	return a(ctx)
}

func (s *server) attempts() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.came)
}

// want compares when the attempts came with when they should have come.
func (s *server) want(t testing.TB, came ...time.Duration) {
	t.Helper()
	if got := s.attempts(); !slices.Equal(got, came) {
		t.Errorf("attempts came at\n\t%v\nwant\n\t%v", got, came)
	}
}

// wantStop compares err, with which a call ended just now, with what it should be.
func (s *server) wantStop(t testing.TB, err error, want stop) {
	t.Helper()
	var got *sluice.RetryError
	if !errors.As(err, &got) || err != error(got) {
		t.Errorf("ended with %v (%T), want %+v", err, err, want)
		return
	}
	at := time.Since(s.start)
	var retryAt time.Duration
	if !got.RetryAt.IsZero() {
		retryAt = got.RetryAt.Sub(s.start)
	}
	if !errors.Is(got.Last, want.last) || !errors.Is(got.Why, want.why) || got.Attempts != want.attempts ||
		got.Elapsed != want.elapsed || retryAt != want.retryAt || at != want.at {
		t.Errorf("stopped at %v with %+v, come back at %v\nwant %+v", at, *got, retryAt, want)
	}
	if !errors.Is(err, want.why) || want.last != nil && !errors.Is(err, want.last) {
		t.Errorf("%v does not match both %v and %v", err, want.why, want.last)
	}
}

func newServer(answers ...answer) *server {
	return &server{start: time.Now(), answers: answers}
}

// A stop is what a RetryError should contain. Instants count from the start of the
// server.
type stop struct {
	last, why error
	attempts  int
	at        time.Duration // when the call ended
	elapsed   time.Duration // since its first attempt
	retryAt   time.Duration // 0 if nothing is known
}

type failRecorder struct {
	testing.TB
	failed bool
}

func (r *failRecorder) Helper()               {}
func (r *failRecorder) Errorf(string, ...any) { r.failed = true }

// A helper that compares must be able to fail.
func TestServer_WantCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(down, after(time.Second, busy), fine)
		for range 4 {
			s.call(bg)
		}
		for name, c := range map[string]struct {
			came []time.Duration
			ok   bool
		}{
			"right":         {[]time.Duration{0, 0, time.Second, time.Second}, true},
			"other instant": {[]time.Duration{0, 1, time.Second, time.Second}, false},
			"one missing":   {[]time.Duration{0, 0, time.Second}, false},
			"one too many":  {[]time.Duration{0, 0, time.Second, time.Second, time.Second}, false},
			"nothing":       {nil, false},
		} {
			r := &failRecorder{TB: t}
			if s.want(r, c.came...); r.failed == c.ok {
				t.Errorf("%s: failed = %v", name, r.failed)
			}
		}

		right := stop{last: errDown, why: sluice.ErrElapsed, attempts: 3, at: time.Second, elapsed: 500 * ms, retryAt: time.Minute}
		err := &sluice.RetryError{Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, Elapsed: 500 * ms, RetryAt: s.start.Add(time.Minute)}
		for name, c := range map[string]struct {
			err    error
			change func(*stop)
			ok     bool
		}{
			"right":            {err, func(*stop) {}, true},
			"other last error": {err, func(s *stop) { s.last = errBusy }, false},
			"other reason":     {err, func(s *stop) { s.why = sluice.ErrAttempts }, false},
			"other attempts":   {err, func(s *stop) { s.attempts++ }, false},
			"ended later":      {err, func(s *stop) { s.at++ }, false},
			"other elapsed":    {err, func(s *stop) { s.elapsed++ }, false},
			"other time":       {err, func(s *stop) { s.retryAt++ }, false},
			"no time":          {err, func(s *stop) { s.retryAt = 0 }, false},
			"wrapped":          {fmt.Errorf("x: %w", err), func(*stop) {}, false},
			"bare":             {sluice.ErrElapsed, func(*stop) {}, false},
			"nil":              {nil, func(*stop) {}, false},
		} {
			r, want := &failRecorder{TB: t}, right
			c.change(&want)
			if s.wantStop(r, c.err, want); r.failed == c.ok {
				t.Errorf("%s: failed = %v", name, r.failed)
			}
		}
	})
}
