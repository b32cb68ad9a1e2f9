package semaphore

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestStock_AgainRetriesUntilNotLost(t *testing.T) {
	for _, end := range []verdict{done, refused, closed} {
		asked := 0
		v := again(func(n int64) verdict {
			if asked++; n != 7 {
				t.Errorf("asked for %d", n)
			}
			if asked < 20 {
				return lost
			}
			return end
		}, 7)
		if v != end || asked != 20 {
			t.Errorf("%v after %d, want %v", v, asked, end)
		}
	}
}

// While there is room for all, no call is rejected because another came at the same
// time.
func TestStock_LosingRefusesNoCall(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // more than there are processors, so that they are delayed
	s := NewWeighted(1000)
	var refused atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for range 50_000 {
				if !s.TryAcquire(1) {
					refused.Add(1)
					continue
				}
				s.Release(1)
			}
		})
	}
	workers.Wait()
	if n := refused.Load(); n > 0 || s.InFlight() != 0 {
		t.Errorf("%d were refused, %d are in flight", n, s.InFlight())
	}
}

// Objects of 320 bytes begin at a line of the cache, those of a little more do not.
func TestWeighted_FillsCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("its layout is for 64 bits")
	}
	if size := unsafe.Sizeof(Weighted{}); size != 320 {
		t.Errorf("it takes %d bytes", size)
	}
}
