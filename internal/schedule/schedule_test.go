package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func mustNew(t *testing.T, cfg Config) *Schedule {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A row asks at now, having been due at due, and wants the wait back; 0 means
// it left.
type row struct {
	now, due time.Duration
	n        int64
	wait     time.Duration
}

// onTime is a caller who comes by itself, and is not woken by us.
func onTime(now time.Duration, n int64, wait time.Duration) row { return row{now, now, n, wait} }

func run(t *testing.T, s *Schedule, rows ...row) {
	t.Helper()
	for i, r := range rows {
		if got := s.Admit(r.now, r.due, r.n); got != r.wait {
			t.Fatalf("row %d %v: wait %v, want %v", i, r, got, r.wait)
		}
	}
}

var tenPerSecond = Config{Count: 10, Per: time.Second}

func TestLateByUsWithinCatchUpKeepsTheSlots(t *testing.T) {
	s := mustNew(t, tenPerSecond)
	run(t, s,
		onTime(0, 1, 0),
		onTime(1*ms, 1, 99*ms),
		row{100*ms + 800*time.Microsecond, 100 * ms, 1, 0}, // woken 0.8 ms late
		onTime(101*ms, 1, 99*ms),                           // the next slot is at 200 ms all the same
		row{200 * ms, 200 * ms, 1, 0},
		onTime(200*ms, 1, 100*ms),
	)
}

func TestLateByUsBeyondCatchUpIsForfeit(t *testing.T) {
	s := mustNew(t, tenPerSecond)
	run(t, s,
		onTime(0, 1, 0),
		row{150 * ms, 100 * ms, 1, 0}, // 50 ms late, of which 1 ms is made up
		onTime(151*ms, 1, 98*ms),
		row{249 * ms, 249 * ms, 1, 0},
		onTime(250*ms, 1, 99*ms),
	)
}

func TestStrictMakesUpForNothing(t *testing.T) {
	s := mustNew(t, Config{Count: 10, Per: time.Second, CatchUp: -1})
	run(t, s,
		onTime(0, 1, 0),
		row{100*ms + 1, 100 * ms, 1, 0},
		onTime(101*ms, 1, 99*ms+1),
		row{200*ms + 1, 200*ms + 1, 1, 0},
	)
}

func TestLateByTheCallerIsNotMadeUp(t *testing.T) {
	s := mustNew(t, tenPerSecond)
	run(t, s,
		onTime(0, 1, 0),
		onTime(100*ms+800*time.Microsecond, 1, 0), // 0.8 ms after the slot, nobody waited for it
		onTime(101*ms, 1, 99*ms+800*time.Microsecond),
	)
}

// At 5,000/s a lateness of 1 ms covers five slots. The callers that come right
// after are let through until the delay is made up.
func TestShortIntervalsAreMadeUpByThoseWhoFollow(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Count: 5000, Per: time.Second})
	run(t, s,
		onTime(0, 1, 0),
		onTime(10*us, 1, 190*us),
		row{1100 * us, 200 * us, 1, 0}, // 900 µs late: charged at 200
		onTime(1101*us, 1, 0),          // 400
		onTime(1102*us, 1, 0),          // 600
		onTime(1103*us, 1, 0),          // 800
		onTime(1104*us, 1, 0),          // 1000
		onTime(1105*us, 1, 95*us),      // 1200 is ahead
		row{1200 * us, 1200 * us, 1, 0},
		onTime(1450*us, 1, 0), // 50 µs after its slot: the lateness is spent, that is its own
		onTime(1451*us, 1, 199*us),
	)
}

// What is left of our lateness is no more than what is in use: a caller that
// stays away cannot spend it later.
func TestLatenessIsNotSavedUp(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Count: 5000, Per: time.Second})
	run(t, s,
		onTime(0, 1, 0),
		row{1100 * us, 200 * us, 1, 0},       // 900 µs late; TAT is 400, 700 behind
		onTime(10*time.Second, 1, 0),         // stays away
		onTime(10*time.Second+us, 1, 199*us), // and finds nothing
	)
}

func TestLatenessCountsFromTheLaterOfSlotAndAlarm(t *testing.T) {
	s := mustNew(t, Config{Count: 1, Per: 10 * time.Second, CatchUp: time.Hour})
	run(t, s, onTime(0, 1, 0))
	if err := s.SetRate(5*time.Second, 10, time.Second); err != nil { // slot at 100 ms
		t.Fatal(err)
	}
	run(t, s,
		row{5005 * ms, 5000 * ms, 1, 0}, // the rate was changed at 5 s: 5 ms late, not 4.9 s
		onTime(5006*ms, 1, 94*ms),
	)
}

// TAT comes to lie exactly at now while a burst is made up for. That is no
// lateness: two calls more than the bound allows once left here, because 1 ms
// of catch-up is a whole number of 50 µs.
func TestCatchUpEndsWhereNowIs(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Count: 20_000, Per: time.Second, Burst: 3})
	run(t, s, onTime(0, 10, 0))
	left := 0
	for s.Admit(100*ms, 400*us, 1) == 0 {
		left++
	}
	if want := 3 + 20; left != want {
		t.Errorf("%d left together, late as can be; want B + C/T = %d", left, want)
	}
}

