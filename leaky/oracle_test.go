package leaky

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

// A taker is what a recording is replayed on: at is never earlier than in the
// call before.
type taker func(at time.Duration, n int64) limits.Result

const sec = time.Second

func mustRule(rate limits.Rate) kind.Bucket { return limits.Must(newRule(rate)) }

// decide is the rule, without a clock.
func decide(tat, now time.Duration, r *kind.Bucket, n int64) (limits.Result, time.Duration) {
	tat, res := r.Take(tat, now, n)
	return res, tat
}

// pure is decide, with a state.
func pure(q limits.Rate) taker {
	r := mustRule(q)
	var tat time.Duration
	return func(at time.Duration, n int64) (res limits.Result) {
		res, tat = decide(tat, at, &r, n)
		return res
	}
}

// real is a Bucket, in a bubble.
func real(q limits.Rate) taker {
	b, start := limits.Must(New(q)), time.Now()
	return func(at time.Duration, n int64) limits.Result {
		time.Sleep(at - time.Since(start))
		return b.Take(n)
	}
}

// oneKey is one key of a Keyed that is used with a rate of the call's own.
func oneKey(q limits.Rate) taker {
	k, err := NewKeyed[string](limits.Rate{Count: 1, Per: time.Hour, Burst: 1}, limits.KeyedConfig{})
	if err != nil {
		panic(err)
	}
	start := time.Now()
	return func(at time.Duration, n int64) limits.Result {
		time.Sleep(at - time.Since(start))
		return k.TakeRate("key", q, n)
	}
}

var takers = map[string]func(limits.Rate) taker{"decide": pure, "Bucket": real, "Keyed": oneKey}

type throttleTrace struct {
	MaxBurst int64 `json:"max_burst"`
	Count    int64 `json:"count"`
	PeriodS  int64 `json:"period_s"`
	Ops      []struct {
		At         int64    `json:"at_ns"`
		N          int64    `json:"n"`
		Limited    bool     `json:"limited"`
		Limit      int64    `json:"limit"`
		Remaining  int64    `json:"remaining"`
		RetryAfter int64    `json:"retry_after_ns"`
		ResetAfter int64    `json:"reset_after_ns"`
		Cell       [5]int64 `json:"cell"`
	} `json:"ops"`
}

func replayThrottle(line []byte, on func(limits.Rate) taker) error {
	var trace throttleTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	take := on(limits.Rate{Count: trace.Count, Per: time.Duration(trace.PeriodS) * time.Second, Burst: trace.MaxBurst + 1})
	for i, op := range trace.Ops {
		got := take(time.Duration(op.At), op.N)
		want := limits.Result{Limit: op.Limit, Remaining: op.Remaining, RetryAfter: time.Duration(op.RetryAfter), ResetAfter: time.Duration(op.ResetAfter)}
		switch { // redis-cell says -1 for both
		case !op.Limited:
			want.RetryAfter++
		case op.RetryAfter == -1:
			want.RetryAfter = limits.Never
		}
		if got != want || got.Allowed() == op.Limited {
			return fmt.Errorf("op %d: %d at %d: got %+v, recorded %+v", i, op.N, op.At, got, want)
		}
		if cell := oracle.Cell(got); cell != op.Cell {
			return fmt.Errorf("op %d: %d at %d: cell %v, recorded %v", i, op.N, op.At, cell, op.Cell)
		}
	}
	return nil
}

type springTrace struct {
	RatePerS int64 `json:"rate_per_s"`
	Capacity int64 `json:"capacity"`
	Ops      []struct {
		At        int64 `json:"at_s"`
		N         int64 `json:"n"`
		Allowed   bool  `json:"allowed"`
		Remaining int64 `json:"remaining"`
	} `json:"ops"`
}

func replaySpring(line []byte, on func(limits.Rate) taker) error {
	var trace springTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	take := on(limits.Rate{Count: trace.RatePerS, Per: time.Second, Burst: trace.Capacity})
	for i, op := range trace.Ops {
		got := take(time.Duration(op.At)*time.Second, op.N)
		if got.Allowed() != op.Allowed || got.Remaining != op.Remaining {
			return fmt.Errorf("op %d: %d at %d: got %+v, recorded %+v", i, op.N, op.At, got, op)
		}
	}
	return nil
}

// What redis-cell and Spring Cloud Gateway answered is what one function
// answers: CL.THROTTLE and the token bucket are the same arithmetic.

func TestOracle_CLThrottle(t *testing.T) {
	replayAll(t, "cl_throttle.jsonl", replayThrottle)
}

func TestOracle_Spring(t *testing.T) {
	replayAll(t, "spring_token_bucket.jsonl", replaySpring)
}

func replayAll(t *testing.T, name string, replay func([]byte, func(limits.Rate) taker) error) {
	for taker, on := range takers {
		t.Run(taker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, line := range oracle.Lines(t, name) {
					if err := replay(line, on); err != nil {
						t.Errorf("%s:%d: %v", name, i+1, err)
					}
				}
			})
		})
	}
}

// A replay that would accept a wrong answer is worth nothing.

func TestOracle_CLThrottle_FindsEachCorruptedField(t *testing.T) {
	corruptAll(t, "cl_throttle.jsonl", replayThrottle,
		"limited", "limit", "remaining", "retry_after_ns", "reset_after_ns",
		"cell 0", "cell 1", "cell 2", "cell 3", "cell 4", "unheard of")
}

func TestOracle_Spring_FindsEachCorruptedField(t *testing.T) {
	corruptAll(t, "spring_token_bucket.jsonl", replaySpring, "allowed", "remaining", "unheard of")
}

// corruptAll falsifies each field of one operation of each fifth trace, and
// wants each of the answers to be found out. What was asked matters not always:
// a refused call may come a nanosecond later and be refused.
func corruptAll(t *testing.T, name string, replay func([]byte, func(limits.Rate) taker) error, answers ...string) {
	found := map[string]int{}
	traces := 0
	for i, line := range oracle.Lines(t, name) {
		if i%5 != 0 {
			continue
		}
		traces++
		for _, c := range oracle.Corruptions(t, line, i) {
			if replay(c.Line, pure) != nil {
				found[c.What]++
			}
		}
	}
	for _, field := range answers {
		if found[field] != traces {
			t.Errorf("falsified %s: found in %d of %d traces", field, found[field], traces)
		}
	}
	if found["n"] == 0 {
		t.Error("falsified n: never found")
	}
}
