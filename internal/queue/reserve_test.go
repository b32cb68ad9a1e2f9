package queue

import (
	"testing"
	"testing/synctest"
	"time"
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

// Reservations that come before anything is due ask the rule once for all of
// them, and again when it may say something else.
func TestReservationsAskOnce(t *testing.T) {
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
func TestCancelAllocatesNothing(t *testing.T) {
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
