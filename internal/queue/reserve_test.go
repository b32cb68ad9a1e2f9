package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// asked is every, and counts how often it was asked for a forecast.
type asked struct {
	every
	times int
}

func (r *asked) Forecast(now time.Duration, ahead int64) time.Duration {
	r.times++
	return r.every.Forecast(now, ahead)
}

// Reservations that come before anything is due ask the admitter once for all of
// them, and again when it may say something else.
func TestQueue_Reserve_AsksTheRuleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &asked{every: every{interval: time.Second}}
		q := new(Queue)
		q.Init(r, Config{Exact: true})
		var last *Waiter
		check := func(when string, length, most int) {
			t.Helper()
			w, _, err := q.Reserve(Request{N: 1, Max: Forever})
			if err != nil {
				t.Fatal(err)
			}
			last = w
			if n := q.Len(); n != length || r.times > most {
				t.Errorf("%s: %d wait, asked %d times; want %d, asked at most %d times", when, n, r.times, length, most)
			}
			r.times = 0
		}
		check("nobody before", 0, 0)
		check("the first who waits", 1, 1)
		for n := range 10 {
			check("others", 2+n, 0)
		}
		time.Sleep(999 * time.Millisecond)
		check("just before the slot", 12, 0)
		time.Sleep(time.Millisecond)
		check("at the slot", 12, 2) // for the one that leaves, and the next

		q.Cancel(last)
		q.Change(func(now time.Duration) { r.next = now + 10*time.Millisecond })
		check("sooner", 12, 2)
		time.Sleep(10 * time.Millisecond)
		check("at the new slot", 12, 2)

		q.Change(func(now time.Duration) { r.next = now + time.Hour })
		time.Sleep(time.Hour - time.Nanosecond)
		check("just before a later slot", 13, 1)
		time.Sleep(time.Nanosecond)
		check("at the later slot", 13, 2)

		q.Change(func(time.Duration) { r.next = Forever })
		time.Sleep(time.Hour)
		check("never", 14, 100)
		q.Change(func(now time.Duration) { r.next = now })
		check("now", 14, 100)
	})
}

// What Cancel costs is only the entry that Reserve has made.
func TestQueue_Cancel_AllocatesNothing(t *testing.T) {
	q := newFine(time.Hour)
	q.Reserve(Request{N: 1, Max: Forever})
	if n := testing.AllocsPerRun(100, func() {
		w, _, err := q.Reserve(Request{N: 1, Max: Forever})
		if err != nil || !q.Cancel(w) {
			t.Errorf("not cancelled, and %v", err)
		}
	}); n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
	if n := q.Len(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// reserve makes reservations of these weights.
func (l *line) reserve(t *testing.T, ns ...int64) (ws []*Waiter) {
	t.Helper()
	for _, n := range ns {
		w, _, err := l.Reserve(Request{N: n})
		if w == nil || err != nil {
			t.Fatal(w, err)
		}
		ws = append(ws, w)
	}
	return ws
}

func (l *line) wantSlots(t *testing.T, ws []*Waiter, want ...time.Duration) {
	t.Helper()
	for i, w := range ws {
		slot, now, ok := l.Slot(w)
		if want[i] < 0 && ok || want[i] >= 0 && slot != want[i] || now != time.Since(l.Start) {
			t.Errorf("slot %d at %v: %v, %v; want %v", i, now, slot, ok, want[i])
		}
	}
}

func TestQueue_Reserve_Slots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(0, Config{})
		if w, at, err := l.Reserve(Request{N: 1}); w != nil || at != 0 || err != nil {
			t.Errorf("now: %v, %v, %v", w, at, err)
		}
		ws := l.reserve(t, 1, 2, 1, 1)
		l.wantSlots(t, ws, 100*ms, 200*ms, 400*ms, 500*ms)
		time.Sleep(50 * ms)
		if !l.Cancel(ws[1]) || l.Cancel(ws[1]) {
			t.Error("not cancelled, or twice")
		}
		l.wantSlots(t, ws, 100*ms, -1, 200*ms, 300*ms)
		time.Sleep(200 * ms)
		if l.Cancel(ws[2]) {
			t.Error("cancelled after its slot")
		}
		l.wantSlots(t, ws, 100*ms, -1, 200*ms, 300*ms) // used at their slots, whenever that is seen
		l.Change(func(time.Duration) { l.admitter.next = 700 * ms })
		l.wantSlots(t, ws, 100*ms, -1, 200*ms, 700*ms)
	})
}

