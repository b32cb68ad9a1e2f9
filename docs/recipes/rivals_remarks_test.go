package recipes

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	uber "go.uber.org/ratelimit"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// remarks are the sentences of coming-from.md about what another library does, and whether it
// does so. What Guava does is recorded: see TestOracle of internal/schedule.
var remarks = []struct {
	sentence string
	holds    func(t *testing.T) bool
}{
	{"A new x/time/rate limiter has a full burst.", func(*testing.T) bool {
		return rate.NewLimiter(1, 5).AllowN(time.Now(), 5)
	}},
	{"`WaitN` returns an error.", func(t *testing.T) bool {
		return rate.NewLimiter(1, 5).WaitN(t.Context(), 6) != nil
	}},
	{"Theirs blocks until the context ends.", func(*testing.T) bool {
		took, err := hopeless(func(ctx context.Context) error { return semaphore.NewWeighted(1).Acquire(ctx, 2) })
		return errors.Is(err, context.DeadlineExceeded) && took == time.Second
	}},
	{"Theirs queues behind waiting callers.", func(*testing.T) bool {
		s := semaphore.NewWeighted(1)
		l := newLine(func(ctx context.Context, n int) error { return s.Acquire(ctx, int64(n)) })
		l.add("first", 1)
		l.add("second", 1)
		l.add("nothing", 0)
		_, before := l.starts["nothing"]
		s.Release(1)
		_, after := l.all()["nothing"]
		return !before && after
	}},
	{"the default is 10", func(*testing.T) bool {
		l := uber.New(1)
		l.Take()
		time.Sleep(time.Hour)
		began := time.Now()
		for range 11 { // one that is due, and ten for the time that has passed
			l.Take()
		}
		free := time.Since(began)
		l.Take()
		return free == 0 && time.Since(began) == time.Second
	}},
	{"`backoff.RetryAfter` delays one call and uses up one of its tries.", func(t *testing.T) bool {
		began, tries := time.Now(), 0
		_, err := backoff.Retry(t.Context(), func() (int, error) {
			tries++
			return 0, backoff.RetryAfter(30)
		}, backoff.WithMaxTries(2))
		return err != nil && tries == 2 && time.Since(began) == 30*time.Second
	}},
}

// TestRemarks: each of these sentences is on the page, and true.
func TestRemarks(t *testing.T) {
	page, err := os.ReadFile("../coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range remarks {
		if !strings.Contains(string(page), r.sentence) {
			t.Errorf("coming-from.md does not say %q", r.sentence)
		}
		synctest.Test(t, func(t *testing.T) {
			if !r.holds(t) {
				t.Errorf("coming-from.md says %q, which is false", r.sentence)
			}
		})
	}
}
