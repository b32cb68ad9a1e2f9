package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// errPatience is the cause of the end of a call that has waited for as long as its caller would.
var errPatience = errors.New("the call has waited for as long as its caller allows")

// A call is a request of a caller, however often it is sent. It is the context of the request to
// the upstream, whose deadline bounds waits and nothing else: while an attempt is under way, and
// while the response is read, there is none.
//
//	wait ──► depart ──► wait (it failed and may be sent again) ──► … ──► answered
//
// The gates read the deadline, and immediately fail a wait that cannot end before it. If it passes all
// the same, the call ends with context.DeadlineExceeded.
type call struct {
	context.Context // of the caller; it ends when the caller hangs up
	cancel          context.CancelCauseFunc

	route  *route
	rest   string // of the path, behind the route
	who    sluice.Claimant
	began  time.Time
	body   body
	report *sluicehttp.Report
	key    string // of its gate
	turn   *turn  // nil when it has been returned

	mu       sync.Mutex
	left     time.Duration // that the call may still wait
	since    time.Time     // it waits; zero if it does not
	waited   time.Duration // before since
	timer    *time.Timer
	overdue  bool
	answered bool
	cause    limits.Cause // of the last wait
}

type callKey struct{}

// callOf returns the call that ctx is of, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// newCall makes the call of r, which may wait for as long as patience. finish must be called.
func newCall(r *http.Request, patience time.Duration) *call {
	c := &call{began: time.Now(), left: patience}
	ctx, report := sluicehttp.WithReport(r.Context())
	c.Context, c.cancel = context.WithCancelCause(ctx)
	c.report = report
	return c
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return time.Time{}, false
	}
	return c.since.Add(c.left), true
}

// Err implements context.Context.
func (c *call) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == errPatience {
		return context.DeadlineExceeded
	}
	return err
}

// wait begins a wait.
func (c *call) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() || c.answered {
		return
	}
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, c.giveUp)
}

// giveUp ends the call if it still waits.
func (c *call) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		c.overdue = true
		c.cancel(errPatience)
	}
}

// depart ends a wait: the call is sent. Its place in line goes to the next call of its tenant.
func (c *call) depart() {
	c.pause()
	c.leaveTurn()
}

func (c *call) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return
	}
	c.timer.Stop()
	d := time.Since(c.since)
	c.waited += d
	c.left = max(0, c.left-d)
	c.since = time.Time{}
}

// answer ends all waits: there is a response for the caller, or an error.
func (c *call) answer() {
	c.pause()
	c.leaveTurn()
	c.mu.Lock()
	c.answered = true
	c.mu.Unlock()
	c.body.drop()
}

// finish releases everything that the call holds.
func (c *call) finish() {
	c.answer()
	c.cancel(nil)
}

// heldBy notes the cause of a wait. The last cause counts: the first ones were over sooner.
func (c *call) heldBy(cause limits.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = cause
}

// wasHeldBy returns the duration and the cause of the waits.
func (c *call) wasHeldBy() (time.Duration, limits.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waited, c.cause
}
