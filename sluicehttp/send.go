package sluicehttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// errNothing is the error if the base transport breaks its contract.
var errNothing = errors.New("sluicehttp: the base transport returned neither a response nor an error")

// A lateError is the error of an attempt that exceeded its AttemptTimeout.
type lateError struct{ after time.Duration }

// Error includes the timeout.
func (e *lateError) Error() string {
	return "sluicehttp: no response within the AttemptTimeout of " + e.after.String()
}

// Timeout reports true.
func (e *lateError) Timeout() bool { return true }

// send sends req once and returns a response or an error. unwritten reports that the error
// occurred before a byte was written. If the attempt needs a context of its own, that lasts
// until h ends, and the AttemptTimeout applies until the header of the response arrives.
func (c *call) send(req *http.Request, h *hold) (resp *http.Response, unwritten bool, err error) {
	if st := h.state; st.watched.Load() {
		number := st.sent.Add(1)
		h.since, h.number = time.Since(c.t.epoch), max(1, uint16(number))
		st.pauseAfter(number)
		st.inFlight.Add(1)
		defer st.inFlight.Add(-1)
	}
	traced := !c.o.NoRetry && !c.safe
	ctx := c.ctx
	var dial *dialing
	if traced {
		dial = new(dialing)
		ctx = dial.trace(ctx)
	}
	limit := c.attemptTimeout()
	ctx, late := c.t.bound(ctx, h, limit)
	if traced || h.cancel != nil {
		req = req.WithContext(ctx)
	}
	resp, err = c.t.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errNothing
	}
	if err == nil && resp.Body == nil { // against the contract
		resp.Body = http.NoBody
	}
	if late != nil && !c.t.stop(late) && err == nil {
		resp.Body.Close()       // it cannot be read
		err = &lateError{limit} // ctx may not have ended yet
	}
	if err != nil {
		if ctx.Err() != nil && c.ctx.Err() == nil {
			err = context.Cause(ctx) // of the attempt, not of the caller
		}
		return nil, dial != nil && dial.none(), err
	}
	resp.Request = c.req
	return resp, false, nil
}

// bound returns a context that ends after limit, if that is positive, and when the permit of
// h is lost. late is the timer of the limit, nil if there is none. If neither can end the
// attempt, bound returns ctx.
func (t *Transport) bound(ctx context.Context, h *hold, limit time.Duration) (bounded context.Context, late *lateness) {
	lost := h.permit.Lost()
	if limit <= 0 && lost == nil {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h.cancel = cancel
	if limit > 0 {
		late = t.start(limit, cancel)
	}
	if lost != nil {
		over := make(chan struct{})
		h.unwatch = func() { close(over) }
		go func() {
			select {
			case <-lost:
				cancel(limits.ErrLeaseLost)
			case <-ctx.Done():
			case <-over:
			}
		}()
	}
	return ctx, late
}

// A lateness is the timer of an attempt. Nearly all attempts have one, and it hardly ever fires, so it is
// used again: a new one took three allocations and a seventh of the time of a request in memory.
type lateness struct {
	timer  *time.Timer
	limit  time.Duration
	cancel context.CancelCauseFunc
}

// start starts a timer that ends an attempt after limit.
func (t *Transport) start(limit time.Duration, cancel context.CancelCauseFunc) *lateness {
	l, _ := t.latenesses.Get().(*lateness)
	if l == nil {
		l = &lateness{limit: limit, cancel: cancel}
		l.timer = time.AfterFunc(limit, l.end)
		return l
	}
	l.limit, l.cancel = limit, cancel
	l.timer.Reset(limit)
	return l
}

func (l *lateness) end() { l.cancel(&lateError{l.limit}) }

// stop stops l, and reports whether it has not ended the attempt.
func (t *Transport) stop(l *lateness) bool {
	if !l.timer.Stop() {
		return false // it is in use
	}
	l.cancel = nil
	t.latenesses.Put(l)
	return true
}

const (
	// defaultAttemptTimeout is the one of the SDKs of OpenAI and Anthropic.
	defaultAttemptTimeout = 10 * time.Minute

	// longUpload is the length of a body from which an upload may take longer than that.
	longUpload = 1 << 20
)

// attemptTimeout returns the timeout of an attempt; 0 or less means none.
func (c *call) attemptTimeout() time.Duration {
	timeout := cmp.Or(c.o.AttemptTimeout, c.t.cfg.Retry.AttemptTimeout)
	if timeout != 0 || c.uploads() {
		return timeout
	}
	if end, bounded := c.ctx.Deadline(); bounded && time.Until(end) <= defaultAttemptTimeout {
		return 0 // the request ends before it
	}
	return defaultAttemptTimeout
}

// patience is the longest wait for a body that is not for the caller.
const patience = time.Second

// patience returns how long to wait for a body that is not for the caller: at most as long
// as for the header.
func (c *call) patience() time.Duration {
	if limit := c.attemptTimeout(); limit > 0 {
		return min(limit, patience)
	}
	return patience
}

// uploads reports whether the body of the request is long, or of unknown length.
func (c *call) uploads() bool {
	has := c.req.Body != nil && c.req.Body != http.NoBody
	return has && (c.req.ContentLength <= 0 || c.req.ContentLength > longUpload)
}

// A dialing records whether an attempt got a connection. If it requested one and got none,
// nothing was written. If it did not request one, the base transport does not support
// tracing, and nothing is known.
type dialing struct{ asked, got atomic.Bool }

func (d *dialing) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.got.Store(true) },
	})
}

func (d *dialing) none() bool { return d.asked.Load() && !d.got.Load() }
