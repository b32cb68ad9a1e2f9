package gather

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A guest is a caller that is not patient for ever.
type guest struct {
	ctx   context.Context
	until time.Time

	granted, undone bool
}

// A leaver is a guest that has left.
type leaver struct {
	*guest
	err             error
	left, cancelled time.Time
}

// guests returns a Gatherer of them.
func guests(run func() error) *Gatherer[int, *guest] {
	c := new(Gatherer[int, *guest])
	c.Run = func(_ context.Context, _ int, all []*guest) error {
		err := run()
		for _, g := range all {
			g.granted = err == nil
		}
		return err
	}
	c.Undo = func(_ int, all []*guest) {
		for _, g := range all {
			g.undone = true
		}
	}
	c.Patience = func(g *guest) (context.Context, time.Time) { return g.ctx, g.until }
	return c
}

// A caller that has waited for too long leaves in time, whether its call was sent or not;
// the first waits for its own call, whose context is the affair of Run.
func TestGatherer_Do_Patience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("ended")
		c := guests(func() error { time.Sleep(10 * time.Second); return nil })
		c.Ended = func(err error) error { return fmt.Errorf("%w: %w", ended, err) }
		began := time.Now()
		var all [5]guest
		var errs [5]error
		var left [5]time.Duration
		var wg sync.WaitGroup
		for i, patience := range []time.Duration{1, 30, 5, 15, 12} {
			wg.Go(func() {
				all[i] = guest{ctx: bg, until: began.Add(patience * time.Second)}
				errs[i] = c.Do(bg, 1, &all[i])
				left[i] = time.Since(began)
			})
			synctest.Wait()
		}
		wg.Wait()
		time.Sleep(time.Minute) // what is under way ends
		synctest.Wait()
		want := []struct {
			left        time.Duration
			err         string
			sent, given bool // and returned
		}{
			{10, "<nil>", true, false}, {20, "<nil>", true, false}, {5, "context deadline exceeded", false, false},
			{15, "ended: context deadline exceeded", true, true}, {12, "ended: context deadline exceeded", true, true},
		}
		for i, w := range want {
			if left[i] != w.left*time.Second || fmt.Sprint(errs[i]) != w.err || all[i].granted != w.sent || all[i].undone != w.given {
				t.Errorf("%d: left after %v, %v, %+v, want %+v", i, left[i], errs[i], all[i], w)
			}
		}
		if errs[2] != context.DeadlineExceeded || !errors.Is(errs[3], context.DeadlineExceeded) {
			t.Errorf("%v", errs)
		}
		if c.queue.head != nil || c.queue.tail != nil || !c.queue.at.IsZero() || len(c.groups) != 0 {
			t.Errorf("something is left: %+v, %d groups", c.queue, len(c.groups))
		}
	})
}

// Many callers come, leave, are canceled and are sent away at random: each leaves at
// the first of its ends, and what was taken for one that has left is returned.
func TestGatherer_Do_PatienceOfMany(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 1))
			some := func(ms int64) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.Int64N(ms*1e6)) + 1
			}
			c := guests(func() error { time.Sleep(some(20)); return nil })
			var wg sync.WaitGroup
			ends := map[string]int{}
			var all []leaver
			for range 300 {
				wg.Go(func() {
					time.Sleep(some(400))
					ctx, cancel := bg, func() {}
					var cancelled time.Time
					if some(10) < 3e6 {
						d := some(30)
						cancelled = time.Now().Add(d)
						var stop context.CancelFunc
						ctx, stop = context.WithCancel(bg)
						timer := time.AfterFunc(d, stop)
						cancel = func() { timer.Stop(); stop() }
					}
					defer cancel()
					g := &guest{ctx: ctx, until: time.Now().Add(20*time.Millisecond - some(15))}
					err := c.Do(ctx, int(some(3)/1e6), g)
					mu.Lock()
					defer mu.Unlock()
					all = append(all, leaver{g, err, time.Now(), cancelled})
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // what is under way ends
			synctest.Wait()
			for _, l := range all {
				ends[fmt.Sprint(l.err)]++
				switch {
				case l.err == nil && l.granted && !l.undone:
				case l.err == context.DeadlineExceeded && l.left.Equal(l.until) && l.granted == l.undone:
				case l.err == context.Canceled && l.left.Equal(l.cancelled) && l.granted == l.undone:
				default:
					t.Errorf("%v at %v, until %v, cancelled %v, %+v", l.err, l.left, l.until, l.cancelled, l.guest)
				}
			}
			for _, err := range []error{nil, context.DeadlineExceeded, context.Canceled} {
				if ends[fmt.Sprint(err)] < 3 {
					t.Errorf("%v: nothing is shown", ends)
				}
			}
			if c.queue.head != nil || c.queue.tail != nil || !c.queue.at.IsZero() || len(c.groups) != 0 {
				t.Errorf("something is left: %+v, %d groups", c.queue, len(c.groups))
			}
		})
	}
}
