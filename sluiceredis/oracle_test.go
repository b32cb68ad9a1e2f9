package sluiceredis

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// A taker is what a recording is replayed on.
type taker func(at time.Duration, key string, maxBurst, count int64, per time.Duration, n int64) (limits.Result, error)

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

func replayThrottle(line []byte, key string, take taker) error {
	var trace throttleTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	for i, op := range trace.Ops {
		got, err := take(time.Duration(op.At), key, trace.MaxBurst, trace.Count, time.Duration(trace.PeriodS)*time.Second, op.N)
		want := limits.Result{Limit: op.Limit, Remaining: op.Remaining,
			RetryAfter: time.Duration(op.RetryAfter), ResetAfter: time.Duration(op.ResetAfter)}
		switch { // redis-cell says -1 for both
		case !op.Limited:
			want.RetryAfter++
		case op.RetryAfter == -1:
			want.RetryAfter = limits.Never
		}
		if err != nil || got != want || got.Allowed() == op.Limited || oracle.Cell(got) != op.Cell {
			return fmt.Errorf("op %d: %d at %d: got %+v %v %v, recorded %+v %v", i, op.N, op.At, got, oracle.Cell(got), err, want, op.Cell)
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

// The token bucket of Spring Cloud Gateway is the same meter.
func replaySpring(line []byte, key string, take taker) error {
	var trace springTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	for i, op := range trace.Ops {
		got, err := take(time.Duration(op.At)*time.Second, key, trace.Capacity-1, trace.RatePerS, time.Second, op.N)
		if err != nil || got.Allowed() != op.Allowed || got.Remaining != op.Remaining {
			return fmt.Errorf("op %d: %d at %d: got %+v %v, recorded %+v", i, op.N, op.At, got, err, op)
		}
	}
	return nil
}

var recordings = []struct {
	name    string
	replay  func([]byte, string, taker) error
	answers []string
}{
	{"cl_throttle.jsonl", replayThrottle, []string{"limited", "limit", "remaining", "retry_after_ns", "reset_after_ns",
		"cell 0", "cell 1", "cell 2", "cell 3", "cell 4", "unheard of"}},
	{"spring_token_bucket.jsonl", replaySpring, []string{"allowed", "remaining", "unheard of"}},
}

// recorded returns the traces of a recording: those of package leaky, unless
// others are asked for.
func recorded(t *testing.T, name string) [][]byte {
	if os.Getenv(oracle.Dir) == "" {
		t.Setenv(oracle.Dir, "../leaky/testdata")
	}
	return oracle.Lines(t, name)
}

// bucketTaker returns buckets, each asked at the rate of the call, on a clock that is set.
func bucketTaker(t *testing.T, b *backend) taker {
	s, clock := b.freeze(t)
	last := time.Duration(-1)
	l := newLeaky(t, s, "oracle", limits.Rate{Count: 1, Per: sec})
	return func(at time.Duration, key string, maxBurst, count int64, per time.Duration, n int64) (limits.Result, error) {
		if at != last {
			clock.set(at)
			last = at
		}
		return l.TakeRate(bg, key, limits.Rate{Burst: maxBurst + 1, Count: count, Per: per}, n)
	}
}

func TestOracles(t *testing.T) {
	built.SkipRaced(t)
	onBackends(t, func(t *testing.T, b *backend) {
		each := 1
		if strings.Contains(t.Name(), "miniredis") && redistest.Have() {
			each = 5 // it is slow, and the real server replays them all
		}
		for _, r := range recordings {
			take := bucketTaker(t, b)
			t.Run(r.name, func(t *testing.T) {
				for i, line := range recorded(t, r.name) {
					if i%each != 0 {
						continue
					}
					if err := r.replay(line, fmt.Sprint(r.name, i), take); err != nil {
						t.Errorf("%s:%d: %v", r.name, i+1, err)
					}
				}
			})
		}
	})
}

// A replay that would accept a wrong answer is worth nothing.
func TestOraclesFindEachCorruptedField(t *testing.T) {
	b := onRedis(t)
	for _, r := range recordings {
		take := bucketTaker(t, b)
		found := map[string]int{}
		traces := 0
		for i, line := range recorded(t, r.name) {
			if i%25 != 0 {
				continue
			}
			traces++
			for _, c := range oracle.Corruptions(t, line, i) {
				if r.replay(c.Line, fmt.Sprint(r.name, i, c.What), take) != nil {
					found[c.What]++
				}
			}
		}
		for _, field := range r.answers {
			if found[field] != traces {
				t.Errorf("%s: falsified %s: found in %d of %d traces", r.name, field, found[field], traces)
			}
		}
	}
}
