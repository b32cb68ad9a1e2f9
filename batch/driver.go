package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// state is the outcome of an item, as written to the log.
type state string

const (
	done       state = "ok"
	failed     state = "failed"
	unfinished state = "" // never in the log
)

// A driver decides when a batch ends, and why.
type driver struct {
	gate   *sluice.Gate
	policy sluice.RetryPolicy
	paced  bool
	halt   Halt
	tally  *Tally
	ending func(why error) // of Config, or nil

	parent  context.Context // of the caller
	all     context.Context // of the calls
	cancel  context.CancelFunc
	stopped chan struct{} // closed by stop

	mu      sync.Mutex
	why     error // of stop
	over    bool  // at the end of the input: too late to stop
	calls   map[*call]struct{}
	nDone   int64
	nFailed int64
}

func (d *driver) begin(ctx context.Context) {
	d.parent = ctx
	d.all, d.cancel = context.WithCancel(ctx)
	d.stopped = make(chan struct{})
	d.calls = make(map[*call]struct{})
	if ctx.Err() != nil {
		d.stop(ctx.Err(), false) // before anything is read
	}
}

// stop ends the batch: no further attempt begins, and calls that are not in an attempt
// are cancelled; with now, all calls are. Only the first reason counts.
func (d *driver) stop(why error, now bool) {
	first := d.stopSoon(why)
	if now {
		d.cancel() // after why is set: cancelled calls read it
	}
	if first && d.ending != nil {
		d.ending(why)
	}
}

// stopSoon is stop without now. It reports whether it was the first call.
func (d *driver) stopSoon(why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil || d.over {
		return false
	}
	d.why = why
	close(d.stopped)
	for c := range d.calls {
		if !c.inAttempt {
			c.cancel()
		}
	}
	return true
}

// finish marks the batch as over, and returns why it ended early, or nil.
func (d *driver) finish() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	return d.why
}

// ended returns why the batch ended early, or nil if it has not yet.
func (d *driver) ended() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

func (d *driver) isStopped() bool {
	select {
	case <-d.stopped:
		return true
	default:
		return false
	}
}

// A call is an item in progress. Its fields are guarded by the mutex of the driver.
type call struct {
	d      *driver
	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // closed when the first attempt leaves or none will; then nil

	inAttempt bool
	left      time.Time // when the attempt left
	times     Times
}

type callKey struct{}

// newCall returns a call for an item. The caller must close it.
func (d *driver) newCall(intended time.Time) *call {
	c := &call{d: d, gone: make(chan struct{}), times: Times{Intended: intended}}
	ctx, cancel := context.WithCancel(d.all)
	c.ctx, c.cancel = context.WithValue(ctx, callKey{}, c), cancel
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil {
		cancel()
	}
	d.calls[c] = struct{}{}
	return c
}

func (c *call) close() {
	c.cancel()
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	delete(c.d.calls, c)
	c.leave()
}

// leave lets the next item pass to the gate. The mutex must be held.
func (c *call) leave() {
	if c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

// depart records that an attempt leaves. It returns false if the batch has ended.
func (c *call) depart() bool {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil || c.ctx.Err() != nil {
		return false
	}
	c.inAttempt, c.left = true, time.Now()
	c.times.Attempts++
	first := c.times.Attempts == 1
	if first {
		c.times.Sent = c.left
		c.leave()
	}
	d.tally.departed(first, c.times.queued())
	return true
}

// arrive records that the current attempt, if any, is over. If the batch has ended
// meanwhile, there is no other.
func (c *call) arrive() {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.inAttempt {
		return
	}
	c.inAttempt, c.times.Done = false, time.Now()
	took := c.times.Done.Sub(c.left)
	c.times.Service += took
	d.tally.arrived(took)
	if d.why != nil {
		c.cancel()
	}
}

// Depart records that an attempt for the item of ctx leaves now, and returns a function
// that records its end. It is for functions that pass the gate themselves, see
// Config.Paced; otherwise it does nothing. If the returned function is not called, the
// attempt ends when the next one leaves or the function of the item returns.
//
// When the batch ends soon, the contexts of calls that are not in an attempt are cancelled
// at once, and the others at the end of their attempt.
func Depart(ctx context.Context) (arrive func()) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil || !c.d.paced {
		return func() {}
	}
	c.arrive()
	c.depart() // if the batch has ended, ctx is cancelled and nothing will leave
	return c.arrive
}

