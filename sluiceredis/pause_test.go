package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// acquire starts n callers and returns when each has left, in order, once all have.
func acquire(t *testing.T, p *Pacer, n int) (left func() []time.Duration) {
	began := time.Now()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := p.Acquire(bg, 1); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Since(began))
		})
	}
	return func() []time.Duration {
		wg.Wait()
		slices.Sort(all)
		return all
	}
}

// Who waits behind a pause that is ended moves up, on all machines, and leaves
// one interval after the other.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(ms)
		one := newPacer(t, v.machine(), "resume", 1, sec, PacerConfig{})
		other := newPacer(t, v.machine(), "resume", 1, sec, PacerConfig{})
		if err := one.PauseUntil(bg, time.Now().Add(20*sec)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sec - 2*ms)
		here, there := acquire(t, one, 3), acquire(t, other, 3)
		time.Sleep(2 * sec)
		if err := one.Resume(bg); err != nil { // decided at 3.001 s
			t.Fatal(err)
		}
		left := slices.Concat(here(), there())
		slices.Sort(left)
		// They began at 1 s; the first slot is at 4.001 s, and what is 1 ms ahead
		// of a reply is waited for from when that has come.
		for i, at := range left {
			if want := 3*sec + 2*ms + time.Duration(i)*sec; at != want {
				t.Errorf("%d left at %v, want %v", i, at, want)
			}
		}
		// Now it is as if there had been none.
		if err := other.Resume(bg); err != nil {
			t.Error(err)
		}
		if r, err := one.Reserve(bg, 1, sec); err != nil || r.Delay() != sec-4*ms {
			t.Errorf("%v, %v", r.Delay(), err)
		}
	})
}

// A pause that is nearly over is left to end on its own: who waits may not hear of
// it in time.
func TestResumeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		p := newPacer(t, v.machine(), "late", 1, sec, PacerConfig{})
		if err := p.PauseUntil(bg, time.Now().Add(sec)); err != nil {
			t.Fatal(err)
		}
		left := acquire(t, p, 2)
		time.Sleep(800 * ms)
		if err := p.Resume(bg); err != nil {
			t.Fatal(err)
		}
		if got := left(); fmt.Sprint(got) != "[1s 2s]" {
			t.Errorf("%v", got)
		}
	})
}

// Who cannot hear whether the pause was ended does not leave: others may have the
// slot by now.
func TestNobodyLeavesAtASlotThatMayBeVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		s := v.machine()
		p := newPacer(t, s, "doubt", 1, sec, PacerConfig{})
		if err := p.PauseUntil(bg, time.Now().Add(sec)); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		go func() { errs <- p.Acquire(bg, 1) }()
		time.Sleep(500 * ms)
		v.set(func() { v.down = true })
		if err := <-errs; !errors.Is(err, errAway) || s.Stats().LostSlots != 1 {
			t.Errorf("%v, %+v", err, s.Stats())
		}
		// Without a pause a slot is a slot.
		v.set(func() { v.down = false })
		if err := p.Acquire(bg, 1); err != nil {
			t.Error(err)
		}
		go func() { errs <- p.Acquire(bg, 1) }()
		time.Sleep(500 * ms)
		v.set(func() { v.down = true })
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}

// What came before the end of a pause, and arrives after it, does not bring it back.
func TestPausesAreHeardInOrder(t *testing.T) {
	p := newPacer(t, newVirtual(0).machine(), "order", 1, sec, PacerConfig{})
	for i, v := range []struct {
		told        kinds.Pauses
		pause, mark int64
	}{
		{kinds.Pauses{Now: 10, Pause: 50}, 50, 0},
		{kinds.Pauses{Now: 11, Pause: 40}, 50, 0},
		{kinds.Pauses{Now: 20, Mark: 60}, 0, 60},             // resumed
		{kinds.Pauses{Now: 15, Pause: 50}, 0, 60},            // of before
		{kinds.Pauses{Now: 21, Pause: 55, Mark: 60}, 55, 60}, // another pause
		{kinds.Pauses{Now: 30, Mark: 61}, 0, 61},             // resumed again
		{kinds.Pauses{Now: 25, Pause: 58, Mark: 60}, 0, 61},  // of before
		{kinds.Pauses{Now: 62, Pause: 70}, 70, 61},           // the mark has passed
	} {
		p.learn(v.told, time.Now())
		if p.pause != v.pause || p.mark != v.mark {
			t.Errorf("%d: after %+v: %d, %d", i, v.told, p.pause, p.mark)
		}
	}
	for _, v := range []struct {
		slot, mark int64
		void       bool
	}{{69, 61, true}, {70, 61, false}, {70, 0, false}} {
		if got := p.voids(&span{slot: v.slot, mark: v.mark}); got != v.void {
			t.Errorf("%+v: %v", v, got)
		}
	}
	p.learn(kinds.Pauses{Now: 65, Mark: 90}, time.Now())
	for _, v := range []struct {
		slot, mark int64
		void       bool
	}{{70, 61, true}, {89, 61, true}, {70, 90, false}, {90, 0, false}} {
		if got := p.voids(&span{slot: v.slot, mark: v.mark}); got != v.void {
			t.Errorf("%+v: %v", v, got)
		}
	}
}

