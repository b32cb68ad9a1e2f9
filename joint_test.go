package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/queued"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

// # Limits that are asked together

// A place is far away. All limiters in it can be asked in one trip.
type place struct {
	trip   time.Duration
	away   error // why nothing can be asked
	grudge error // why nothing can be given back

	mu    sync.Mutex
	trips []string
}

// went records a trip.
func (p *place) went(ctx context.Context, format string, args ...any) error {
	select {
	case <-time.After(p.trip):
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips = append(p.trips, fmt.Sprintf(format, args...))
	return p.away
}

// since returns the trips since the last call.
func (p *place) since() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.trips = nil }()
	return p.trips
}

// A tenant is a bucket in a place.
type tenant struct {
	bucket
	name string
	at   *place
}

func (t *tenant) Admit(ctx context.Context, n int64) (time.Duration, error) {
	if err := t.at.went(ctx, "ask %s %d", t.name, n); err != nil {
		return 0, err
	}
	return t.bucket.Admit(ctx, n)
}

func (t *tenant) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	if err := errors.Join(t.at.went(ctx, "adjust %s %d %v", t.name, delta, age), t.at.grudge); err != nil {
		return err
	}
	return t.bucket.Adjust(ctx, delta, age)
}

func (t *tenant) Join(others ...limits.Limiter) limits.Joint {
	if len(others) == 0 {
		return nil
	}
	all := []*tenant{t}
	for _, o := range others {
		o, ok := o.(*tenant)
		if !ok || o.at != t.at || slices.Contains(all, o) {
			return nil
		}
		all = append(all, o)
	}
	return tenants(all)
}

// tenants of one place.
type tenants []*tenant

func (all tenants) String() (s string) {
	for _, t := range all {
		s += t.name
	}
	return s
}

func (all tenants) AdmitAll(ctx context.Context, n, _ []int64) (longest time.Duration, which int, err error) {
	if err := all[0].at.went(ctx, "ask %v %v", all, n); err != nil {
		return 0, 0, err
	}
	for i, t := range all {
		wait, err := t.bucket.Admit(ctx, n[i])
		if err == nil && wait == 0 {
			defer func() {
				if longest > 0 || err != nil {
					_ = t.bucket.Adjust(bg, -n[i], 0)
				}
			}()
		}
		if err != nil {
			return 0, i, err
		}
		if wait > longest {
			longest, which = wait, i
		}
	}
	return longest, which, nil
}

func (all tenants) AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error {
	if err := all[0].at.went(ctx, "adjust %v %v %v", all, delta, age); err != nil {
		return slices.Repeat([]error{err}, len(all))
	}
	lost := make([]error, len(all))
	for i, t := range all {
		if lost[i] = t.at.grudge; lost[i] == nil {
			lost[i] = t.bucket.Adjust(ctx, delta[i], age)
		}
	}
	return lost
}

func wantTrips(t *testing.T, p *place, want ...string) {
	t.Helper()
	if got := p.since(); !slices.Equal(got, want) {
		t.Errorf("trips: %q, want %q", got, want)
	}
}

// Quotas that live in one place are asked in one trip and need nothing back; the
// gate names the one that refuses.
func TestJoint_AsksOneStoreInOneTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &place{trip: 10 * ms}
		second := &tenant{bucket{capacity: 2, interval: time.Second}, "s", far}
		day := &tenant{bucket{capacity: 5, interval: time.Hour}, "d", far}
		g := mustGate(t, sluice.Config{Name: "api", Limits: []sluice.Limit{
			{Name: "second", Limiter: second}, {Name: "day", Limiter: day, Unit: sluice.Calls},
		}})
		l := synclog.New()
		for i := range 3 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(50 * ms)
		if s := g.Stats(); s.LimitedBy != "limit second" || s.Pacing != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Second)
		l.Want(t, synclog.At(0, 10*ms), synclog.At(1, 20*ms), synclog.At(2, 1020*ms)) // asked again a trip after 1010
		wantTrips(t, far, "ask sd [1 1]", "ask sd [1 1]", "ask sd [1 1]", "ask sd [1 1]")
		if second.missing() != 1 || day.missing() != 3 {
			t.Errorf("%d and %d are gone", second.missing(), day.missing())
		}
		if _, err := g.AcquireWithin(bg, 3, time.Hour); !errors.Is(err, limits.ErrTooLarge) || err.Error() != "sluice: api: limit second: request is larger than the limit" {
			t.Errorf("3 of 2: %v", err)
		}
		time.Sleep(time.Minute)
		for range 2 {
			g.Acquire(bg, 1)
		}
		// Both refuse: the longer wait counts, and its quota is named.
		far.since()
		var wait *limits.WaitError
		if _, err := g.AcquireWithin(bg, 1, time.Minute); !errors.As(err, &wait) || wait.For != "limit day" || wait.Need < 58*time.Minute {
			t.Errorf("%v", err)
		}
		wantTrips(t, far, "ask sd [1 1]")
		if s := g.Stats(); s.Unreturned != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A call that a limiter of this machine refuses makes no trip, in whatever order the
