package semaphore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/semaphore"
)

// jucTrace is one recording of a java.util.concurrent.Semaphore, fair.
type jucTrace struct {
	Permits int64
	Ops     []jucOp
}

type jucOp struct {
	Op        string
	ID        *int   // of acquire and cancel
	N         int64  // of acquire, try_acquire, release, grow and shrink
	OK        *bool  // of try_acquire
	Got       *int64 // of drain
	Granted   []int  // callers that this step let through
	Waiting   int
	Available int64
}

// replay returns the first disagreement of the trace with a Weighted. It must
// run in a bubble.
func (tr *jucTrace) replay() error {
	s := semaphore.NewWeighted(tr.Permits)
	limit := tr.Permits
	cancels := make(map[int]context.CancelFunc)
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
		synctest.Wait()
	}()
	var mu sync.Mutex
	var granted []int
	for i, op := range tr.Ops {
		granted = nil
		switch op.Op {
		case "acquire", "cancel":
			if op.ID == nil {
				return fmt.Errorf("op %d: %s without a caller", i, op.Op)
			}
		}
		switch op.Op {
		case "acquire":
			if cancels[*op.ID] != nil {
				return fmt.Errorf("op %d: %d calls a second time", i, *op.ID)
			}
			ctx, cancel := context.WithCancel(bg)
			cancels[*op.ID] = cancel
			go func() {
				if s.Acquire(ctx, op.N) == nil {
					mu.Lock()
					defer mu.Unlock()
					granted = append(granted, *op.ID)
				}
			}()
		case "try_acquire":
			if got := s.TryAcquire(op.N); op.OK == nil || got != *op.OK {
				return fmt.Errorf("op %d: TryAcquire(%d) = %v", i, op.N, got)
			}
		case "release":
			s.Release(op.N)
		case "grow", "shrink":
			if limit += op.N; op.Op == "shrink" {
				limit -= 2 * op.N
			}
			if err := s.SetLimit(limit); err != nil {
				return err
			}
		case "drain":
			if got := s.Drain(); op.Got == nil || got != *op.Got {
				return fmt.Errorf("op %d: Drain() = %d", i, got)
			}
		case "cancel":
			cancel, ok := cancels[*op.ID]
			if !ok {
				return fmt.Errorf("op %d: there is no caller %d to cancel", i, *op.ID)
			}
			cancel()
		default:
			return fmt.Errorf("op %d: unknown %q", i, op.Op)
		}
		synctest.Wait()
		mu.Lock()
		slices.Sort(granted)
		got := slices.Clone(granted)
		mu.Unlock()
		slices.Sort(op.Granted)
		if !slices.Equal(got, op.Granted) || s.Waiting() != op.Waiting || s.Available() != op.Available {
			return fmt.Errorf("op %d %s(%d): granted %v, %d wait, %d available; j.u.c. says %v, %d, %d",
				i, op.Op, op.N, got, s.Waiting(), s.Available(), op.Granted, op.Waiting, op.Available)
		}
	}
	return nil
}

// replayLine decodes and replays a trace. A panic is a disagreement as well.
func replayLine(t *testing.T, line []byte) (ops int, err error) {
	t.Helper()
	var tr jucTrace
	if err := oracle.Decode(line, &tr); err != nil {
		return 0, err
	}
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		err = tr.replay()
	})
	return len(tr.Ops), err
}

// TestOracle_JUC replays what java.util.concurrent.Semaphore answered.
func TestOracle_JUC(t *testing.T) {
	total := 0
	for i, line := range oracle.Lines(t, "juc_semaphore.jsonl") {
		ops, err := replayLine(t, line)
		if err != nil {
			t.Errorf("trace %d: %v", i+1, err)
		}
		total += ops
	}
	t.Logf("%d operations", total)
}

// The replay must be able to fail. A wrong n or id of a caller that is never let
// through may go unnoticed; a wrong answer may not.
func TestOracle_JUC_NoticesCorruptedLines(t *testing.T) {
	made, noticed := map[string]int{}, map[string]int{}
	for _, line := range oracle.Lines(t, "juc_semaphore.jsonl")[:20] {
		for op := range 10 {
			for _, c := range oracle.Corruptions(t, line, op) {
				what, _, _ := strings.Cut(c.What, " ")
				made[what]++
				if _, err := replayLine(t, c.Line); err != nil {
					noticed[what]++
				}
			}
		}
	}
	for what, n := range made {
		least := n
		if what == "n" || what == "id" {
			least = n / 2
		}
		if noticed[what] < least {
			t.Errorf("%s: %d of %d corrupted lines were noticed", what, noticed[what], n)
		}
	}
	for _, what := range []string{"op", "n", "ok", "granted", "waiting", "available", "unheard"} {
		if made[what] == 0 {
			t.Errorf("no %s was corrupted", what)
		}
	}
}
