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

// A desk is a server that answers when it is told, and remembers who came
// together.
type desk struct {
	batches [][]int
	answer  chan error
	undone  []int
}

// numbers returns a commit of callers who say who they are.
func (d *desk) numbers() *commit[string, *int] {
	c := new(commit[string, *int])
	c.init(nil, func(_ *Store, ctx context.Context, _ string, requests []*int) error {
		d.batches = append(d.batches, values(requests))
		select {
		case err := <-d.answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func(_ *Store, _ string, requests []*int) { d.undone = append(d.undone, values(requests)...) })
	return c
}

func values(requests []*int) (all []int) {
	for _, r := range requests {
		all = append(all, *r)
	}
	return all
}

// Those who come while a call is on its way leave together with the next, in
// order.
func TestCallersGatherWhileACallIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		errs := make([]error, 6)
		call := func(i int, key string) {
			go func() { errs[i] = c.do(bg, key, &i) }()
			synctest.Wait()
		}
		for i := range 4 {
			call(i, "a")
		}
		call(4, "b") // another key has a call of its own
		if got := fmt.Sprint(d.batches); got != "[[0] [4]]" {
			t.Fatalf("on their way: %v", got)
		}
		d.answer <- nil
		d.answer <- nil
		synctest.Wait()
		if got := fmt.Sprint(d.batches); got != "[[0] [4] [1 2 3]]" {
			t.Fatalf("on their way: %v", got)
		}
		call(5, "a")
		away := errors.New("away")
		d.answer <- away
		synctest.Wait()
		d.answer <- nil
		synctest.Wait()
		if got := fmt.Sprint(d.batches); got != "[[0] [4] [1 2 3] [5]]" {
			t.Errorf("on their way: %v", got)
		}
		if want := []error{nil, away, away, away, nil, nil}; !slices.Equal(errs, want) {
			t.Errorf("%v", errs)
		}
		if len(c.groups) != 0 {
			t.Errorf("%d groups are kept", len(c.groups))
		}
	})
}

// Who gives up before the call was sent has asked for nothing; what was taken for
// who gives up later is given back; the others do not notice.
func TestCallersThatGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		errs := make([]error, 6)
		var cancel [6]context.CancelFunc
		for i := range 6 {
			var ctx context.Context
			ctx, cancel[i] = context.WithCancel(bg)
			defer cancel[i]()
			go func() { errs[i] = c.do(ctx, "a", &i) }()
			synctest.Wait()
		}
		cancel[1]()
		cancel[5]()
		synctest.Wait()
		d.answer <- nil
		synctest.Wait()
		cancel[3]()
		synctest.Wait()
		if errs[3] != context.Canceled || errs[1] != context.Canceled || errs[5] != context.Canceled {
			t.Errorf("%v", errs)
		}
		d.answer <- nil
		synctest.Wait()
		if got := fmt.Sprint(d.batches, d.undone); got != "[[0] [2 3 4]] [3]" {
			t.Errorf("%v", got)
		}
		if errs[2] != nil || errs[4] != nil || len(c.groups) != 0 {
			t.Errorf("%v, %d groups", errs, len(c.groups))
		}
		// After an error there is nothing to give back.
		for i := range 2 {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			go func() { errs[i] = c.do(ctx, "a", &i) }()
			synctest.Wait()
			if i == 1 {
				d.answer <- nil
				synctest.Wait()
				cancel()
			}
		}
		d.answer <- errAway
		synctest.Wait()
		if len(d.undone) != 1 {
			t.Errorf("undone: %v", d.undone)
		}
		// A context that is done is asked before anything.
		ctx, done := context.WithCancel(bg)
		done()
		if err := c.do(ctx, "a", new(int)); err != context.Canceled || len(c.groups) != 0 {
			t.Errorf("%v, %d groups", err, len(c.groups))
		}
	})
}

// A script is not asked to decide for more than so many.
func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		for i := range 2*most + 2 {
			go func() { _ = c.do(bg, "a", &i) }()
		}
		synctest.Wait()
		for range 4 {
			d.answer <- nil
			synctest.Wait()
		}
		var sizes []int
		for _, b := range d.batches {
			sizes = append(sizes, len(b))
		}
		if !slices.Equal(sizes, []int{1, most, most, 1}) {
			t.Errorf("%v", sizes)
		}
	})
}

// If a client panics the others of the key are served.
func TestClientThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		run := c.run
		c.run = func(s *Store, ctx context.Context, key string, requests []*int) error {
			defer func() { c.run = run }()
			<-d.answer
			panic("client")
		}
		go func() {
			defer func() { _ = recover() }()
			_ = c.do(bg, "a", new(int))
		}()
		synctest.Wait()
		served := false
		go func() { served = c.do(bg, "a", new(int)) == nil }()
		synctest.Wait()
		d.answer <- nil
		synctest.Wait()
		d.answer <- nil
		synctest.Wait()
		if !served || len(c.groups) != 0 {
			t.Errorf("served: %v, %d groups", served, len(c.groups))
		}
	})
}

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
// the capacity is granted, in few calls.
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
		if got := s.Stats(); got.Decisions != 401 || got.Calls > 200 {
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

// What was taken for a caller who gave up meanwhile is given back.
func TestGoneCallersGiveBack(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		d := door{b.client, make(chan struct{}), make(chan struct{})}
		s := b.storeOn(t, d)
		l := newLeaky(t, s, "gone", limits.Rate{Burst: 1000, Count: 1, Per: time.Hour})
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
		for waiting := 0; waiting < 20; runtime.Gosched() {
			s.takes.mu.Lock()
			for _, g := range s.takes.groups {
				waiting = len(g.waiting)
			}
			s.takes.mu.Unlock()
		}
		d.pass <- struct{}{}
		<-d.came // the 20 are on their way
		cancel()
		gone.Wait()
		d.pass <- struct{}{}
		for range 20 { // each is given back
			<-d.came
			d.pass <- struct{}{}
		}
		wg.Wait()
		l = newLeaky(t, b.store(t), "gone", *l.rate.Load())
		for end := time.Now().Add(10 * time.Second); s.Stats().Refunded < 200 && time.Now().Before(end); {
			runtime.Gosched() // the last one is given back at about this time
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
	return r.RunMany(ctx, []Call{{Keys: keys}})[0].Ints, nil
}

func (r *road) RunMany(_ context.Context, calls []Call) []Reply {
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
		if got := s.Stats(); got.Calls != 6 || got.Ambiguous != 1 || got.Failed != 2 {
			t.Errorf("%+v", got)
		}
	})
}
