package batch

import (
	"cmp"
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
	gate    *sluice.Gate
	policy  sluice.RetryPolicy
	paced   bool
	grouped bool // there is a Config.Group
	halt    Halt
	tally   *Tally
	ending  func(why error) // of Config, or nil

	parent  context.Context // of the caller
	all     context.Context // of the calls
	cancel  context.CancelFunc
	stopped chan struct{} // closed by stop

	mu      sync.Mutex
	why     error // of stop
	due     error // why stop is about to be called
	over    bool  // at the end of the input: too late to stop
	calls   map[*call]struct{}
	items   *scheduler
	probe   *time.Timer // calls advance
	nDone   int64
	nFailed int64

	groupWhy error // why the first group that ended did
}

func (d *driver) begin(ctx context.Context) {
	d.parent = ctx
	d.all, d.cancel = context.WithCancel(ctx)
	d.stopped = make(chan struct{})
	d.calls = make(map[*call]struct{})
	d.probe = time.AfterFunc(time.Hour, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.advance()
	})
	d.probe.Stop()
	if ctx.Err() != nil {
		d.stop(ctx.Err(), false) // before anything is read
	}
}

// stop ends the batch: no further attempt begins, and calls that are not in an attempt
// are canceled; with now, all calls are. Only the first reason is kept.
func (d *driver) stop(why error, now bool) {
	first := d.stopSoon(why)
	if now {
		d.cancel() // after why is set: canceled calls read it
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
	d.items.end(fmt.Errorf("%w: %w", ErrUnfinished, why))
	d.advance()
	return true
}

// advance starts the items that may start. The mutex must be held.
func (d *driver) advance() {
	now := time.Now()
	for p := d.items.next(now); p != nil; p = d.items.next(now) {
		p.start(now)
	}
	if at := d.items.wake(); !at.IsZero() {
		d.probe.Reset(at.Sub(now))
	}
}

// add adds an item that was read, when the gate had a concurrency.
func (d *driver) add(group string, p *place, concurrency int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if concurrency != d.items.concurrency {
		d.items.resize(concurrency)
	}
	d.items.add(time.Now(), group, p)
	d.advance()
}

// finish marks the batch as over, and returns why it ended early, or nil.
func (d *driver) finish() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.why == nil {
		return d.groupWhy
	}
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
	place  *place

	inAttempt bool
	left      time.Time // when the attempt started
	times     times
}

type callKey struct{}

// newCall returns a call for an item that starts. The caller must close it. The mutex must
// be held.
func (d *driver) newCall(p *place, intended time.Time) *call {
	c := &call{d: d, place: p, times: times{Intended: intended}}
	ctx, cancel := context.WithCancel(d.all)
	c.ctx, c.cancel = context.WithValue(ctx, callKey{}, c), cancel
	p.cancel = cancel
	if d.why != nil {
		cancel()
	}
	d.calls[c] = struct{}{}
	return c
}

func (c *call) close() {
	c.cancel()
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, c)
	d.items.ended(c.place)
	d.advance()
}

// depart records that an attempt starts. It returns false if the batch has ended.
func (c *call) depart() bool {
	left, halt := c.departNow()
	if halt != nil {
		c.d.stop(halt, false)
	}
	return left
}

// departNow is depart. It returns why the batch must end, or nil.
func (c *call) departNow() (left bool, halt error) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil || c.ctx.Err() != nil {
		return false, nil
	}
	c.inAttempt, c.left = true, time.Now()
	c.times.Attempts++
	first := c.times.Attempts == 1
	if first {
		c.times.Sent = c.left
	}
	d.tally.departed(first, c.times.queued())
	if halt = d.items.departed(c.left, c.place); halt == nil {
		d.advance()
	}
	return true, halt
}

// arrive records that the current attempt, if any, has ended. If the batch has ended in between,
// there is no other.
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
	d.items.arrived(c.place)
	d.advance()
}

