package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// A diary is an observer that writes events down in words.
type diary struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) Observe(e sluice.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprint(time.Since(d.began), " ", e.Gate, " ", e.Kind)
	if e.N != 0 {
		line += fmt.Sprint(" n=", e.N)
	}
	if e.Wait != 0 {
		line += fmt.Sprint(" wait=", e.Wait)
	}
	if e.LimitedBy != "" {
		line += fmt.Sprint(" for=", e.LimitedBy)
	}
	if e.Held != 0 {
		line += fmt.Sprint(" held=", e.Held)
	}
	if e.Reason != "" {
		line += fmt.Sprint(" ", e.Reason)
	}
	if e.Attempt != 0 {
		line += fmt.Sprint(" attempt=", e.Attempt)
	}
	if e.Err != nil {
		line += fmt.Sprint(" err=", e.Err)
	}
	if e.Why != "" {
		line += fmt.Sprint(" why=", e.Why)
	}
	d.lines = append(d.lines, line)
}

// sort puts lines of one instant in an order.
func (d *diary) sort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.lines)
}

// want compares what was written since the last call.
func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(d.lines, "\n\t"), strings.Join(lines, "\n\t"))
	}
	d.lines = nil
}

func TestObserver_Calls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Concurrency: 2, Rate: tenPerSecond, Observer: d.Observe})
		g.Do(bg, func(context.Context) error { time.Sleep(ms); return nil })
		d.want(t, "0s g admitted n=1", "1ms g released n=1 held=1ms")

		p, _ := g.Acquire(bg, 3)
		time.Sleep(ms)
		p.Release()
		p.Release()
		d.want(t,
			"1ms g queued n=3 wait=99ms for=rate why=10/s",
			"100ms g admitted n=3 wait=99ms",
			"101ms g released n=3 held=1ms")

		g.TryAcquire(1)
		d.want(t, "101ms g rejected n=1 busy")
		time.Sleep(99 * ms)
		if p, ok := g.TryAcquire(2); ok {
			p.Settle(7)
			p.Release()
		}
		d.want(t, "200ms g admitted n=2", "200ms g released n=2")

		g.AcquireWithin(bg, 1, 0)
		d.want(t, "200ms g rejected n=1 deadline err=sluice: g: would have to wait 100ms for the rate of 10/s, 0s were allowed")

		g.Acquire(bg, 0) // takes nothing
		d.want(t)
	})
}

// The context of a call comes with its events, however it had to wait, and to the observer
// of a parent, too.
func TestEvent_Context(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var got []string
		observe := func(e sluice.Event) {
			if e.Kind != sluice.EventReleased {
				got = append(got, fmt.Sprint(e.Gate, " ", e.Kind, " ", e.Context.Value(key{})))
			}
		}
		want := func(lines ...string) {
			t.Helper()
			if !slices.Equal(got, lines) {
				t.Errorf("got %q, want %q", got, lines)
			}
			got = nil
		}
		limit := limits.Must(leaky.New(tenPerSecond))
		parent := mustGate(t, sluice.Config{Name: "p", Rate: tenPerSecond, Observer: observe})
		for _, cfg := range []sluice.Config{
			{Rate: tenPerSecond},
			{Concurrency: 5, Limits: []sluice.Limit{{Limiter: limit}}}, // asks
		} {
			cfg.Name, cfg.Observer = "g", observe
			g := mustGate(t, cfg)
			ctx := context.WithValue(bg, key{}, "v")
			g.Do(ctx, nothing)
			g.Do(ctx, nothing)
			want("g admitted v", "g queued v", "g admitted v")
			g.AcquireWithin(ctx, 1, 0)
			want("g rejected v")
			g.TryAcquire(1)
			want("g rejected <nil>")
			g.Close()
			g.Do(ctx, nothing)
			want("g rejected v")
		}
		g := mustGate(t, sluice.Config{Name: "g", Concurrency: 1, Parent: parent, Observer: observe})
		ctx := context.WithValue(bg, key{}, "w")
		g.Do(ctx, nothing)
		g.Do(ctx, nothing)
		want("p admitted w", "g admitted w", "p queued w", "p admitted w", "g admitted w")
	})
}

