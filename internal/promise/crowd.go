package promise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A check is one cell: it collects failures.
type check struct {
	tb    testing.TB
	setup Setup
	real  bool
	usual time.Duration // an interval
	long  time.Duration // longer than any test takes on the real clock
	wrong []string
}

func newCheck(tb testing.TB, setup Setup, real bool) *check {
	c := &check{tb: tb, setup: setup, real: real, usual: 100 * time.Millisecond, long: time.Hour}
	if real {
		c.usual = 10 * time.Millisecond
	}
	return c
}

func (c *check) errorf(format string, args ...any) {
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// scene plays a scene with a new subject and a crowd of callers.
func (c *check) scene(name string, l Limits, play func(x *crowd)) {
	l.Real = c.real
	ctx, cancel := context.WithCancel(context.Background())
	x := &crowd{check: c, scene: name, limits: l, ctx: ctx, cancel: cancel, begun: map[int]chan struct{}{}}
	x.start = time.Now()
	x.s = c.setup(c.tb, l)
	x.origin = x.s.Origin
	if !c.real { // on the real clock it is a lower bound: the setup took time, too
		x.origin += x.now()
	}
	defer func() {
		x.cancel()
		x.callers.Wait()
		if x.s.Close != nil {
			x.s.Close()
		}
	}()
	play(x)
}

// A crowd is the callers of one subject, and how their calls ended.
type crowd struct {
	*check
	scene  string
	limits Limits
	s      *Subject
	start  time.Time
	origin time.Duration // when the first call can start
	ctx    context.Context
	cancel context.CancelFunc

	callers sync.WaitGroup

	mu       sync.Mutex
	begun    map[int]chan struct{} // closed when the call of a caller has ended
	ended    []end
	left     []departure
	inFlight int
	most     int // in flight at the same time
	answered int
}

// An end is how a call ended, a departure that an attempt of it started.
type end struct {
	caller int
	at     time.Duration
	err    error
}

type departure struct {
	caller   int
	at       time.Duration
	answered int // how many attempts had been answered by then
}

func (x *crowd) now() time.Duration { return time.Since(x.start) }

func (x *crowd) errorf(format string, args ...any) {
	x.check.errorf("%s: %s", x.scene, fmt.Sprintf(format, args...))
}

// do lets a caller make an attempt, which is in flight for as long as f takes. It
// returns when the caller waits, is in flight or has ended. f may be nil.
func (x *crowd) do(ctx context.Context, caller int, ask Ask, f func() error) {
	x.begin(caller, func() error { return x.s.Do(ctx, ask, x.attempt(caller, f)) })
}

// call is do with retries.
func (x *crowd) call(ctx context.Context, caller int, f func() error) {
	x.begin(caller, func() error { return x.s.Call(ctx, x.attempt(caller, f)) })
}

func (x *crowd) begin(caller int, call func() error) {
	ended := make(chan struct{})
	x.mu.Lock()
	x.begun[caller] = ended
	x.mu.Unlock()
	x.callers.Go(func() {
		defer close(ended)
		err := call()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ended = append(x.ended, end{caller, x.now(), err})
	})
	if !x.real {
		synctest.Wait()
		return
	}
	// The crowd is at rest when all calls that are under way are in a queue.
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(50 * time.Microsecond) {
		select {
		case <-ended:
			return
		default:
		}
		x.mu.Lock()
		outside := len(x.begun) - len(x.ended) - x.inFlight
		for _, d := range x.left {
			if d.caller == caller {
				outside = 0
			}
		}
		x.mu.Unlock()
		if x.s.waiting() >= int64(outside) {
			return
		}
	}
	x.errorf("call %d neither waits nor ends", caller)
}

// attempt returns f as an attempt of a caller that is recorded.
func (x *crowd) attempt(caller int, f func() error) func() error {
	return func() error {
		x.mu.Lock()
		x.left = append(x.left, departure{caller, x.now(), x.answered})
		x.inFlight++
		x.most = max(x.most, x.inFlight)
		x.mu.Unlock()
		defer func() {
			x.mu.Lock()
			x.inFlight--
			x.answered++
			x.mu.Unlock()
		}()
		if f == nil {
			return nil
		}
		return f()
	}
}

// hold returns an f that takes d.
func (x *crowd) hold(d time.Duration) func() error {
	return func() error { x.sleep(d); return nil }
}

// sleep waits for d, or until the scene has ended.
func (x *crowd) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-x.ctx.Done():
	}
}

// until returns an f that ends with done.
func (x *crowd) until(done <-chan struct{}) func() error {
	return func() error {
		select {
		case <-done:
		case <-x.ctx.Done():
		}
		return nil
	}
}