// limits are configured.
func TestJoint_LocalLimitsAreAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &place{trip: 10 * ms}
		shared := &tenant{bucket{capacity: 10, interval: time.Hour}, "s", far}
		near := &bucket{capacity: 1, interval: time.Minute}
		all := mustGate(t, sluice.Config{Name: "all", Limits: []sluice.Limit{{Name: "near", Limiter: near}}})
		for _, cfg := range []sluice.Config{
			{Limits: []sluice.Limit{{Name: "shared", Limiter: shared}, {Name: "near", Limiter: near}}},
			{Limits: []sluice.Limit{{Name: "shared", Limiter: shared}}, Parent: all},
		} {
			g := mustGate(t, cfg)
			if _, ok := g.TryAcquire(1); !ok {
				t.Error("one fits")
			}
			wantTrips(t, far, "ask s 1")
			if _, ok := g.TryAcquire(1); ok {
				t.Error("two do not")
			}
			wantTrips(t, far)
			time.Sleep(time.Minute)
		}
	})
}

// What was taken in one place and refused in another is given back in one trip.
func TestJoint_TwoStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := new(place), new(place)
		a, c := &tenant{bucket{capacity: 10, interval: time.Hour}, "a", p}, &tenant{bucket{capacity: 10, interval: time.Hour}, "c", p}
		b, d := &tenant{bucket{capacity: 10, interval: time.Hour}, "b", q}, &tenant{bucket{capacity: 1, interval: time.Hour}, "d", q}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{
			{Name: "a", Limiter: a}, {Name: "b", Limiter: b}, {Name: "c", Limiter: c, Unit: sluice.Calls}, {Name: "d", Limiter: d, Unit: sluice.Calls},
			{Name: "a again", Limiter: a}, // cannot be joined to itself
		}})
		if _, ok := g.TryAcquire(3); !ok {
			t.Error("three fit")
		}
		wantTrips(t, p, "ask ac [3 1]", "ask a 3")
		wantTrips(t, q, "ask bd [3 1]")
		if _, ok := g.TryAcquire(3); ok {
			t.Error("d is empty")
		}
		wantTrips(t, p, "ask ac [3 1]", "adjust ac [-3 -1] 0s")
		wantTrips(t, q, "ask bd [3 1]")
		if a.missing() != 6 || b.missing() != 3 || c.missing() != 1 || d.missing() != 1 {
			t.Errorf("%d %d %d %d are gone", a.missing(), b.missing(), c.missing(), d.missing())
		}
		// A refund that fails is counted for each quota, as is a place that is
		// away.
		p.grudge = errors.New("no way back")
		g.TryAcquire(1)
		if s := g.Stats(); s.Unreturned != 2 {
			t.Errorf("%d stranded, want 2", s.Unreturned)
		}
		q.away = errors.New("away")
		if _, err := g.AcquireWithin(bg, 1, 0); !errors.Is(err, q.away) || err.Error() != "sluice: limit b: away" {
			t.Errorf("%v", err)
		}
		if s := g.Stats(); s.Unreturned != 4 || s.Rejected.Other != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A call that cost something else is settled in one trip, for the gate and its