func TestObserver_Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{
			Name: "g", Concurrency: 1, ConcurrencyUnit: sluice.Cost, MaxWaiting: 1, Observer: d.Observe,
			Limits: []sluice.Limit{{Limiter: failing{errors.New("quota is away")}}},
		})
		g.Acquire(bg, 1)
		d.want(t, "0s g rejected n=1 other err=sluice: g: limit: quota is away")
		g.Acquire(bg, 2)
		d.want(t, "0s g rejected n=2 too_large err=sluice: g: request is larger than the limit")

		g.PauseUntil(time.Now().Add(time.Hour), "")
		ctx, cancel := context.WithCancel(bg)
		go g.Acquire(ctx, 1)
		synctest.Wait()
		d.want(t, "0s g paused wait=1h0m0s", "0s g queued n=1 wait=1h0m0s for=pause")
		g.Acquire(bg, 1)
		d.want(t, "0s g rejected n=1 queue_full err=sluice: g: too many callers are waiting")
		cancel()
		synctest.Wait()
		d.want(t, "0s g rejected n=1 canceled err=context canceled")
		g.Acquire(ctx, 1)
		d.want(t, "0s g rejected n=1 canceled err=context canceled")
		g.Acquire(ctx, 0)
		d.want(t, "0s g rejected canceled err=context canceled")
		g.Close()
		g.Acquire(bg, 0)
		d.want(t, "0s g rejected closed err=sluice: g: closed")
	})
}

// failing is a quota that answers with an error.
type failing struct{ err error }

func (f failing) Admit(context.Context, int64) (time.Duration, error) { return 0, f.err }
func (f failing) Adjust(context.Context, int64, time.Duration) error  { return f.err }

func TestObserver_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := fixedGate(t, sluice.Config{Name: "g", Observer: d.Observe})
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		g.Resume()
		g.PauseUntil(in(-time.Second), "over")
		d.want(t)
		g.PauseUntil(in(time.Second), "one")
		g.PauseUntil(in(time.Second), "no longer")
		g.PauseUntil(in(2*time.Second), "two")
		d.want(t, "0s g paused wait=1s why=one", "0s g paused wait=2s why=two")
		time.Sleep(time.Second)
		g.Resume()
		g.Resume()
		d.want(t, "1s g resumed")
		g.PauseUntil(in(time.Second), "three")
		time.Sleep(time.Second) // it ends by itself
		g.Resume()
		time.Sleep(time.Second)
		g.PauseUntil(in(-ms), "over, but later than the one before")
		d.want(t, "1s g paused wait=1s why=three")

		// While the call with the server wait is in flight.
		g.Do(bg, func(context.Context) error { return sluice.ThrottledFor(errors.New("429"), time.Second) })
		d.want(t, "3s g admitted n=1", "3s g paused wait=1s why=429", "3s g released n=1")
	})
}

func TestObserver_Retries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := fixedGate(t, sluice.Config{Name: "g", Observer: d.Observe})
		policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)}
		attempts := 0
		err := sluice.Retry(bg, g, func(context.Context) error {
			switch attempts++; attempts {
			case 1:
				return errors.New("500")
			case 2:
				return sluice.ThrottledFor(errors.New("429"), time.Minute)
			}
			return nil
		}, policy)
		if err != nil {
			t.Fatal(err)
		}
		d.want(t,
			"0s g admitted n=1",
			"0s g released n=1",
			"0s g retried wait=1s attempt=1 err=500",
			"1s g admitted n=1",
			"1s g paused wait=1m0s why=429",
			"1s g released n=1",
			"1s g retried wait=1m0s attempt=2 err=429",
			"1s g queued n=1 wait=1m0s for=pause why=429",
			"1m1s g admitted n=1 wait=1m0s",
			"1m1s g released n=1",
		)
		if n := g.Stats().Retried; n != 2 {
			t.Errorf("%d retries", n)
		}
		sluice.Retry(bg, g, func(context.Context) error { return sluice.Permanent(errors.New("404")) }, policy)
		d.want(t, "1m1s g admitted n=1", "1m1s g released n=1")

		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(ms, g.Close)
		sluice.Retry(ctx, g, func(context.Context) error { return errors.New("500") }, policy)
		cancel()
		d.want(t,
			"1m1s g admitted n=1",
			"1m1s g released n=1",
			"1m1s g retried wait=1s attempt=1 err=500",
			"1m1.001s g rejected n=1 closed err=sluice: g: closed",
		)
	})
}

