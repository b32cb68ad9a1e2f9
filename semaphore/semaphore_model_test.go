package semaphore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// A model is what a semaphore promises, written down as plainly as possible: the
// waiting calls are a slice, and after every change it is examined from the front.
// It has no goroutines, and its time is a number.
type model struct {
	limit, out int64
	now        time.Duration
	queue      []*modelCall
}

type modelCall struct {
	n      int64
	end    time.Duration // when it gives up
	reason error         // with what
	result
}

// A result is the outcome of a call. The zero value is a call that waits.
type result struct {
	over bool
	at   time.Duration
	err  error
}

func (m *model) acquire(c *modelCall, ctxErr error) {
	switch {
	case ctxErr != nil:
		m.settle(c, ctxErr)
	case c.n == 0:
		m.settle(c, nil)
	case c.n > m.limit:
		m.settle(c, limits.ErrTooLarge)
	default:
		m.queue = append(m.queue, c)
		m.serve()
		if !c.over && c.end <= m.now {
			m.giveUp(c, c.reason)
		}
	}
}

func (m *model) tryAcquire(n int64) bool {
	if n == 0 {
		return true
	}
	if len(m.queue) > 0 || n > m.limit-m.out {
		return false
	}
	m.out += n
	return true
}

// giveUp ends the wait of c, if it still waits.
func (m *model) giveUp(c *modelCall, err error) {
	if c.over {
		return
	}
	m.settle(c, err)
	m.serve()
}

func (m *model) release(n int64) {
	m.out -= n
	m.serve()
}

func (m *model) setLimit(limit int64) {
	m.limit = limit
	for _, c := range slices.Clone(m.queue) {
		if c.n > limit {
			m.settle(c, limits.ErrTooLarge)
		}
	}
	m.serve()
}

func (m *model) drain() int64 {
	got := m.limit - m.out
	m.out = m.limit
	return got
}

// sleep lets time pass until the time until. Calls whose time is up give up one
// after the other.
func (m *model) sleep(until time.Duration) {
	for {
		c := m.nextEnd()
		if c == nil || c.end > until {
			break
		}
		m.now = c.end
		m.giveUp(c, c.reason)
	}
	m.now = until
}

// nextEnd returns the waiting call that gives up first, or nil.
func (m *model) nextEnd() *modelCall {
	if len(m.queue) == 0 {
		return nil
	}
	return slices.MinFunc(m.queue, func(a, b *modelCall) int { return cmp.Compare(a.end, b.end) })
}

// serve lets the calls at the front through that fit.
func (m *model) serve() {
	for len(m.queue) > 0 && m.queue[0].n <= m.limit-m.out {
		m.out += m.queue[0].n
		m.settle(m.queue[0], nil)
	}
}

func (m *model) settle(c *modelCall, err error) {
	m.queue = slices.DeleteFunc(slices.Clone(m.queue), func(other *modelCall) bool { return other == c })
	c.result = result{true, m.now, err}
}

// A step is one thing that is done to a semaphore. What arg means depends on
// the verb.
type step struct {
	verb verb
	arg  byte
}

type verb byte

const (
	doAcquire  verb = iota // amount; with a context that can be canceled
	doWithin               // long(for how long, amount)
	doDeadline             // long(until the context ends, amount)
	doTry                  // amount
	doCancel               // which call: one that waits; with anyone, any of all
	doRelease              // amount, at most what is certainly out; more with excess
	doSetLimit             // amount; negative with excess
	doDrain
	doSleep // long(for how long, 0), or toNextEnd, or beforeNextEnd
	verbs
)

const (
	hurry  = 0x80 // doCancel, doRelease: do the next step before a goroutine has run
	anyone = 0x40 // doCancel
	excess = 0x40 // doRelease, doSetLimit
	most   = 7    // the amount that stands for as much as there can be
)

func (s step) canHurry() bool {
	return s.arg&hurry != 0 && (s.verb == doCancel || s.verb == doRelease && s.arg&excess == 0)
}

