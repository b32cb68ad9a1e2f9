package bell

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBell_Ring(t *testing.T) {
	var b Bell
	b.Ring() // without a Wait
	var got []int
	note := func(i int) func() { return func() { got = append(got, i) } }
	stop1, stop2 := b.Wait(note(1)), b.Wait(note(2))
	b.Ring()
	stop1()
	b.Ring()
	stop1() // again: nothing
	stop2()
	b.Ring()
	if want := []int{1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
}

func TestKeyed_Ring(t *testing.T) {
	var k Keyed[string]
	k.Ring("a")
	k.RingAll()
	n := map[string]int{}
	var stops []func()
	for _, key := range []string{"a", "a", "b"} {
		stops = append(stops, k.Wait(key, func() { n[key]++ }))
	}
	k.Ring("a")
	k.Ring("none")
	k.RingAll()
	if n["a"] != 4 || n["b"] != 1 {
		t.Errorf("called %v", n)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	k.RingAll()
	if n["a"] != 4 || n["b"] != 1 || len(k.bells) != 0 {
		t.Errorf("called %v after all had stopped; %d bells are kept", n, len(k.bells))
	}
}

// A key that does not equal itself could never be discarded.
func TestKeyed_NaNIsNotKept(t *testing.T) {
	var k Keyed[float64]
	k.Wait(math.NaN(), func() { t.Error("called") })()
	k.RingAll()
	if len(k.bells) != 0 {
		t.Errorf("%d bells are kept", len(k.bells))
	}
}

func TestLoud(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		ctx   context.Context
		delta int64
		want  bool
	}{{ctx, -1, true}, {ctx, 0, false}, {ctx, 1, false}, {Quietly(ctx), -1, false}, {context.WithoutCancel(Quietly(ctx)), -1, false}} {
		if got := Loud(c.ctx, c.delta); got != c.want {
			t.Errorf("delta %d: %v", c.delta, got)
		}
	}
}

// What is changed before Ring is either seen after Wait or rings, and after stop
// nothing is.
func TestStress_NoChangeIsMissed(t *testing.T) {
	var b Bell
	var k Keyed[int]
	var value atomic.Int64
	const changes = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range changes {
			value.Add(1)
			b.Ring()
			k.Ring(1)
		}
	})
	for _, wait := range []func(f func()) func(){b.Wait, b.Wait, func(f func()) func() { return k.Wait(1, f) }} {
		wg.Go(func() {
			for seen := int64(0); seen < changes; {
				reported := make(chan struct{}, 1)
				over := false // only written and read under the bell's lock, or after stop
				stop := wait(func() {
					if over {
						t.Error("called after stop")
					}
					select {
					case reported <- struct{}{}:
					default:
					}
				})
				if now := value.Load(); now > seen {
					seen = now
				} else {
					<-reported
				}
				stop()
				over = true
			}
		})
	}
	wg.Wait()
}