// do calls f for c through the gate, and returns the outcome.
func (d *driver) do(c *call, f func(ctx context.Context) error) (state, error) {
	if d.paced {
		err := f(c.ctx)
		c.arrive()
		return d.outcome(c, err)
	}
	attempts := sluice.NewAttempts(d.gate, d.policy)
	for {
		permit, err := attempts.Next(c.ctx, 1)
		if err != nil {
			return d.outcome(c, err)
		}
		if over, s, err := d.attempt(c, &attempts, permit, f); over {
			return s, err
		}
	}
}

// attempt makes one attempt. It counts an outcome before it releases the permit: if the
// outcome ends the batch, no other call must leave in between.
func (d *driver) attempt(c *call, attempts *sluice.Attempts, permit *sluice.Permit, f func(ctx context.Context) error) (over bool, s state, err error) {
	defer permit.Release()
	again, err := attempts.Try(c.ctx, permit, func(ctx context.Context) error {
		if !c.depart() {
			return context.Canceled
		}
		err := f(ctx)
		c.arrive()
		return err
	})
	if again {
		return false, unfinished, nil
	}
	s, err = d.outcome(c, err)
	return true, s, err
}

// outcome counts and returns the outcome of c, whose call returned err.
func (d *driver) outcome(c *call, err error) (state, error) {
	s := d.stateOf(c, err)
	if s == unfinished {
		// Whatever refused this item refuses all later ones. A done context of
		// the caller may be noticed here first.
		why := err
		if own := d.parent.Err(); own != nil {
			why = own
		}
		d.stop(why, false)
		err = fmt.Errorf("%w: %w", ErrUnfinished, d.reason(err))
	}
	d.count(s)
	return s, err
}

// stateOf returns the outcome of c, whose call returned err.
func (d *driver) stateOf(c *call, err error) state {
	if err == nil {
		return done
	}
	if d.paced {
		var stopped *sluice.RetryError
		if errors.As(err, &stopped) && final(stopped.Why) || stopped == nil && errors.Is(err, sluice.ErrPermanent) {
			return failed // even if the batch has ended
		}
		var wait *limits.WaitError
		if c.ctx.Err() != nil || errors.As(err, &wait) ||
			errors.Is(err, sluice.ErrServerWait) || errors.Is(err, limits.ErrClosed) {
			return unfinished
		}
		return failed
	}
	stopped, tried := err.(*sluice.RetryError)
	switch {
	case !tried && errors.Is(err, sluice.ErrPermanent): // of the first attempt
		return failed
	case !tried:
		return unfinished // the gate refused
	case final(stopped.Why):
		return failed
	}
	return unfinished
}

// final reports whether why is a reason of the item itself or its policy not to try
// again.
func final(why error) bool {
	return errors.Is(why, sluice.ErrPermanent) || errors.Is(why, sluice.ErrAttempts) ||
		errors.Is(why, sluice.ErrElapsed) || errors.Is(why, sluice.ErrBudget)
}

// reason returns why an item whose call returned err is unfinished. If its context was
// cancelled because the batch ended, that is why the batch ended.
func (d *driver) reason(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return d.ended()
}

// count counts an outcome, and ends the batch if Halt applies.
func (d *driver) count(s state) {
	d.tally.finished(s)
	d.mu.Lock()
	switch s {
	case done:
		d.nDone++
	case failed:
		d.nFailed++
	}
	reached := d.halt.reached(d.nDone, d.nFailed)
	d.mu.Unlock()
	if reached != nil {
		d.stop(reached, d.halt.Now)
	}
}
