package sluiceredis

import (
	"context"
	"testing"
	"testing/synctest"
)

// A timed is a client that notes which calls have a deadline.
type timed struct {
	line
	deadline []bool
	answer   chan struct{}
}

func (w *timed) Pipelines() int      { return 1 }
func (w *timed) Sharded() bool       { return false }
func (w *timed) Place(string) string { return "" }

func (w *timed) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	_, ok := ctx.Deadline()
	w.deadline = append(w.deadline, ok)
	<-w.answer
	return []int64{0}, nil
}

// A call that gathered on a way, and goes out alone, has a deadline, as those have
// that go out together.
func TestLoneCallOnAWayHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &timed{answer: make(chan struct{})}
		s, err := New(w, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			go func() { _, _ = s.run(bg, count, []string{string(rune('a' + i))}, nil) }()
			synctest.Wait()
		}
		for range 2 {
			w.answer <- struct{}{}
			synctest.Wait()
		}
		for i, ok := range w.deadline {
			if !ok {
				t.Errorf("call %d has no deadline", i)
			}
		}
	})
}