// Each gate reports what it counts, the parent first, however long the wait was in
// which queue.
func TestObserver_OfAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1, Observer: d.Observe})
		silent := mustGate(t, sluice.Config{Name: "silent", Parent: all})
		a := mustGate(t, sluice.Config{Name: "a", Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: silent, Observer: d.Observe})

		p, _ := a.Acquire(bg, 1)
		d.want(t, "0s all admitted n=1", "0s a admitted n=1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, _ := a.Acquire(bg, 2)
			time.Sleep(500 * ms)
			p.Release()
		}()
		time.Sleep(1500 * ms) // the rate of a is over, all is full
		d.want(t, "0s a queued n=2 wait=2s for=rate why=1/s", "1s all queued n=2 for=concurrency why=1")
		if _, ok := a.TryAcquire(1); ok {
			t.Error("overtook")
		}
		d.want(t, "1.5s a rejected n=1 busy")
		p.Release()
		synctest.Wait()
		d.sort() // two calls at one instant
		d.want(t,
			"1.5s a admitted n=2 wait=1.5s",
			"1.5s a released n=1 held=1.5s",
			"1.5s all admitted n=2 wait=500ms",
			"1.5s all released n=1 held=1.5s")
		<-done
		d.want(t,
			"2s all released n=2 held=500ms",
			"2s a released n=2 held=500ms")

		p, _ = all.Acquire(bg, 1)
		d.want(t, "2s all admitted n=1")
		time.Sleep(time.Second)
		a.AcquireWithin(bg, 1, time.Second)
		d.want(t,
			"3s all queued n=1 for=concurrency why=1",
			"4s all rejected n=1 deadline err=sluice: all: waited for the concurrency of 1 as long as allowed",
			"4s a rejected n=1 deadline err=sluice: a: silent: all: waited for the concurrency of 1 as long as allowed")
		a.TryAcquire(1) // asks for the room of all, and does not wait
		d.want(t,
			"4s all rejected n=1 deadline err=sluice: all: waited for the concurrency of 1 as long as allowed",
			"4s a rejected n=1 busy")
		p.Release()
		d.want(t, "4s all released n=1 held=2s")
		if n := silent.Stats(); n.Admitted != 2 || n.Rejected.Deadline != 2 {
			t.Errorf("silent: %+v", n)
		}
	})
}

// A quota holds the first call up, which learns of it by asking; the next call waits
// without asking.
func TestObserver_OfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Observer: d.Observe, Limits: []sluice.Limit{
			{Name: "q", Limiter: &bucket{capacity: 1, interval: time.Second}},
		}})
		var calls sync.WaitGroup
		for n := range int64(3) {
			calls.Go(func() {
				time.Sleep(time.Duration(n) * ms)
				g.Acquire(bg, 1)
			})
		}
		calls.Wait()
		d.want(t,
			"0s g admitted n=1",
			"1ms g queued n=1 wait=999ms for=limit q",
			"2ms g queued n=1 wait=998ms for=limit q",
			"1s g admitted n=1 wait=999ms",
			"2s g admitted n=1 wait=1.998s")
	})
}

func TestObserver_OfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Rate: tenPerSecond, Observer: d.Observe, Semaphore: slowPermits{time.Second}})
		for range 2 {
			p, _ := g.Acquire(bg, 1)
			p.Release()
		}
		// While its permits are lent the slot of the second has passed. To give
		// them back takes a second too, in which the call is not in flight.
		d.want(t,
			"1s g admitted n=1 wait=1s", "2s g released n=1",
			"3s g admitted n=1 wait=1s", "4s g released n=1")
	})
}

// slowPermits take their time.
type slowPermits struct{ d time.Duration }

func (s slowPermits) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	time.Sleep(s.d)
	return s, nil
}
func (s slowPermits) Release()              { time.Sleep(s.d) }
func (s slowPermits) Lost() <-chan struct{} { return nil }

