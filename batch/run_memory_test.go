package batch

import (
	"context"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice"
)

// hasty reports whether a test that takes long should do with less: with -short,
// and under the race detector, which is slower by ten times.
func hasty() bool {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				return true
			}
		}
	}
	return testing.Short()
}

// heapInUse returns the number of bytes in use after a garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A million items take no more memory than a thousand: looked at in the middle
// of the batch, when as many are out as can be.
func TestMap_MemoryIsFlat(t *testing.T) {
	n, most := 1_000_000, uint64(1<<20)
	if hasty() {
		n = 50_000
	}
	for _, withLog := range []bool{false, true} {
		cfg := Config[int]{Ordered: true, Key: strconv.Itoa}
		if withLog {
			n /= 5 // lines take time to write
			cfg.Log = openLog(t, filepath.Join(t.TempDir(), "run.jsonl"), LogConfig{})
		}
		gate := newGate(t, sluice.Config{Concurrency: 32})
		var early, late uint64
		for r, err := range Map(t.Context(), gate, count(n), func(context.Context, int) (int, error) { return 0, nil }, cfg) {
			if err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			switch r.In {
			case 1000:
				early = heapInUse()
			case n - 1000:
				late = heapInUse()
			}
		}
		if late > early+most {
			t.Errorf("log %v: the heap grew from %d to %d bytes in %d items", withLog, early, late, n)
		}
		t.Logf("log %v: from %d to %d bytes", withLog, early, late)
	}
}

// What a resumed log holds for each key, whatever its length.
func TestLog_MemoryOfKeys(t *testing.T) {
	const n = 200_000
	keys := make(map[digest]known)
	before := heapInUse()
	for i := range n {
		keys[digestOf(strconv.Itoa(i))] = known{}
	}
	if each := float64(heapInUse()-before) / n; each > 100 {
		t.Errorf("%.0f bytes for each key", each)
	} else {
		t.Logf("%.0f bytes for each key", each)
	}
	runtime.KeepAlive(keys)
}