// StartAttempt records that an attempt for the item of ctx starts now, and returns a function that
// records its end. It is for functions that pass the gate themselves, see Config.ExternalGate;
// otherwise it does nothing. If the returned function is not called, the attempt ends when the next
// one starts or the function of the item returns.
//
// When the batch ends soon, the contexts of calls are canceled at the end of their attempt, or
// immediately if they are in none.
func StartAttempt(ctx context.Context) (arrive func()) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil || !c.d.paced {
		return func() {}
	}
	c.arrive()
	c.depart() // if the batch has ended, ctx is canceled and nothing will leave
	return c.arrive
}

// do calls f for c through the gate, and returns the outcome.
func (d *driver) do(c *call, f func(ctx context.Context) error) (state, error) {
	if err := d.refusal(c); err != nil {
		return d.refused(c, err)
	}
	if d.paced {
		err := f(c.ctx)
		c.arrive()
		return d.outcome(c, err)
	}
	attempts := sluice.NewRetryLoop(d.gate, d.policy)
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

// refusal returns why c must end without another attempt, or nil.
func (d *driver) refusal(c *call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.place.refused
}

// refused counts and returns the outcome of an item that ends with err without an attempt.
// Many may have been rejected together: those after a Halt are unfinished.
func (d *driver) refused(c *call, err error) (state, error) {
	s := unfinished
	if errors.Is(err, ErrSuspended) {
		s = failed
	}
	over, why := d.reached(s, c, err)
	if why != nil {
		d.stop(why, d.halt.Now)
	}
	if over && s == failed {
		s, err = unfinished, fmt.Errorf("%w: %w", ErrUnfinished, why)
	}
	d.tally.finished(s)
	return s, err
}

// attempt makes one attempt. It counts an outcome before it releases the permit: if the
// outcome ends the batch, no other call must start in between.
func (d *driver) attempt(c *call, attempts *sluice.RetryLoop, permit *sluice.Permit, f func(ctx context.Context) error) (over bool, s state, err error) {
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
	if why := d.refusal(c); why != nil && err != nil && !permanent(err) {
		return d.refused(c, why)
	}
	s := d.stateOf(c, err)
	if s == unfinished {
		// Whatever rejected this item rejects all later ones. A done context of
		// the caller may be noticed here first.
		why := err
		if own := d.parent.Err(); own != nil {
			why = own
		}
		if !d.endGroup(c, why) {
			d.stop(why, false)
		}
		err = fmt.Errorf("%w: %w", ErrUnfinished, d.reason(err))
	}
	d.count(s, c, err)
	return s, err
}

// endGroup ends the group of c, if its server requests too long a wait: those of other
// groups do not. It reports whether it did.
func (d *driver) endGroup(c *call, why error) bool {
	if !d.grouped || !d.paced || !errors.Is(why, sluice.ErrServerWait) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groupWhy == nil {
		d.groupWhy = why
	}
	d.items.endGroup(c.place.group, fmt.Errorf("%w: %w", ErrUnfinished, why))
	d.advance()
	return true
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
		return unfinished // the gate rejected
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
// canceled because the batch ended, that is why the batch ended.
func (d *driver) reason(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return d.ended()
}

// count counts the outcome of c, and ends the batch if Halt applies or nothing works.
func (d *driver) count(s state, c *call, err error) {
	d.tally.finished(s)
	if _, why := d.reached(s, c, err); why != nil {
		d.stop(why, d.halt.Now)
	}
}

// reached counts an outcome. It returns why the batch must end, and whether that was so
// before: an item without an attempt is not included then.
func (d *driver) reached(s state, c *call, err error) (over bool, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if over = d.due != nil || d.why != nil; over && c.place.refused != nil {
		return over, cmp.Or(d.why, d.due)
	}
	switch s {
	case done:
		d.nDone++
	case failed:
		d.nFailed++
	}
	fails := d.items.judge(time.Now(), c.place, healthOf(s, err), err)
	if why = d.halt.reached(d.nDone, d.nFailed); why == nil {
		why = fails
	}
	if d.due == nil {
		d.due = why
	}
	return over, why
}
