package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
)

// errNothing is what a base transport gets that breaks its contract.
var errNothing = errors.New("sluicehttp: the base transport returned neither a response nor an error")

// A lateError is that an attempt took longer than it may.
type lateError struct{ after time.Duration }

// Error returns how long that was.
func (e *lateError) Error() string {
	return "sluicehttp: no answer within the " + e.after.String() + " of an attempt"
}

// Timeout reports true.
func (e *lateError) Timeout() bool { return true }

// send sends req once and returns an answer or an error. unwritten reports that
// the error came before a byte was written. The context of the attempt lives
// until h ends, but is bounded only until the header of the answer is there: its
// expiry is the attempt's failure, that of the request's context the caller's.
//
// Only a request that needs a context of its own pays for one.
func (c *call) send(req *http.Request, h *hold) (resp *http.Response, unwritten bool, err error) {
	if c.t.cfg.Spread > 0 {
		h.state.inFlight.Add(1)
		defer h.state.inFlight.Add(-1)
	}
	limit, lost := c.attemptTimeout(), h.permit.Lost()
	traced := !c.o.NoRetry && !c.safe
	ctx := c.ctx
	var dial *dialing
	if traced {
		dial = new(dialing)
		ctx = dial.trace(ctx)
	}
	var late *time.Timer
	if limit > 0 || lost != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		h.cancel = func() { cancel(nil) }
		if limit > 0 {
			late = time.AfterFunc(limit, func() { cancel(&lateError{limit}) })
		}
		if lost != nil {
			over := make(chan struct{})
			h.unwatch = func() { close(over) }
			go func() {
				select {
				case <-lost:
					cancel(sluice.ErrLeaseLost)
				case <-ctx.Done():
				case <-over:
				}
			}()
		}
	}
	if traced || h.cancel != nil || c.canceling != nil {
		req = req.WithContext(ctx)
	}
	resp, err = c.t.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errNothing
	}
	if err == nil && resp.Body == nil { // the contract says it is not
		resp.Body = http.NoBody
	}
	if late != nil && !late.Stop() && err == nil {
		resp.Body.Close()       // it cannot be read any more
		err = &lateError{limit} // ctx may be about to end only
	}
	switch {
	case err == nil:
	case c.canceling.notice():
		err = c.ended()
	case ctx.Err() != nil && c.ctx.Err() == nil:
		err = context.Cause(ctx) // the attempt's, not the caller's
	}
	if err != nil {
		return nil, dial != nil && dial.none(), err
	}
	resp.Request = c.req
	return resp, false, nil
}

// attemptTimeout returns the bound of an attempt; 0 or less for none.
func (c *call) attemptTimeout() time.Duration {
	if c.o.AttemptTimeout != 0 {
		return c.o.AttemptTimeout
	}
	return c.t.cfg.Retry.AttemptTimeout
}

// A dialing is whether an attempt has got a connection. If it asked for one and
// got none, nothing was written. If it did not even ask, the base transport tells
// nobody, and nothing is known.
type dialing struct{ asked, got atomic.Bool }

func (d *dialing) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.got.Store(true) },
	})
}

func (d *dialing) none() bool { return d.asked.Load() && !d.got.Load() }
