package crawl

import (
	"context"
	"errors"
	"io"
	"time"
)

// The causes that end a request, each with what it is called in pages.jsonl.
var (
	errNoAnswer = errors.New("no answer within -timeout")
	errStalled  = errors.New("nothing more came within -timeout")
	errLong     = errors.New("not complete within -max-time")
)

// A vigil ends a request whose host is silent for longer than -timeout, before the header or
// within the body, and one that takes longer than -max-time. A page that keeps coming may be as
// slow as that. One goroutine uses it.
type vigil struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration
	silent  *time.Timer
	long    *time.Timer
}

// vigil begins with the request. It must be ended.
func (c *crawler) vigil() *vigil {
	v := &vigil{timeout: c.o.timeout}
	v.ctx, v.cancel = context.WithCancelCause(c.calls)
	v.silent = time.AfterFunc(c.o.timeout, func() { v.cancel(errNoAnswer) })
	v.long = time.AfterFunc(c.o.maxTime, func() { v.cancel(errLong) })
	return v
}

// answered notes that the header has come.
func (v *vigil) answered() {
	v.silent.Stop()
	v.silent = time.AfterFunc(v.timeout, func() { v.cancel(errStalled) })
}

// end ends the request, if it is still under way.
func (v *vigil) end() {
	v.silent.Stop()
	v.long.Stop()
	v.cancel(nil)
}

// cause returns why a request failed with err: the limit of time that ended it, or err.
func (v *vigil) cause(err error) error {
	if cause := context.Cause(v.ctx); err != nil && (cause == errNoAnswer || cause == errStalled || cause == errLong) {
		return cause
	}
	return err
}

// watched is a body that a vigil watches.
type watched struct {
	io.Reader
	*vigil
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.silent.Reset(w.timeout)
	return n, err
}
