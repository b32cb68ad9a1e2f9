package sluicehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
)

// A hold is a permit that is out: from when it was granted until the body of the
// answer was read.
type hold struct {
	body    io.ReadCloser
	permit  *sluice.Permit
	state   *state
	cancel  func()      // ends the context of the attempt, nil if it has none of its own
	unwatch func()      // stops waiting for the permit to be lost, nil if it cannot be
	forget  func() bool // stops waiting for the end of the request's context, nil if it has none
	over    atomic.Bool

	listed bool // by the state; never changed once the caller has h

	// Under the lock of the state.
	since      time.Time
	prev, next *hold
}

// Read implements io.Reader. Like net/http's it may run together with Close.
func (h *hold) Read(p []byte) (int, error) {
	n, err := h.body.Read(p)
	if err != nil {
		h.end()
	}
	return n, err
}

// Close implements io.Closer. The connection is given back before the permit:
// the next request shall find it.
func (h *hold) Close() error {
	defer h.end()
	return h.body.Close()
}

// end gives everything back, once.
func (h *hold) end() {
	if h.over.Load() {
		return
	}
	if h.forget != nil {
		h.forget()
	}
	h.lapse()
}

// lapse is end for a request whose context is done: nothing more can be read of
// the answer, whether somebody closes it or not.
func (h *hold) lapse() {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	if h.cancel != nil {
		h.cancel()
	}
	h.giveBack()
}

// giveBack gives the permit back, if it is still there. A permit that was given
// back can no longer be lost.
func (h *hold) giveBack() {
	if h.listed {
		h.state.remove(h)
	}
	if h.unwatch != nil {
		h.unwatch()
	}
	if h.permit != nil {
		h.permit.Release()
	}
}

// A duplex is a hold whose body can be written to, as after an upgrade.
type duplex struct {
	*hold
	io.Writer
}

// CloseWrite closes the half of the connection that is written to, if it can.
func (d *duplex) CloseWrite() error {
	if w, ok := d.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// hand gives resp, the answer to a request of the given method that came at now,
// to the caller, and with it h. ctx is that of the request. free says that the
// permit is not needed any more.
func (h *hold) hand(ctx context.Context, resp *http.Response, method string, now time.Time, free bool) {
	if resp.Body == http.NoBody {
		h.end()
		return
	}
	// The context of the attempt outlives the permit. To end it with the header of
	// an answer without content was simpler, but in HTTP/2 such a stream may still
	// be open: its end read as context.Canceled, its trailers were lost and the
	// handler was interrupted.
	if free || bodiless(resp, method) {
		h.giveBack()
		h.permit, h.unwatch = nil, nil
		if h.cancel == nil {
			return
		}
	}
	if h.permit != nil {
		h.listed = true
		h.state.add(h, now)
	}
	h.body = resp.Body
	resp.Body = h
	if w, ok := h.body.(io.Writer); ok {
		resp.Body = &duplex{h, w}
	}
	if ctx.Done() != nil {
		h.forget = context.AfterFunc(ctx, h.lapse)
	}
}

// bodiless reports that nothing will be read from the body of resp. In HTTP/2 no
// body is not http.NoBody. A ContentLength of 0 alone shows nothing: base
// transports made for tests leave it out.
func bodiless(resp *http.Response, method string) bool {
	return resp.Body == http.NoBody || method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified ||
		resp.ContentLength == 0 && resp.Header.Get("Content-Length") == "0"
}

// # What becomes of an answer that is to be replaced by a better one?
//
// It must make room: its connection shall carry the next attempt, and no permit
// is held in a backoff. But until the next attempt leaves it is all there is, and
// the contract of a RoundTripper has no error for who has an answer. So what can
// be read of it in 4 KiB is read, which nearly always is all. Then the connection
// is free and the answer whole. Of a longer one the rest stays where it is, and
// with it the connection, until the next attempt may leave.

const (
	discarded = 4 << 10     // of the body of an answer
	patience  = time.Second // with a server that does not send it, at most
)

// patience returns how long to wait for a body that is not for the caller: no longer
// than for the header.
func (c *call) patience() time.Duration {
	if limit := c.attemptTimeout(); limit > 0 {
		return min(limit, patience)
	}
	return patience
}

// setAside reads what it must of the body of resp, so that it can be read again.
// It reports whether resp is still whole.
func setAside(resp *http.Response, patience time.Duration) bool {
	body := resp.Body
	if stalled(body) { // its second is over
		body.Close()
		return false
	}
	late := time.AfterFunc(patience, func() { body.Close() })
	content := make([]byte, discarded)
	n, err := readFull(body, content)
	if !late.Stop() {
		return false
	}
	if err == nil {
		resp.Body = &partly{io.MultiReader(bytes.NewReader(content), body), body}
		return true
	}
	body.Close() // it was read to its end, whatever that was
	if resp.Body = io.NopCloser(bytes.NewReader(content[:n])); err != io.EOF {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(content[:n]), broken{err}))
	}
	return true
}

// readFull is io.ReadFull, but the error is that of r: a body that was cut off is
// one thing, one that is short another.
func readFull(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = r.Read(p[n:])
		n += k
	}
	return n, err
}

// partly is a body of which the beginning has been read.
type partly struct {
	io.Reader
	io.Closer
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