// finish waits until all calls have ended.
func (x *crowd) finish() {
	x.mu.Lock()
	all := slices.Sorted(maps.Keys(x.begun))
	x.mu.Unlock()
	for _, caller := range all {
		if !x.finishOf(caller) {
			return
		}
	}
}

// finishOf waits until the call of one caller has ended. If that takes too long all
// calls are canceled.
func (x *crowd) finishOf(caller int) bool {
	x.mu.Lock()
	ended := x.begun[caller]
	x.mu.Unlock()
	timer := time.NewTimer(x.longest())
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		x.errorf("call %d does not end", caller)
		x.cancel()
		return false
	}
}

// longest is the time that a call may take before something must be wrong.
func (x *crowd) longest() time.Duration {
	if x.real {
		return 20 * time.Second
	}
	return 48 * time.Hour
}

// departures returns those so far, in the order of their times.
func (x *crowd) departures() []departure {
	if !x.real {
		synctest.Wait()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all := slices.Clone(x.left)
	slices.SortStableFunc(all, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
	return all
}

// leftAt returns when a caller left for the nth time, counted from 0, or -1.
func (x *crowd) leftAt(caller, nth int) time.Duration {
	for _, d := range x.departures() {
		if d.caller == caller {
			if nth == 0 {
				return d.at
			}
			nth--
		}
	}
	return -1
}

// wantLeft checks when a caller left: exactly at a time or, on the real clock, not
// before it.
func (x *crowd) wantLeft(caller int, at time.Duration) {
	got, late := x.leftAt(caller, 0), x.late()
	if !x.s.Paced {
		late += x.s.Pace
	}
	switch {
	case got < 0:
		x.errorf("call %d did not leave: %v", caller, x.errOf(caller))
	case got < at:
		x.errorf("call %d left at %v, before %v", caller, got, at)
	case !x.real && got > at+late:
		x.errorf("call %d left at %v, later than %v", caller, got, at+late)
	}
}

// late returns the delay after its exact time with which a call may start in a bubble. A learned
// limit is computed in floating-point numbers.
func (x *crowd) late() time.Duration {
	if x.s.Pace > 0 {
		return x.s.Late + 2
	}
	return x.s.Late
}

// wantEnded checks that a call has ended, when it must have, and returns its error.
func (x *crowd) wantEnded(caller int) (end, bool) {
	if !x.real {
		synctest.Wait()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.ended {
		if e.caller == caller {
			return e, true
		}
	}
	x.errorf("call %d has not ended at %v", caller, x.now())
	return end{}, false
}

func (x *crowd) errOf(caller int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.ended {
		if e.caller == caller {
			return e.err
		}
	}
	return nil
}

// wantOrder checks that callers left in an order. On the real clock the call that is let
// through first may notice it last, unless there is room for one only, and remote calls may
// overtake one another on their way: then only the set of callers is checked.
func (x *crowd) wantOrder(want ...int) {
	var got []int
	x.mu.Lock()
	for _, d := range x.left {
		got = append(got, d.caller)
	}
	x.mu.Unlock()
	if x.real && (x.limits.Room != 1 || !x.s.Roomy() || x.s.Remote) {
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
	}
	if !slices.Equal(got, want) {
		x.errorf("calls left in the order %v, want %v", got, want)
	}
}

// rest waits until the rate lets a call start at every level.
func (x *crowd) rest() {
	for _, l := range x.s.Levels {
		s := l.Stats()
		x.sleep(max(0, time.Until(s.NextSlot)) + s.Spacing)
	}
}

// state returns, as text, the amounts that all levels have given out. It shows the amounts of a call.
func (x *crowd) state() string {
	text := ""
	for _, l := range x.s.Levels {
		s := l.Stats()
		slot := "now"
		if time.Until(s.NextSlot) > 0 {
			slot = s.NextSlot.Sub(x.start).String()
		}
		text += fmt.Sprintf("[%s: %d in flight, %d wait, next slot %s", l.Name, s.InFlight, s.Pacing+s.Waiting, slot)
		for _, q := range l.Quotas {
			text += fmt.Sprintf(", %d of %s", q.Left(), q.Name)
		}
		text += "] "
	}
	return text
}

// taken returns, as text, the amounts of all levels that calls hold. Unlike state it has no slots.
func (x *crowd) taken() string {
	text := ""
	for _, l := range x.s.Levels {
		text += fmt.Sprintf("[%s: %d in flight", l.Name, l.Stats().InFlight)
		for _, q := range l.Quotas {
			text += fmt.Sprintf(", %d of %s", q.Left(), q.Name)
		}
		text += "] "
	}
	return text
}
