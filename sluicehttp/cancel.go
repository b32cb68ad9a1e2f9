package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Request.Cancel is deprecated, but net/http obeys it, and an http.Client with a Timeout
// sets it on each request to a RoundTripper that is not its own. The base transport sees it
// only within an attempt. So here it ends a context of the whole call, which also covers the
// queue and the backoff.

// errCanceled has the text of the error of net/http, which is not exported.
var errCanceled = errors.New("net/http: request canceled")

// A canceling ends the context of a call with its Request.Cancel. It is not part of the
// call, because its goroutine would make every call escape to the heap.
type canceling struct {
	req      *http.Request
	canceled <-chan struct{} // its Cancel
	ctx      context.Context
	end      context.CancelCauseFunc
}

// cancelOf returns the Cancel of req.
func cancelOf(req *http.Request) <-chan struct{} {
	return req.Cancel //lint:ignore SA1019 net/http obeys it, too
}

// watchCancel returns a canceling with a copy of ctx that ends with the Cancel of req.
func watchCancel(ctx context.Context, req *http.Request) *canceling {
	k := &canceling{req: req, canceled: cancelOf(req)}
	k.ctx, k.end = context.WithCancelCause(ctx)
	go func() {
		select {
		case <-k.ctx.Done():
			return
		case <-k.canceled:
		}
		if k.late() {
			// An http.Client cancels at its deadline, which is also that of the
			// context: then the error is that of the context. The second is for
			// a context that misses its deadline.
			select {
			case <-k.ctx.Done():
			case <-time.After(time.Second):
			}
		}
		k.notice()
	}()
	return k
}

// late reports whether the deadline of the request has passed.
func (k *canceling) late() bool {
	deadline, ok := k.req.Context().Deadline()
	return ok && !time.Now().Before(deadline)
}

// notice ends the context if Request.Cancel is closed, and reports whether it is. A base
// transport may notice that before the goroutine does.
func (k *canceling) notice() bool {
	if k == nil {
		return false
	}
	select {
	case <-k.canceled:
	default:
		return false
	}
	if k.late() {
		k.end(context.DeadlineExceeded)
	} else {
		k.end(errCanceled)
	}
	return true
}

// ended returns the error of the context of the call, or nil if it is not done.
func (c *call) ended() error {
	err := c.ctx.Err()
	if err == nil || c.canceling == nil {
		return err
	}
	if cause := context.Cause(c.ctx); cause == errCanceled || cause == context.DeadlineExceeded {
		return cause
	}
	return err
}

// unwatch stops watching Request.Cancel, unless the caller has a response, with which it goes
// on.
func (c *call) unwatch() {
	if c.canceling != nil && !c.handed {
		c.canceling.end(nil)
	}
}
