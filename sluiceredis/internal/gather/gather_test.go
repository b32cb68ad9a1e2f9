package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// A desk is a server that answers when the test says so, and records which callers came
// together.
type desk struct {
	batches [][]int
	answer  chan error
	undone  []int
}

// numbers returns a Gatherer of numbered callers.
func (d *desk) numbers() *Gatherer[string, *int] {
	c := new(Gatherer[string, *int])
	c.Run = func(ctx context.Context, _ string, requests []*int) error {
		d.batches = append(d.batches, values(requests))
		select {
		case err := <-d.answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.Undo = func(_ string, requests []*int) { d.undone = append(d.undone, values(requests)...) }
	return c
}

func values(requests []*int) (all []int) {
	for _, r := range requests {
		all = append(all, *r)
	}
	return all
}

// Callers that come while a call is under way leave together with the next, in order.
func TestGatherer_Do_GathersWhileACallIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		errs := make([]error, 6)
		call := func(i int, key string) {
			go func() { errs[i] = c.Do(bg, key, &i) }()
			synctest.Wait()
		}
		for i := range 4 {
			call(i, "a")
		}
		call(4, "b") // another key has its own call
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

// A caller that leaves before its call was sent has asked for nothing; what was taken for
// one that leaves later is returned; the others do not notice.
func TestGatherer_Do_GivesBackForCallersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		errs := make([]error, 6)
		var cancel [6]context.CancelFunc
		for i := range 6 {
			var ctx context.Context
			ctx, cancel[i] = context.WithCancel(bg)
			defer cancel[i]()
			go func() { errs[i] = c.Do(ctx, "a", &i) }()
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
		// After an error there is nothing to return.
		for i := range 2 {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			go func() { errs[i] = c.Do(ctx, "a", &i) }()
			synctest.Wait()
			if i == 1 {
				d.answer <- nil
				synctest.Wait()
				cancel()
			}
		}
		d.answer <- errors.New("away")
		synctest.Wait()
		if len(d.undone) != 1 {
			t.Errorf("undone: %v", d.undone)
		}
		// A context that is done is asked before anything.
		ctx, done := context.WithCancel(bg)
		done()
		if err := c.Do(ctx, "a", new(int)); err != context.Canceled || len(c.groups) != 0 {
			t.Errorf("%v, %d groups", err, len(c.groups))
		}
	})
}

// A script is not asked to decide for more than so many.
func TestGatherer_Do_BoundsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		for i := range 2*Most + 2 {
			go func() { _ = c.Do(bg, "a", &i) }()
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
		if !slices.Equal(sizes, []int{1, Most, Most, 1}) {
			t.Errorf("%v", sizes)
		}
	})
}

// If a client panics the others of the key are served.
func TestGatherer_Do_ServesOthersAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		run := c.Run
		c.Run = func(ctx context.Context, key string, requests []*int) error {
			defer func() { c.Run = run }()
			<-d.answer
			panic("client")
		}
		go func() {
			defer func() { _ = recover() }()
			_ = c.Do(bg, "a", new(int))
		}()
		synctest.Wait()
		served := false
		go func() { served = c.Do(bg, "a", new(int)) == nil }()
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

// A request that is made apart is undone if its caller leaves, even if it came alone.
func TestGatherer_Apart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: make(chan error)}
		c := d.numbers()
		c.Apart = func(i *int) bool { return *i < 2 }
		ctx, cancel := context.WithCancel(bg)
		errs := make([]error, 3)
		for i := range errs {
			go func() { errs[i] = c.Do(ctx, fmt.Sprint(i/2), &i) }()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) || !errors.Is(errs[2], context.Canceled) {
			t.Errorf("%v", errs)
		}
		d.answer <- nil
		synctest.Wait()
		if fmt.Sprint(d.batches, d.undone) != "[[0] [2]] [0]" {
			t.Errorf("calls %v, undone %v, want the first undone and the others not made, or ended", d.batches, d.undone)
		}
		i := 0
		go func() { errs[0] = c.Do(bg, "0", &i) }()
		synctest.Wait()
		d.answer <- nil
		synctest.Wait()
		if errs[0] != nil {
			t.Error(errs[0])
		}
	})
}
