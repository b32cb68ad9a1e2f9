package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// state is what became of an item, in the words of the log.
type state string

const (
	done       state = "ok"
	failed     state = "failed"
	unfinished state = "" // never in the log
)

// A driver is a batch without its items: when it ends, and why.
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
	over    bool  // by itself: it is too late to stop
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

// stop ends the batch: nothing more begins, and calls that are not in an
// attempt are cancelled, or, at once, all of them. Only the first reason counts.
func (d *driver) stop(why error, now bool) {
	first := d.stopSoon(why)
	if now {
		d.cancel() // after why is set: a call that ends for it looks there
	}
	if first && d.ending != nil {
		d.ending(why)
	}
}

// stopSoon is stop without its now. It reports whether it was the first.
func (d *driver) stopSoon(why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil || d.over {
		return false
	}
	d.why = why
	close(d.stopped)
	for c := range d.calls {
		if !c.away {
			c.cancel()
		}
	}
	return true
}

// finish notes that the batch is over, and returns why it ended early, or nil.
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

// A call is one item on its way. Its fields are guarded by the driver's mutex.
type call struct {
	d      *driver
	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // closed when the first attempt leaves or none will; then nil
	away   bool          // an attempt is under way
	left   time.Time     // when it left
	times  Times
}

type callKey struct{}

// newCall returns the call for an item with its context, which close frees.
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

// leave lets the next item to the gate. To be called with the mutex held.
func (c *call) leave() {
	if c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

// depart notes that an attempt leaves. It reports false if the batch has ended.
func (c *call) depart() bool {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil || c.ctx.Err() != nil {
		return false
	}
	c.away, c.left = true, time.Now()
	c.times.Attempts++
	first := c.times.Attempts == 1
	if first {
		c.times.Sent = c.left
		c.leave()
	}
	d.tally.departed(first, c.times.Queued())
	return true
}

// arrive notes that the attempt under way, if there is one, is over. If the
// batch has ended meanwhile there will be no other.
func (c *call) arrive() {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.away {
		return
	}
	c.away, c.times.Done = false, time.Now()
	took := c.times.Done.Sub(c.left)
	c.times.Service += took
	d.tally.arrived(took)
	if d.why != nil {
		c.cancel()
	}
}

// Depart notes that an attempt for the item of ctx leaves now, and returns the
// function that notes that it is over. It is for functions that pass the gate
// by themselves, see Config.Paced; elsewhere it does nothing. An attempt that
// is not noted to be over is so when the next one leaves, or the function has
// returned.
//
// When the batch ends soon, the contexts of all calls are cancelled that are
// not in an attempt, and the others when their attempt is over.
func Depart(ctx context.Context) (arrive func()) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil || !c.d.paced {
		return func() {}
	}
	c.arrive()
	c.depart() // if the batch has ended ctx is cancelled, so nothing will leave
	return c.arrive
}

// do calls f for c, through the gate, and returns what became of it.
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

// attempt makes one attempt. An outcome is counted before the permit is released:
// if it ends the batch nobody must leave in between.
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

// outcome counts what became of c, whose call returned err.
func (d *driver) outcome(c *call, err error) (state, error) {
	s := d.judge(c, err)
	if s == unfinished {
		// What refused this item refuses those behind it, too. That the
		// context of the caller is done may be known here first.
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

// judge returns what became of c, whose call returned err.
func (d *driver) judge(c *call, err error) state {
	if err == nil {
		return done
	}
	if d.paced {
		var stopped *sluice.RetryError
		if errors.As(err, &stopped) && final(stopped.Why) || stopped == nil && errors.Is(err, sluice.ErrPermanent) {
			return failed // whatever has ended meanwhile
		}
		var wait *sluice.WaitError
		if c.ctx.Err() != nil || errors.As(err, &wait) ||
			errors.Is(err, sluice.ErrServerWait) || errors.Is(err, sluice.ErrClosed) {
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

// final reports whether why is a reason of the item, or of its policy, for which
// there is no other attempt.
func final(why error) bool {
	return errors.Is(why, sluice.ErrPermanent) || errors.Is(why, sluice.ErrAttempts) ||
		errors.Is(why, sluice.ErrElapsed) || errors.Is(why, sluice.ErrBudget)
}

// reason returns why an item is unfinished whose call returned err: that the
// batch ended says more than that its context was cancelled for it.
func (d *driver) reason(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return d.ended()
}

// count counts an outcome and ends the batch if that was the last one asked for.
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
