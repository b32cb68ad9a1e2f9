package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
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

// onTime is a caller who comes on its own, and is not woken by us.
func onTime(now time.Duration, n int64, wait time.Duration) row { return row{now, now, n, wait} }

func run(t *testing.T, s *Schedule, rows ...row) {
	t.Helper()
	for i, r := range rows {
		if got := s.Admit(r.now, r.due, r.n); got != r.wait {
			t.Fatalf("row %d %v: wait %v, want %v", i, r, got, r.wait)
		}
	}
}

var tenPerSecond = Config{Rate: limits.Rate{Count: 10, Per: time.Second}}

func TestSchedule_Admit_LatenessWithinCatchUp(t *testing.T) {
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

func TestSchedule_Admit_LatenessBeyondCatchUp(t *testing.T) {
	s := mustNew(t, Config{Rate: limits.Rate{Count: 10, Per: time.Second}, MaxCatchUp: ms})
	run(t, s,
		onTime(0, 1, 0),
		row{150 * ms, 100 * ms, 1, 0}, // 50 ms late, of which 1 ms is made up
		onTime(151*ms, 1, 98*ms),
		row{249 * ms, 249 * ms, 1, 0},
		onTime(250*ms, 1, 99*ms),
	)
	s = mustNew(t, tenPerSecond)
	run(t, s,
		onTime(0, 1, 0),
		row{170 * ms, 100 * ms, 1, 0}, // 70 ms late, of which 50 are caught up
		onTime(171*ms, 1, 49*ms),
		row{220 * ms, 220 * ms, 1, 0},
		onTime(221*ms, 1, 99*ms),
	)
}

// A lateness beyond 1 ms is caught up at twice the rate: see the package comment.
func TestSchedule_Admit_RepaysAtTwiceTheRate(t *testing.T) {
	perMilli := limits.Rate{Count: 1, Per: ms}
	for name, c := range map[string]struct {
		cfg   Config
		n     int64
		first row
		want  []time.Duration // when the next calls start, in half milliseconds
	}{
		"4 ms late":          {Config{Rate: perMilli}, 1, row{5 * ms, ms, 1, 0}, []time.Duration{10, 10, 11, 12, 13, 14, 16, 18}},
		"1 ms late":          {Config{Rate: perMilli}, 1, row{2 * ms, ms, 1, 0}, []time.Duration{4, 6, 8}},
		"beyond CatchUp":     {Config{Rate: perMilli, MaxCatchUp: 2 * ms}, 1, row{9 * ms, ms, 1, 0}, []time.Duration{18, 18, 20, 22}},
		"a coarse grain":     {Config{Rate: perMilli, TimerResolution: 3 * ms}, 1, row{9 * ms, ms, 1, 0}, []time.Duration{18, 18, 18, 18, 18, 18, 19, 20, 21, 22, 24}},
		"a fine one":         {Config{Rate: perMilli, TimerResolution: -1}, 1, row{5 * ms, ms, 1, 0}, []time.Duration{10, 10, 11, 12, 13, 14, 16, 18}},
		"with a cost of 2":   {Config{Rate: perMilli}, 2, row{5 * ms, ms, 2, 0}, []time.Duration{10, 12, 14, 18, 22}},
		"a burst goes along": {Config{Rate: limits.Rate{Count: 1, Per: ms, Burst: 3}}, 1, row{25 * ms, 20 * ms, 1, 0}, []time.Duration{50, 50, 50, 50, 50, 50, 50, 52, 54}},
	} {
		s := mustNew(t, c.cfg)
		if c.cfg.Rate.Burst == 0 {
			run(t, s, onTime(0, 1, 0))
		}
		run(t, s, c.first)
		now := c.first.now
		for i, want := range c.want {
			for j, later := range c.want[i:] {
				if at := now + s.Wait(now, int64(j)*c.n); at != later*ms/2 && (j == 0 || c.cfg.Rate.Burst == 0 || at > later*ms/2) {
					t.Errorf("%s: before call %d, call %d is forecast at %v, want %v", name, i, i+j, at, later*ms/2)
				}
			}
			now = want * ms / 2
			if s.Slot() > now || now > c.want[max(0, i-1)]*ms/2 && s.Slot() != now {
				t.Errorf("%s: the slot of call %d is at %v, want %v", name, i, s.Slot(), now)
			}
			run(t, s, onTime(now, c.n, 0))
		}
	}
}

// How exactly a call is to be woken follows from the grain, and from what could not be caught up.
func TestSchedule_Fine_AndHold(t *testing.T) {
	const us = time.Microsecond
	every := func(t time.Duration) limits.Rate { return limits.Rate{Count: 1, Per: t} }
	for name, c := range map[string]struct {
		cfg  Config
		fine bool
		hold time.Duration
	}{
		"default":                  {Config{Rate: every(ms)}, false, 0},
		"default, close together":  {Config{Rate: limits.Rate{Count: 5000, Per: time.Second}}, false, 800 * us},
		"no rate":                  {Config{TimerResolution: -1}, false, 0},
		"none":                     {Config{Rate: every(ms), TimerResolution: -1}, true, 0},
		"none, far apart":          {Config{Rate: every(100*ms + 1), TimerResolution: -1}, false, 0},
		"none, not so far":         {Config{Rate: every(100 * ms), TimerResolution: -1}, true, 0},
		"small":                    {Config{Rate: every(30 * us), TimerResolution: 100 * us}, true, 70 * us},
		"large":                    {Config{Rate: every(ms), TimerResolution: 10 * ms}, false, 9 * ms},
		"nothing is made up for":   {Config{Rate: every(100 * us), MaxCatchUp: -1}, true, 0},
		"little is":                {Config{Rate: every(100 * us), MaxCatchUp: ms}, true, 400 * us},
		"little is, a large grain": {Config{Rate: every(ms), MaxCatchUp: 4 * ms, TimerResolution: 10 * ms}, false, ms},
		"just enough is":           {Config{Rate: every(100 * us), MaxCatchUp: 2 * ms}, false, 900 * us},
	} {
		s := mustNew(t, c.cfg)
		if s.Fine() != c.fine || s.Hold() != c.hold {
			t.Errorf("%s: fine %v, hold %v, want %v, %v", name, s.Fine(), s.Hold(), c.fine, c.hold)
		}
	}
}

// A new rate while a lateness is caught up delays no call at the old one.
func TestSchedule_SetRate_WhileRepaying(t *testing.T) {
	s := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: 20 * ms}})
	run(t, s, onTime(0, 1, 0), row{60 * ms, 20 * ms, 1, 0}, onTime(60*ms, 1, 9*ms))
	if err := s.SetRate(60*ms, limits.Rate{Count: 1, Per: ms}); err != nil {
		t.Fatal(err)
	}
	run(t, s, onTime(60*ms, 1, 0), onTime(60*ms, 1, 0), onTime(60*ms, 1, ms/2))
}