// What the scripts keep: exactly, on a clock that stands still.
func TestResumeInRedis(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		p := newPacer(t, s, "resume", 10, sec, PacerConfig{})
		slot := func(want time.Duration) *pacing {
			t.Helper()
			r, wait := reserve(t, p, 1, time.Minute)
			if !r.ok || wait != want {
				t.Errorf("%v, want %v", wait, want)
			}
			return r
		}
		pause := func(d time.Duration) {
			t.Helper()
			if _, err := s.askPacer(bg, "pause", p.at(), int64(d)); err != nil {
				t.Fatal(err)
			}
		}
		resume := func() {
			t.Helper()
			if err := p.Resume(bg); err != nil {
				t.Fatal(err)
			}
		}
		resume() // there is nothing
		slot(0)
		resume() // there is no pause
		slot(100 * ms)
		pause(10 * sec)
		slot(10 * sec)
		old := slot(10*sec + 100*ms)
		clock.set(sec)
		resume()
		r := slot(100 * ms)
		if end := int64(epoch + 10*sec + 200*ms); r.pauses.Mark != end || r.pauses.Pause != 0 {
			t.Errorf("%+v, want a mark of %d", r.pauses, end)
		}
		// What was reserved before cannot be returned, though it ends where the next slot is.
		if p.cancel(bg, span{slot: r.slot, takes: r.takes, at: time.Now().Add(sec), mark: old.pauses.Mark}, 1) {
			t.Error("a void slot was given back")
		}
		if !p.cancel(bg, span{slot: r.slot, takes: r.takes, at: time.Now().Add(sec), mark: r.pauses.Mark}, 1) {
			t.Error("one that is not void was not")
		}
		pause(5 * sec)
		if r := slot(5 * sec); r.pauses.Mark != old.slot+old.takes || r.pauses.Pause != int64(epoch+6*sec) {
			t.Errorf("%+v", r.pauses)
		}
		resume() // and once more, with nothing reserved as far ahead
		if again := slot(100 * ms); again.pauses.Mark != old.slot+old.takes+1 {
			t.Errorf("a mark of %d after %d", again.pauses.Mark, old.slot+old.takes)
		}
		pause(200 * ms) // nearly over
		resume()
		slot(200 * ms)
		clock.set(20 * sec)
		if r := slot(0); r.pauses.Mark != 0 {
			t.Errorf("%+v", r.pauses)
		}
		if got := b.redis.Get(bg, p.key).Val(); got != "1790000020100000000 0 0" {
			t.Errorf("kept: %q", got)
		}
		// A slot beyond a mark can be returned also when the mark has passed.
		pause(10 * sec)
		void := slot(10 * sec)
		clock.set(21 * sec)
		resume()
		long, _ := reserve(t, p, 120, time.Minute)
		clock.set(31 * sec)
		if p.cancel(bg, span{slot: void.slot, takes: void.takes, at: time.Now().Add(sec), mark: void.pauses.Mark}, 1) {
			t.Error("a void slot was given back when its mark had passed")
		}
		if !p.cancel(bg, span{slot: long.slot, takes: long.takes, at: time.Now().Add(sec), mark: long.pauses.Mark}, 120) {
			t.Error("a slot beyond a mark that has passed was not given back")
		}
	})
}

// On a real server, two machines.
func TestResumeReachesWaiters(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		one := newPacer(t, b.store(t), "waiters", 100, sec, PacerConfig{PausePollInterval: 10 * ms})
		other := newPacer(t, b.store(t), "waiters", 100, sec, PacerConfig{PausePollInterval: 10 * ms})
		if err := one.PauseUntil(bg, time.Now().Add(50*sec)); err != nil {
			t.Fatal(err)
		}
		left := acquire(t, other, 5)
		for other.store.Stats().Decisions < 5 {
			time.Sleep(ms)
		}
		began := time.Now()
		if err := one.Resume(bg); err != nil {
			t.Fatal(err)
		}
		got := left()
		if took := time.Since(began); took > 40*sec || took < 50*ms {
			t.Errorf("five left within %v: %v", took, got)
		}
	})
}

