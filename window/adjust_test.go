package window_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// What a call did not use is given back at its own place: giving back the
// newest would free a place that lasts longer than its own.
func TestSliding_Adjust_FreesItsOwnPlace(t *testing.T) {
	for name, newMeter := range map[string]func() (limits.Limiter, error){
		"sliding": func() (limits.Limiter, error) {
			return limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: 10 * time.Second})), nil
		},
		"keyed sliding": func() (limits.Limiter, error) {
			k, err := window.NewKeyedSliding[string](window.Quota{Limit: 3, Window: 10 * time.Second}, limits.KeyedConfig{})
			return k.On("k"), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := newMeter()
				if err != nil {
					t.Fatal(err)
				}
				g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				if err != nil {
					t.Fatal(err)
				}
				first, err := g.Acquire(bg, 2)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(4 * time.Second)
				second, err := g.Acquire(bg, 1)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // 5 s
				first.Settle(1)
				if _, ok := g.TryAcquire(1); !ok {
					t.Error("what was given back was not there")
				}
				time.Sleep(5 * time.Second) // 10 s: the first has left
				if _, ok := g.TryAcquire(2); ok {
					t.Error("the calls at 4 s and 5 s are in the window, and two more would be four")
				}
				if _, ok := g.TryAcquire(1); !ok {
					t.Error("the place of the first call is not free")
				}
				time.Sleep(4500 * time.Millisecond) // 14.5 s: the second has left
				second.Settle(0)
				if _, ok := g.TryAcquire(2); ok {
					t.Error("given back after it had left")
				}
			})
		})
	}
}

func TestFixed_Adjust_DoesNotReachIntoTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*window.Fixed{
			"anchored": limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: 10 * time.Second})),
			"calendar": limits.Must(window.NewFixed(window.Quota{Limit: 3, Calendar: window.Minute})),
		} {
			g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: c}}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			q, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(0)
			if got := c.Take(0).Remaining; got != 0 {
				t.Errorf("%s: %d of another window given back", name, got)
			}
			q.Settle(1)
			if got := c.Take(0).Remaining; got != 2 {
				t.Errorf("%s: %d remain, want 2 of its own window", name, got)
			}
		}
	})
}