// While a lateness is caught up the forecast is the true wait for calls of 1, and never
// more for others, also if a burst follows.
func TestSchedule_Wait_WhileRepaying(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		rate := limits.Rate{Count: 1 + r.Int64N(3000), Per: time.Second, Burst: 1 + r.Int64N(10)*r.Int64N(2)}
		s := mustNew(t, Config{Rate: rate})
		for s.Slot() <= 0 {
			run(t, s, onTime(0, 1, 0))
		}
		slot, heaviest := s.Slot(), 1+r.Int64N(3)*r.Int64N(2)
		now := slot + time.Duration(r.Int64N(int64(60*ms)))
		run(t, s, row{now, slot, 1, 0})
		ahead := []int64{}
		sum := int64(0)
		for range 1 + r.IntN(40) {
			ahead = append(ahead, 1+r.Int64N(heaviest))
			sum += ahead[len(ahead)-1]
		}
		told, at := s.Wait(now, sum), now
		for _, n := range ahead {
			at += s.Wait(at, 0)
			run(t, s, onTime(at, n, 0))
		}
		if took := at + s.Wait(at, 0) - now; told > took || heaviest == 1 && told < took {
			t.Fatalf("seed %d: %v, woken %v late, with %v ahead: told %v, waited %v", seed, rate, now-slot, ahead, told, took)
		}
	}
}

