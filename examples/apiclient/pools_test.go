package main

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
	"github.com/sluice-go/sluice/sluicehttp"
)

// The default run, exactly: no 429, nothing lost, the whole of the rate.
func TestGateRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t, 1000)
		b := newBench(t, api, "-n 1000")
		start := time.Now()
		fetchThroughGate(t.Context(), b.gate, b.job)
		wall := time.Since(start)
		saved, err := b.job.out.close()
		if err != nil {
			t.Fatal(err)
		}

		r := newResult(b.options, b.job, saved, wall, api)
		if r.Lost != 0 || r.Throttled != 0 || r.Calls != 1000 || r.notStarted != 0 {
			t.Errorf("figures %+v", r.figures)
		}
		if want := 1000 + api.Report().Faults; r.Attempts != want || want != 1010 {
			t.Errorf("%d attempts, want one for each item and %d more for the 503s", r.Attempts, want-1000)
		}
		if r.ofAllowed() < 99 || r.ofAllowed() > 100 {
			t.Errorf("%.3f %% of the allowed rate delivered", r.ofAllowed())
		}
		if r.spacing50 != 10*time.Millisecond {
			t.Errorf("spacing p50 %v, want 10ms", r.spacing50)
		}
		if r.MaxInFlight > 10 {
			t.Errorf("%d in flight, want at most 10", r.MaxInFlight)
		}
		ids := b.ids(t)
		for id := range 1000 {
			if ids[id] != 1 {
				t.Errorf("item %d is in the output %d times", id, ids[id])
			}
		}
		if len(ids) != 1000 {
			t.Errorf("%d different ids, want 1000", len(ids))
		}
	})
}

// A gate that is not told the rate loses nothing, has few calls rejected, and stays at the
// rate once it has found it.
func TestGateRunUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, err := apiserver.New(apiserver.Config{Items: 1000, Count: 100, Per: time.Second, Concurrency: 10})
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, api, "-n 1000 -unknown")
		start := time.Now()
		fetchThroughGate(t.Context(), b.gate, b.job)
		r := newResult(b.options, b.job, b.job.fetched.Load(), time.Since(start), api)
		learned := learnedBy(b.gate)
		t.Logf("%.1f %% of the rate, %d of %d refused, %v", r.ofAllowed(), r.Throttled, r.Attempts, learned)
		if r.Lost != 0 || r.refused() > 5 || r.Throttled == 0 || r.ofAllowed() < 50 {
			t.Errorf("%.1f %% of the rate, %.1f %% refused, %+v", r.ofAllowed(), r.refused(), r.figures)
		}
		// One of the ten responses with status 503 may come together with a 429: then it counts as
		// throttled, too.
		if learned == nil || learned.Pace < 90 || learned.Pace > 105 {
			t.Fatalf("learned %+v", learned)
		}
		if more := int64(learned.Throttled) - r.Throttled; more < 0 || more > 1 {
			t.Errorf("%d throttled calls were learned from, the server throttled %d", learned.Throttled, r.Throttled)
		}
	})
}

// In whatever fields the server states its limits, the gate honors without losing any
// of the rate: it is never near the end of the bucket.
func TestGateRunWithHeaders(t *testing.T) {
	for name, family := range families {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, err := apiserver.New(apiserver.Config{Items: 1000, Count: 100, Per: time.Second, Concurrency: 10, Family: family})
				if err != nil {
					t.Fatal(err)
				}
				b := newBench(t, api, "-n 1000")
				start := time.Now()
				fetchThroughGate(t.Context(), b.gate, b.job)
				r := newResult(b.options, b.job, b.job.fetched.Load(), time.Since(start), api)
				if r.Lost != 0 || r.Throttled != 0 || r.ofAllowed() < 99 {
					t.Errorf("figures %+v", r.figures)
				}
				seen := 0
				b.gate.Stats(func(_ string, s sluicehttp.Stats) bool {
					seen = len(s.Limits)
					return true
				})
				if (seen == 0) != (name == "none") {
					t.Errorf("the gate knows of %d limits", seen)
				}
			})
		})
	}
}

