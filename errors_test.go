package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// markings are the three ways to mark an error, so that it is retried otherwise
// than any other.
var markings = map[string]func(error) error{
	"Permanent":                 sluice.Permanent,
	"RetryAfter":                func(err error) error { return sluice.ThrottledFor(err, time.Minute) },
	"RetryAfter without a time": func(err error) error { return sluice.ThrottledFor(err, 0) },
	"RetryAt":                   func(err error) error { return sluice.ThrottledUntil(err, time.Now().Add(time.Minute)) },
	"RetryAt the zero time":     func(err error) error { return sluice.ThrottledUntil(err, time.Time{}) },
}

func TestMarkedErrors_NilIsNil(t *testing.T) {
	for name, mark := range markings {
		if err := mark(nil); err != nil {
			t.Errorf("%s(nil) = %#v", name, err)
		}
	}
}

func TestMarkedErrors_UnwrapToTheirCause(t *testing.T) {
	cause := &fs.PathError{Op: "get", Path: "/items/7", Err: fs.ErrNotExist}
	for name, mark := range markings {
		err := mark(cause)
		if err.Error() != cause.Error() {
			t.Errorf("%s changes the message to %q", name, err)
		}
		var path *fs.PathError
		if !errors.Is(err, cause) || !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &path) || path != cause {
			t.Errorf("%s hides the error", name)
		}
		if errors.Unwrap(err) != error(cause) {
			t.Errorf("%s unwraps to %v", name, errors.Unwrap(err))
		}
	}
}

// allReasons are why Retry stops and why a gate refuses.
var allReasons = []error{
	sluice.ErrPermanent, sluice.ErrAttempts, sluice.ErrElapsed, sluice.ErrServerWait, sluice.ErrBudget,
	limits.ErrTooLarge, limits.ErrQueueFull, limits.ErrTimeout, limits.ErrClosed, limits.ErrLeaseLost,
}

func TestErrors_AreDistinct(t *testing.T) {
	for i, a := range allReasons {
		for j, b := range allReasons {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) = %v", a, b, errors.Is(a, b))
			}
		}
	}
}

func TestRetryError_MatchesWhyAndLast(t *testing.T) {
	last := &fs.PathError{Op: "get", Path: "/items/7", Err: errDown}
	for _, why := range append(slices.Clone(allReasons), context.Canceled, context.DeadlineExceeded, &limits.WaitError{Need: 1}) {
		var err error = fmt.Errorf("item 7: %w", &sluice.RetryError{Last: last, Why: why})
		var path *fs.PathError
		if !errors.Is(err, why) || !errors.Is(err, last) || !errors.Is(err, errDown) || !errors.As(err, &path) {
			t.Errorf("%v does not match what it was made of", err)
		}
		if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v matches anything", err)
		}
		for _, other := range allReasons {
			if errors.Is(err, other) != errors.Is(why, other) {
				t.Errorf("%v: matches %v: %v", err, other, errors.Is(err, other))
			}
		}
		if (&sluice.RetryError{Last: last, Why: why}).Error() == "" {
			t.Error("no message")
		}
	}
}

func TestRetryError_Unwrap(t *testing.T) {
	s := &sluice.RetryError{Why: sluice.ErrServerWait}
	if got := s.Unwrap(); !slices.Equal(got, []error{sluice.ErrServerWait}) {
		t.Errorf("Unwrap() = %v", got)
	}
	s.Last = errBusy
	if got := s.Unwrap(); !slices.Equal(got, []error{sluice.ErrServerWait, errBusy}) {
		t.Errorf("Unwrap() = %v, want Why and Last", got)
	}
}