// canFollowAtOnce reports whether the outcome of s is certain after a step after
// which no goroutine has run. That of a release is, whichever calls were canceled or
// admitted before. That of a cancel is not: the call may have noticed a grant already,
// and another cancel may or may not have let it through.
func (s step) canFollowAtOnce() bool { return s.verb == doRelease && s.arg&excess == 0 }

// waits are the times for which a call waits or the clock runs.
var waits = [...]time.Duration{-1, 0, 1, ms, 2 * ms, 5 * ms, time.Hour, forever}

// In doSleep, instead of −1 and 0: until the next call gives up, or 1 ns less.
const (
	toNextEnd     = 0 << 3
	beforeNextEnd = 1 << 3
)

func amount(arg byte) int64 {
	if n := int64(arg & 7); n != most {
		return n
	}
	return huge
}

func pause(arg byte) time.Duration { return waits[arg>>3&7] }

// history encodes an initial limit and steps for FuzzWeighted.
func history(limit byte, steps ...step) []byte {
	b := []byte{limit}
	for _, s := range steps {
		b = append(b, byte(s.verb), s.arg)
	}
	return b
}

// long is the argument of within, deadline and sleep.
func long(d time.Duration, n byte) byte {
	i := slices.Index(waits[:], d)
	if i < 0 {
		panic("semaphore_test: no such wait")
	}
	return byte(i)<<3 | n
}

// weighted is what is compared with the model.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	AcquireWithin(ctx context.Context, n int64, longest time.Duration) error
	TryAcquire(n int64) bool
	Release(n int64)
	SetLimit(limit int64) error
	Drain() int64
	Limit() int64
	InFlight() int64
	Available() int64
	Waiting() int
}

// A replay does the same to a semaphore and to the model.
type replay struct {
	s     weighted
	m     model
	start time.Time
	calls []*replayCall
	trace strings.Builder // what was done, one line per step

	// certain is how many permits are out, be a cancel already noticed or
	// not: those behind the canceled call may have what it blocked, or not.
	certain int64
}

type replayCall struct {
	want   modelCall
	got    outcome
	cancel context.CancelFunc
}

// run does the steps of a history and compares after each. An error is the
// first difference. In the end no call waits and nothing is in flight. It must
// be called in a synctest bubble.
func run(history []byte, newWeighted func(limit int64) weighted) error {
	if len(history) == 0 {
		return nil
	}
	limit := amount(history[0])
	r := &replay{s: newWeighted(limit), m: model{limit: limit}, start: time.Now()}
	fmt.Fprintf(&r.trace, "limit %d\n", limit)
	history = history[1:min(len(history), 400)]

	defer func() { // also after a difference, so that no goroutine is left
		for _, c := range r.calls {
			c.cancel()
		}
	}()
	hurried := false // no goroutine has run since the last step
	for ; len(history) >= 2; history = history[2:] {
		s := step{verb(history[0]) % verbs, history[1]}
		if hurried && !s.canFollowAtOnce() {
			if err := r.compare(); err != nil {
				return err
			}
		}
		if err := r.do(s); err != nil {
			return err
		}
		if hurried = s.canHurry(); hurried {
			fmt.Fprintln(&r.trace, "    and at once:")
			continue
		}
		if err := r.compare(); err != nil {
			return err
		}
	}
	if err := r.compare(); err != nil {
		return err
	}
	// From the back, so that a cancel lets no call through, whichever notices
	// first.
	for i := range r.calls {
		r.cancel(len(r.calls) - 1 - i)
	}
	if err := r.compare(); err != nil {
		return err
	}
	r.s.Release(r.m.out)
	r.m.release(r.m.out)
	if err := r.compare(); err != nil {
		return err
	}
	if inFlight, waiting := r.s.InFlight(), r.s.Waiting(); inFlight != 0 || waiting != 0 {
		return r.errorf("%d in flight, %d wait in the end", inFlight, waiting)
	}
	return nil
}