// parent, by those quotas that count cost.
func TestJoint_SettlesInOneTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := new(place)
		one := func(name string) *tenant { return &tenant{bucket{capacity: 10, interval: time.Hour}, name, far} }
		a, b, c := one("a"), one("b"), one("c")
		all := mustGate(t, sluice.Config{Name: "all", Limits: []sluice.Limit{{Name: "a", Limiter: a}}})
		host := mustGate(t, sluice.Config{Name: "host", Parent: all, Limits: []sluice.Limit{{Name: "b", Limiter: b, Unit: sluice.Calls}, {Name: "c", Limiter: c}}})
		p, err := host.Acquire(bg, 5)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.Settle(7)
		p.Settle(1)
		wantTrips(t, far, "ask bca [1 5 5]", "adjust bca [0 2 2] 1s")
		if a.missing() != 7 || b.missing() != 1 || c.missing() != 7 {
			t.Errorf("%d %d %d are gone", a.missing(), b.missing(), c.missing())
		}
		// The quota of the parent refuses: the parent waits, and names the
		// quota.
		a.bucket.Adjust(bg, 3, 0)
		l := synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, enter(host, ctx))
		if h, a := host.Stats(), all.Stats(); h.LimitedBy != limits.ByParent || a.LimitedBy != "limit a" {
			t.Errorf("%q, %q", h.LimitedBy, a.LimitedBy)
		}
		// That of the host refuses: it is the host.
		cancel()
		a.bucket.Adjust(bg, -9, 0)
		c.bucket.Adjust(bg, 3, 0)
		l.Call(1, enter(host, bg))
		if h, a := host.Stats(), all.Stats(); h.LimitedBy != "limit c" || a.LimitedBy != "" {
			t.Errorf("%q, %q", h.LimitedBy, a.LimitedBy)
		}
		p, err = host.Acquire(bg, 2)
		if err != nil {
			t.Fatal(err)
		}
		far.grudge = errors.New("no way back")
		p.Settle(1)
		if h, a := host.Stats(), all.Stats(); h.Unreturned != 2 || a.Unreturned != 1 { // all three that were joined
			t.Errorf("%d, %d stranded", h.Unreturned, a.Unreturned)
		}
		time.Sleep(24 * time.Hour)
		// If no limit counts cost, there is no trip.
		calls := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b, Unit: sluice.Calls}, {Limiter: c, Unit: sluice.Calls}}})
		if p, err = calls.Acquire(bg, 2); err != nil {
			t.Fatal(err)
		}
		far.since()
		p.Settle(1)
		wantTrips(t, far)
	})
}

// A joint that panics leaves nothing taken elsewhere.
func TestJoint_PanicTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := &bucket{capacity: 10, interval: time.Hour}
		a, b := &bomb{}, &bomb{}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: a}, {Limiter: near}, {Limiter: b}}})
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not propagate")
				}
			}()
			g.Acquire(bg, 1)
		}()
		if near.missing() != 0 || g.Stats().InFlight != 0 {
			t.Errorf("%d are gone, %+v", near.missing(), g.Stats())
		}
	})
}

// A bomb is a joint of bombs.
type bomb struct{ bucket }

func (b *bomb) Join(...limits.Limiter) limits.Joint { return b }

func (b *bomb) AdmitAll(_ context.Context, _, _ []int64) (time.Duration, int, error) { panic("boom") }
func (b *bomb) AdjustAll(context.Context, []int64, time.Duration) []error            { panic("not taken") }

// An onlooker is a joint that notes what waits behind the calls that ask it.
type onlooker struct {
	bucket
	behind [][]int64
}

func (h *onlooker) Join(...limits.Limiter) limits.Joint { return h }

func (h *onlooker) AdmitAll(ctx context.Context, n, behind []int64) (time.Duration, int, error) {
	h.behind = append(h.behind, behind)
	wait, err := h.Admit(ctx, n[0])
	return wait, 0, err
}

func (h *onlooker) AdjustAll(ctx context.Context, delta []int64, age time.Duration) []error {
	return []error{h.Adjust(ctx, delta[0], age)}
}

// A joint is told what waits behind each call and has room, as far as it is known.
func TestJoint_KnowsWhatWaits(t *testing.T) {
	for _, v := range []struct {
		name string
		cfg  sluice.Config
		unit sluice.Unit
		want [][]int64 // for calls of 1, 2, 3 and 4, of which each takes 10 ms; after the pause one starts first
	}{
		{"calls", sluice.Config{}, sluice.Calls, [][]int64{{3}, {2}, {1}, {0}}},
		{"cost, of which the queue knows the calls", sluice.Config{}, sluice.Cost, [][]int64{{3}, {4}, {3}, {0}}},
		{"cost", sluice.Config{RateUnit: sluice.Cost}, sluice.Cost, [][]int64{{9}, {7}, {4}, {0}}},
		{"another unit", sluice.Config{}, "pages", [][]int64{{0}, {0}, {0}, {0}}},
		{"room for two calls", sluice.Config{Concurrency: 2}, sluice.Calls, [][]int64{{1}, {1}, {0}, {0}}},
		{"room for 5", sluice.Config{Concurrency: 5, ConcurrencyUnit: sluice.Cost, RateUnit: sluice.Cost}, sluice.Cost, [][]int64{{4}, {3}, {0}, {0}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &onlooker{bucket: bucket{capacity: 100, interval: time.Hour}}
				v.cfg.Limits = []sluice.Limit{{Limiter: h, Unit: v.unit}}
				g := mustGate(t, v.cfg)
				g.PauseUntil(time.Now().Add(time.Second), "so that all wait")
				for i := range int64(4) {
					go func() {
						p, err := g.Acquire(sluice.WithCosts(bg, sluice.Costs{"pages": 1}), i+1)
						if err == nil {
							time.Sleep(10 * ms)
							p.Release()
						}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !reflect.DeepEqual(h.behind, v.want) {
					t.Errorf("behind the calls there were %v, want %v", h.behind, v.want)
				}
			})
		})
	}
}

