package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A slot that is given back after others have left.
func TestSchedule_GiveBack(t *testing.T) {
	const ms = time.Millisecond
	type call struct{ now, due time.Duration }
	for _, test := range []struct {
		name    string
		catchUp time.Duration
		calls   []call        // after one at 0, which gives back
		slot    time.Duration // that is left behind
	}{
		{"nobody came", 50 * ms, nil, 0},
		{"one waited", 50 * ms, []call{{10 * ms, 10 * ms}}, 14 * ms}, // and not 10: at twice the rate, but for 1 ms
		{"two waited", 50 * ms, []call{{10 * ms, 10 * ms}, {20 * ms, 20 * ms}}, 24 * ms},
		{"one was woken late", 50 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms},
		{"one did not wait", 50 * ms, []call{{11 * ms, 11 * ms}}, 21 * ms},
		{"one waited, and one later did not", 50 * ms, []call{{10 * ms, 10 * ms}, {40 * ms, 40 * ms}}, 50 * ms},
		{"less is made up for", 4 * ms, []call{{10 * ms, 10 * ms}}, 16 * ms},
		{"one had been made up for in part", 12 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms}, // then the TAT is at 15
		{"one had been made up for", 7 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms},          // then it is at 20
		{"nothing is made up for", -1, []call{{10 * ms, 10 * ms}}, 20 * ms},
	} {
		s := mustNew(t, Config{Rate: limits.Rate{Count: 100, Per: time.Second}, CatchUp: test.catchUp})
		for _, c := range append([]call{{0, 0}}, test.calls...) {
			if wait := s.Admit(c.now, c.due, 1); wait > 0 {
				t.Fatalf("%s: the call at %v waits for %v", test.name, c.now, wait)
			}
		}
		s.GiveBack(0, 10*ms)
		if slot := s.Slot(); slot != test.slot {
			t.Errorf("%s: the next slot is at %v, want %v", test.name, slot, test.slot)
		}
	}
}

// Calls always wait, some are woken late, and some give their slots back, soon or after others
// have left. In the end as many have left as if those had never come, and in no window more
// than the bound of the package comment allows.
func TestSchedule_GiveBack_LosesNothing(t *testing.T) {
	const interval, catchUp, n = 10 * time.Millisecond, 300 * time.Millisecond, 400
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: interval}, CatchUp: catchUp})
		var left, owed []time.Duration // when calls left; what is to be given back
		giveBack := func() {
			s.GiveBack(owed[0], interval)
			owed = owed[1:]
		}
		for now := time.Duration(0); len(left) < n; {
			wait := s.Admit(now, now, 1)
			if wait > 0 {
				due := now + wait
				now = due + time.Duration(r.Int64N(2)*r.Int64N(int64(interval)))
				if wait = s.Admit(now, due, 1); wait > 0 {
					t.Fatalf("seed %d: at its slot a call waits for %v", seed, wait)
				}
			}
			if len(owed) < 3 && r.IntN(8) == 0 {
				owed = append(owed, s.last)
			} else {
				left = append(left, now)
			}
			if len(owed) > 0 && r.IntN(4) == 0 {
				giveBack()
			}
		}
		for len(owed) > 0 {
			giveBack()
		}
		if next := n * interval; s.tat != next {
			t.Fatalf("seed %d: after %d calls the next is charged at %v, want %v", seed, n, s.tat, next)
		}
		for i := range left {
			for j := i; j < n; j++ {
				if window := left[j] - left[i]; interval*time.Duration(j-i) > window+catchUp {
					t.Fatalf("seed %d: %d calls in %v", seed, j-i+1, window)
				}
			}
		}
	}
}
