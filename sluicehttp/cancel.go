package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// # What is Request.Cancel to a transport that waits?
//
// It is deprecated, but net/http obeys it, and an http.Client with a Timeout sets it
// on each request to any RoundTripper that is not its own. To leave it to the base
// transport is simpler, but that sees it only in an attempt: a call in the queue or
// in a backoff went on, and the error was retried. So it ends a context that the whole
// call uses.

// errCanceled has the text of net/http's own error, which is not exported.
var errCanceled = errors.New("net/http: request canceled")

// A canceling is what ends the context of a call with its Request.Cancel. It is not
// part of the call because the goroutine would make that escape to the heap, for
// requests without a Cancel, too.
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

// watchCancel returns what ends ctx with the Cancel of req, until its end is called.
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
			// An http.Client cancels at its deadline, which is that of the
			// context, too: then the error is that of the context. The second
			// is for a context that does not keep its deadline.
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

// notice ends the context if Request.Cancel is closed, and reports that. A base
// transport may have noticed it before our goroutine has.
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

// ended returns the error of a call whose context is done, bare, or nil if it is not.
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

// unwatch ends what watches Request.Cancel, unless the caller has an answer with which
// it goes on.
func (c *call) unwatch() {
	if c.canceling != nil && !c.handed {
		c.canceling.end(nil)
	}
}
