package batch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/leaky"
)

// A batch that is resumed knows the rate that it had found, also after kill -9.
func TestLog_KeepsWhatTheGateHasLearned(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, err := leaky.New(sluice.Rate{Count: 20, Per: time.Second, Burst: 5})
			if err != nil {
				t.Fatal(err)
			}
			var refused atomic.Int64
			call := func(context.Context, int) error {
				r := server.Take(1)
				time.Sleep(50 * time.Millisecond)
				if r.Allowed() {
					return nil
				}
				refused.Add(1)
				return sluice.ThrottledFor(errors.New("429"), 0)
			}
			name := filepath.Join(t.TempDir(), "log")
			run := func(from, to int, stop bool) *sluice.Gate {
				gate, err := sluice.New(sluice.Config{Name: "api", Concurrency: 16})
				if err != nil {
					t.Fatal(err)
				}
				mode := batch.Resume
				log, err := batch.OpenLog(name, batch.LogConfig{Mode: mode})
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				var items []int
				for i := from; i < to; i++ {
					items = append(items, i)
				}
				n := 0
				for _, err := range batch.Map(t.Context(), gate, slices.Values(items), func(ctx context.Context, i int) (int, error) {
					return i, call(ctx, i)
				}, batch.Config[int]{Log: log, Key: strconv.Itoa}) {
					if err != nil {
						t.Fatal(err)
					}
					if n++; stop && n == 300 {
						break
					}
				}
				return gate
			}
			first := run(0, 400, killed).Stats().Learned
			before := refused.Load()
			then := run(400, 800, false).Stats().Learned
			if n := refused.Load() - before; first == nil || then == nil || n > 15 {
				t.Errorf("killed: %v: %d refused; %v, then %v", killed, n, first, then)
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), `{"learned":{"version":1,`); n < 2 || n > 6 {
				t.Errorf("%d lines", n)
			}
		})
	}
}

// What the log has of another gate, or of this one but damaged, is not believed.
func TestLog_LearnedByAnotherGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "log")
		log, err := batch.OpenLog(name, batch.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		head, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(head) + `{"learned":{"version":1,"crc32":1,"adaptive":{}},"gate":"other"}` + "\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		nothing := func(context.Context, int) error { return nil }
		for gate, fails := range map[string]bool{"api": false, "other": true} {
			g, err := sluice.New(sluice.Config{Name: gate})
			if err != nil {
				t.Fatal(err)
			}
			log, err := batch.OpenLog(name, batch.LogConfig{Mode: batch.Resume})
			if err != nil {
				t.Fatal(err)
			}
			err = batch.ForEach(t.Context(), g, slices.Values([]int{1}), nothing, batch.Config[int]{Log: log, Key: strconv.Itoa})
			if (err != nil) != fails || g.Stats().Learned != nil {
				t.Errorf("%s: %v, %v", gate, err, g.Stats().Learned)
			}
			log.Close()
		}
	})
}