// A cold schedule catches up on lateness at twice its own pace as well, and not all together.
func TestSchedule_Admit_RepaysWhileCold(t *testing.T) {
	s := mustNew(t, Config{Rate: limits.Rate{Count: 1000, Per: time.Second}, WarmUp: time.Minute})
	run(t, s, onTime(0, 1, 0))
	now := s.Slot()
	if now < 2900*time.Microsecond {
		t.Fatalf("slot at %v, want nearly 3 ms", now)
	}
	due, left, told := now, []time.Duration(nil), time.Duration(0)
	for now += 30 * ms; len(left) < 25; {
		if len(left) == 1 && told == 0 {
			told = now + s.Wait(now, 10)
		}
		if wait := s.Admit(now, due, 1); wait > 0 {
			now += wait
		} else {
			left = append(left, now)
		}
		due = now
	}
	if together := slices.IndexFunc(left, func(at time.Duration) bool { return at > left[0] }); together > 1 {
		t.Errorf("%d left at once: %v", together, left)
	}
	for i := 2; i < len(left); i++ {
		if apart := left[i] - left[i-1]; apart < 1400*time.Microsecond {
			t.Errorf("call %d left %v after the one before it, want half of 3 ms at least", i, apart)
		}
	}
	if off := left[11] - told; off < 0 || off > time.Microsecond { // it is in floating point
		t.Errorf("with 10 ahead, told to leave at %v, left at %v", told, left[11])
	}
	if last, slot := left[len(left)-1], s.Slot(); slot-last < 2900*time.Microsecond {
		t.Errorf("the next leaves at %v, %v after the last: it is still being made up for", slot, slot-last)
	}
}

// A lateness from before a pause is not caught up after it: when it ends nothing is
// stored, whether callers wait for its end or come a little later.
func TestSchedule_PauseUntil_LatenessBefore(t *testing.T) {
	for _, after := range []time.Duration{0, 30 * ms} {
		s := mustNew(t, Config{Rate: limits.Rate{Count: 1000, Per: time.Second}})
		run(t, s, onTime(0, 1, 0), row{41 * ms, ms, 1, 0}) // woken 40 ms late
		s.PauseUntil(10 * time.Second)
		now := 10*time.Second + after
		run(t, s, onTime(now, 1, 0), onTime(now, 1, ms), row{now + ms, now + ms, 1, 0}, onTime(now+ms, 1, ms))
	}
}

func TestSchedule_Admit_Strict(t *testing.T) {
	s := mustNew(t, Config{Rate: limits.Rate{Count: 10, Per: time.Second}, MaxCatchUp: -1})
	run(t, s,
		onTime(0, 1, 0),
		row{100*ms + 1, 100 * ms, 1, 0},
		onTime(101*ms, 1, 99*ms+1),
		row{200*ms + 1, 200*ms + 1, 1, 0},
	)
}

func TestSchedule_Admit_LateCaller(t *testing.T) {
	s := mustNew(t, tenPerSecond)
	run(t, s,
		onTime(0, 1, 0),
		onTime(100*ms+800*time.Microsecond, 1, 0), // 0.8 ms after the slot, nobody waited for it
		onTime(101*ms, 1, 99*ms+800*time.Microsecond),
	)
}

// At 5,000/s a lateness of 1 ms covers five slots. The callers that come right
// after are let through until the delay is made up.
func TestSchedule_Admit_ShortIntervalsCatchUp(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Rate: limits.Rate{Count: 5000, Per: time.Second}})
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
func TestSchedule_Admit_LatenessIsNotSavedUp(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Rate: limits.Rate{Count: 5000, Per: time.Second}})
	run(t, s,
		onTime(0, 1, 0),
		row{1100 * us, 200 * us, 1, 0},       // 900 µs late; TAT is 400, 700 behind
		onTime(10*time.Second, 1, 0),         // stays away
		onTime(10*time.Second+us, 1, 199*us), // and finds nothing
	)
}

func TestSchedule_Admit_LatenessCountsFromTheLaterOfSlotAndAlarm(t *testing.T) {
	s := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: 10 * time.Second}, MaxCatchUp: time.Hour})
	run(t, s, onTime(0, 1, 0))
	if err := s.SetRate(5*time.Second, limits.Rate{Count: 10, Per: time.Second}); err != nil { // slot at 100 ms
		t.Fatal(err)
	}
	run(t, s,
		row{5005 * ms, 5000 * ms, 1, 0}, // the rate was changed at 5 s: 5 ms late, not 4.9 s
		onTime(5006*ms, 1, 94*ms),
	)
}

// TAT comes to lie exactly at now while a burst is caught up. That is no
// lateness: two calls more than the bound allows once left here, because 1 ms
// of catch-up is a whole number of 50 µs.
func TestSchedule_Admit_CatchUpEndsAtNow(t *testing.T) {
	us := time.Microsecond
	s := mustNew(t, Config{Rate: limits.Rate{Count: 20_000, Per: time.Second, Burst: 3}, MaxCatchUp: ms})
	run(t, s, onTime(0, 10, 0))
	left := 0
	for s.Admit(100*ms, 400*us, 1) == 0 {
		left++
	}
	if want := 3 + 20; left != want {
		t.Errorf("%d left together, late as can be; want B + C/T = %d", left, want)
	}
}