// do does s to the semaphore and to the model and compares the answers.
func (r *replay) do(s step) error {
	n := amount(s.arg)
	switch s.verb {
	case doAcquire:
		fmt.Fprintf(&r.trace, "Acquire(%d)", n)
		ctx, cancel := context.WithCancel(bg)
		r.arrive(modelCall{n: n, end: forever}, nil, cancel, func() error { return r.s.Acquire(ctx, n) })

	case doWithin:
		d := r.unshared(pause(s.arg))
		fmt.Fprintf(&r.trace, "AcquireWithin(%d, %v)", n, d)
		ctx, cancel := context.WithCancel(bg)
		end := forever
		if d != forever {
			end = r.m.now + d
		}
		r.arrive(modelCall{n: n, end: end, reason: limits.ErrTimeout}, nil, cancel,
			func() error { return r.s.AcquireWithin(ctx, n, d) })

	case doDeadline:
		d := r.unshared(min(pause(s.arg), 100*24*time.Hour))
		fmt.Fprintf(&r.trace, "Acquire(%d) with a deadline after %v", n, d)
		ctx, cancel := context.WithDeadline(bg, time.Now().Add(d))
		r.arrive(modelCall{n: n, end: r.m.now + d, reason: context.DeadlineExceeded}, ctx.Err(), cancel,
			func() error { return r.s.Acquire(ctx, n) })

	case doTry:
		got, want := r.s.TryAcquire(n), r.m.tryAcquire(n)
		fmt.Fprintf(&r.trace, "TryAcquire(%d) = %t\n", n, got)
		if got != want {
			return r.errorf("TryAcquire = %t, want %t", got, want)
		}

	case doCancel:
		var whose []int
		for i, c := range r.calls {
			if s.arg&anyone != 0 || !c.want.over {
				whose = append(whose, i)
			}
		}
		if len(whose) > 0 {
			r.cancel(whose[int(s.arg&^(hurry|anyone))%len(whose)])
		}

	case doRelease:
		if s.arg&excess == 0 {
			n = min(n, r.certain)
		}
		fmt.Fprintf(&r.trace, "Release(%d)\n", n)
		panicked := panics(func() { r.s.Release(n) })
		if want := n > r.m.out; panicked != want {
			return r.errorf("panic: %t, want %t", panicked, want)
		}
		if !panicked {
			r.m.release(n)
			r.certain = r.m.out // Release checks itself which calls are canceled
		}

	case doSetLimit:
		if s.arg&excess != 0 {
			n = -1 - n
		}
		err := r.s.SetLimit(n)
		fmt.Fprintf(&r.trace, "SetLimit(%d) = %v\n", n, err)
		if (err != nil) != (n < 0) {
			return r.errorf("SetLimit = %v", err)
		}
		if n >= 0 {
			r.m.setLimit(n)
		}

	case doDrain:
		// Always legal, also below zero: there is no record of which call holds
		// what, so what may be released afterwards is what is in flight then.
		got, want := r.s.Drain(), r.m.drain()
		fmt.Fprintf(&r.trace, "Drain() = %d\n", got)
		if got != want {
			return r.errorf("Drain = %d, want %d", got, want)
		}

	case doSleep:
		d := min(pause(s.arg), 24*time.Hour)
		if d <= 0 {
			if c := r.m.nextEnd(); c == nil || c.end == forever {
				d = 0
			} else if d = c.end - r.m.now; s.arg&0x38 == beforeNextEnd {
				d--
			}
		}
		fmt.Fprintf(&r.trace, "sleep %v\n", d)
		time.Sleep(d)
		r.m.sleep(r.m.now + d)
	}
	return nil
}

// arrive makes a call in its own goroutine.
func (r *replay) arrive(want modelCall, ctxErr error, cancel context.CancelFunc, f func() error) {
	fmt.Fprintf(&r.trace, " by call #%d\n", len(r.calls))
	c := &replayCall{want: want, cancel: cancel}
	r.calls = append(r.calls, c)
	go func() {
		err := f()
		c.got.set(result{true, time.Since(r.start), err})
	}()
	r.m.acquire(&c.want, ctxErr)
}

func (r *replay) cancel(i int) {
	fmt.Fprintf(&r.trace, "cancel call #%d\n", i)
	r.calls[i].cancel()
	r.m.giveUp(&r.calls[i].want, context.Canceled)
}

