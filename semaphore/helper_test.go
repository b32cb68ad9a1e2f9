package semaphore_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/semaphore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms      = time.Millisecond
	forever = time.Duration(math.MaxInt64)
	huge    = int64(math.MaxInt64)
)

// bg is for waits that nothing but the semaphore ends.
var bg = context.Background()

// end returns how the call of a caller ended, which it must have.
func end(l *synclog.Log, caller int) synclog.Left {
	left := l.Sofar()
	return left[slices.IndexFunc(left, func(c synclog.Left) bool { return c.Caller == caller })]
}

// took returns how long f took, in a bubble.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// wantState checks everything that s reports about itself.
func wantState(t *testing.T, s *semaphore.Weighted, limit, inFlight int64, waiting int) {
	t.Helper()
	synctest.Wait()
	gotLimit, gotInFlight, gotAvailable, gotWaiting := s.Limit(), s.InFlight(), s.Available(), s.Waiting()
	if gotLimit != limit || gotInFlight != inFlight || gotAvailable != limit-inFlight || gotWaiting != waiting {
		t.Errorf("limit %d, in flight %d, available %d, waiting %d; want %d, %d, %d, %d",
			gotLimit, gotInFlight, gotAvailable, gotWaiting, limit, inFlight, limit-inFlight, waiting)
	}
}

// held returns a semaphore with n of its permits in flight.
func held(t *testing.T, limit, n int64) *semaphore.Weighted {
	t.Helper()
	s := semaphore.NewWeighted(limit)
	if !s.TryAcquire(n) {
		t.Fatalf("no %d of %d permits in a new semaphore", n, limit)
	}
	return s
}

func mustSetLimit(t *testing.T, s *semaphore.Weighted, limit int64) {
	t.Helper()
	if err := s.SetLimit(limit); err != nil {
		t.Fatal(err)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "semaphore: ") {
			t.Errorf("%s: want a panic with the package's prefix, got %q", what, msg)
		}
	}()
	f()
}