func TestSchedule_Adjust(t *testing.T) {
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
	// With a burst a refund also returns what was not stored.
	s = mustNew(t, Config{Rate: limits.Rate{Count: 10, Per: time.Second, Burst: 5}})
	run(t, s, onTime(time.Second, 3, 0), onTime(time.Second, 2, 0), onTime(time.Second, 1, 100*ms))
	s.Adjust(-4)
	for range 4 {
		run(t, s, onTime(time.Second, 1, 0))
	}
	run(t, s, onTime(time.Second, 1, 100*ms))
}

func TestReprice_RoundsUp(t *testing.T) {
	for _, c := range []struct {
		debt     time.Duration
		from, to limits.Rate
		want     time.Duration
	}{
		{0, limits.Rate{Count: 1, Per: 1}, limits.Rate{Count: 1, Per: 9}, 0},
		{10, limits.Rate{Count: 1, Per: 3}, limits.Rate{Count: 1, Per: 1}, 4},
		{9, limits.Rate{Count: 1, Per: 3}, limits.Rate{Count: 1, Per: 1}, 3},
		{1 << 62, limits.Rate{Count: 1 << 62, Per: 1 << 62}, limits.Rate{Count: 1 << 62, Per: 1 << 62}, 1 << 62},
		{1 << 62, limits.Rate{Count: 1, Per: 1}, limits.Rate{Count: 1, Per: 4}, 1<<63 - 1},
		{5, limits.Rate{}, limits.Rate{Count: 1, Per: 1}, 0}, // no limit before, or after
		{5, limits.Rate{Count: 1, Per: 1}, limits.Rate{}, 0},

		// A debt of 25 at T = 10 and B = 5 is 2½ calls: 1½ are stored.
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 1, Per: 10, Burst: 5}, 25},
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 1, Per: 10, Burst: 8}, 55},
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 3, Per: 10, Burst: 8}, 19}, // 5½ · 3⅓, rounded up
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 1, Per: 10, Burst: 3}, 5},
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 1, Per: 10, Burst: 2}, 0}, // one, at most
		{25, limits.Rate{Count: 1, Per: 10, Burst: 5}, limits.Rate{Count: 1, Per: 10}, 0},
		{0, limits.Rate{}, limits.Rate{Count: 1, Per: 10, Burst: 3}, 20}, // nothing is stored without a limit
		{1, limits.Rate{Count: 1, Per: 1, Burst: 2}, limits.Rate{Count: 1, Per: 1 << 62, Burst: 1 << 62}, 1<<63 - 1},
	} {
		if got := reprice(c.debt, c.from, c.to); got != c.want {
			t.Errorf("reprice(%d, %v, %v) = %d, want %d", c.debt, c.from, c.to, got, c.want)
		}
	}
}

