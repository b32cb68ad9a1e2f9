package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A system counts time in ticks: its timers wake callers at the next one. Windows has ticks of about 0.5 ms,
// and versions before 1803 of up to 15.6 ms. Its clock stands still between them, too.
type system struct {
	tick  time.Duration
	clock bool // stands still between ticks
}

// run lets callers wait for a schedule until end, each after a random time of at most think. It returns the instants
// at which calls started.
func (sys system) run(t *testing.T, cfg Config, end, think time.Duration) (starts []time.Duration) {
	t.Helper()
	s := mustNew(t, cfg)
	r := rand.New(rand.NewPCG(1, 1))
	read := func(now time.Duration) time.Duration {
		if sys.clock {
			now -= now % sys.tick
		}
		return now
	}
	for now := time.Duration(0); ; {
		due := read(now)
		if wait := s.Wait(due, 0); wait > 0 {
			due += wait
			now = (due + sys.tick - 1) / sys.tick * sys.tick
		}
		if now >= end {
			return starts
		}
		if rest := s.Admit(read(now), due, 1); rest > 0 {
			t.Fatalf("ticks of %v: a call that was woken at %v must wait for another %v", sys.tick, now, rest)
		}
		starts = append(starts, now)
		if think > 0 {
			now += time.Duration(r.Int64N(int64(think)))
		}
	}
}

func perSecond(n int64) limits.Rate { return limits.Rate{Count: n, Per: time.Second} }

// What docs/measurements.md says of timers: the rate is true as long as a tick is no longer than 2 ms, or than the
// TimerResolution. Otherwise few calls start at each tick, because a server that sees the rest together would see
// a burst.
func TestSchedule_CoarseTimers(t *testing.T) {
	const ms, end = time.Millisecond, 10 * time.Second
	for _, test := range []struct {
		tick, resolution time.Duration
		perSecond        int64
		share            float64 // of the rate that is delivered
		together         int     // calls that start at one tick
	}{
		{ms / 2, 0, 10, 1, 1},
		{ms / 2, 0, 1000, 1, 1},
		{ms / 2, 0, 5000, 1, 3},
		{ms, 0, 1000, 1, 1},
		{ms, 0, 5000, 1, 5},
		{2 * ms, 0, 1000, 1, 2},
		{2 * ms, 0, 5000, 1, 10},
		{10 * ms, 0, 100, 1, 1},
		{10 * ms, 0, 1000, 0.3, 3},
		{10 * ms, 10 * ms, 1000, 1, 10},
		{15625 * time.Microsecond, 0, 50, 1, 1},
		{15625 * time.Microsecond, 0, 100, 0.64, 1},
		{15625 * time.Microsecond, 0, 1000, 0.192, 3},
		{15625 * time.Microsecond, 16 * ms, 100, 1, 2},
		{15625 * time.Microsecond, 16 * ms, 1000, 1, 16},
		{15625 * time.Microsecond, 16 * ms, 5000, 1, 79},
	} {
		for _, clock := range []bool{false, true} {
			cfg := Config{Rate: perSecond(test.perSecond), TimerResolution: test.resolution}
			starts := system{test.tick, clock}.run(t, cfg, end, 0)
			if share := float64(len(starts)) / end.Seconds() / float64(test.perSecond); share < test.share-0.002 || share > test.share+0.002 {
				t.Errorf("ticks of %v, clock %v, resolution %v: %.3f of %d/s, want %.3f", test.tick, clock, test.resolution, share, test.perSecond, test.share)
			}
			most, together := 0, 0
			for i := range starts {
				if together++; i > 0 && starts[i] != starts[i-1] {
					together = 1
				}
				most = max(most, together)
			}
			if most != test.together {
				t.Errorf("ticks of %v, clock %v, resolution %v: %d calls start together at %d/s, want %d", test.tick, clock, test.resolution, most, test.perSecond, test.together)
			}
		}
	}
}

// A clock that stands still makes a call seem to come up to a tick earlier than it does, and the next one may
// start that much too early. It starts no earlier than that, and with a clock that does not it is never early.
func TestSchedule_CoarseClock(t *testing.T) {
	interval := 10 * time.Millisecond
	for _, tick := range []time.Duration{time.Millisecond / 2, time.Millisecond, 5 * time.Millisecond} {
		for _, clock := range []bool{false, true} {
			allowed := interval
			if clock {
				allowed -= tick
			}
			shortest := time.Hour
			starts := system{tick, clock}.run(t, Config{Rate: perSecond(100), MaxCatchUp: -1}, time.Minute, 2*interval)
			for i := 1; i < len(starts); i++ {
				shortest = min(shortest, starts[i]-starts[i-1])
			}
			if shortest < allowed || clock && shortest == interval {
				t.Errorf("ticks of %v, clock %v: two calls start %v apart, want at least %v", tick, clock, shortest, allowed)
			}
		}
	}
}