// An observer that takes a minute delays the call of the event, but no call behind or
// beside it.
func TestObserver_SlowOneDelaysItsCallOnly(t *testing.T) {
	for _, slow := range []sluice.EventKind{sluice.EventQueued, sluice.EventAdmitted, sluice.EventRejected, sluice.EventReleased} {
		t.Run(string(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported atomic.Bool
				g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 2, Observer: func(e sluice.Event) {
					if e.Kind == slow && reported.CompareAndSwap(false, true) {
						time.Sleep(time.Minute)
					}
				}})
				began := time.Now()
				call := func() error { return g.Do(bg, func(context.Context) error { return nil }) }
				go call()
				synctest.Wait()
				go call()
				go g.AcquireWithin(bg, 1, 50*ms)
				synctest.Wait()
				if err := call(); err != nil || time.Since(began) > 200*ms {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				time.Sleep(2 * time.Minute)
				if s := g.Stats(); !reported.Load() || s.Admitted != 3 || s.InFlight != 0 {
					t.Errorf("reported: %v, %+v", reported.Load(), s)
				}
			})
		})
	}
}

func TestObserver_MakesNoGarbage(t *testing.T) {
	var events atomic.Int64
	g := mustGate(t, sluice.Config{Observer: func(sluice.Event) { events.Add(1) }})
	nothing := func(context.Context) error { return nil }
	if n := testing.AllocsPerRun(100, func() { g.Do(bg, nothing) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := events.Load(); n != 202 {
		t.Errorf("%d events of 101 calls", n)
	}
}

// EventLearned has the reason apart, for metrics and for logs that leave similar lines out.
func TestObserver_Learned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var learned []sluice.Event
		g, err := sluice.New(sluice.Config{Name: "g", Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventLearned {
				learned = append(learned, e)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			g.Do(t.Context(), func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.ThrottledFor(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		l := g.Stats().Learned
		want := []sluice.Event{{Kind: sluice.EventLearned, Gate: "g", Reason: l.Why, Why: l.String()}}
		if !slices.Equal(learned, want) || l.Why == "" {
			t.Errorf("%+v, want %+v", learned, want)
		}
	})
}

// # Events and Stats agree

// A tally is an observer that counts what the Stats of a gate count.
type tally struct {
	mu     sync.Mutex
	kinds  map[sluice.EventKind]uint64
	refuse map[string]uint64
	waits  sluice.WaitHistogram
}

func (c *tally) Observe(e sluice.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds, c.refuse = make(map[sluice.EventKind]uint64), make(map[string]uint64)
	}
	c.kinds[e.Kind]++
	switch e.Kind {
	case sluice.EventRejected:
		c.refuse[e.Reason]++
	case sluice.EventAdmitted:
		i := 0 // did not wait
		if e.Wait > 0 {
			i = max(1, bits.Len64(uint64(e.Wait/time.Microsecond)))
		}
		c.waits[i]++
	}
}

// disagrees returns where c and s have counted differently, when no call is in the
// gate, or "".
func (c *tally) disagrees(s sluice.Stats) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for reason, n := range s.Rejected.All() {
		if c.refuse[reason] != n {
			return "rejected"
		}
	}
	switch {
	case c.kinds[sluice.EventAdmitted] != s.Admitted:
		return "admitted"
	case c.kinds[sluice.EventReleased] != s.Admitted:
		return "released"
	case c.kinds[sluice.EventRetried] != s.Retried:
		return "retried"
	case c.waits != s.Waits:
		return "waits"
	}
	return ""
}

func TestObserver_TallyCanDisagree(t *testing.T) {
	var c tally
	for _, e := range []sluice.Event{
		{Kind: sluice.EventAdmitted, Wait: 3 * time.Microsecond},
		{Kind: sluice.EventReleased},
		{Kind: sluice.EventRetried},
		{Kind: sluice.EventRejected, Reason: "closed"},
	} {
		c.Observe(e)
	}
	agreed := sluice.Stats{Admitted: 1, Retried: 1, Rejected: sluice.Rejections{Closed: 1}}
	agreed.Waits[2] = 1
	if d := c.disagrees(agreed); d != "" {
		t.Errorf("disagrees about what is %s", d)
	}
	for want, s := range map[string]sluice.Stats{
		"admitted": {Admitted: 2, Retried: 1, Rejected: agreed.Rejected, Waits: agreed.Waits},
		"retried":  {Admitted: 1, Rejected: agreed.Rejected, Waits: agreed.Waits},
		"rejected": {Admitted: 1, Retried: 1, Rejected: sluice.Rejections{Busy: 1}, Waits: agreed.Waits},
		"waits":    {Admitted: 1, Retried: 1, Rejected: agreed.Rejected},
	} {
		if d := c.disagrees(s); d != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
	c.Observe(sluice.Event{Kind: sluice.EventReleased})
	if d := c.disagrees(agreed); d != "released" {
		t.Errorf("%q", d)
	}
}

// A watched is some gates that are used in all ways at once, with a tally of each.
type watched struct {
	gates   []*sluice.Gate
	tallies []*tally
	unit    time.Duration // of pauses, deadlines and time in flight
}

// newWatched returns a parent, which may have no observer, three children and a
// gate alone, with different limits.
func newWatched(t testing.TB, unit time.Duration, parentToo bool) *watched {
	w := &watched{unit: unit}
	add := func(cfg sluice.Config) *sluice.Gate {
		c := new(tally)
		cfg.Observer = c.Observe
		g := mustGate(t, cfg)
		w.gates, w.tallies = append(w.gates, g), append(w.tallies, c)
		return g
	}
	rate := sluice.Rate{Count: 2, Per: unit}
	parent := sluice.Config{Name: "all", Concurrency: 6, Rate: withBurst(rate, 5)}
	var all *sluice.Gate
	if parentToo {
		all = add(parent)
	} else {
		all = mustGate(t, parent)
	}
	add(sluice.Config{Name: "child", Concurrency: 2, MaxWaiting: 5, Parent: all})
	add(sluice.Config{Name: "quota", Parent: all, Limits: []sluice.Limit{{Limiter: &bucket{capacity: 5, interval: unit}}}})
	add(sluice.Config{Name: "cost", Concurrency: 4, ConcurrencyUnit: sluice.Cost, Parent: all})
	add(sluice.Config{Name: "alone", Concurrency: 3, Rate: withBurst(rate, 5), MaxWaiting: 10})
	add(sluice.Config{Name: "lent", Semaphore: lent{semaphore.NewWeighted(2)}})
	return w
}

// lent is a semaphore as Config.Semaphore.
type lent struct{ *semaphore.Weighted }

func (l lent) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	return unlost{l, n}, l.Weighted.AcquireWithin(ctx, n, longest)
}

type unlost struct {
	l lent
	n int64
}

func (u unlost) Release()              { u.l.Weighted.Release(u.n) }
func (u unlost) Lost() <-chan struct{} { return nil }

var errServer = errors.New("500")

// use makes a random call, or change.
func (w *watched) use(r *rand.Rand) {
	g := w.gates[r.IntN(len(w.gates))]
	some := func() time.Duration { return time.Duration(r.Int64N(int64(4 * w.unit))) }
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	switch r.IntN(4) {
	case 0:
		defer time.AfterFunc(some(), cancel).Stop()
	case 1:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, some())
		defer stop()
	}
	n := 1 + r.Int64N(5)
	work := some() / 4
	fails := r.IntN(3) == 0
	call := func(context.Context) error {
		time.Sleep(work)
		if fails {
			return errServer
		}
		return nil
	}
	var p *sluice.Permit
	switch r.IntN(10) {
	case 0, 1:
		g.Do(ctx, call)
	case 2, 3:
		sluice.Retry(ctx, g, call, sluice.RetryPolicy{Backoff: sluice.Constant(w.unit), Attempts: 3})
	case 4:
		p, _ = g.TryAcquire(n)
	case 5:
		p, _ = g.AcquireWithin(ctx, n, some())
	case 6:
		switch r.IntN(4) {
		case 0:
			g.PauseUntil(time.Now().Add(some()), "some")
		case 1:
			g.Resume()
		case 2:
			g.SetConcurrency(1 + r.Int64N(5))
		case 3:
			p, _ = g.Acquire(ctx, 0)
		}
	default:
		p, _ = g.Acquire(ctx, n)
	}
	if p != nil {
		time.Sleep(work)
		if r.IntN(2) == 0 {
			p.Settle(r.Int64N(9))
		}
		p.Release()
	}
}

// run lets goroutines use the gates so many times each.
func (w *watched) run(seed uint64, goroutines, times int) {
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range times {
				time.Sleep(time.Duration(r.Int64N(int64(2 * w.unit))))
				w.use(r)
			}
		})
	}
	wg.Wait()
}

