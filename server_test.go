package sluice_test

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

	"github.com/sluice-go/sluice"
)

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
	busy = always(sluice.RetryAfter(errBusy, 0))    // without a time
	late = always(os.ErrDeadlineExceeded)           // as a connection that timed out
	gone = always(sluice.Permanent(os.ErrNotExist)) // and will be next time
)

// retryAfter answers that the server must not be called again before d has passed.
func retryAfter(d time.Duration) answer {
	return func(context.Context) error { return sluice.RetryAfter(errBusy, d) }
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
	return func(context.Context) error { return sluice.NotBefore(errDown, time.Now().Add(d)) }
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
