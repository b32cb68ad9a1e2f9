package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rules returns one rule of each kind: 3 units, of which none counts for more than 3 s.
func rules(t *testing.T) []kinds.Rule {
	bucket, err := kinds.NewBucket(limits.Rate{Count: 1, Per: time.Second, Burst: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []kinds.Rule{
		bucket, kinds.NewSliding(3, time.Second), kinds.NewFixed(3, time.Second, false, 0),
		kinds.NewPace(time.Second, 2*time.Second, time.Minute),
	}
}

// take takes n from a key, and returns what remains.
func take(m *Memory, key string, rule kinds.Rule, n int64) (ok bool, remaining int64) {
	h := m.Open(key, rule)
	if ok = h.Wait(n) == 0; ok && n > 0 {
		h.Take(n)
	}
	remaining, _, _ = h.Holds()
	h.Close(n > 0)
	return ok, remaining
}

// What a key held and does not hold any more is used for other keys. Nothing of it may
// be seen there, whatever the kind.
func TestMemory_Open_ReusesWhatIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		key := func(round, i int) string { return fmt.Sprint(round, "/", i) }
		for round := range 4 {
			for i := range 2000 {
				for _, rule := range rules(t) {
					for n := int64(3); n >= 0; n-- {
						ok, remaining := take(m, key(round, i)+rule.Kind().String(), rule, min(n, 1))
						if want := max(0, n-1); !ok || remaining != want {
							t.Fatalf("round %d, %v: allowed: %v, %d remain, want %d", round, rule.Kind(), ok, remaining, want)
						}
					}
				}
			}
			time.Sleep(time.Minute)
		}
		for range 10_000 { // each looks at some of the others, too
			take(m, "none", rules(t)[0], 0)
		}
		// A pacer that may catch up for longer would find the slots of others.
		for i := range 2000 {
			if _, remaining := take(m, key(9, i), kinds.NewPace(time.Second, time.Hour, time.Minute), 0); remaining != 3601 {
				t.Fatalf("%d slots can be caught up, want 3601", remaining)
			}
		}
		spare := 0
		for i := range m.shards {
			spare += len(m.shards[i].spare)
		}
		if got := m.Keys(); got > 0 || spare < mostSpare {
			t.Errorf("%d keys are kept, %d spare", got, spare)
		}
	})
}

// A call that only looks leaves no key behind.
func TestMemory_Open_KeepsNothingOfALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		for _, rule := range rules(t) {
			if ok, remaining := take(m, "k", rule, 0); !ok || remaining != 3 || m.Keys() != 0 {
				t.Errorf("%v: %v, %d remain, %d keys", rule.Kind(), ok, remaining, m.Keys())
			}
		}
	})
}

// Units are reported once, and not when they no longer apply.
func TestMemory_Unreported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		m.Note("k", 3, time.Second)
		time.Sleep(500 * time.Millisecond)
		m.Note("k", 2, time.Second)
		if off, own := m.Unnote("k", 1, 0); off != 1 || !own {
			t.Errorf("%d, %v", off, own)
		}
		if got, again := m.Unreported("k"), m.Unreported("k"); got != 4 || again != 0 {
			t.Errorf("%d, then %d", got, again)
		}
		m.Note("k", 7, time.Second)
		time.Sleep(time.Second)
		if off, own := m.Unnote("k", 1, 0); off != 0 || own || m.Unreported("k") != 0 {
			t.Errorf("%d, %v", off, own)
		}
		m.Note("k", 1, time.Second)
		if got := m.Unreported("k"); got != 1 {
			t.Errorf("%d: what does not count any more was added", got)
		}
	})
}
