package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// numbered hands a number to each caller that it admits.
type numbered struct {
	every
	last uint32
}

func (r *numbered) Admit(now, due time.Duration, n int64) time.Duration {
	wait := r.every.Admit(now, due, n)
	if wait == 0 {
		r.last += 10
	}
	return wait
}

func (r *numbered) Receipt() uint32 { return r.last }

// Each caller gets the receipt of its own admission, whoever lets it leave.
func TestQueue_Receipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := &numbered{every: every{interval: 100 * ms}}
		var q Queue
		q.Init(rule, Config{Exact: true})
		acquire := func(r Request) uint32 {
			g, _, err := q.Acquire(bg, r)
			if err != nil || g.Receipt.Up != nil {
				t.Errorf("%+v, %v", g, err)
			}
			return g.Receipt.Own
		}
		if got := acquire(Request{N: 1, Max: Forever}); got != 10 {
			t.Errorf("at once: %d", got)
		}
		got := make([]uint32, 3)
		for i := range got {
			go func() { got[i] = acquire(Request{N: 1, Max: Forever}) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, []uint32{20, 30, 40}) {
			t.Errorf("in the queue: %d", got)
		}
		if g, ok := q.Try(Request{N: 1}); !ok || g.Receipt.Own != 50 {
			t.Errorf("Try: %+v, %v", g, ok)
		}
		ask := func(context.Context, Turn) (Wait, error) { return Wait{Receipt: Receipt{7, []uint32{8}}}, nil }
		if g, ok := q.Try(Request{N: 1, Ask: ask}); !ok || g.Receipt.Own != 7 || !slices.Equal(g.Receipt.Up, []uint32{8}) {
			t.Errorf("Try, asks: %+v, %v", g, ok)
		}
		if g, _, err := q.Acquire(bg, Request{N: 1, Max: Forever, Ask: ask}); err != nil || g.Receipt.Own != 7 || !slices.Equal(g.Receipt.Up, []uint32{8}) {
			t.Errorf("asks: %+v, %v", g, err)
		}
	})
}