// unshared returns d or a few nanoseconds more, so that no other call gives up at the time d from
// now. Of two that do, either may be first, and it matters: if the head is, the second may be let
// through.
func (r *replay) unshared(d time.Duration) time.Duration {
	if d <= 0 || d == forever {
		return d // does not wait, never gives up
	}
	for slices.ContainsFunc(r.m.queue, func(c *modelCall) bool { return c.end == r.m.now+d }) {
		d++
	}
	return d
}

// compare returns how the semaphore differs from the model, once all goroutines have
// run that can.
func (r *replay) compare() error {
	synctest.Wait()
	r.certain = r.m.out
	for i, c := range r.calls {
		if got := c.got.get(); got != c.want.result {
			return r.errorf("call #%d: %v, want %v", i, got, c.want.result)
		}
	}
	m := &r.m
	if limit, inFlight := r.s.Limit(), r.s.InFlight(); limit != m.limit || inFlight != m.out {
		return r.errorf("limit %d, in flight %d; want %d, %d", limit, inFlight, m.limit, m.out)
	}
	if available, waiting := r.s.Available(), r.s.Waiting(); available != m.limit-m.out || waiting != len(m.queue) {
		return r.errorf("available %d, waiting %d; want %d, %d", available, waiting, m.limit-m.out, len(m.queue))
	}
	if now := time.Since(r.start); now != m.now {
		return r.errorf("it is %v, want %v", now, m.now)
	}
	return nil
}

// An outcome is a result that one goroutine sets and another reads. A synctest.Wait
// between them does not order a read before what a timer starts later.
type outcome struct{ v atomic.Pointer[result] }

func (o *outcome) set(r result) { o.v.Store(&r) }

func (o *outcome) get() result {
	if r := o.v.Load(); r != nil {
		return *r
	}
	return result{}
}

func (r result) String() string {
	if !r.over {
		return "waits"
	}
	return fmt.Sprintf("returned %v at %v", r.err, r.at)
}

func (r *replay) errorf(format string, args ...any) error {
	return fmt.Errorf("%safter that: %s", r.trace.String(), fmt.Sprintf(format, args...))
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}

func newWeighted(limit int64) weighted { return semaphore.NewWeighted(limit) }

