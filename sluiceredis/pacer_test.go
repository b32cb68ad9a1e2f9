package sluiceredis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

func newPacer(t testing.TB, s *Store, name string, count int64, per time.Duration, cfg PacerConfig, burst ...int64) *Pacer {
	t.Helper()
	rate := limits.Rate{Count: count, Per: per}
	for _, rate.Burst = range burst {
	}
	p, err := s.Pacer(name, rate, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reserve asks for a slot and returns how long after now it is.
func reserve(t *testing.T, p *Pacer, n int64, longest time.Duration) (*pacing, time.Duration) {
	t.Helper()
	r := pacing{takes: n * p.paced.Load().interval, patience: int64(longest)}
	if err := p.store.reserve(bg, p.at(), &r); err != nil {
		t.Fatal(err)
	}
	return &r, r.wait
}

func TestSlots(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		p := newPacer(t, s, "slots", 10, sec, PacerConfig{})
		ask := func(at time.Duration, n int64, longest time.Duration, ok bool, want time.Duration) *pacing {
			t.Helper()
			clock.set(at)
			r, wait := reserve(t, p, n, longest)
			if r.ok != ok || wait != want {
				t.Errorf("%d at %v within %v: %v, %v; want %v, %v", n, at, longest, r.ok, wait, ok, want)
			}
			return r
		}
		ask(0, 1, 0, true, 0)
		ask(0, 1, 99*ms, false, 100*ms) // would have to wait longer
		ask(0, 1, 100*ms, true, 100*ms)
		ask(0, 3, sec, true, 200*ms) // leaves at its slot, the next pays
		ask(0, 1, sec, true, 500*ms)
		ask(550*ms, 1, sec, true, 50*ms)
		ask(5*sec, 1, 0, true, 0) // nothing is stored while nobody calls
		ask(5*sec, 1, sec, true, 100*ms)
		ask(4*sec, 1, 2*sec, true, 1200*ms) // a clock that stepped back a little: the slots stay
		ask(-time.Hour, 1, 2*time.Minute, true, time.Minute)
		if got := s.Stats().Repaired; got != 1 {
			t.Errorf("clamped %d times, want 1", got)
		}

		missed := newPacer(t, s, "missed", 10, sec, PacerConfig{}, 3)
		for i, want := range []time.Duration{0, 0, 0, 100 * ms, 200 * ms} { // slots from 200 ms ago on
			if _, wait := reserve(t, missed, 1, sec); wait != want {
				t.Errorf("%d: %v, want %v", i, wait, want)
			}
		}
	})
}

