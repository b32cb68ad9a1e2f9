package batch

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice"
)

// BenchmarkForEach is what an item costs next to the call, which does nothing.
func BenchmarkForEach(b *testing.B) {
	for _, withLog := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "log"}[withLog], func(b *testing.B) {
			b.ReportAllocs()
			cfg := Config[int]{Key: strconv.Itoa}
			if withLog {
				cfg.Log = openLog(b, filepath.Join(b.TempDir(), "run.jsonl"), LogConfig{})
			}
			gate := newGate(b, sluice.Config{Concurrency: 32})
			if err := ForEach(b.Context(), gate, count(b.N), func(context.Context, int) error { return nil }, cfg); err != nil {
				b.Fatal(err)
			}
		})
	}
}