// histories are worth a look on their own; the fuzzer starts from them.
var histories = map[string][]byte{
	"nothing": history(0),
	"a pool":  history(2, step{doAcquire, 1}, step{doAcquire, 1}, step{doAcquire, 1}, step{doRelease, 1}, step{doRelease, 1}, step{doRelease, 1}),
	"a large one between small ones": history(4,
		step{doAcquire, 3}, step{doAcquire, 4}, step{doAcquire, 1}, step{doTry, 1}, step{doRelease, 3}, step{doRelease, 4}),
	"the head is cancelled, two move up": history(4,
		step{doAcquire, 2}, step{doAcquire, 4}, step{doAcquire, 1}, step{doAcquire, 1}, step{doAcquire, 1}, step{doCancel, 0}, step{doRelease, 1}),
	"one in the middle is cancelled": history(4,
		step{doAcquire, 4}, step{doAcquire, 2}, step{doAcquire, 2}, step{doAcquire, 2}, step{doCancel, 1}, step{doRelease, 4}),
	"the head is cancelled, released, and the next goes, before any caller ran": history(3,
		step{doAcquire, 3}, step{doAcquire, 2}, step{doAcquire, 1}, step{doCancel, 0 | hurry}, step{doRelease, 1}),
	"cancelled, then released, before any caller ran": history(3,
		step{doAcquire, 3}, step{doAcquire, 2}, step{doAcquire, 1}, step{doCancel, 0 | hurry}, step{doRelease, 1 | hurry}, step{doRelease, 1}),
	"released twice, before any caller ran": history(3,
		step{doAcquire, 3}, step{doAcquire, 2}, step{doAcquire, 1}, step{doCancel, 1 | hurry}, step{doRelease, 1 | hurry}, step{doRelease, 2}),
	"the limit sinks below the waiting calls": history(5,
		step{doAcquire, 2}, step{doAcquire, 4}, step{doAcquire, 1}, step{doAcquire, 3}, step{doSetLimit, 3}, step{doSetLimit, 0}, step{doSetLimit, 6}),
	"the limit sinks below the second waiting call": history(5,
		step{doAcquire, 3}, step{doAcquire, 3}, step{doAcquire, 5}, step{doAcquire, 1}, step{doSetLimit, 4}, step{doRelease, 3}),
	"the limit sinks below what is out": history(4,
		step{doAcquire, 4}, step{doAcquire, 1}, step{doSetLimit, 2}, step{doRelease, 1}, step{doTry, 1}, step{doRelease, 1}, step{doRelease, 1}, step{doRelease, 1}),
	"drained below zero": history(6,
		step{doAcquire, 6}, step{doAcquire, 2}, step{doSetLimit, 2}, step{doDrain, 0}, step{doRelease, 3 | excess}, step{doRelease, 1}, step{doRelease, 1}, step{doRelease, 2}),
	"drained past a call that waits": history(6,
		step{doAcquire, 2}, step{doAcquire, 5}, step{doAcquire, 1}, step{doDrain, 0}, step{doRelease, 4}, step{doCancel, 0}),
	"the head gives up, the next goes": history(4,
		step{doAcquire, 2}, step{doWithin, long(5*ms, 4)}, step{doWithin, long(ms, 2)}, step{doWithin, long(time.Hour, 2)},
		step{doSleep, long(5*ms, 0)}, step{doRelease, 2}),
	"one nanosecond before the time is up": history(1,
		step{doAcquire, 1}, step{doWithin, long(5*ms, 1)}, step{doSleep, beforeNextEnd}, step{doRelease, 1}, step{doSleep, toNextEnd}),
	"time is up": history(1,
		step{doAcquire, 1}, step{doWithin, long(5*ms, 1)}, step{doDeadline, long(2*ms, 1)}, step{doSleep, toNextEnd}, step{doSleep, toNextEnd}, step{doRelease, 1}),
	"no time": history(2,
		step{doWithin, long(0, 2)}, step{doWithin, long(0, 1)}, step{doWithin, long(-1, 1)}, step{doWithin, long(0, 3)}, step{doWithin, long(-1, 0)}),
	"done before": history(1,
		step{doDeadline, long(0, 0)}, step{doDeadline, long(-1, 1)}, step{doDeadline, long(0, most)}, step{doTry, 1}),
	"nothing asked": history(1,
		step{doAcquire, 1}, step{doAcquire, 1}, step{doAcquire, 0}, step{doTry, 0}, step{doWithin, long(0, 0)}, step{doRelease, 0}),
	"as much as there can be": history(most,
		step{doAcquire, most}, step{doAcquire, most}, step{doWithin, long(forever, most)}, step{doSetLimit, 0},
		step{doTry, 1}, step{doSetLimit, most}, step{doAcquire, most}, step{doRelease, most}, step{doSetLimit, 6}, step{doDrain, 0}),
	"mistakes": history(3,
		step{doRelease, 1 | excess}, step{doAcquire, 3}, step{doAcquire, 1}, step{doRelease, 4 | excess}, step{doRelease, most | excess}, step{doSetLimit, 0 | excess}),
}

