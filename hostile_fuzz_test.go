package sluice

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// FuzzRestore restores anything: bytes, and the same as the state of one and of several units under a true
// checksum. What is rejected changes nothing. What is accepted makes a gate that lets calls start,
// and whose own snapshot is accepted again.
func FuzzRestore(f *testing.F) {
	searching := limits.Must(New(Config{Adaptive: Adaptive{Search: true}}))
	f.Add(searching.Snapshot())
	searching.Close()
	f.Add([]byte("null"))
	f.Add([]byte(`{"version":1,"crc32":0,"units":[]}`))
	f.Add([]byte(`[{"unit":"tokens","rule":{}},{"unit":"","rule":null}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			restoreGate(t, data)
			if !json.Valid(data) { // which cannot be sealed
				return
			}
			restoreGate(t, snapshot.Seal(unitsKind, []unitSnapshot{{Unit: Calls, Learned: data}, {Unit: "tokens", Learned: data}}))
		})
	})
}

func restoreGate(t *testing.T, data []byte) {
	t.Helper()
	g := limits.Must(New(Config{Name: "fuzz", Concurrency: 2}))
	defer g.Close()
	before := g.Snapshot()
	if err := g.Restore(data); err != nil {
		if !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%q: %v", data, err)
		}
		if after := g.Snapshot(); !bytes.Equal(after, before) {
			t.Errorf("%q: %v, and changed to %s", data, err, after)
		}
		return
	}
	if err := limits.Must(New(Config{})).Restore(g.Snapshot()); err != nil {
		t.Errorf("%q was accepted, and its own snapshot is not: %v", data, err)
	}
	if p, err := g.AcquireWithin(t.Context(), 1, 400*24*time.Hour); err != nil {
		t.Errorf("%q: no call starts within a year: %v", data, err)
	} else {
		p.Release()
	}
}

// FuzzConfig makes gates of any numbers. New returns an error, or a gate whose calls start in the
// end or are rejected for a reason, and that can be changed to any numbers, too.
func FuzzConfig(f *testing.F) {
	f.Add(int64(1), int64(10), int64(time.Second), int64(1), int64(0), int64(0), 0, int64(1), "calls")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), -1, int64(1)<<62, "")
	f.Add(int64(1)<<62, int64(1)<<62, int64(1), int64(1)<<62, int64(1)<<62, int64(1)<<62, 1<<30, int64(3), "cost")
	f.Fuzz(func(t *testing.T, concurrency, count, per, burst, catchUp, grain int64, waiting int, n int64, unit string) {
		synctest.Test(t, func(t *testing.T) {
			rate := Rate{Count: count, Per: time.Duration(per), Burst: burst}
			g, err := New(Config{
				Concurrency: concurrency, ConcurrencyUnit: Unit(unit), Rate: rate, RateUnit: Unit(unit),
				MaxCatchUp: time.Duration(catchUp), TimerResolution: time.Duration(grain), MaxWaiting: waiting,
			})
			if err != nil {
				g = limits.Must(New(Config{}))
				_ = g.SetRate(rate)
				_ = g.SetConcurrency(concurrency)
			}
			defer g.Close()
			n = max(0, n)
			for range 3 {
				switch p, err := g.AcquireWithin(t.Context(), n, time.Hour); {
				case err == nil:
					p.Settle(n / 2)
					p.Release()
				case !errors.As(err, new(*limits.WaitError)) && !errors.Is(err, limits.ErrTooLarge) && !errors.Is(err, limits.ErrTimeout):
					t.Errorf("%v", err)
				}
			}
			_ = g.SetRate(rate)
			_ = g.SetConcurrency(concurrency)
			if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("%d in flight and %d waiting", s.InFlight, s.Waiting)
			}
		})
	})
}
