package sluiceredis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # How is it shown that concurrent decisions are right?
//
// A script runs alone, so decisions have an order, and each replies the server's
// clock: what was recorded by many goroutines concurrently, sorted by that clock, is
// one history, which a model that knows nothing of Redis must repeat, answer for
// answer. Calls of the same microsecond may have come in any order; one that the
// model repeats is looked for among them.

// A record is one call: when, for how much, and what was answered.
type record[A comparable] struct {
	now    int64 // of the server, µs
	n      int64
	answer A
}

// replay repeats records with model, which returns the answer and the state
// before and after. It returns how many could not be repeated.
func replay[A comparable, S any](records []record[A], model func(S, record[A]) (A, S)) error {
	slices.SortStableFunc(records, func(a, b record[A]) int { return int(a.now - b.now) })
	var state S
	for len(records) > 0 {
		same := 1
		for same < len(records) && records[same].now == records[0].now {
			same++
		}
		next, ok := anyOrder(records[:same], state, model)
		if !ok {
			return fmt.Errorf("at %d: no order explains %+v after %+v", records[0].now, records[:same], state)
		}
		state, records = next, records[same:]
	}
	return nil
}

// anyOrder looks for an order in which model repeats records.
func anyOrder[A comparable, S any](records []record[A], state S, model func(S, record[A]) (A, S)) (S, bool) {
	if len(records) == 0 {
		return state, true
	}
	for i, r := range records {
		answer, next := model(state, r)
		if answer != r.answer {
			continue
		}
		rest := append(slices.Clone(records[:i]), records[i+1:]...)
		if end, ok := anyOrder(rest, next, model); ok {
			return end, true
		}
	}
	return state, false
}

// cellModel is section 1.4 of the definition, in the plainest way: one number,
// the time at which the bucket is empty.
func cellModel(limit, interval int64) func(int64, record[limits.Result]) (limits.Result, int64) {
	depth := limit * interval
	return func(tat int64, r record[limits.Result]) (limits.Result, int64) {
		now := r.now * 1000
		base := max(now, tat)
		res := limits.Result{Limit: limit}
		if over := base + r.n*interval - now - depth; over > 0 {
			res.RetryAfter = time.Duration(over)
			if r.n > limit {
				res.RetryAfter = limits.Never
			}
			res.ResetAfter = time.Duration(max(0, tat-now))
		} else {
			tat = base + r.n*interval
			res.ResetAfter = time.Duration(tat - now)
		}
		res.Remaining = max(0, depth-int64(res.ResetAfter)) / interval
		return res, tat
	}
}

// recordTakes has many goroutines take from one bucket, several stores as if
// they were machines, and returns what happened.
func recordTakes(t *testing.T, b *backend, stores, callers, each int, quota limits.Rate) []record[limits.Result] {
	var mu sync.Mutex
	var records []record[limits.Result]
	var wg sync.WaitGroup
	for range stores {
		s := b.store(t)
		l := newLeaky(t, s, "replay "+strings.ReplaceAll(t.Name(), "/", " "), quota)
		for range callers {
			wg.Go(func() {
				for range each {
					n := 1 + rand.Int64N(3)
					if rand.IntN(50) == 0 {
						n = quota.Burst + 1
					}
					r, err := s.ask(bg, l.at("k"), n)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					records = append(records, record[limits.Result]{now: r.now, n: n, answer: r.results()[0]})
					mu.Unlock()
					if rand.IntN(4) == 0 {
						time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
					}
				}
			})
		}
	}
	wg.Wait()
	return records
}

func TestReplayOfConcurrentTakes(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		{
			t.Run("takes", func(t *testing.T) {
				quota := limits.Rate{Burst: 7, Count: 2000, Per: sec}
				records := recordTakes(t, b, 3, 8, 250, quota)
				if len(records) != 3*8*250 {
					t.Fatalf("%d records", len(records))
				}
				granted := 0
				for _, r := range records {
					if r.answer.Allowed() {
						granted++
					}
				}
				if granted < 100 || granted > len(records)-100 {
					t.Errorf("%d of %d granted: nothing is shown", granted, len(records))
				}
				model := cellModel(7, 500_000)
				if err := replay(records, model); err != nil {
					t.Fatal(err)
				}
				rateLaw(t, records, 7, 500_000)
				// A replay that explains everything explains nothing.
				for _, spoil := range []func(*limits.Result){
					func(r *limits.Result) { r.RetryAfter++ },
					func(r *limits.Result) { r.ResetAfter++ },
					func(r *limits.Result) { r.Remaining++ },
				} {
					broken := slices.Clone(records)
					spoil(&broken[len(broken)/2].answer)
					if replay(broken, model) == nil {
						t.Error("a falsified answer was explained")
					}
				}
			})
		}
	})
}

// rateLaw checks that no window saw more than the capacity and what leaked.
func rateLaw(t *testing.T, records []record[limits.Result], capacity, interval int64) {
	t.Helper()
	var total []int64
	var at []int64
	sum := int64(0)
	for _, r := range records { // sorted by replay
		if r.answer.Allowed() {
			total, at = append(total, sum), append(at, r.now*1000)
			sum += r.n
		}
	}
	total = append(total, sum)
	for i := range at {
		for j := i; j < min(len(at), i+500); j++ {
			if got, bound := total[j+1]-total[i], capacity+(at[j]-at[i])/interval; got > bound {
				t.Fatalf("%d within %d ns, at most %d may be", got, at[j]-at[i], bound)
			}
		}
	}
}
