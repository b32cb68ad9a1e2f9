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
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
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