func (w *watched) check(t *testing.T, seed uint64) {
	t.Helper()
	for i, g := range w.gates {
		s := g.Stats()
		if d := w.tallies[i].disagrees(s); d != "" || s.InFlight != 0 {
			t.Errorf("seed %d: events and Stats disagree about what is %s:\n%+v\n%+v", seed, d, w.tallies[i], s)
		}
	}
}

// When all calls have returned, each gate has reported as many events of each kind as it
// has counted, and the same waits.
func TestObserver_EventsAgreeWithStats(t *testing.T) {
	all, rejected := make(map[sluice.EventKind]uint64), make(map[string]uint64)
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := newWatched(t, time.Second, seed%4 != 0)
			if seed%3 == 0 {
				g := w.gates[seed%uint64(len(w.gates))]
				time.AfterFunc(15*time.Second, g.Close)
			}
			w.run(seed, 20, 20)
			w.check(t, seed)
			for _, c := range w.tallies {
				for k, n := range c.kinds {
					all[k] += n
				}
				for k, n := range c.refuse {
					rejected[k] += n
				}
			}
		})
	}
	for _, k := range []sluice.EventKind{
		sluice.EventQueued, sluice.EventAdmitted, sluice.EventRejected, sluice.EventPaused,
		sluice.EventResumed, sluice.EventRetried, sluice.EventReleased,
	} {
		if all[k] == 0 {
			t.Errorf("no call was ever %v", k)
		}
	}
	for reason := range (sluice.Rejections{}).All() {
		if reason != "other" && rejected[reason] == 0 {
			t.Errorf("no call was ever rejected: %v", reason)
		}
	}
	t.Log(all, rejected)
}