// A caller behind reservations that nothing waits for leaves at its slot.
func TestQueue_Reserve_AbandonedStallsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		l.reserve(t, 1, 1)
		l.acquire(0, bg, Request{})
		l.reserve(t, 3)
		l.acquire(1, bg, Request{})
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 300*ms), synclog.At(1, 700*ms))
	})
}

func TestQueue_Cancel_MovesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ws := l.reserve(t, 5)
		l.acquire(0, bg, Request{})
		time.Sleep(20 * ms)
		l.Cancel(ws[0])
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms))
	})
}

func TestQueue_Attend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ws := l.reserve(t, 1, 1, 1, 1, 1)
		attend := func(who int, ctx context.Context, w *Waiter) {
			l.Call(who, func() error { return l.Queue.Attend(ctx, w) })
		}
		ctx, cancel := context.WithCancel(bg)
		short, stop := context.WithTimeout(bg, 400*ms) // at its slot it is done
		defer stop()
		attend(2, bg, ws[2]) // drives
		attend(0, bg, ws[0]) // drives instead: it is before it
		attend(1, ctx, ws[1])
		attend(3, short, ws[3])
		attend(4, bg, ws[4])
		time.Sleep(50 * ms)
		cancel()
		synctest.Wait()
		l.Cancel(ws[4])
		attend(5, bg, ws[1])
		attend(6, bg, ws[4])
		time.Sleep(time.Hour)
		attend(7, bg, ws[0])
		l.Want(t, synclog.Failed(3, 0, context.DeadlineExceeded), synclog.Failed(1, 50*ms, context.Canceled), synclog.Failed(4, 50*ms, limits.ErrCanceled),
			synclog.Failed(5, 50*ms, limits.ErrCanceled), synclog.Failed(6, 50*ms, limits.ErrCanceled),
			synclog.At(0, 100*ms), synclog.At(2, 200*ms), synclog.At(7, time.Hour+50*ms))
	})
}

func TestQueue_Attend_DoneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ws := l.reserve(t, 1, 1)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := l.Queue.Attend(ctx, ws[0]); err != context.Canceled {
			t.Error(err)
		}
		l.wantSlots(t, ws, -1, 100*ms)
	})
}

func TestQueue_Attend_Twice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		w := l.reserve(t, 1)[0]
		l.Call(0, func() error { return l.Queue.Attend(bg, w) })
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			l.Queue.Attend(bg, w)
		}()
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms))
	})
}

// A reservation waits behind others, also if it would fit before them.
func TestQueue_Reserve_NeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		q.Init(&room{1}, Config{Exact: true})
		go q.Acquire(bg, Request{N: 2, Max: Forever})
		synctest.Wait()
		if w, _, err := q.Reserve(Request{N: 1}); w == nil || err != nil {
			t.Errorf("%v, %v", w, err)
		}
		q.Close(limits.ErrClosed)
	})
}

func TestQueue_Slot_Settles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ws := l.reserve(t, 1, 1, 1)
		time.Sleep(250 * ms)
		l.wantSlots(t, ws, 100*ms, 200*ms, 300*ms)
	})
}

// The goroutine that drives is that of the reservation that is canceled.
func TestQueue_Cancel_OfTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		w := l.reserve(t, 1)[0]
		l.Call(0, func() error { return l.Queue.Attend(bg, w) })
		l.acquire(1, bg, Request{})
		time.Sleep(10 * ms)
		l.Cancel(w)
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 10*ms, limits.ErrCanceled), synclog.At(1, 100*ms))
	})
}
