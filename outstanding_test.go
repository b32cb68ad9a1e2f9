package sluice

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// Each call is taken once, by the instant at which it left, in whatever order they end.
func TestOutstanding(t *testing.T) {
	var o outstanding
	var rule = adaptive.New(adaptive.Config{})
	random := rand.New(rand.NewPCG(1, 2))
	live := map[time.Duration]int{}
	now := time.Duration(0)
	var order []time.Duration
	for range 100_000 {
		if len(order) < 50 || random.IntN(2) == 0 && len(order) < 500 {
			now += time.Duration(random.IntN(3))
			o.add(now, 1, 1, rule.Leave(now, 1, 0))
			live[now]++
			order = append(order, now)
			continue
		}
		i := random.IntN(len(order))
		if random.IntN(10) == 0 {
			i = 0
		}
		at := order[i]
		order[i] = order[len(order)-1]
		order = order[:len(order)-1]
		if _, _, ok := o.take(at, 1); !ok {
			t.Fatalf("the call that left at %d is not there", at)
		}
		live[at]--
	}
	if n := len(o.calls) - o.ended; n != len(order) {
		t.Errorf("%d calls, want %d", n, len(order))
	}
	if len(o.calls) > 4*500 {
		t.Errorf("%d are kept for %d", len(o.calls), len(order))
	}
	for _, at := range order {
		if _, _, ok := o.take(at, 1); !ok {
			t.Fatalf("the call that left at %d is not there", at)
		}
	}
	if _, _, ok := o.take(now, 1); ok || len(o.calls) != 0 {
		t.Errorf("one too many, or %d are kept", len(o.calls))
	}
	if _, _, ok := o.take(-1, 1); ok {
		t.Error("a call from before the first")
	}
}

// Of calls that left at one instant, one of the same cost is taken.
func TestOutstanding_Cost(t *testing.T) {
	var o outstanding
	rule := adaptive.New(adaptive.Config{})
	calls := make([]adaptive.Call, 6)
	for n := range calls {
		calls[n] = rule.Leave(time.Duration(n/3), float64(n), 0)
		o.add(time.Duration(n/3), int64(n), float64(n), calls[n])
	}
	for _, c := range []struct {
		since time.Duration
		n     int64
		want  int
	}{{1, 4, 4}, {1, 4, 5}, {7, 0, 3}, {1, 0, 2}, {0, 0, 0}, {0, 0, 1}} {
		if got, _, ok := o.take(c.since, c.n); !ok || got != calls[c.want] {
			t.Errorf("%d at %d: got %+v, want that of %d", c.n, c.since, got, c.want)
		}
	}
}
