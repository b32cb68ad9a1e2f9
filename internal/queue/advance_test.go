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
				l.Change(func(time.Duration) { l.admitter = every{c.interval, c.next} })
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
			l.Change(func(time.Duration) { l.admitter.next = 500 * ms })
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
		l.Change(func(time.Duration) { l.admitter = every{200 * ms, 250 * ms} })
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
			l.Adjust(func(time.Duration) bool { l.admitter.next = 200 * ms; return later })
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

// dueTimes is an admitter that notes when it was asked, and for when.
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

// # Callers that go back

// The only bounded entry of a long queue may be one that was rejected, which has no slot in the
// index. When it leaves, the index is as good as new.
func TestQueue_PushBehind_TheOnlyBoundedEntry(t *testing.T) {
	for name, leave := range map[string]func(q *Queue, refused *Waiter){
		"cancels": func(q *Queue, refused *Waiter) { q.remove(refused) },
		"leaves at the front": func(q *Queue, refused *Waiter) {
			q.remove(q.front)
			q.remove(refused)
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := long(indexFrom-2, func(int) time.Duration { return Forever })
			refused := &Waiter{n: 1}
			refused.attend(nil)
			refused.more().maxAt = time.Hour
			q.pushBehind(0, q.front, refused)
			join := func(bound time.Duration) {
				w := &Waiter{n: 1}
				w.attend(nil)
				if bound != Forever {
					w.more().maxAt = bound
				}
				q.push(w)
			}
			for range 10 {
				join(Forever)
			}
			leave(q, refused)
			join(time.Millisecond) // hopeless
			if q.failHopeless(0); q.bounds.n != 0 {
				t.Errorf("%d are listed, want none", q.bounds.n)
			}
			q.Close(limits.ErrClosed)
		})
	}
}

// If a rejected call comes, or the head learns that it has to wait, those may fail whose patience has
// ended meanwhile. If the head is among them the next takes its place.
func TestQueue_TheHeadLosesItsPatience(t *testing.T) {
	for name, refused := range map[string]bool{"a refused call comes": true, "the head asks": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var behind Behind
				q := &line{Log: synclog.New(), admitter: every{interval: 100 * ms}}
				lost := time.Duration(Forever)
				q.Init(&q.admitter, Config{Behind: &behind, GiveUp: func(now, patience time.Duration) error {
					if patience == 1 && now >= lost {
						return errImpatient
					}
					return nil
				}})
				ask := func(ctx context.Context, turn Turn) (Wait, error) {
					switch {
					case turn.Patience != 1:
						return Wait{}, nil
					case turn.Due < 5*time.Second:
						return Surely(5 * time.Second), nil
					}
					return Surely(time.Hour), nil
				}
				q.acquire(0, bg, Request{N: 1, Max: Forever, Patience: 1, Ask: ask})
				q.acquire(1, bg, Request{N: 1, Max: Forever, Ask: ask})
				q.acquire(2, bg, Request{N: 1, Max: time.Minute, Ask: ask})
				time.Sleep(time.Second)
				q.Lock()
				lost = q.Now()
				q.Unlock()
				if refused {
					q.acquire(3, bg, Request{N: 1, Max: Forever, Ask: ask, Refused: 2, First: time.Now()})
				}
				time.Sleep(10 * time.Second)
				if n := q.len(); n != 0 {
					t.Errorf("%d wait for a head that has left", n)
				}
				q.Close(limits.ErrClosed)
			})
		})
	}
}

// However many are rejected, and whether they come back in their order or not, one more costs a few
// forecasts, and a change does.
func TestQueue_PushBehind_ManyRefused(t *testing.T) {
	const n = 10_000
	for name, first := range map[string]func(i int) int{
		"in order":       func(i int) int { return i },
		"in reverse":     func(i int) int { return n - i },
		"in any order":   func(i int) int { return i * 7919 % n },
		"at one instant": func(int) int { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			q, admitter := new(Queue), &counting{every: every{interval: time.Microsecond, next: time.Hour}}
			q.Init(admitter, Config{GiveUp: func(time.Duration, time.Duration) error { return nil }})
			q.Lock()
			defer q.Unlock()
			steps := 0
			for i := range n {
				r := Request{N: 1, Max: Forever, Patience: time.Hour, Refused: 1, First: q.epoch.Add(time.Duration(first(i)))}
				place, ahead := q.behindWhom(&r)
				w, err := q.newEntry(0, &r, nil, deadline{}, ahead)
				if err != nil {
					t.Fatal(err)
				}
				admitter.forecasts = 0
				q.enter(0, &r, w, place, Forever)
				steps = max(steps, admitter.forecasts)
			}
			if steps > 2*mostAgain {
				t.Errorf("%d forecasts for one that comes", steps)
			}
			admitter.forecasts = 0
			if q.failHopeless(0); admitter.forecasts > 2*mostAgain {
				t.Errorf("%d forecasts for a change", admitter.forecasts)
			}
		})
	}
}

// A caller whose call was not rejected is found behind those that were, if these are few.
func TestQueue_HasNew(t *testing.T) {
	for _, c := range []struct {
		refused, others int
		want            bool
	}{
		{0, 0, false},
		{0, 1, true},
		{1, 0, false},
		{1, 1, true},
		{mostOthers - 1, 0, false},
		{mostOthers - 1, 1, true},
		{mostOthers, 0, true},
	} {
		q := new(Queue)
		q.Init(&every{interval: time.Second, next: time.Hour}, Config{})
		q.Lock()
		for i := range c.refused + c.others {
			r := Request{N: 1, Max: Forever}
			if i < c.refused {
				r.Refused, r.First = 1, q.epoch.Add(time.Duration(i))
			}
			w, err := q.newEntry(0, &r, nil, deadline{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			q.enter(0, &r, w, q.back, Forever)
		}
		if got := q.HasNew(); got != c.want {
			t.Errorf("%d were rejected, %d not: %t, want %t", c.refused, c.others, got, c.want)
		}
		q.Unlock()
	}
}