// Slots of many machines are exactly one interval apart.
func TestSlotsOfManyMachines(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		var mu sync.Mutex
		var slots []int64
		var wg sync.WaitGroup
		// So that all who follow have to wait, and no slot passes unused.
		reserve(t, newPacer(t, b.store(t), "many", 200, sec, PacerConfig{Horizon: time.Hour}), 200*60, time.Hour)
		for range 4 {
			p := newPacer(t, b.store(t), "many", 200, sec, PacerConfig{Horizon: time.Hour})
			for range 4 {
				wg.Go(func() {
					for range 25 {
						r, _ := reserve(t, p, 1, time.Hour)
						mu.Lock()
						slots = append(slots, r.slot)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		slices.Sort(slots)
		for i := 1; i < len(slots); i++ {
			if slots[i]-slots[i-1] != int64(5*ms) {
				t.Fatalf("slots %d and %d are %d ns apart", i-1, i, slots[i]-slots[i-1])
			}
		}
	})
}

func TestPacerCancelsAtTheTail(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		p := newPacer(t, s, "cancel", 1, time.Minute, PacerConfig{Horizon: time.Hour})
		var all []*Reservation
		for range 4 {
			r, err := p.Reserve(bg, 1, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		if all[1].Cancel(bg) || !all[3].Cancel(bg) || !all[3].Cancel(bg) || !all[2].Cancel(bg) {
			t.Error("what is at the tail can be given back, the rest not")
		}
		r, err := p.Reserve(bg, 1, time.Hour)
		if err != nil || r.slot != all[2].slot {
			t.Errorf("the slot that came back: %v, %v", r, err)
		}
		if got := s.Stats(); got.Refunded != 2 || got.LostSlots != 1 {
			t.Errorf("%+v", got)
		}
		// A wait that is canceled returns its slot.
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error)
		go func() { done <- p.Acquire(ctx, 1) }()
		for s.Stats().Decisions != 6 {
			time.Sleep(ms)
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
		if next, err := p.Reserve(bg, 1, time.Hour); err != nil || next.slot-r.slot != int64(time.Minute) {
			t.Errorf("%v, %v", next, err)
		}
		// Who could not start in time is told so, and reserves nothing.
		var wait *limits.WaitError
		ctx, cancel = context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := p.Acquire(ctx, 1); !errors.As(err, &wait) || wait.Need < 3*time.Minute || wait.Have > time.Second {
			t.Errorf("%v", err)
		}
		if err := p.AcquireWithin(bg, 1, time.Second); !errors.As(err, &wait) || wait.Have > time.Second || wait.Have < 900*ms {
			t.Errorf("%v", err)
		}
		if err := p.Acquire(bg, 61); err != limits.ErrTooLarge {
			t.Errorf("more than the horizon: %v", err)
		}
	})
}

// A pause holds everybody, on every machine, those who wait already as well; when it has ended they
// start one after the other.
func TestPacerPause(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		one := newPacer(t, b.store(t), "pause", 100, sec, PacerConfig{})
		other := newPacer(t, b.store(t), "pause", 100, sec, PacerConfig{PausePollInterval: 10 * ms})
		for range 20 { // those who wait are about 200 ms away
			if _, err := one.Reserve(bg, 1, sec); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		left := make(chan time.Time, 3)
		for range 3 {
			wg.Go(func() {
				if err := other.Acquire(bg, 1); err != nil {
					t.Error(err)
				}
				left <- time.Now()
			})
		}
		for other.store.Stats().Decisions < 3 {
			time.Sleep(ms)
		}
		end := time.Now().Add(500 * ms)
		if err := one.PauseUntil(bg, end); err != nil {
			t.Fatal(err)
		}
		if err := one.PauseUntil(bg, end.Add(-200*ms)); err != nil { // only ever prolonged
			t.Fatal(err)
		}
		wg.Wait()
		close(left)
		for at := range left {
			if at.Before(end) {
				t.Errorf("left %v before the pause was over", end.Sub(at))
			}
		}
		r, _ := reserve(t, one, 1, sec)
		first := r.pauses.Pause
		if r.pauses.Pause == 0 { // it has ended, and the slots go on from its end
			first = other.pause
		}
		if r.slot-first < int64(30*ms) {
			t.Errorf("the next slot is %v after the end of the pause", time.Duration(r.slot-first))
		}
	})
}

// As a meter it lets a gate's callers leave in time, one slot ahead.
func TestPacerAsAQuota(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		p := newPacer(t, s, "quota", 100, sec, PacerConfig{MaxLateness: sec})
		gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "all machines", Limiter: p}}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var wg sync.WaitGroup
		for range 11 {
			wg.Go(func() {
				permit, err := gate.Acquire(bg, 1)
				if err != nil {
					t.Error(err)
					return
				}
				permit.Release()
			})
		}
		wg.Wait()
		if took := time.Since(began); took < 100*ms {
			t.Errorf("eleven left within %v", took)
		}
		if got := s.Stats(); got.Scripts > 11 || got.LostSlots != 0 {
			t.Errorf("%+v", got)
		}
		// A gate gives it a queue as well.
		queue := limits.Must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: p}}}))
		if _, err := queue.Acquire(bg, 1000); err != nil {
			t.Error(err)
		}
		if _, ok := queue.TryAcquire(1); ok {
			t.Error("a thousand slots later was now")
		}
		if err := p.Adjust(bg, 3, 0); err != nil {
			t.Error(err)
		}
		if err := p.Adjust(bg, -3, 0); !errors.Is(err, errStranded) {
			t.Error(err)
		}
	})
}