// TestObserver_Stress is the same on the real scheduler.
func TestObserver_Stress(t *testing.T) {
	for seed := range uint64(2) {
		w := newWatched(t, 200*time.Microsecond, seed == 0)
		w.run(seed, 20, 100)
		w.check(t, seed)
	}
}

// TestObserver_PanicLosesNothing lets the observer panic at each event of a
// story, one after the other. Everything that was held is free afterwards.
func TestObserver_PanicLosesNothing(t *testing.T) {
	ends := errors.New("the observer panics")
	survives := func(f func()) {
		defer func() {
			if r := recover(); r != nil && r != ends {
				panic(r)
			}
		}()
		f()
	}
	try := func(g *sluice.Gate) {
		if p, ok := g.TryAcquire(1); ok {
			p.Release()
		}
	}
	within := func(g *sluice.Gate) {
		if p, err := g.AcquireWithin(bg, 1, 0); err == nil {
			p.Release()
		}
	}
	const most = 100
	for at := range most {
		reported := 0
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			observer := func(sluice.Event) {
				mu.Lock()
				defer mu.Unlock()
				if reported++; reported == at+1 {
					panic(ends)
				}
			}
			shared := semaphore.NewWeighted(1)
			all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1, Observer: observer})
			g := mustGate(t, sluice.Config{
				Name: "g", Concurrency: 2, Parent: all, Observer: observer,
				Limits: []sluice.Limit{{Limiter: &bucket{capacity: 1, interval: time.Second}}},
			})
			borrowing := mustGate(t, sluice.Config{Name: "borrowing", Concurrency: 1, Semaphore: lent{shared}, Observer: observer})
			var wg sync.WaitGroup
			for _, g := range []*sluice.Gate{g, all, borrowing} {
				for range 3 {
					wg.Go(func() { survives(func() { hold(g, ms) }) })
				}
				wg.Go(func() { survives(func() { try(g) }) })
				wg.Go(func() { survives(func() { within(g) }) })
				wg.Go(func() {
					survives(func() {
						throttled := false
						sluice.Retry(bg, g, func(context.Context) error {
							if throttled {
								return nil
							}
							throttled = true
							return sluice.ThrottledFor(errServer, time.Second)
						})
					})
				})
				wg.Go(func() { time.Sleep(1500 * ms); survives(g.Resume) })
			}
			time.Sleep(time.Minute)
			g.Close()
			all.Close()
			borrowing.Close()
			wg.Wait()
			for _, g := range []*sluice.Gate{all, g, borrowing} {
				if s := g.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
					t.Errorf("panic at event %d: %+v", at, s)
				}
			}
			if shared.InFlight() != 0 {
				t.Errorf("panic at event %d: permits stay lent", at)
			}
		})
		if reported <= at { // nothing panicked: that was the whole story
			if at < 40 {
				t.Errorf("only %d events", reported)
			}
			return
		}
	}
	t.Errorf("more than %d events", most)
}