// # Limits that take their time

func TestQueue_Acquire_InOrderAndOnlyTheFirstAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 2, interval: 100 * ms}
		b, l := queued.For(m), synclog.New()
		for i, n := range []int64{1, 1, 2, 1, 0} {
			l.Call(i, func() error { return b.Acquire(bg, n) })
		}
		if b.TryAcquire(1) || b.Waiting() != 2 || m.asks() != 3 {
			t.Errorf("%d wait and the bucket was asked %d times", b.Waiting(), m.asks())
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 0), synclog.At(4, 0), synclog.At(2, 200*ms), synclog.At(3, 300*ms))
		// 0 and 1 at once; 2 twice, 3 twice.
		if m.asks() != 6 {
			t.Errorf("the bucket was asked %d times, want 6", m.asks())
		}
		if !b.TryAcquire(2) || b.TryAcquire(1) || !b.TryAcquire(0) {
			t.Error("TryAcquire does not return what the bucket answers")
		}
	})
}

func TestQueue_Acquire_CancelAndDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: time.Second}
		b, l := queued.For(m), synclog.New()
		b.TryAcquire(1)
		ctx, cancel := context.WithCancel(bg)
		short, cancelShort := context.WithTimeout(bg, 300*ms)
		defer cancelShort()
		within := func(d time.Duration) func() error {
			return func() error { return b.AcquireWithin(bg, 1, d) }
		}
		l.Call(0, within(999*ms)) // it is first in the queue, so it fails at once
		l.Call(1, func() error { return b.Acquire(short, 1) })
		l.Call(2, func() error { return b.Acquire(ctx, 1) })   // first in the queue from now on
		l.Call(3, within(0))                                   // another call waits
		l.Call(4, within(500*ms))                              // 2 has 1 s to wait, and leaves first
		l.Call(5, func() error { return b.Acquire(short, 1) }) // likewise
		l.Call(6, within(1000*ms))                             // exactly in time, when 2 is gone
		l.Call(7, within(2000*ms))
		l.Call(8, within(2999*ms))
		time.Sleep(600 * ms)
		cancel()
		time.Sleep(time.Minute)
		var wait *limits.WaitError
		for _, left := range l.Sofar() {
			switch left.Caller {
			case 0, 1, 3, 4, 5, 8:
				if !errors.As(left.Err, &wait) {
					t.Errorf("caller %d: %v, want a WaitError", left.Caller, left.Err)
				}
			}
		}
		l.Want(t,
			synclog.Failed(0, 0, context.DeadlineExceeded),
			synclog.Failed(1, 0, context.DeadlineExceeded),
			synclog.Failed(3, 0, context.DeadlineExceeded),
			synclog.Failed(4, 0, context.DeadlineExceeded),
			synclog.Failed(5, 0, context.DeadlineExceeded),
			synclog.Failed(2, 600*ms, context.Canceled),
			synclog.At(6, 1000*ms),
			synclog.At(7, 2000*ms),
			synclog.Failed(8, 2000*ms, context.DeadlineExceeded),
		)
		if b.Waiting() != 0 {
			t.Errorf("%d wait", b.Waiting())
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		asked := m.asks()
		if err := b.Acquire(done, 1); err != context.Canceled || m.asks() != asked {
			t.Errorf("done before the call: %v", err)
		}
		if err := b.Acquire(done, 0); err != context.Canceled {
			t.Errorf("done before the call of nothing: %v", err)
		}
	})
}

