package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// slow is a client whose calls take a moment, so that callers gather.
type slow struct {
	Client
	pause time.Duration
}

func (s slow) Run(ctx context.Context, script *Script, keys, args []string) ([]int64, error) {
	time.Sleep(s.pause)
	return s.Client.Run(ctx, script, keys, args)
}

// Many callers of one bucket are decided as if each had come alone: no more than
// the capacity is admitted, in few calls.
func TestManyCallersOfOneBucket(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.storeOn(t, slow{b.client, 2 * time.Millisecond})
		l := newLeaky(t, s, "many", limits.Rate{Burst: 1000, Count: 1, Per: time.Hour})
		var mu sync.Mutex
		var granted int64
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				var got int64
				n := 1 + int64(i%4*3)
				res, err := l.Take(bg, "k", n)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed() {
					got = n
				}
				mu.Lock()
				granted += got
				mu.Unlock()
			})
		}
		wg.Wait()
		res, err := l.Take(bg, "k", 0)
		if err != nil || granted+res.Remaining != 1000 || res.Remaining > 2 {
			t.Errorf("%d granted, %d remain, %v", granted, res.Remaining, err)
		}
		if got := s.Stats(); got.Decisions != 401 || got.Scripts > 200 {
			t.Errorf("%+v", got)
		}
	})
}

// A door is a client whose calls happen when they are let through.
type door struct {
	Client
	came, pass chan struct{}
}

func (d door) Run(ctx context.Context, script *Script, keys, args []string) ([]int64, error) {
	d.came <- struct{}{}
	<-d.pass
	return d.Client.Run(ctx, script, keys, args)
}

// What was taken for a caller who gave up meanwhile is returned.
func TestGoneCallersGiveBack(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		d := door{b.client, make(chan struct{}), make(chan struct{})}
		s := b.storeOn(t, d)
		rate := limits.Rate{Burst: 1000, Count: 1, Per: time.Hour}
		l := newLeaky(t, s, "gone", rate)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = l.Take(bg, "k", 1) })
		<-d.came
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var gone sync.WaitGroup
		for range 20 {
			gone.Go(func() {
				if _, err := l.Take(ctx, "k", 10); err != context.Canceled {
					t.Error(err)
				}
			})
		}
		for s.takes.Waiting(l.at("k").sign()) < 20 {
			runtime.Gosched()
		}
		d.pass <- struct{}{}
		<-d.came // the 20 are on their way
		cancel()
		gone.Wait()
		d.pass <- struct{}{}
		for range 20 { // each is returned
			<-d.came
			d.pass <- struct{}{}
		}
		wg.Wait()
		l = newLeaky(t, b.store(t), "gone", rate)
		for end := time.Now().Add(10 * time.Second); s.Stats().Refunded < 200 && time.Now().Before(end); {
			runtime.Gosched() // the last one is returned at about this time
		}
		if res, err := l.Take(bg, "k", 0); err != nil || res.Remaining != 999 || s.Stats().Refunded != 200 {
			t.Errorf("%+v, %v, %+v", res, err, s.Stats())
		}
	})
}

// A road is a client for which it pays to send calls together.
type road struct {
	sent   [][]string
	answer chan struct{}
}

func (r *road) Pipelines() int      { return 1 }
func (r *road) Sharded() bool       { return false }
func (r *road) Place(string) string { return "" }

func (r *road) Run(ctx context.Context, _ *Script, keys, _ []string) ([]int64, error) {
	return r.RunMany(ctx, []ScriptCall{{Keys: keys}})[0].Ints, nil
}

func (r *road) RunMany(_ context.Context, calls []ScriptCall) []Reply {
	var keys []string
	for _, c := range calls {
		keys = append(keys, c.Keys[0])
	}
	r.sent = append(r.sent, keys)
	<-r.answer
	replies := make([]Reply, len(calls))
	for i, key := range keys {
		if replies[i].Ints = []int64{int64(key[0])}; key == "e" {
			replies[i] = Reply{Err: errAway}
		}
	}
	return replies
}

// Calls for different keys that come while one is on its way go out together, and
// each gets its own reply. Of one whose caller did not wait for it the outcome is
// unknown, unless it was never sent.
func TestCallsForDifferentKeysShareAWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &road{answer: make(chan struct{})}
		s, err := New(r, Config{})
		if err != nil {
			t.Fatal(err)
		}
		keys := "abcdef"
		replies, errs := make([]int64, len(keys)), make([]error, len(keys))
		var cancel [6]context.CancelFunc
		for i := range keys {
			var ctx context.Context
			ctx, cancel[i] = context.WithCancel(bg)
			defer cancel[i]()
			go func() {
				var reply []int64
				if reply, errs[i] = s.run(ctx, count, []string{keys[i : i+1]}, nil); len(reply) > 0 {
					replies[i] = reply[0]
				}
			}()
			synctest.Wait()
		}
		cancel[1]()
		synctest.Wait()
		r.answer <- struct{}{}
		synctest.Wait()
		cancel[5]()
		synctest.Wait()
		r.answer <- struct{}{}
		synctest.Wait()
		if got := fmt.Sprint(r.sent); got != "[[a] [c d e f]]" {
			t.Errorf("sent: %v", got)
		}
		if !slices.Equal(replies, []int64{'a', 0, 'c', 'd', 0, 0}) {
			t.Errorf("replies: %v", replies)
		}
		if errs[1] != context.Canceled || !errors.Is(errs[4], errAway) || !errors.Is(errs[5], ErrAmbiguous) || !errors.Is(errs[5], context.Canceled) ||
			errs[0] != nil || errs[2] != nil || errs[3] != nil {
			t.Errorf("errors: %v", errs)
		}
		if got := s.Stats(); got.Scripts != 6 || got.Ambiguous != 1 || got.Failed != 2 {
			t.Errorf("%+v", got)
		}
	})
}
