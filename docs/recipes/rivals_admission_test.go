package recipes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// What the libraries do with calls that wait: the cells of TestRivals about admission.

// A waiting function blocks until a call of cost n may start.
type waiting func(ctx context.Context, n int) error

// A line records when calls start that wait in the order in which they were added.
type line struct {
	wait  waiting
	began time.Time
	calls sync.WaitGroup

	mu     sync.Mutex
	starts map[string]time.Duration
}

func newLine(wait waiting) *line {
	return &line{wait: wait, began: time.Now(), starts: make(map[string]time.Duration)}
}

// add lets a call of cost n wait, and returns once it does. stop cancels it.
func (l *line) add(name string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	l.calls.Go(func() {
		defer cancel()
		if l.wait(ctx, n) == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.starts[name] = time.Since(l.began)
		}
	})
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

// all waits for all calls and returns when each started.
func (l *line) all() map[string]time.Duration {
	l.calls.Wait()
	return l.starts
}

// cancelledAt10 returns in which case a wait at 10 per second is returned when it is cancelled.
func cancelledAt10(limiter func() waiting) string {
	middle := newLine(limiter())
	middle.add("first", 1)
	stop := middle.add("cancelled", 1)
	middle.add("next", 1)
	stop()
	last := newLine(limiter())
	last.add("first", 1)
	last.add("cancelled", 1)()
	last.add("next", 1)
	switch free := 100 * time.Millisecond; {
	case middle.all()["next"] == free && last.all()["next"] == free:
		return "yes"
	case last.all()["next"] == free:
		return "if it is the last"
	}
	return "no"
}

// cancelledPermit reports whether a wait for the only permit leaves it free when it is cancelled.
func cancelledPermit(acquire waiting, release func(), try func() bool) string {
	l := newLine(acquire)
	l.add("first", 1)
	l.add("cancelled", 1)()
	release()
	if try() {
		return "yes"
	}
	return "no"
}

func gateAt(count int64) *sluice.Gate {
	return limits.Must(sluice.New(sluice.Config{Rate: sluice.Rate{Count: count, Per: time.Second}, RateUnit: sluice.Cost}))
}

func waitFor(gate *sluice.Gate) waiting {
	return func(ctx context.Context, n int) error {
		permit, err := gate.Acquire(ctx, int64(n))
		permit.Release()
		return err
	}
}

func limiterOf(count uint) ratelimiter.RateLimiter[any] {
	return ratelimiter.NewSmoothBuilder[any](count, time.Second).Build()
}

func gateCancelled(*testing.T) string {
	return cancelledAt10(func() waiting { return waitFor(gateAt(10)) })
}

func timeCancelled(*testing.T) string {
	return cancelledAt10(func() waiting { return rate.NewLimiter(10, 1).WaitN })
}

func syncCancelled(*testing.T) string {
	s := semaphore.NewWeighted(1)
	return cancelledPermit(func(ctx context.Context, n int) error { return s.Acquire(ctx, int64(n)) },
		func() { s.Release(1) }, func() bool { return s.TryAcquire(1) })
}

func failsafeCancelled(*testing.T) string {
	rate := cancelledAt10(func() waiting {
		l := limiterOf(10)
		return func(ctx context.Context, n int) error { return l.AcquirePermits(ctx, uint(n)) }
	})
	b := bulkhead.New[any](1)
	permit := cancelledPermit(func(ctx context.Context, _ int) error { return b.AcquirePermit(ctx) }, b.ReleasePermit, b.TryAcquirePermit)
	return fmt.Sprintf("rate limiter %s, bulkhead %s", rate, permit)
}

// changed reports whether a caller that waits for a second starts earlier at ten times the rate.
func changed(wait waiting, faster func()) string {
	l := newLine(wait)
	l.add("first", 1)
	l.add("next", 1)
	faster()
	if l.all()["next"] == 100*time.Millisecond {
		return "yes"
	}
	return "no"
}

func gateChanged(t *testing.T) string {
	g := gateAt(1)
	return changed(waitFor(g), func() {
		if err := g.SetRate(sluice.Rate{Count: 10, Per: time.Second}); err != nil {
			t.Error(err)
		}
	})
}

func timeChanged(*testing.T) string {
	l := rate.NewLimiter(1, 1)
	return changed(l.WaitN, func() { l.SetLimit(10) })
}

// unchangeable says whether a type has no method that changes a limit.
func unchangeable(types ...reflect.Type) string {
	for _, of := range types {
		for i := range of.NumMethod() {
			if name := of.Method(i).Name; strings.HasPrefix(name, "Set") || strings.Contains(name, "Resize") {
				return "has " + name
			}
		}
	}
	return "cannot be changed"
}

func syncChanged(*testing.T) string { return unchangeable(reflect.TypeFor[*semaphore.Weighted]()) }

