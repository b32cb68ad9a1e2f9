// Package mixed checks anything that decides by several rates for one key against those rates. It
// sees only admitted units and their times.
package mixed

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// Sets are rates that share a key: the burst changes, the count, both, and so that
// none of them is the laxest.
var Sets = [][]limits.Rate{
	{{Count: 50, Per: time.Second, Burst: 100}, {Count: 50, Per: time.Second, Burst: 20}},
	{{Count: 50, Per: time.Second, Burst: 40}, {Count: 5, Per: time.Second, Burst: 40}},
	{{Count: 50, Per: time.Second, Burst: 100}, {Count: 5, Per: time.Second, Burst: 20}},
	{{Count: 1, Per: time.Second, Burst: 30}, {Count: 20, Per: time.Second, Burst: 5}},
	{{Count: 3, Per: time.Second, Burst: 7}, {Count: 7, Per: time.Minute, Burst: 4}},
	{{Count: 1, Per: time.Second, Burst: 1}, {Count: 50, Per: time.Minute, Burst: 50}},
	{{Count: 1000, Per: 24 * time.Hour, Burst: 1000}, {Count: 1, Per: time.Minute, Burst: 3}},
	{{Count: 50, Per: time.Second, Burst: 50}, {Count: 50, Per: time.Second, Burst: 20}, {Count: 50, Per: time.Second, Burst: 5}},
	{{Count: 1, Per: time.Second, Burst: 30}, {Count: 20, Per: time.Second, Burst: 5}, {Count: 7, Per: time.Second, Burst: 12}},
	{{Count: 9, Per: time.Second, Burst: 9}, {Count: 4, Per: time.Second, Burst: 20}, {Count: 20, Per: time.Second, Burst: 4}},
}

// A Subject decides for one key, which no other caller uses.
type Subject struct {
	Sleep func(time.Duration)
	Take  func(q limits.Rate, n int64) limits.Result
}

// A Grant is units that were let through.
type Grant struct {
	At time.Duration
	N  int64
}

// Run calls a subject at random, as a deployment does that replaces machines one by one,
// or as many callers with their own tariffs do, and returns the first error.
func Run(seed uint64, rates []limits.Rate, steps int, s Subject) error {
	r := rand.New(rand.NewPCG(seed, uint64(len(rates))))
	var now time.Duration
	sleep := func(d time.Duration) {
		if d > 0 {
			s.Sleep(d)
			now += d
		}
	}
	var grants []Grant
	var empty []time.Duration // when a past may have been forgotten
	deploy := r.IntN(2) == 0
	for step := range steps {
		i := r.IntN(len(rates))
		if deploy { // ever more of the next one
			at := float64(step) / float64(steps) * float64(len(rates)-1)
			if i = int(at); r.Float64() < at-float64(i) {
				i++
			}
		}
		q := rates[i]
		t := q.Per / time.Duration(q.Count)
		n := int64(1)
		if r.IntN(8) == 0 {
			n = 1 + r.Int64N(q.Burst)
		}
		if slowerAndLarger(q, rates) && s.Take(q, 0).ResetAfter == 0 {
			empty = append(empty, now)
		}
		res := s.Take(q, n)
		if res.Allowed() {
			grants = append(grants, Grant{now, n})
		} else if most := longest(q, rates, n); res.RetryAfter <= 0 || res.RetryAfter > most {
			return fmt.Errorf("step %d at %v: %d of %v must wait for %v; at most %v are right", step, now, n, q, res.RetryAfter, most)
		} else if r.IntN(4) == 0 && res.RetryAfter < time.Hour {
			sleep(res.RetryAfter - 1)
			if res := s.Take(q, n); res.Allowed() {
				return fmt.Errorf("step %d at %v: %d of %v are granted 1 ns before the wait is over", step, now, n, q)
			}
			sleep(1)
			if res := s.Take(q, n); !res.Allowed() {
				return fmt.Errorf("step %d at %v: %d of %v are refused after the wait, for %v", step, now, n, q, res.RetryAfter)
			}
			grants = append(grants, Grant{now, n})
		}
		switch r.IntN(12) {
		case 0:
			sleep(time.Duration(r.Int64N(int64(10 * t))))
		case 1, 2, 3:
			sleep(time.Duration(r.Int64N(int64(t))))
		case 4, 5:
			sleep(time.Millisecond)
		}
	}
	return Check(rates, grants, empty)
}

// slowerAndLarger reports whether q is that next to one of rates.
func slowerAndLarger(q limits.Rate, rates []limits.Rate) bool {
	for _, o := range rates {
		if o.Per/time.Duration(o.Count) < q.Per/time.Duration(q.Count) && o.Burst < q.Burst {
			return true
		}
	}
	return false
}

// longest returns the longest possible wait: for n to leak from the rate's own full
// bucket, and if a slower rate has a larger one, for that to drain so far.
func longest(q limits.Rate, rates []limits.Rate, n int64) time.Duration {
	t, most := q.Per/time.Duration(q.Count), q.Burst
	for _, o := range rates {
		if o.Per/time.Duration(o.Count) > t {
			for _, o := range rates {
				most = max(most, o.Burst)
			}
		}
	}
	return time.Duration(most-q.Burst+n)*t + time.Microsecond
}

// Check returns an error if there is a window with more admitted units than the laxest of the
// rates allows alone. Of more than two rates, and where the bucket of one that is
// slower and larger was empty in the window, it takes the largest capacity and the
// highest rate.
func Check(rates []limits.Rate, grants []Grant, empty []time.Duration) error {
	all := limits.Rate{Count: 1, Per: 1 << 62, Burst: 0}
	for _, q := range rates {
		all.Burst = max(all.Burst, q.Burst)
		all.Per = min(all.Per, q.Per/time.Duration(q.Count))
	}
	for i := range grants {
		sum := int64(0)
		for j := i; j < len(grants); j++ {
			sum += grants[j].N
			w := grants[j].At - grants[i].At
			lax := allows(all, w)
			if len(rates) == 2 && !between(empty, grants[i].At, grants[j].At) {
				lax = max(allows(rates[0], w), allows(rates[1], w))
			}
			if sum > lax {
				return fmt.Errorf("%d granted from %v to %v, in %v; the laxest of %v allows %d", sum, grants[i].At, grants[j].At, w, rates, lax)
			}
		}
	}
	return nil
}

func allows(q limits.Rate, w time.Duration) int64 {
	return q.Burst + int64(w/(q.Per/time.Duration(q.Count)))
}

func between(all []time.Duration, from, to time.Duration) bool {
	for _, at := range all {
		if from < at && at <= to {
			return true
		}
	}
	return false
}
