package sluice_test

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
)

// Calls that are turned away take nothing, go on through another gate, and keep their order; those with
// another label, or none, stay.
func TestGate_TurnAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host", Rate: sluice.Rate{Count: 1, Per: time.Second}}))
		part, err := host.Part("part")
		if err != nil {
			t.Fatal(err)
		}
		host.PauseUntil(time.Now().Add(10*time.Second), "told")
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
				a.Label(uint32(i%3 + 1)) // 1 and 2 are turned away
				permit, err := a.Next(t.Context(), 1)
				if turned := errors.Is(err, sluice.ErrTurnedAway); turned != (i%3 < 2) {
					t.Errorf("call %d: %v", i, err)
				} else if turned {
					a.Move(part)
					permit, err = a.Next(t.Context(), 1)
				}
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				permit.Release()
			})
			time.Sleep(time.Millisecond)
		}
		part.PauseUntil(time.Now().Add(20*time.Second), "told")
		host.TurnAway(func(label uint32) bool { return label < 3 })
		synctest.Wait()
		if h, p := host.Stats(), part.Stats(); h.Pacing != 2 || p.Pacing != 4 {
			t.Errorf("%d wait for the host and %d for the part", h.Pacing, p.Pacing)
		}
		all.Wait()
		if !slices.Equal(order[:2], []int{2, 5}) {
			t.Errorf("left in the order %v", order)
		}
		if rest := order[3:]; !slices.IsSorted(rest) {
			t.Errorf("left in the order %v: all but the first as they came", order)
		}
		if s := host.Stats(); s.Admitted != 6 || s.InFlight != 0 || s.Rejected != (sluice.Rejections{}) {
			t.Errorf("host: %v", s)
		}
	})
}

// A refusal that is moved pauses the other gate, and the one before learns nothing from it.
func TestAttempts_Move_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host"}))
		part, err := host.Part("part")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
		permit, err := a.Next(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Move(part)
		a.Move(part) // changes nothing
		if again, err := a.Done(t.Context(), sluice.ThrottledFor(errors.New("429"), time.Minute)); !again || err != nil {
			t.Fatal(again, err)
		}
		permit.Release()
		if h, p := host.Stats(), part.Stats(); !h.PausedUntil.IsZero() || h.Learned != nil || time.Until(p.PausedUntil) != time.Minute {
			t.Errorf("host %v, part %v", h, p)
		}
		if permit, err = a.Next(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if again, err := a.Done(t.Context(), nil); again || err != nil {
			t.Error(again, err)
		}
		permit.Release()
		if h, p := host.Stats(), part.Stats(); h.InFlight != 0 || p.InFlight != 0 || h.Admitted != 2 || p.Admitted != 1 {
			t.Errorf("host %v, part %v", h, p)
		}
	})
}

// A call that is moved is one call less: the gate before estimates the limit as if it had not been made.
func TestAttempts_Move_NotAccepted(t *testing.T) {
	for _, search := range []bool{false, true} {
		learned := func(moved int) (l sluice.Learned) {
			synctest.Test(t, func(t *testing.T) {
				host := must(sluice.New(sluice.Config{Name: "host", Adaptive: sluice.Adaptive{Search: search, Start: sluice.PerSecond(1000)}}))
				part := must(host.Part("part"))
				end := func(err error, move bool) func() {
					a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
					permit, failed := a.Next(t.Context(), 1)
					if failed != nil {
						t.Fatal(failed)
					}
					return func() {
						defer permit.Release()
						if move {
							a.Move(part)
						}
						if again, failed := a.Done(t.Context(), err); again == (err == nil) {
							t.Fatal(again, failed)
						}
					}
				}
				throttled := sluice.ThrottledFor(errors.New("429"), 30*time.Second)
				var ends []func()
				for i := range 40 {
					switch {
					case i < 10:
						ends = append(ends, end(nil, false))
					case i < 20:
						ends = append(ends, end(throttled, false))
					case i < 20+moved:
						ends = append(ends, end(throttled, true))
					}
				}
				time.Sleep(time.Second)
				for i := len(ends) - 1; i >= 0; i-- { // those that are moved first, before the gate learns
					ends[i]()
				}
				end(nil, false)()
				l = *host.Stats().Learned
			})
			return l
		}
		few, many := learned(0), learned(20)
		if few.AcceptedRate == 0 || few.Pace == 0 {
			t.Fatal("nothing was learned:", few)
		}
		if fmt.Sprint(many) != fmt.Sprint(few) {
			t.Errorf("search %v: learned\n%v, without the calls that were moved\n%v", search, many, few)
		}
	}
}

// A retracted attempt is none: its permit is back, and the next one is the first.
func TestAttempts_Retract(t *testing.T) {
	gate := must(sluice.New(sluice.Config{Concurrency: 1}))
	a := sluice.NewRetryLoop(gate, sluice.RetryPolicy{Attempts: 1})
	for range 3 {
		if _, err := a.Next(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		a.Retract()
		a.Retract() // changes nothing
	}
	permit, err := a.Next(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if permit.AdmittedAt().IsZero() {
		t.Error("no time")
	}
	if again, err := a.Done(context.Background(), nil); again || err != nil {
		t.Error(again, err)
	}
	permit.Release()
	if s := gate.Stats(); s.InFlight != 0 {
		t.Error(s)
	}
	var none *sluice.Permit
	if !none.AdmittedAt().IsZero() {
		t.Error("the nil permit was granted")
	}
}

// Part has what the gate has besides limits, and those of the gate hold for it.
func TestGate_Part(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host", Concurrency: 1, MaxWaiting: 1, RetryBudget: 7}))
		part, err := host.Part("part")
		if err != nil {
			t.Fatal(err)
		}
		if s := part.Stats(); s.Parent != "host" || s.Name != "part" || s.Concurrency != 0 || s.RetryTokens != 7 {
			t.Error(s)
		}
		p, err := host.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := part.TryAcquire(1); ok {
			t.Error("two in flight")
		}
		p.Release()
		if _, err := must(sluice.New(sluice.Config{Semaphore: shared{}})).Part("part"); err == nil {
			t.Error("a part of a gate with a semaphore")
		}
	})
}