// The naive pool gets everything too, and pays for it.
func TestNaiveRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t, 40)
		b := newBench(t, api, "-n 40").withoutGate()
		b.job.out = nil
		start := time.Now()
		fetchNaively(t.Context(), b.job, time.Hour)
		r := newResult(b.options, b.job, b.job.fetched.Load(), time.Since(start), api)
		if r.Lost != 0 || r.Calls != 40 || len(r.complaints) != 0 {
			t.Errorf("figures %+v, complaints %v", r.figures, r.complaints)
		}
		if r.Throttled == 0 || r.Throttled != r.tooFast+r.tooMany || r.wasted() != r.Throttled+api.Report().Faults {
			t.Errorf("%d 429s (%d + %d), %d wasted", r.Throttled, r.tooFast, r.tooMany, r.wasted())
		}
	})
}

// A server that never gives in ends the naive run at its limit.
func TestNaiveRunIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, status(429), "-n 10").withoutGate()
		b.job.out = nil
		start := time.Now()
		fetchNaively(t.Context(), b.job, time.Second)
		wall := time.Since(start)
		if wall != time.Second {
			t.Errorf("ended after %v, want 1s", wall)
		}
		r := newResult(b.options, b.job, b.job.fetched.Load(), wall, nil)
		if r.Lost != 10 || r.Calls != 10 || len(r.complaints) != 0 {
			t.Errorf("figures %+v, complaints %v", r.figures, r.complaints)
		}
	})
}

// What makes no sense to repeat is not repeated, not even naively.
func TestPermanentAnswers(t *testing.T) {
	for _, code := range []int{302, 400, 401, 404, 410} {
		synctest.Test(t, func(t *testing.T) {
			for name, fetch := range map[string]func(*bench){
				"gate":  func(b *bench) { fetchThroughGate(t.Context(), b.gate, b.job) },
				"naive": func(b *bench) { fetchNaively(t.Context(), b.withoutGate().job, time.Hour) },
			} {
				b := newBench(t, status(code), "-n 10")
				fetch(b)
				if d := b.job.client.meter.total(); d.attempts != 10 || d.calls != 10 {
					t.Errorf("%s, %d: %d attempts for %d items, want 10 for 10", name, code, d.attempts, d.calls)
				}
				if len(b.job.losses) != maxLosses || b.job.unnamed != 10-maxLosses {
					t.Errorf("%s, %d: %d losses named, %d not", name, code, len(b.job.losses), b.job.unnamed)
				}
			}
		})
	}
}

// 5xx and 429 are tried four times, then the item is lost.
func TestPassingAnswersAreRetried(t *testing.T) {
	for _, code := range []int{429, 500, 502, 503} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, status(code), "-n 3")
			fetchThroughGate(t.Context(), b.gate, b.job)
			d := b.job.client.meter.total()
			enough := d.attempts == 12
			if code == 429 { // a gate that learns waits longer for a server that throttles all calls
				enough = d.attempts >= 12
			}
			if !enough || d.calls != 3 {
				t.Errorf("%d: %d attempts for %d items, want 12 for 3", code, d.attempts, d.calls)
			}
		})
	}
}

