package leaky

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// insist returns what Take would have returned.
func TestBucket_Insist_IsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 5})), limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 5}))
		r := rand.New(rand.NewPCG(1, 2))
		refused := 0
		for range 500 {
			time.Sleep(time.Duration(r.Int64N(int64(3 * sec))))
			n := 1 + r.Int64N(6)
			got, want := a.insist(n), b.Take(n)
			if got != want {
				t.Fatalf("%d: %+v, Take says %+v", n, got, want)
			}
			if !got.Allowed() {
				refused++
			}
		}
		if refused < 100 || refused > 400 {
			t.Errorf("%d of 500 were refused", refused)
		}
	})
}

// While some calls insist, others take, give back and change the rate, and nothing is
// lost: neither what they took nor the rate.
func TestBucket_Insist_LosesNothing(t *testing.T) {
	b := limits.Must(New(limits.Rate{Count: 1, Per: 24 * time.Hour, Burst: 20}))
	var held, most atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			take := b.Take
			if i%2 == 0 {
				take = b.insist
			}
			for k := range 20_000 {
				if i == 7 && k%100 == 0 {
					if err := b.SetRate(limits.Rate{Count: 1 + int64(k/100%2), Per: 24 * time.Hour * time.Duration(1+k/100%2), Burst: 20}); err != nil {
						t.Error(err)
					}
				}
				if !take(5).Allowed() {
					continue
				}
				for h, m := held.Add(5), int64(0); h > m; {
					if m = most.Load(); most.CompareAndSwap(m, h) {
						break
					}
				}
				held.Add(-5)
				b.Adjust(context.Background(), -5, 0)
			}
		})
	}
	callers.Wait()
	if n := most.Load(); n > 20 || n < 5 {
		t.Errorf("%d of 20 were held at once", n)
	}
	if got := b.Take(0); got.Remaining != 20 || got.ResetAfter != 0 {
		t.Errorf("afterwards %+v", got)
	}
	if got := b.Rate().Per; got != 48*time.Hour {
		t.Errorf("the rate is per %v", got)
	}
}

// A call that is held up between its clock and the bucket is not refused by the
// clock that it has read.
func TestBucket_Take_OldClockRefusesNoCall(t *testing.T) {
	b := limits.Must(New(limits.Rate{Count: 1, Per: 2 * time.Millisecond, Burst: 1}))
	b.setting.Lock() // the state is closed, and calls must wait
	s := b.state.Load()
	s.tat.Store(closed)
	began, res := make(chan bool), make(chan limits.Result)
	go func() {
		began <- true
		res <- b.Take(1)
	}()
	<-began
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
		runtime.Gosched() // it has read its clock by now, or nothing is shown
	}
	s.tat.Store(int64(time.Since(b.epoch))) // empty from now on
	b.setting.Unlock()
	if r := <-res; !r.Allowed() {
		t.Errorf("%+v", r)
	}
}

// What the last call got makes no difference to the next.
func TestBucket_FullIsOnlyAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 3})), limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 3}))
		r := rand.New(rand.NewPCG(3, 4))
		for range 1000 {
			time.Sleep(time.Duration(r.Int64N(int64(2 * sec))))
			n := 1 + r.Int64N(4)
			a.full.Store(r.IntN(2) == 0)
			b.full.Store(r.IntN(2) == 0)
			if got, want := a.Take(n), b.Take(n); got != want || a.full.Load() == got.Allowed() {
				t.Fatalf("%+v and %+v, and then it is full: %v", got, want, a.full.Load())
			}
		}
	})
}