// Who is let through but rejected by another limit leaves the slot to the next.
func TestPacerTakesBackWhatAGateRefused(t *testing.T) {
	b := onRedis(t)
	p := newPacer(t, b.store(t), "back", 1, time.Minute, PacerConfig{MaxLateness: time.Minute})
	if wait, err := p.Admit(bg, 1); wait != 0 || err != nil {
		t.Fatal(wait, err)
	}
	if err := p.Adjust(bg, -1, 0); err != nil {
		t.Fatal(err)
	}
	if wait, err := p.Admit(bg, 1); wait != 0 || err != nil {
		t.Error(wait, err)
	}
	if wait, err := p.Admit(bg, 1); wait <= 0 || err != nil {
		t.Error(wait, err)
	}
}

func TestPacerRefusesWhatCannotBe(t *testing.T) {
	s := (&backend{prefix: "none"}).storeOn(t, unreachable{})
	for _, v := range []struct {
		count int64
		per   time.Duration
		cfg   PacerConfig
		want  string
	}{
		{0, sec, PacerConfig{}, "must be positive"},
		{1, 0, PacerConfig{}, "must be positive"},
		{2, 1, PacerConfig{}, "per nanosecond"},
		{1, time.Hour, PacerConfig{}, "horizon"},
		{1, sec, PacerConfig{Horizon: -1}, "Horizon"},
		{1, sec, PacerConfig{MaxLateness: -1}, "Late"},
		{1, sec, PacerConfig{PausePollInterval: 53 * 24 * time.Hour}, "PausePoll"},
	} {
		if _, err := s.Pacer("n", limits.Rate{Count: v.count, Per: v.per}, v.cfg); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v, want %q", v, err, v.want)
		}
	}
	p := newPacer(t, s, "n", 3, sec, PacerConfig{})
	if time.Duration(p.paced.Load().interval) != 333_333_334 {
		t.Errorf("three per second: %v", time.Duration(p.paced.Load().interval))
	}
	if err := p.Acquire(bg, 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if err := p.Acquire(bg, 1); !errors.Is(err, errAway) {
		t.Errorf("%v", err)
	}
}

// However many wait on however many machines: at any time no more have left
// than slots have come.
func TestPacerLetsNobodyLeaveEarly(t *testing.T) {
	b := onRedis(t)
	const calls, interval = 1000, ms
	var mu sync.Mutex
	var left []time.Time
	var wg sync.WaitGroup
	var next atomic.Int64
	began := time.Now()
	for range 4 {
		p := newPacer(t, b.store(t), "early", 1, interval, PacerConfig{MaxLateness: 20 * ms})
		for range 64 {
			wg.Go(func() {
				for next.Add(1) <= calls {
					if err := p.Acquire(bg, 1); err != nil {
						t.Error(err)
						return
					}
					now := time.Now()
					mu.Lock()
					left = append(left, now)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.SortFunc(left, time.Time.Compare)
	for i, at := range left { // the first slot is not before anybody asked
		if due := began.Add(time.Duration(i) * interval); at.Before(due) {
			t.Fatalf("call %d left %v early", i, due.Sub(at))
		}
	}
	if len(left) != calls {
		t.Errorf("%d left", len(left))
	}
	t.Logf("%d calls in %v", len(left), left[len(left)-1].Sub(left[0]))
}

// Who comes to his slot more than Late after it does not leave by it, whatever kept
// him: a timer, or that he was not woken when the answer came.
func TestNobodyLeavesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newRemote().newStore(t, Config{})
		p := newPacer(t, s, "late", 10, sec, PacerConfig{MaxLateness: 20 * ms})
		for _, v := range []struct {
			late   time.Duration
			leaves bool
			lost   uint64
		}{{0, true, 0}, {20 * ms, true, 0}, {20*ms + 1, false, 2}} {
			r, err := p.Reserve(bg, 2, sec)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(r.Delay() + v.late)
			lost := s.Stats().LostSlots
			if leaves, err := p.wait(bg, r); leaves != v.leaves || err != nil || s.Stats().LostSlots-lost != v.lost {
				t.Errorf("%v late: leaves %v, %v, %d lost", v.late, leaves, err, s.Stats().LostSlots-lost)
			}
		}
	})
}