func TestQueue_Acquire_ReturnsErrorsOfTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 3, interval: time.Second}
		b := queued.For(m)
		if err := b.Acquire(bg, 4); !errors.Is(err, limits.ErrTooLarge) {
			t.Errorf("4 of 3: %v", err)
		}
		broken := errors.New("away")
		m.err = broken
		if err := b.Acquire(bg, 1); !errors.Is(err, broken) || b.TryAcquire(1) {
			t.Errorf("a limit that cannot be asked: %v", err)
		}
		m.err = nil
		if !b.TryAcquire(3) {
			t.Error("something was taken")
		}
	})
}

// A limit may take its time to answer. Meanwhile callers queue, cancel, and
// the lock of the queue is free.
func TestQueue_Acquire_SlowLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: 100 * ms, trip: 10 * ms}
		b, l := queued.For(m), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return b.Acquire(bg, 1) })
		l.Call(1, func() error { return b.Acquire(ctx, 1) })
		l.Call(2, func() error { return b.Acquire(bg, 1) })
		if b.Waiting() != 3 {
			t.Errorf("%d wait while the first asks", b.Waiting())
		}
		time.Sleep(15 * ms) // 0 is through, 1 asks
		cancel()
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 10*ms),
			synclog.Failed(1, 15*ms, context.Canceled),
			synclog.At(2, 120*ms), // asked from 15 to 25, refused until 110, asked again
		)
	})
}

type panicking struct{}

func (panicking) Admit(context.Context, int64) (time.Duration, error) { panic("mine") }
func (panicking) Adjust(context.Context, int64, time.Duration) error  { return nil }

func TestQueue_Acquire_LimiterPanics(t *testing.T) {
	b := queued.For(panicking{})
	for range 2 {
		for name, f := range map[string]func(){
			"Acquire":    func() { b.Acquire(bg, 1) },
			"TryAcquire": func() { b.TryAcquire(1) },
			"Wait":       func() { b.Wait(bg) },
		} {
			func() {
				defer func() {
					if recover() != "mine" {
						t.Errorf("%s: the panic did not propagate", name)
					}
				}()
				f()
			}()
		}
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
}

// If only a change can make a limiter let the first call through, calls that queue
// behind it do not ask the limiter again.
func TestQueue_Acquire_NewcomersDoNotMakeTheFirstAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := 0
		b := queued.For(answering(func(context.Context, int64) (time.Duration, error) {
			asks++
			return limits.Never, nil
		}))
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.Acquire(ctx, 1) })
			synctest.Wait()
			b.TryAcquire(1)
		}
		if asks != 1 {
			t.Errorf("asked %d times", asks)
		}
		cancel()
		wg.Wait()
	})
}

func TestQueue_TryAcquire_ZeroIsGrantedAtOnce(t *testing.T) {
	asks := 0
	q := queued.For(answering(func(context.Context, int64) (time.Duration, error) {
		asks++
		return limits.Never, nil
	}))
	if !q.TryAcquire(0) || q.Acquire(bg, 0) != nil || q.AcquireWithin(bg, 0, 0) != nil || asks > 0 {
		t.Errorf("nothing is refused, or was asked for %d times", asks)
	}
}

// # Contexts of callers that wait

// mute is a context that breaks its contract: its Done is closed while Err is nil, as
// of one that embeds another and overrides Done alone.
type mute struct {
	context.Context
	done chan struct{}
}

func (m mute) Done() <-chan struct{} { return m.done }

// nosy is a context whose methods call a function of the caller's.
type nosy struct {
	context.Context
	ask func()
}

func (c nosy) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }
func (c nosy) Err() error                  { c.ask(); return c.Context.Err() }
func (c nosy) Value(key any) any           { c.ask(); return c.Context.Value(key) }

// A spot is where callers wait: two acquire from it, and the second must wait.
type spot struct {
	acquire func(ctx context.Context) (release func(), err error)
	look    func() (inFlight int64) // takes the lock
}

