package alarm

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sleep is Sleep, which must not return true too early.
func sleep(t *testing.T, d time.Duration) bool {
	began := time.Now()
	ok := Sleep(d)
	if slept := time.Since(began); ok && slept < d {
		t.Errorf("slept for %v instead of %v", slept, d)
	}
	return ok
}

func TestSleep_NeverTooShort(t *testing.T) {
	for _, d := range []time.Duration{1, 100, time.Microsecond, 50 * time.Microsecond, time.Millisecond, Reach, 20 * time.Millisecond} {
		for range 5 { // a timer that was used before must not remember it
			sleep(t, d)
		}
	}
}

func TestSleep_Nothing(t *testing.T) {
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		if !Sleep(d) {
			t.Errorf("Sleep(%v) cannot", d)
		}
	}
}

// More than there are timers sleep at the same time; who gets none is told so.
func TestSleep_MoreSleepersThanTimers(t *testing.T) {
	var sleepers sync.WaitGroup
	for i := range 64 {
		sleepers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 50 {
				sleep(t, time.Duration(r.Int64N(int64(Reach))))
			}
		})
	}
	sleepers.Wait()
}