// Slots that are reserved keep their distance when the rate changes, and those that
// come have another.
func TestSetRateOfAPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(t, newVirtual(0).machine(), "rate", 1, sec, PacerConfig{})
		left := acquire(t, p, 3)
		synctest.Wait()
		if err := p.SetRate(limits.Rate{Count: 10, Per: sec}); err != nil || time.Duration(p.paced.Load().interval) != 100*ms {
			t.Fatal(err)
		}
		more := acquire(t, p, 3)
		if a, b := left(), more(); fmt.Sprint(a, b) != "[0s 1s 2s] [3s 3.1s 3.2s]" {
			t.Errorf("%v, %v", a, b)
		}
		for _, bad := range []error{p.SetRate(limits.Rate{Count: 0, Per: sec}), p.SetRate(limits.Rate{Count: 1, Per: 0}), p.SetRate(limits.Rate{Count: 2, Per: 1}), p.SetRate(limits.Rate{Count: 1, Per: time.Hour})} {
			if bad == nil || time.Duration(p.paced.Load().interval) != 100*ms {
				t.Errorf("%v", bad)
			}
		}
		// What was reserved before is returned as what it was.
		r, err := p.Reserve(bg, 2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.SetRate(limits.Rate{Count: 1, Per: sec}); err != nil || !r.Cancel(bg) {
			t.Error(err)
		}
		if next, err := p.Reserve(bg, 1, time.Minute); err != nil || next.slot != r.slot {
			t.Errorf("%v", err)
		}
	})
}

// through has n calls start a gate one after the other and returns when.
func through(t *testing.T, p *Pacer, n int) (left []time.Duration) {
	t.Helper()
	gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "all", Limiter: p}}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range n {
		permit, err := gate.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, time.Since(began))
		permit.Release()
	}
	return left
}

// A gate needs few round trips for slots reserved ahead, and its calls are as even.
func TestSlotsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{0, 100 * ms} {
		synctest.Test(t, func(t *testing.T) {
			v := newVirtual(0)
			s := v.machine()
			p := newPacer(t, s, "ahead", 100, sec, PacerConfig{Prefetch: ahead})
			for i, at := range through(t, p, 100) {
				if at != time.Duration(i)*10*ms {
					t.Fatalf("%d left at %v", i, at)
				}
			}
			if ahead == 0 && v.count() != 100 || ahead > 0 && v.count() > 16 {
				t.Errorf("%v: %d calls", ahead, v.count())
			}
			// What nobody comes for is returned as soon as one slot has passed.
			time.Sleep(sec)
			synctest.Wait()
			got := s.Stats()
			if ahead > 0 && (got.LostSlots != 1 || got.Refunded == 0) {
				t.Errorf("%+v", got)
			}
			if len := v.pacer.free - time.Now().UnixNano(); len > 0 {
				t.Errorf("slots are reserved for %v more", time.Duration(len))
			}
		})
	}
}

// With the server further away than slots are apart, slots ahead keep the rate.
func TestSlotsAheadOfASlowServer(t *testing.T) {
	delivered := map[time.Duration]int{}
	for _, ahead := range []time.Duration{0, 100 * ms} {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer(t, newVirtual(5*ms).machine(), "slow", 1000, sec, PacerConfig{Prefetch: ahead})
			for _, at := range through(t, p, 1000) {
				if at < 300*ms {
					delivered[ahead]++
				}
			}
		})
	}
	if delivered[0] > 40 || delivered[100*ms] < 150 {
		t.Errorf("within 300 ms: %v", delivered)
	}
	t.Logf("at 1000 a second, 10 ms away, within 300 ms: %v", delivered)
}

// Slots of two machines that reserve ahead never come closer than an interval.
func TestSlotsAheadOfTwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		var mu sync.Mutex
		var all []time.Duration
		began := time.Now()
		var wg sync.WaitGroup
		for m := range 2 {
			p := newPacer(t, v.machine(), "two", 100, sec, PacerConfig{Prefetch: 100 * ms})
			wg.Go(func() {
				for round := range 4 {
					offset := time.Since(began)
					for _, at := range through(t, p, 20+m*7) {
						mu.Lock()
						all = append(all, offset+at)
						mu.Unlock()
					}
					time.Sleep(time.Duration(round) * 33 * ms)
				}
			})
		}
		wg.Wait()
		slices.Sort(all)
		for i := 1; i < len(all); i++ {
			if all[i]-all[i-1] < 10*ms {
				t.Fatalf("%v after %v", all[i], all[i-1])
			}
		}
		time.Sleep(sec)
	})
}