// spots returns all kinds of them.
func spots(t *testing.T) map[string]func() spot {
	gate := func(cfgs ...sluice.Config) func() spot {
		return func() spot {
			g := generations(t, cfgs...)
			return spot{
				func(ctx context.Context) (func(), error) {
					p, err := g.Acquire(ctx, 1)
					if err != nil {
						return nil, err
					}
					return p.Release, nil
				},
				func() int64 { return g.Stats().InFlight },
			}
		}
	}
	plenty := []sluice.Limit{{Limiter: &bucket{capacity: 1e6, interval: ms}}}
	far := []sluice.Limit{{Limiter: &bucket{capacity: 1e6, interval: ms, trip: ms}}}
	none := func() {}
	hourly := sluice.Rate{Count: 1, Per: time.Hour} // no call leaves by accident
	return map[string]func() spot{
		"gate":            gate(sluice.Config{Concurrency: 1}),
		"gate, cost":      gate(sluice.Config{Concurrency: 1, ConcurrencyUnit: sluice.Cost}),
		"gate, rate":      gate(sluice.Config{Rate: hourly}),
		"gate, quota":     gate(sluice.Config{Concurrency: 1, Limits: plenty}),
		"gate, far quota": gate(sluice.Config{Concurrency: 1, Limits: far}),
		"gate, parent":    gate(sluice.Config{}, sluice.Config{Concurrency: 1}),
		"full parent":     gate(sluice.Config{Concurrency: 1}, sluice.Config{}),
		"grandparent":     gate(sluice.Config{Rate: hourly}, sluice.Config{}, sluice.Config{Limits: plenty}),
		"permits":         gate(sluice.Config{Rate: hourly, Semaphore: shared{semaphore.NewWeighted(9), nil}}),
		"permits, full":   gate(sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), nil}}),
		"semaphore": func() spot {
			s := semaphore.NewWeighted(1)
			return spot{func(ctx context.Context) (func(), error) { return func() { s.Release(1) }, s.Acquire(ctx, 1) }, s.InFlight}
		},
		"semaphore, within": func() spot {
			s := semaphore.NewWeighted(1)
			return spot{func(ctx context.Context) (func(), error) {
				return func() { s.Release(1) }, s.AcquireWithin(ctx, 1, time.Hour)
			}, s.InFlight}
		},
		"pacer": func() spot {
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}))
			return spot{func(ctx context.Context) (func(), error) { return none, p.Acquire(ctx, 1) }, func() int64 { p.Waiting(); return 0 }}
		},
		"reservation": func() spot {
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}))
			return spot{func(ctx context.Context) (func(), error) { return none, p.Reserve(1).Wait(ctx) }, func() int64 { p.Waiting(); return 0 }}
		},
		"block": func() spot {
			b := queued.For(&bucket{capacity: 1, interval: time.Hour})
			return spot{func(ctx context.Context) (func(), error) { return none, b.Acquire(ctx, 1) }, func() int64 { b.Waiting(); return 0 }}
		},
	}
}

// A context whose Done is closed counts as cancelled even if its Err is nil: its caller
// gets nothing, and other callers get what they are due.
func TestContext_DoneWithoutErrorGetsNothing(t *testing.T) {
	for name, makeOne := range spots(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := makeOne()
				release, err := p.acquire(bg)
				if err != nil {
					t.Fatal(err)
				}
				ctx := mute{bg, make(chan struct{})}
				time.AfterFunc(10*ms, func() { close(ctx.done) })
				for _, when := range []string{"while it waits", "before"} {
					if _, err := p.acquire(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("done %s: %v", when, err)
					}
				}
				release()
				if n := p.look(); n != 0 {
					t.Errorf("%d in flight", n)
				}
				for range 3 {
					release, err := p.acquire(bg)
					if err != nil {
						t.Fatal(err)
					}
					release()
				}
			})
		})
	}
}

func TestContext_DoneWithoutErrorEndsShutdown(t *testing.T) {
	g := mustGate(t, sluice.Config{})
	p, _ := g.Acquire(bg, 1)
	ctx := mute{bg, make(chan struct{})}
	close(ctx.done)
	if err := g.Shutdown(ctx); err != context.Canceled {
		t.Errorf("a call is in flight: %v", err)
	}
	p.Release()
}

// The methods of a context are the caller's own code. They may use the gate that the
// caller waits for, or need a mutex whose holder uses it. (This test hangs if it fails.)
func TestContext_MethodsMayUseTheGate(t *testing.T) {
	for name, makeOne := range spots(t) {
		t.Run(name, func(t *testing.T) {
			p := makeOne()
			release, err := p.acquire(bg)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			for _, ask := range []func(){
				func() { p.look() },
				func() {
					locked := make(chan struct{})
					go func() {
						mu.Lock()
						defer mu.Unlock()
						close(locked)
						p.look()
					}()
					<-locked
					mu.Lock()
					defer mu.Unlock()
				},
			} {
				ctx, cancel := context.WithCancel(bg)
				time.AfterFunc(ms, cancel)
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled before: %v", err)
				}
				ctx, cancel = context.WithTimeout(bg, 10*ms)
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a deadline: %v", err)
				}
				cancel()
			}
			release()
		})
	}
}