func TestRetryError_Error(t *testing.T) {
	at := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, s := range map[string]sluice.RetryError{
		"sluice: gave up after 4 attempts: no attempts left: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrAttempts, Attempts: 4,
		},
		"sluice: api: gave up after 1 attempt: the error is permanent: 503 Service Unavailable": {
			Gate: "api", Last: sluice.Permanent(errDown), Why: sluice.ErrPermanent, Attempts: 1,
		},
		"sluice: api: gave up after 3 attempts: no time left for another attempt, come back at 2000-01-02T03:04:05Z: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, RetryAt: at, Elapsed: time.Hour,
		},
		// In whole seconds, rounded up.
		"sluice: gave up after 3 attempts: no time left for another attempt, come back at 2000-01-02T03:04:06Z: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, RetryAt: at.Add(1),
		},
		"sluice: gave up after 9 attempts: the server asks for too long a wait, come back at 2000-01-02T05:04:05+02:00: 429 Too Many Requests": {
			Last: errBusy, Why: sluice.ErrServerWait, Attempts: 9, RetryAt: at.In(time.FixedZone("", 2*60*60)),
		},
		"sluice: gave up after 5 attempts: the retry budget is empty: 503 Service Unavailable": {
			Last: errDown, Why: sluice.ErrBudget, Attempts: 5,
		},
		// The prefix and the name of the gate appear once.
		"sluice: api: gave up after 2 attempts: would have to wait 10s, 2s were allowed: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: &limits.WaitError{By: "api", Need: 10 * time.Second, Have: 2 * time.Second}, Attempts: 2,
		},
		"sluice: host: gave up after 2 attempts: all: would have to wait 10s, 2s were allowed: 503 Service Unavailable": {
			Gate: "host", Last: errDown, Why: &limits.WaitError{By: "all", Need: 10 * time.Second, Have: 2 * time.Second}, Attempts: 2,
		},
		"sluice: api: gave up after 2 attempts: context canceled: 503 Service Unavailable": {
			Gate: "api", Last: errDown, Why: context.Canceled, Attempts: 2,
		},
		"sluice: api: gave up after 0 attempts: the server asks for too long a wait, come back at 2000-01-02T03:04:05Z": {
			Gate: "api", Why: sluice.ErrServerWait, RetryAt: at,
		},
	} {
		if got := s.Error(); got != want {
			t.Errorf("got\n\t%s\nwant\n\t%s", got, want)
		}
	}
}

// A reader looks for the number that was configured, not for one that is some
// nanoseconds less. Two different numbers must not look the same.
func TestWaitError_RoundsForReaders(t *testing.T) {
	for _, tt := range []struct {
		need, have time.Duration
		want       string
	}{
		{59_999_995_401, 4_999_994_898, "1m0s, 5s"},
		{time.Second, 999_999_999, "1s, 999.999999ms"},
		{time.Minute, 999_998_000, "1m0s, 1s"},
		{333_333_333, 99_999_901, "333.33ms, 100ms"},
		{1_234_567, 234_567, "1.23ms, 234.567µs"},
		{5_000_000_100, 5 * time.Second, "5.0000001s, 5s"},
		{5 * time.Second, 5 * time.Second, "5s, 5s"},           // a slot at the deadline is too late
		{math.MaxInt64 - 1, 0, "2562047h47m16.854775807s, 0s"}, // nothing runs over
	} {
		err := &limits.WaitError{Need: tt.need, Have: tt.have}
		if got, want := err.Error(), "sluice: would have to wait "+tt.want+" were allowed"; got != want {
			t.Errorf("%v, %v: %s, want %s", tt.need, tt.have, got, want)
		}
	}
}

func TestRetryError_Timeout(t *testing.T) {
	for _, c := range []struct {
		last, why error
		want      bool
	}{
		{errDown, sluice.ErrAttempts, false},
		{nil, sluice.ErrServerWait, false},
		{context.DeadlineExceeded, sluice.ErrAttempts, true},
		{errDown, &limits.WaitError{}, true},
		{nil, context.DeadlineExceeded, true},
	} {
		if got := (&sluice.RetryError{Last: c.last, Why: c.why}).Timeout(); got != c.want {
			t.Errorf("%v, %v: %v", c.last, c.why, got)
		}
	}
}