func failsafeChanged(*testing.T) string {
	return unchangeable(reflect.TypeFor[ratelimiter.RateLimiter[any]](), reflect.TypeFor[bulkhead.Bulkhead[any]]())
}

// inTurn reports whether calls of costs 1, 5, 1 and 1 start in this order, each as much later
// as the one before it costs, or at least as its own cost.
func inTurn(wait waiting) string {
	l := newLine(wait)
	for i, n := range []int{1, 5, 1, 1} {
		l.add(fmt.Sprint(i), n)
	}
	at := l.all()
	got := []time.Duration{at["0"], at["1"], at["2"], at["3"]}
	if slices.IsSorted(got) && got[3]-got[0] >= 600*time.Millisecond {
		return "yes"
	}
	return "no"
}

func gateCost(*testing.T) string { return inTurn(waitFor(gateAt(10))) }

func timeCost(*testing.T) string {
	l := rate.NewLimiter(10, 5)
	l.AllowN(time.Now(), 5) // the burst
	return inTurn(l.WaitN)
}

func syncCost(*testing.T) string {
	s := semaphore.NewWeighted(5)
	l := newLine(func(ctx context.Context, n int) error { return s.Acquire(ctx, int64(n)) })
	l.add("all", 5)
	l.add("large", 5)
	l.add("small", 1)
	s.Release(1)
	synctest.Wait()
	_, overtook := l.starts["small"]
	s.Release(4)
	s.Release(5)
	if l.all(); overtook {
		return "no"
	}
	return "yes"
}

func failsafeCost(*testing.T) string {
	l := limiterOf(10)
	if inTurn(func(ctx context.Context, n int) error { return l.AcquirePermits(ctx, uint(n)) }) != "yes" {
		return "no"
	}
	if _, ok := reflect.TypeFor[bulkhead.Bulkhead[any]]().MethodByName("AcquirePermits"); ok {
		return "yes"
	}
	return "rate limiter yes, bulkhead no"
}

// hopeless makes a call that would have to wait longer than its deadline, and returns how long
// that took, and its error.
func hopeless(call func(ctx context.Context) error) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	err = call(ctx)
	return time.Since(began), err
}

func gateHopeless(t *testing.T) string {
	g := gateAt(1)
	p, err := g.Acquire(t.Context(), 10) // the next one starts after 10 s
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	took, err := hopeless(func(ctx context.Context) error { return g.Wait(ctx) })
	var wait *limits.WaitError
	switch {
	case err == nil || took > 0:
		return "no"
	case errors.As(err, &wait) && wait.Need == 10*time.Second:
		return "yes, with the wait"
	}
	return "yes"
}

func timeHopeless(*testing.T) string {
	l := rate.NewLimiter(1, 10)
	l.AllowN(time.Now(), 10)
	if took, err := hopeless(func(ctx context.Context) error { return l.WaitN(ctx, 10) }); err != nil && took == 0 {
		return "yes"
	}
	return "no"
}

func syncHopeless(*testing.T) string {
	s := semaphore.NewWeighted(1)
	s.TryAcquire(1)
	if took, err := hopeless(func(ctx context.Context) error { return s.Acquire(ctx, 1) }); err != nil && took == 0 {
		return "yes"
	}
	return "no"
}

func failsafeHopeless(*testing.T) string {
	l := limiterOf(1)
	l.ReservePermits(10)
	took, bounded := hopeless(func(context.Context) error {
		return l.AcquirePermitWithMaxWait(context.Background(), time.Second)
	})
	waited, late := hopeless(func(ctx context.Context) error { return l.AcquirePermit(ctx) })
	switch {
	case bounded != nil && took == 0 && late != nil && waited == 0:
		return "yes"
	case bounded != nil && took == 0:
		return "with a maximum wait, not with a deadline"
	}
	return "no"
}

func gateTogether(t *testing.T) string {
	g := limits.Must(sluice.New(sluice.Config{Concurrency: 1, Rate: sluice.Rate{Count: 1, Per: time.Second}}))
	p, err := g.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	began := time.Now()
	if _, err := hopeless(func(ctx context.Context) error { return g.Wait(ctx) }); err == nil {
		t.Error("two calls in flight")
	}
	p.Release()
	if err := g.Wait(t.Context()); err != nil || time.Since(began) != time.Second {
		return "no" // the call that failed took a slot
	}
	return "yes"
}

func failsafeTogether(*testing.T) string {
	limiter := limiterOf(1)
	full := bulkhead.New[any](1)
	full.TryAcquirePermit()
	err := failsafe.With(failsafe.Policy[any](limiter), full).Run(func() error { return nil })
	if errors.Is(err, bulkhead.ErrFull) && !limiter.TryAcquirePermit() {
		return "no: the permit of the first policy is lost"
	}
	return "yes"
}