func TestAdjust(t *testing.T) {
	s := mustNew(t, tenPerSecond)
	run(t, s, onTime(0, 10, 0))
	for _, c := range []struct {
		delta int64
		want  time.Duration
	}{{-3, 700 * ms}, {+13, 2000 * ms}, {-100, 0}, {+1, 100 * ms}, {1<<63 - 1, 1<<63 - 1}, {1<<63 - 1, 1<<63 - 1}, {-(1<<63 - 1), 0}} {
		s.Adjust(c.delta)
		if got := s.Slot(); got != c.want {
			t.Errorf("after %+d the slot is at %v, want %v", c.delta, got, c.want)
		}
	}
	// With a burst a refund also gives back what was not stored.
	s = mustNew(t, Config{Count: 10, Per: time.Second, Burst: 5})
	run(t, s, onTime(time.Second, 3, 0), onTime(time.Second, 2, 0), onTime(time.Second, 1, 100*ms))
	s.Adjust(-4)
	for range 4 {
		run(t, s, onTime(time.Second, 1, 0))
	}
	run(t, s, onTime(time.Second, 1, 100*ms))
}

func TestScaleRoundsUp(t *testing.T) {
	for _, c := range []struct {
		d          time.Duration
		a, b, c, e int64
		want       time.Duration
	}{
		{0, 1, 1, 1, 1, 0},
		{10, 1, 1, 3, 1, 4},
		{9, 1, 1, 3, 1, 3},
		{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62},
		{1 << 62, 4, 1, 1, 1, 1<<63 - 1},
		{5, 1, 1, 0, 1, 0},
		{5, 1, 1, 1, 0, 0},
	} {
		if got := scale(c.d, c.a, c.b, c.c, c.e); got != c.want {
			t.Errorf("scale(%d, %d, %d, %d, %d) = %d, want %d", c.d, c.a, c.b, c.c, c.e, got, c.want)
		}
	}
}

// The bound of the package comment, on departures of callers that are woken
// late, come late, weigh more than one and see the rate change:
// permits in any window W ≤ B + (W + C)/T + n_max − 1, T the smallest in force.
func TestWindowBoundHoldsHoweverLateCallersAre(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		burst := 1 + r.Int64N(5)*r.Int64N(2)
		catchUp := []time.Duration{-1, 0, 5 * ms, 300 * ms}[r.IntN(4)]
		s := mustNew(t, Config{Count: 1, Per: 10 * ms, Burst: burst, CatchUp: catchUp})
		c := max(0, catchUp)
		if catchUp == 0 {
			c = DefaultCatchUp
		}
		smallest, maxN := 10*ms, int64(1)
		type grant struct {
			at time.Duration
			n  int64
		}
		var grants []grant
		var now time.Duration
		for range 400 {
			n := 1 + r.Int64N(3)*r.Int64N(2)
			maxN = max(maxN, n)
			due := now
			if wait := s.Admit(now, now, n); wait > 0 {
				due = now + wait
				now = due + []time.Duration{0, 0, 50 * time.Microsecond, 900 * time.Microsecond, 7 * ms, 40 * ms}[r.IntN(6)]
				if wait := s.Admit(now, due, n); wait != 0 {
					t.Fatalf("seed %d: at its slot a caller has to wait %v", seed, wait)
				}
			}
			grants = append(grants, grant{now, n})
			if now < due {
				t.Fatalf("seed %d: left %v before its slot", seed, due-now)
			}
			if r.IntN(3) == 0 {
				now += time.Duration(r.Int64N(int64(50 * ms)))
			}
			if r.IntN(50) == 0 {
				per := 2*ms + time.Duration(r.Int64N(int64(20*ms)))
				if err := s.SetRate(now, 1, per); err != nil {
					t.Fatal(err)
				}
				smallest = min(smallest, per)
			}
		}
		for i := range grants {
			var sum int64
			for j := i; j < len(grants); j++ {
				sum += grants[j].n
				window := grants[j].at - grants[i].at
				if bound := float64(burst) + float64(window+c)/float64(smallest) + float64(maxN) - 1; float64(sum) > bound {
					t.Fatalf("seed %d: %d permits in %v, bound %.2f (B=%d C=%v T=%v n=%d)", seed, sum, window, bound, burst, c, smallest, maxN)
				}
			}
		}
	}
}

// What is left of a lateness is not forgotten when the next call is late by a moment, too,
// as one is that had to ask another limit first. What a caller is late by itself is never
// made up for, also if we are late by a moment on top.
func TestTheRestOfALatenessSurvivesAnother(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name     string
		now, due time.Duration // of the second call
		slot     time.Duration // that it leaves behind
	}{
		// The first was 0.9 ms late for its slot at 1 ms; the next slot is at 1.2.
		{"late by a moment", 1950 * time.Microsecond, 1940 * time.Microsecond, 1400 * time.Microsecond},
		{"in time", 1950 * time.Microsecond, 1950 * time.Microsecond, 1400 * time.Microsecond},
		{"late by all that is made up for", 2200 * time.Microsecond, 1940 * time.Microsecond, 1400 * time.Microsecond},
		{"late by more", 2500 * time.Microsecond, 1940 * time.Microsecond, 1700 * time.Microsecond},
		{"the caller is late", 3 * ms, 3 * ms, 3200 * time.Microsecond},
		{"both are late", 3 * ms, 2900 * time.Microsecond, 3100 * time.Microsecond},
	} {
		s, err := New(Config{Count: 5000, Per: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.Admit(800*time.Microsecond, 800*time.Microsecond, 1)
		s.Admit(1900*time.Microsecond, ms, 1)
		if wait := s.Admit(test.now, test.due, 1); wait != 0 || s.Slot() != test.slot {
			t.Errorf("%s: waits for %v, the next slot is at %v, want %v", test.name, wait, s.Slot(), test.slot)
		}
	}
}