func FuzzWeighted(f *testing.F) {
	for _, h := range histories {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, history []byte) {
		synctest.Test(t, func(t *testing.T) {
			if err := run(history, newWeighted); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// A short sample of what the fuzzer does.
func TestWeighted_Model(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		history := randomHistory(random)
		synctest.Test(t, func(t *testing.T) {
			if err := run(history, newWeighted); err != nil {
				t.Fatalf("%q: %v", history, err)
			}
		})
	}
}

func randomHistory(random *rand.Rand) []byte {
	h := make([]byte, 1+2*random.IntN(100))
	for i := range h {
		h[i] = byte(random.Uint32())
	}
	return h
}

// A semaphore that is wrong in one thing must differ from the model.
func TestWeighted_ModelCanDisagree(t *testing.T) {
	for name, wrong := range map[string]func(w *semaphore.Weighted) weighted{
		"Acquire ignores its context":       func(w *semaphore.Weighted) weighted { return deafAcquire{w} },
		"AcquireWithin waits 1 ns longer":   func(w *semaphore.Weighted) weighted { return lateAcquireWithin{w} },
		"AcquireWithin gives up 1 ns early": func(w *semaphore.Weighted) weighted { return hastyAcquireWithin{w} },
		"AcquireWithin names another error": func(w *semaphore.Weighted) weighted { return blamingAcquireWithin{w} },
		"TryAcquire refuses too much":       func(w *semaphore.Weighted) weighted { return shyTryAcquire{w} },
		"TryAcquire takes nothing":          func(w *semaphore.Weighted) weighted { return emptyTryAcquire{w} },
		"Release in two goes":               func(w *semaphore.Weighted) weighted { return lossyRelease{w} },
		"Release never panics":              func(w *semaphore.Weighted) weighted { return mildRelease{w} },
		"SetLimit only ever raises":         func(w *semaphore.Weighted) weighted { return raisingSetLimit{w} },
		"Drain stops at zero":               func(w *semaphore.Weighted) weighted { return shallowDrain{w} },
		"Available stops at zero":           func(w *semaphore.Weighted) weighted { return flatAvailable{w} },
		"Waiting is one less":               func(w *semaphore.Weighted) weighted { return shortWaiting{w} },
	} {
		random := rand.New(rand.NewPCG(3, 4))
		caught := 0
		const rounds = 50
		for range rounds {
			h := randomHistory(random)
			synctest.Test(t, func(t *testing.T) {
				var w *semaphore.Weighted
				err := run(h, func(limit int64) weighted {
					w = semaphore.NewWeighted(limit)
					return wrong(w)
				})
				if err == nil {
					return
				}
				caught++
				// Some are so wrong that canceling does not end their waits.
				for synctest.Wait(); w.Waiting() > 0; synctest.Wait() {
					if err := w.SetLimit(0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if caught == 0 {
			t.Errorf("%s: not noticed in %d histories", name, rounds)
		}
	}
}

type (
	deafAcquire          struct{ *semaphore.Weighted }
	lateAcquireWithin    struct{ *semaphore.Weighted }
	hastyAcquireWithin   struct{ *semaphore.Weighted }
	blamingAcquireWithin struct{ *semaphore.Weighted }
	shyTryAcquire        struct{ *semaphore.Weighted }
	emptyTryAcquire      struct{ *semaphore.Weighted }
	lossyRelease         struct{ *semaphore.Weighted }
	mildRelease          struct{ *semaphore.Weighted }
	raisingSetLimit      struct{ *semaphore.Weighted }
	shallowDrain         struct{ *semaphore.Weighted }
	flatAvailable        struct{ *semaphore.Weighted }
	shortWaiting         struct{ *semaphore.Weighted }
)

func (w deafAcquire) Acquire(ctx context.Context, n int64) error {
	return w.Weighted.Acquire(context.WithoutCancel(ctx), n)
}

func (w lateAcquireWithin) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	return w.Weighted.AcquireWithin(ctx, n, min(longest, forever-1)+1)
}

func (w hastyAcquireWithin) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	return w.Weighted.AcquireWithin(ctx, n, longest-1)
}

func (w blamingAcquireWithin) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	err := w.Weighted.AcquireWithin(ctx, n, longest)
	if errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

func (w shyTryAcquire) TryAcquire(n int64) bool { return n < w.Limit() && w.Weighted.TryAcquire(n) }

func (w emptyTryAcquire) TryAcquire(n int64) bool {
	if !w.Weighted.TryAcquire(n) {
		return false
	}
	w.Weighted.Release(n)
	return true
}

func (w lossyRelease) Release(n int64) {
	w.Weighted.Release(n / 2)
	w.Weighted.Release(n / 2)
}

func (w mildRelease) Release(n int64) { w.Weighted.Release(min(n, w.InFlight())) }

func (w raisingSetLimit) SetLimit(limit int64) error {
	return w.Weighted.SetLimit(max(limit, w.Limit()))
}

func (w shallowDrain) Drain() int64      { return max(0, w.Weighted.Drain()) }
func (w flatAvailable) Available() int64 { return max(0, w.Weighted.Available()) }
func (w shortWaiting) Waiting() int      { return max(0, w.Weighted.Waiting()-1) }
