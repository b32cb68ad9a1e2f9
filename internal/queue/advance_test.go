package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

func TestQueue_Change_Reprices(t *testing.T) {
	for name, c := range map[string]struct {
		interval, next time.Duration
		want           []time.Duration
	}{
		"sooner": {50 * ms, 60 * ms, []time.Duration{60 * ms, 110 * ms, 160 * ms}},
		"now":    {50 * ms, 0, []time.Duration{40 * ms, 90 * ms, 140 * ms}},
		"later":  {time.Second, 200 * ms, []time.Duration{200 * ms, 1200 * ms, 2200 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(100*ms, Config{})
				var want []synclog.Left
				for who, at := range c.want {
					l.acquire(who, bg, Request{})
					want = append(want, synclog.At(who, at))
				}
				time.Sleep(40 * ms)
				l.Change(func(time.Duration) { l.rule = every{c.interval, c.next} })
				time.Sleep(time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

// What is due at the instant of a change leaves before it.
func TestQueue_Change_SettlesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		time.AfterFunc(100*ms, func() { // before the driver's timer
			l.Change(func(time.Duration) { l.rule.next = 500 * ms })
		})
		l.acquire(0, bg, Request{})
		l.acquire(1, bg, Request{})
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 500*ms))
	})
}

func TestQueue_Change_EndsHopelessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ctx, cancel := context.WithTimeout(bg, 450*ms)
		defer cancel()
		l.acquire(0, bg, Request{})
		l.acquire(1, ctx, Request{})
		l.acquire(2, bg, Request{Max: 310 * ms}) // one moves up by the failure of 1, and is in time
		l.acquire(3, bg, Request{Max: 500 * ms})
		time.Sleep(10 * ms)
		l.Change(func(time.Duration) { l.rule = every{200 * ms, 250 * ms} })
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 250*ms), synclog.Failed(1, 10*ms, context.DeadlineExceeded), synclog.Failed(2, 10*ms, context.DeadlineExceeded),
			synclog.At(3, 450*ms))
		for _, left := range l.Sofar() {
			if left.Err != nil {
				wantWaitError(t, left.Err, 440*ms, map[int]time.Duration{1: 440 * ms, 2: 300 * ms}[left.Caller])
			}
		}
	})
}

// Adjust looks at those that wait only where f says that a wait may be longer.
func TestQueue_Adjust(t *testing.T) {
	for _, later := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(100*ms, Config{})
			l.acquire(0, bg, Request{Max: 150 * ms})
			l.Adjust(func(time.Duration) bool { l.rule.next = 200 * ms; return later })
			time.Sleep(time.Hour)
			if later {
				l.Want(t, synclog.Failed(0, 0, context.DeadlineExceeded))
			} else {
				l.Want(t, synclog.At(0, 200*ms))
			}
		})
	}
}

func TestQueue_Close(t *testing.T) {
	errFirst := errors.New("first")
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		if l.Busy() {
			t.Error("busy")
		}
		for who := range 3 {
			l.acquire(who, bg, Request{})
		}
		if !l.Busy() {
			t.Error("not busy")
		}
		time.Sleep(100 * ms)
		l.Close(errFirst)
		l.Close(limits.ErrClosed)
		l.acquire(3, bg, Request{})
		if _, ok := l.Try(Request{N: 1}); ok || !l.Busy() || l.len() != 0 {
			t.Errorf("tried: %v, busy: %v, %d wait", ok, l.Busy(), l.len())
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms), synclog.Failed(1, 100*ms, errFirst), synclog.Failed(2, 100*ms, errFirst), synclog.Failed(3, 100*ms, errFirst))
		if l.Lock(); l.Closed() != errFirst {
			t.Error(l.Closed())
		}
		l.Unlock()
	})
}

func TestQueue_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		for who := range 2 {
			l.acquire(who, bg, Request{})
		}
		time.Sleep(150 * ms)
		if !l.Busy() {
			t.Error("not busy while one waits")
		}
		time.Sleep(100 * ms)
		if l.Busy() {
			t.Error("busy after all have left")
		}
	})
}

// dueTimes is a rule that notes when it was asked, and for when.
type dueTimes struct {
	every
	got [][2]time.Duration
}

func (r *dueTimes) Admit(now, due time.Duration, n int64) time.Duration {
	r.got = append(r.got, [2]time.Duration{now, due})
	return r.every.Admit(now, due, n)
}

// Callers that are woken late are admitted at now, due when they were to be woken;
// reservations at their slots. A caller that comes is not late.
func TestQueue_Advance_Due(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			reserve bool
			want    [][2]time.Duration
		}{
			"callers":      {false, [][2]time.Duration{{250 * ms, 100 * ms}, {250 * ms, 100 * ms}}},
			"reservations": {true, [][2]time.Duration{{100 * ms, 100 * ms}, {200 * ms, 200 * ms}}},
		} {
			q, r := new(Queue), &dueTimes{every: every{interval: 100 * ms, next: 100 * ms}}
			q.Init(r, Config{Exact: true})
			for range 2 {
				if c.reserve {
					q.Reserve(Request{N: 1})
				} else {
					go q.Acquire(bg, Request{N: 1, Max: Forever})
				}
				synctest.Wait()
			}
			r.got = nil
			q.Lock()
			q.Advance(250 * ms) // as if it was late
			q.Unlock()
			if len(r.got) < len(c.want) || !slices.Equal(r.got[:len(c.want)], c.want) {
				t.Errorf("%s: got %v, want %v", name, r.got, c.want)
			}
			q.Close(limits.ErrClosed)
			synctest.Wait()
			r.next, r.got = 0, nil
		}
		q, r := new(Queue), new(dueTimes)
		q.Init(r, Config{})
		time.Sleep(time.Second)
		q.Acquire(bg, Request{N: 1, Max: Forever})
		if want := [2]time.Duration{time.Second, time.Second}; len(r.got) != 1 || r.got[0] != want {
			t.Errorf("a caller that comes: %v, want %v", r.got, want)
		}
	})
}

// What was due before the close has left.
func TestQueue_Close_SettlesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		ws := l.reserve(t, 1, 1)
		time.Sleep(150 * ms)
		l.Close(limits.ErrClosed)
		l.wantSlots(t, ws, 100*ms, -1)
		empty := newLine(0, Config{})
		if empty.Close(limits.ErrClosed); !empty.Busy() {
			t.Error("a closed queue is not busy")
		}
	})
}