// A wait that the server asks for holds back every worker, in whatever form it is sent.
func TestToldWaitPausesTheGate(t *testing.T) {
	for _, way := range []struct {
		name   string
		status int
		value  func() string
	}{
		{"429 in seconds", 429, func() string { return "30" }},
		{"503 in seconds", 503, func() string { return "30" }},
		{"429 by a date", 429, func() string { return time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var refused time.Time
			api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if refused.IsZero() {
					refused = time.Now()
					w.Header().Set("Retry-After", way.value())
					w.WriteHeader(way.status)
					return
				}
				if early := 30*time.Second - time.Since(refused); early > 0 {
					t.Errorf("%s: a call comes %v too early", way.name, early)
				}
			})
			// With one in flight none has left already, and at this rate the
			// next one starts the moment it is let.
			b := newBench(t, api, "-n 20 -concurrency 1 -rate 1000000")
			fetchThroughGate(t.Context(), b.gate, b.job)
			if saved, err := b.job.out.close(); saved != 20 || err != nil {
				t.Errorf("%s: %d saved, %v", way.name, saved, err)
			}
			if d := b.job.client.meter.total(); d.attempts != 21 {
				t.Errorf("%s: %d attempts, want 21", way.name, d.attempts)
			}
		})
	}
}

// A stop finishes what is in flight and starts nothing else.
func TestGateRunIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived, answered atomic.Int64
		api := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived.Add(1)
			time.Sleep(time.Second)
			answered.Add(1)
		})
		b := newBench(t, api, "-n 1000 -concurrency 3")
		time.AfterFunc(500*time.Millisecond, b.job.stopNow)
		fetchThroughGate(t.Context(), b.gate, b.job)
		if arrived.Load() != 3 || answered.Load() != 3 {
			t.Errorf("%d calls arrived and %d were answered, want 3 and 3", arrived.Load(), answered.Load())
		}
		saved, err := b.job.out.close()
		if saved != 3 || err != nil {
			t.Errorf("%d saved, %v", saved, err)
		}
		if r := newResult(b.options, b.job, saved, 0, nil); r.Lost != 997 || r.notStarted != 997 || len(r.complaints) != 0 {
			t.Errorf("lost %d, not started %d, complaints %v", r.Lost, r.notStarted, r.complaints)
		}
	})
}

// A full disk stops the run: the rest would be fetched for nothing.
func TestFullDiskStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(make([]byte, flushAt))
		})
		b := newBench(t, big, "-n 1000")
		b.job.out = &sink{w: &disk{writes: 5}}
		fetchThroughGate(t.Context(), b.gate, b.job)
		saved, err := b.job.out.close()
		if saved != 5 || !errors.Is(err, errDisk) {
			t.Errorf("%d saved, %v; want 5 and the error", saved, err)
		}
		if d := b.job.client.meter.total(); d.attempts > 20 {
			t.Errorf("%d attempts although the sixth could not be kept", d.attempts)
		}
	})
}

func TestNaiveLimit(t *testing.T) {
	const forever = time.Duration(1<<63 - 1)
	for _, tt := range []struct{ ideal, gate, want time.Duration }{
		{10 * time.Second, 9 * time.Second, 40 * time.Second},
		{10 * time.Second, 30 * time.Second, 100 * time.Second},
		{forever / 2, 0, forever},
		{forever, forever, forever},
	} {
		if got := naiveLimit(tt.ideal, tt.gate); got != tt.want {
			t.Errorf("naiveLimit(%v, %v) = %v, want %v", tt.ideal, tt.gate, got, tt.want)
		}
	}
}

// On a busy machine the gate is woken late and catches up, by as much as it does by default.
// The built-in server has room for that.
func TestServerHasRoomToCatchUp(t *testing.T) {
	for rate, want := range map[string]int64{"100": 10, "1000": 100, "4000/20s": 20, "300/20s": 5} {
		o, err := parseOptions([]string{"-rate", rate})
		if err != nil {
			t.Fatal(err)
		}
		if gate := configOf(o, nil); gate.MaxCatchUp != 0 {
			t.Errorf("-rate %s: CatchUp is %v, not the default", rate, gate.MaxCatchUp)
		}
		s, err := newServer(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, most := s.MostPerPeriod(); most-o.rate.Count != want {
			t.Errorf("-rate %s: a bucket of %d, want %d", rate, most-o.rate.Count, want)
		}
	}
}