// A pause, and its end, reach what a gate holds.
func TestPauseReachesSlotsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		p := newPacer(t, v.machine(), "reach", 10, sec, PacerConfig{Prefetch: 5 * sec})
		other := newPacer(t, v.machine(), "reach", 10, sec, PacerConfig{})
		began := time.Now()
		var left []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			left = through(t, p, 70)
		}()
		time.Sleep(4*sec + 50*ms)
		if err := other.PauseUntil(bg, began.Add(20*sec)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * sec) // the gate waits for the end of the pause
		if err := other.Resume(bg); err != nil {
			t.Fatal(err)
		}
		<-done
		in := 0
		for i, at := range left {
			if at > 4*sec+50*ms && at < 10*sec {
				in++
			}
			if i > 0 && at-left[i-1] < 100*ms {
				t.Errorf("%v after %v", at, left[i-1])
			}
		}
		if in > 2 { // PausePollInterval is an interval
			t.Errorf("%d left in the pause", in)
		}
		time.Sleep(10 * sec)
	})
}

// A slot by which nobody left goes to the next, also out of the middle.
func TestSlotsAheadAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(t, newVirtual(0).machine(), "back", 10, sec, PacerConfig{Prefetch: sec})
		admit := func(n int64, want time.Duration) {
			t.Helper()
			if wait, err := p.Admit(bg, n); wait != want || err != nil {
				t.Errorf("%v, %v; want %v", wait, err, want)
			}
		}
		for range 9 { // so that some are ahead
			for wait := time.Duration(1); wait > 0; {
				var err error
				if wait, err = p.Admit(bg, 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(wait)
			}
		}
		if p.ahead.held.takes < int64(200*ms) {
			t.Fatalf("%v ahead", time.Duration(p.ahead.held.takes))
		}
		admit(1, 100*ms)
		if err := p.Adjust(bg, -1, 0); err != nil {
			t.Error(err)
		}
		admit(1, 0)
		admit(1, 100*ms)
		if err := p.Adjust(bg, -2, 0); err == nil {
			t.Error("two of one were given back")
		}
		if err := p.Adjust(bg, -1, 0); err == nil {
			t.Error("after that it is too late")
		}
		time.Sleep(100 * ms)
		admit(1, 0)
		// More than is held: that goes back, and all is reserved again.
		admit(100, 100*ms)
		time.Sleep(100 * ms)
		admit(100, 0)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, err := p.Admit(ctx, 1); err != context.Canceled {
			t.Error(err)
		}
		if _, err := p.Admit(bg, 601); err != limits.ErrTooLarge {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

// A slot that is not returned to the server goes to nobody else: what another
// machine has reserved behind it stays between.
func TestSlotsBetweenAreOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		p := newPacer(t, v.machine(), "between", 10, sec, PacerConfig{Prefetch: sec})
		other := newPacer(t, v.machine(), "between", 10, sec, PacerConfig{})
		if wait, err := p.Admit(bg, 1); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
		if _, err := other.Reserve(bg, 1, sec); err != nil { // at 100 ms
			t.Fatal(err)
		}
		if wait, err := p.Admit(bg, 1); wait != 200*ms || err != nil {
			t.Fatal(wait, err)
		}
		if err := p.Adjust(bg, -1, 0); err != errStranded {
			t.Error(err)
		}
		if wait, err := p.Admit(bg, 1); wait != 200*ms || err != nil {
			t.Error(wait, err)
		}
		time.Sleep(sec)
	})
}

// A pause, and its end, are remembered for as long as they say which slots were
// missed: forgotten before, all that may be caught up would leave together.
func TestPausesAreRememberedForWhatWasMissed(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		p := newPacer(t, b.store(t), "missed", 10, sec, PacerConfig{}, 36001)
		lives := func(least time.Duration) {
			t.Helper()
			if got := b.redis.PTTL(bg, p.key).Val(); got < least {
				t.Errorf("it lives for %v", got)
			}
		}
		if err := p.PauseUntil(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		lives(2*time.Hour - time.Minute)
		if err := p.Resume(bg); err != nil {
			t.Fatal(err)
		}
		lives(2*time.Hour - time.Minute)
		// A slot that is returned does not end what had no expiry.
		for range 2 {
			r, err := p.Reserve(bg, 1, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.redis.Persist(bg, p.key).Err(); err != nil {
				t.Fatal(err)
			}
			if !r.Cancel(bg) {
				t.Error("not given back")
			}
			lives(time.Hour - time.Minute)
		}
	})
}
