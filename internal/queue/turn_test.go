package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/alarm"
)

// dues is a queue of callers who ask, and notes the Due of their turns.
type dues struct {
	Queue
	late map[int64]time.Duration // until when somebody is kept from its sleep, by n
	got  []time.Duration
}

func newDues() *dues {
	q := &dues{late: map[int64]time.Duration{}}
	q.Init(nobody{}, Config{Waits: func(_ context.Context, n int64) { time.Sleep(q.late[n] - q.Now()) }})
	return q
}

// nobody is the rule of a queue in which all ask.
type nobody struct{}

func (nobody) Admit(time.Duration, time.Duration, int64) time.Duration { panic("asked the rule") }
func (nobody) Forecast(time.Duration, int64) time.Duration             { return 0 }

// slot asks for a slot at an instant.
func (q *dues) slot(at time.Duration) AskFunc {
	return func(_ context.Context, t Turn) (Wait, error) {
		now := q.Now()
		if now >= at {
			q.got = append(q.got, t.Due)
		}
		return Surely(max(0, at-now)), nil
	}
}

func (q *dues) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	if synctest.Wait(); !slices.Equal(q.got, want) {
		t.Errorf("due at %v, want %v", q.got, want)
	}
}

func (q *dues) call(ctx context.Context, n int64, ask AskFunc) {
	go q.Acquire(ctx, Request{N: n, Max: Forever, Ask: ask})
	synctest.Wait()
}

// Those behind a caller that was late are as late as it was: they could have asked
// as much earlier.
func TestTurn_Due_OneLateMakesThoseBehindItLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		q.late[1] = 100*ms + ms/2
		q.call(t.Context(), 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		q.call(t.Context(), 3, q.slot(0))
		time.Sleep(time.Second)
		q.want(t, 100*ms, 100*ms, 100*ms)
	})
}

// But no later than it came.
func TestTurn_Due_OneThatComesAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		q.late[1] = 101 * ms
		q.call(t.Context(), 1, q.slot(100*ms))
		time.Sleep(100*ms + ms/2)
		q.call(t.Context(), 2, q.slot(0))
		time.Sleep(time.Second)
		q.want(t, 100*ms, 100*ms+ms/2)
	})
}

func TestTurn_Due_LateAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		ctx, cancel := context.WithCancel(t.Context())
		q.late[1] = 100*ms + ms/2
		q.call(ctx, 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		cancel() // it learns when it is back
		time.Sleep(time.Second)
		q.want(t, 100*ms)
	})
}

// One that is cancelled before its slot is not late, nor is the next.
func TestTurn_Due_CancelledInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		ctx, cancel := context.WithCancel(t.Context())
		q.call(ctx, 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		time.Sleep(50 * ms)
		cancel()
		q.want(t, 50*ms)
	})
}

// A caller that is told to ask is late from then on, not from when it was to ask next.
func TestTurn_Due_Kicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []time.Duration{time.Hour, Forever} {
			q, open := newDues(), false
			q.call(t.Context(), 1, func(_ context.Context, t Turn) (Wait, error) {
				if !open {
					return Wait{For: first}, nil
				}
				q.got = append(q.got, t.Due)
				return Wait{}, nil
			})
			time.Sleep(50 * ms)
			q.Lock()
			open = true
			q.Kick()
			q.Unlock()
			q.want(t, 50*ms)
		}
	})
}

// A caller that is told to ask while it does is late from then on.
func TestTurn_Due_KickedWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, asked := newDues(), 0
		q.call(t.Context(), 1, func(_ context.Context, t Turn) (Wait, error) {
			if asked++; asked == 1 {
				time.Sleep(10 * ms)
				return Wait{For: Forever}, nil
			}
			q.got = append(q.got, t.Due)
			return Wait{}, nil
		})
		time.Sleep(4 * ms)
		q.Lock()
		q.Kick()
		q.Unlock()
		time.Sleep(time.Second)
		q.want(t, 4*ms)
	})
}

// A caller may come late by our fault: from another queue, in which it was woken late.
func TestRequest_Came(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		time.Sleep(100 * ms)
		for _, late := range []time.Duration{ms / 2, 0, -ms} {
			q.Acquire(t.Context(), Request{N: 1, Max: Forever, Ask: q.slot(0), Came: time.Now().Add(-late)})
		}
		q.want(t, 100*ms-ms/2, 100*ms, 100*ms) // never after now
	})
}

// sleeps is what alarm.Sleep is asked for, in the place of sleeping.
func sleeps(t *testing.T) func() []time.Duration {
	var all []time.Duration
	sleep = func(d time.Duration) bool {
		all = append(all, d)
		return false // a timer does it
	}
	t.Cleanup(func() { sleep = alarm.Sleep })
	return func() []time.Duration { return all }
}

// The last part of a wait is slept exactly, also if the whole is longer than what is worth
// an exact sleep. If the machine stalls there is no last part, so one of many will do.
func TestConfig_Fine_LastPartOfALongWait(t *testing.T) {
	const wait = 2 * alarm.Reach
	for name, acquire := range map[string]func(q *Queue){
		"by the rule": func(q *Queue) { q.Acquire(context.Background(), Request{N: 1, Max: Forever}) },
		"asked": func(q *Queue) {
			slot := q.Now() + wait
			q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
				return Surely(max(0, slot-q.Now())), nil
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			slept := sleeps(t)
			q := newFine(wait)
			for range 1000 {
				acquire(q)
				for _, d := range slept() {
					if d > alarm.Reach {
						t.Fatalf("asked for an exact sleep of %v", d)
					}
					return
				}
			}
			t.Error("never asked for an exact sleep")
		})
	}
}

// A short wait that a caller asked for is exact whatever the rule says: it may be one
// for another limit. A long one is if the rule says so.
func TestConfig_Fine_CallersThatAsk(t *testing.T) {
	for _, fine := range []bool{true, false} {
		for wait, want := range map[time.Duration]bool{alarm.Reach / 2: true, near + 50*ms: fine} {
			slept := sleeps(t)
			for range 20 {
				q := new(Queue)
				q.Init(nobody{}, Config{Fine: func() bool { return fine }})
				until := q.Now() + wait
				q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
					return Surely(max(0, until-q.Now())), nil
				}})
				if len(slept()) > 0 || !want && wait > near {
					break
				}
			}
			if got := len(slept()) > 0; got != want {
				t.Errorf("a wait of %v, fine %v: exact %v, want %v", wait, fine, got, want)
			}
		}
	}
}
