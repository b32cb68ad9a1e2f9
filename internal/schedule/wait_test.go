package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// More cost ahead never makes the forecast shorter, nor longer by more than Unit for each unit,
// whatever has happened: package queue relies on both.
func TestSchedule_Wait_GrowsWithWhatIsAhead(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := Config{Rate: limits.Rate{Count: 1 + r.Int64N(5000), Per: time.Second}}
		switch r.IntN(3) {
		case 0:
			cfg.WarmUp = time.Duration(1 + r.Int64N(int64(5*time.Second)))
		case 1:
			cfg.Rate.Burst = 1 + r.Int64N(100)
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		for range 100 {
			now += time.Duration(r.Int64N(int64(20 * time.Millisecond)))
			switch r.IntN(12) {
			case 0:
				s.Adjust(r.Int64N(20) - 10)
			case 1:
				s.PauseUntil(now + time.Duration(r.Int64N(int64(time.Second))))
			case 2:
				s.Resume(now)
			case 3:
				if err := s.SetRate(now, limits.Rate{Count: 1 + r.Int64N(5000), Per: time.Second, Burst: cfg.Rate.Burst}); err != nil {
					t.Fatal(err)
				}
			default:
				s.Admit(now, now-time.Duration(r.Int64N(int64(30*time.Millisecond))), 1+r.Int64N(3))
			}
			ahead, before := int64(0), s.Wait(now, 0)
			for range 20 {
				more := 1 + r.Int64N(1+ahead/2)
				wait := s.Wait(now, ahead+more)
				if wait < before {
					t.Fatalf("seed %d: %v for %d ahead, and more for %d: %v", seed, wait, ahead+more, ahead, before)
				}
				if grown := wait - before; float64(grown) > float64(more)*s.UnitTime()+1 {
					t.Fatalf("seed %d: %d more ahead of %d make the wait %v longer, a unit %vns", seed, more, ahead, grown, s.UnitTime())
				}
				before, ahead = wait, ahead+more
			}
		}
	}
}
