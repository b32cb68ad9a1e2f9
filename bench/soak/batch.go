package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/limits"
)

// items is the size of one batch.
const items = 200

// soakBatch stops batches at random and resumes them until each is done. Then each item has one result.
func soakBatch(s *soak, t *tally) {
	r, batches, resumed := s.dice(500), 0, 0
	for !s.over() {
		name := filepath.Join(s.dir, "batch-"+strconv.Itoa(batches))
		batches++
		ok, ended := map[string]int{}, map[string]bool{}
		for len(ended) < items && !s.over() {
			if err := runBatch(s, t, name, r, ok, ended); err != nil {
				t.breaks("%v", err)
			}
			resumed++
		}
		for key, n := range ok {
			if n > 1 {
				t.breaks("item %s was ok %d times", key, n)
			}
		}
		_ = os.Remove(name)
	}
	t.note("%d batches in %d runs", batches, resumed)
}

// runBatch runs a batch until it ends or is stopped.
func runBatch(s *soak, t *tally, name string, r *rand.Rand, ok map[string]int, ended map[string]bool) error {
	gate := limits.Must(sluice.New(sluice.Config{Name: "batch", Concurrency: 5, Rate: sluice.Rate{Count: 1, Per: s.scale(10 * time.Millisecond)}}))
	defer gate.Close()
	l, err := batch.OpenLog(name, batch.LogConfig{Mode: batch.Resume})
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r.IntN(3) > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.scale(time.Duration(r.Int64N(int64(4*time.Second)))))
		defer cancel()
	}
	var in []string
	for i := range items {
		in = append(in, strconv.Itoa(i))
	}
	var mu sync.Mutex
	dice := s.dice(r.Uint64())
	var out atomic.Int64
	for result, err := range batch.Map(ctx, gate, slices.Values(in), func(ctx context.Context, _ string) (int, error) {
		t.started()
		if now := out.Add(1); now > 5 {
			t.breaks("%d items in flight", now)
		}
		defer out.Add(-1)
		mu.Lock()
		what := dice.IntN(100)
		mu.Unlock()
		s.sleep(s.scale(5 * time.Millisecond))
		switch {
		case what < 2:
			return 0, errors.New("failed")
		case what < 3:
			return 0, sluice.Permanent(errors.New("never"))
		}
		return 1, nil
	}, batch.Config[string]{Log: l}) {
		switch {
		case err != nil: // why it was stopped
		case errors.Is(result.Err, batch.ErrUnfinished):
		case result.Err == nil:
			ok[result.In]++
			fallthrough
		default:
			ended[result.In] = true
			t.ended(result.Err)
		}
	}
	return nil
}