// The times at which calls of weight 1 leave after a change of the burst at 1 s.
// Before, 7 calls a second apart from 0 on have used up what was stored; then the
// schedule is idle for as long as it takes to store some.
func TestSchedule_SetRate_Burst(t *testing.T) {
	const s = time.Second
	perSecond := func(burst int64) limits.Rate { return limits.Rate{Count: 1, Per: s, Burst: burst} }
	for name, c := range map[string]struct {
		from   limits.Rate
		before []row
		at     time.Duration // of the change
		to     limits.Rate
		want   []time.Duration // when calls then leave
	}{
		"stored stays":                  {perSecond(3), nil, 10 * s, perSecond(3), []time.Duration{10 * s, 10 * s, 10 * s, 11 * s}},
		"stored is cut":                 {perSecond(4), nil, 10 * s, perSecond(2), []time.Duration{10 * s, 10 * s, 11 * s}},
		"stored is cut to nothing":      {perSecond(4), nil, 10 * s, perSecond(1), []time.Duration{10 * s, 11 * s, 12 * s}},
		"a larger burst stores nothing": {perSecond(2), nil, 10 * s, perSecond(5), []time.Duration{10 * s, 10 * s, 11 * s, 12 * s}},
		"nor does the first one":        {perSecond(1), []row{onTime(0, 1, 0)}, 10 * s, perSecond(5), []time.Duration{10 * s, 11 * s, 12 * s}},
		"at another rate":               {perSecond(4), nil, 10 * s, limits.Rate{Count: 1, Per: 5 * s, Burst: 3}, []time.Duration{10 * s, 10 * s, 10 * s, 15 * s}},
		"half a call":                   {perSecond(3), []row{onTime(9500*ms, 3, 0)}, 11 * s, perSecond(2), []time.Duration{11 * s, 11500 * ms, 12500 * ms}},

		"what is owed stays":            {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, perSecond(3), []time.Duration{12 * s, 13 * s}},
		"also if the burst grows":       {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, perSecond(9), []time.Duration{12 * s, 13 * s}},
		"a smaller burst had paid less": {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, perSecond(2), []time.Duration{13 * s, 14 * s}},
		"none had paid nothing":         {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, perSecond(1), []time.Duration{14 * s, 15 * s}},
		"owed at another rate":          {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, limits.Rate{Count: 1, Per: 2 * s, Burst: 2}, []time.Duration{17 * s, 19 * s}},
		"no limit":                      {perSecond(3), []row{onTime(9*s, 5, 0)}, 10 * s, limits.Rate{}, []time.Duration{10 * s, 10 * s}},
		"from no limit":                 {limits.Rate{}, []row{onTime(9500*ms, 1, 0)}, 10 * s, perSecond(3), []time.Duration{10500 * ms, 11500 * ms}},
		"from no limit, long ago":       {limits.Rate{}, []row{onTime(2*s, 1, 0)}, 10 * s, perSecond(3), []time.Duration{10 * s, 11 * s}},
	} {
		sch := mustNew(t, Config{Rate: c.from})
		run(t, sch, c.before...)
		if err := sch.SetRate(c.at, c.to); err != nil {
			t.Fatal(name, err)
		}
		var got []time.Duration
		for now := c.at; len(got) < len(c.want); {
			now += sch.Wait(now, 0)
			if wait := sch.Admit(now, now, 1); wait != 0 {
				t.Fatalf("%s: at its slot a call has to wait %v", name, wait)
			}
			got = append(got, now)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: left at %v, want %v", name, got, c.want)
		}
	}
}

// A larger burst fills from the change on, one call in each interval.
func TestSchedule_SetRate_LargerBurstFills(t *testing.T) {
	const s = time.Second
	sch := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: s, Burst: 2}})
	if err := sch.SetRate(10*s, limits.Rate{Count: 1, Per: s, Burst: 5}); err != nil {
		t.Fatal(err)
	}
	run(t, sch, // one was stored, and two more are after 2.5 s
		onTime(12500*ms, 1, 0), onTime(12500*ms, 1, 0), onTime(12500*ms, 1, 0), onTime(12500*ms, 1, 0),
		onTime(12500*ms, 1, 500*ms),
	)
	if err := sch.SetRate(13*s, limits.Rate{Count: 1, Per: s, Burst: -1}); err == nil {
		t.Error("a negative burst is accepted")
	}
	if err := sch.SetRate(13*s, limits.Rate{Count: 1, Per: s, Burst: 1 << 40}); err == nil {
		t.Error("a burst of 1,000 years is accepted")
	}
	run(t, sch, onTime(13*s, 1, 0), onTime(13*s, 1, s))
}

// The bound of the package comment, on departures of callers that are woken
// late, come late, weigh more than one and see the rate change:
// permits in any window W ≤ B + (W + C)/T + n_max − 1, T the smallest in force.
func TestSchedule_WindowBound(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		burst := 1 + r.Int64N(5)*r.Int64N(2)
		catchUp := []time.Duration{-1, 0, 5 * ms, 300 * ms}[r.IntN(4)]
		s := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: 10 * ms, Burst: burst}, MaxCatchUp: catchUp})
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
				again := 1 + r.Int64N(5)
				if err := s.SetRate(now, limits.Rate{Count: 1, Per: per, Burst: again}); err != nil {
					t.Fatal(err)
				}
				smallest, burst = min(smallest, per), max(burst, again)
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

// What is left of a lateness is not forgotten when the next call is late by a moment as well,
// as one is that had to ask another limit first. What a caller is late on its own is never
// caught up, also if we are late by a moment on top.
func TestSchedule_Admit_RestOfALateness(t *testing.T) {
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
		{"the caller is late, by less", 2400 * time.Microsecond, 2400 * time.Microsecond, 1700 * time.Microsecond},
		{"the caller is late", 3 * ms, 3 * ms, 3200 * time.Microsecond},
		{"both are late", 3 * ms, 2900 * time.Microsecond, 3100 * time.Microsecond},
	} {
		s, err := New(Config{Rate: limits.Rate{Count: 5000, Per: time.Second}, MaxCatchUp: ms})
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
