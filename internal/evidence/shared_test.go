package evidence

import (
	"math/rand/v2"
	"testing"
	"time"
)

// share plays that many clients, each as that of play but at uneven intervals, at one server, until then.
func share(s server, clients int, pace float64, until time.Duration, rng *rand.Rand) []*run {
	type answer struct {
		of      int
		at      time.Duration
		left    time.Duration
		granted bool
	}
	runs, next, answered := make([]*run, clients), make([]time.Duration, clients), make([]int, clients)
	for i := range runs {
		runs[i] = &run{pace: pace}
		next[i] = time.Second + time.Duration(rng.Int64N(int64(100*ms)))
	}
	var flying []answer
	for now := time.Second; now < until; {
		of := 0
		for i := range next {
			if next[i] < next[of] {
				of = i
			}
		}
		first := -1
		for i, a := range flying {
			if first < 0 || a.at < flying[first].at {
				first = i
			}
		}
		if first < 0 || next[of] < flying[first].at {
			now = next[of]
			granted := s(now, len(flying), rng)
			took := 5*ms + time.Duration(rng.Int64N(int64(ms)))
			if granted {
				took += 15 * ms
			}
			flying = append(flying, answer{of, now + took, now, granted})
			next[of] = now + time.Duration((.5+rng.Float64())*float64(time.Second)/runs[of].pace)
			continue
		}
		a := flying[first]
		flying = append(flying[:first], flying[first+1:]...)
		now = a.at
		r := runs[a.of]
		answered[a.of]++
		if a.granted {
			r.Granted(now, a.left)
			r.pace = min(pace, r.pace*1.02)
			continue
		}
		switch v, _ := r.Unclear(now, a.left, answered[a.of] <= 64); v {
		case Crowded:
			r.crowded++
			r.pace = max(.2, r.pace/1.5)
		case Refusal:
			r.refusals++
			r.pace = max(.2, r.pace/1.5)
		case Mistaken:
			r.mistaken++
			r.pace = pace
		default:
			r.failures++
		}
	}
	return runs
}

// Two processes of one account share a limit: the calls of one are rejected because of those of the other,
// however slowly they are made, and to its Judge that looks like failures. It must find out soon that
// it was wrong. In 2 × 20 runs of a quarter of an hour so many answers at most are taken for failures;
// when a Judge was deaf for five minutes, it was two to eighteen times as many.
func TestJudge_Shared(t *testing.T) {
	for name, c := range map[string]struct {
		server func() server
		pace   float64
		most   int
	}{
		"20/s, burst 20": {func() server { return bucket(20, 20) }, 200, 400_000},
		"20/s at 40/s":   {func() server { return bucket(20, 5) }, 40, 400_000},
		"20/s, burst 1":  {func() server { return bucket(20, 1) }, 200, 3_000_000},
	} {
		failures := 0
		for seed := range uint64(20) {
			for _, r := range share(c.server(), 2, c.pace, 15*time.Minute, rand.New(rand.NewPCG(seed, 2))) {
				failures += r.failures
			}
		}
		t.Logf("%s: %d answers", name, failures)
		if failures > c.most {
			t.Errorf("%s: %d answers were taken for failures, want at most %d", name, failures, c.most)
		}
	}
}
