package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// The only bounded entry of a long queue may be one that was refused, which has no slot in the
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

// If a refused call comes, or the head learns that it has to wait, those may fail whose patience has
// ended meanwhile. If the head is among them the next takes its place.
func TestQueue_TheHeadLosesItsPatience(t *testing.T) {
	for name, refused := range map[string]bool{"a refused call comes": true, "the head asks": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var behind Behind
				q := &line{Log: synclog.New(), rule: every{interval: 100 * ms}}
				lost := time.Duration(Forever)
				q.Init(&q.rule, Config{Behind: &behind, GiveUp: func(now, patience time.Duration) error {
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

// However many are refused, and whether they come back in their order or not, one more costs a few
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
			q, rule := new(Queue), &counting{every: every{interval: time.Microsecond, next: time.Hour}}
			q.Init(rule, Config{GiveUp: func(time.Duration, time.Duration) error { return nil }})
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
				rule.forecasts = 0
				q.pushBehind(0, place, w)
				steps = max(steps, rule.forecasts)
			}
			if steps > 2*mostAgain {
				t.Errorf("%d forecasts for one that comes", steps)
			}
			rule.forecasts = 0
			if q.failHopeless(0); rule.forecasts > 2*mostAgain {
				t.Errorf("%d forecasts for a change", rule.forecasts)
			}
		})
	}
}
