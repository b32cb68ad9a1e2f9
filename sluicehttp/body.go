package sluicehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
)

// A hold is a permit that is out, from the grant until the body of the response was read.
type hold struct {
	body    io.ReadCloser
	permit  *sluice.Permit // own, or nil if there is none
	own     sluice.Permit  // a field, which saves an allocation
	bill    *bill          // nil if there is none
	meter   *meter         // of the body; nil if there is none
	state   *state
	cancel  context.CancelCauseFunc // ends the context of the attempt; nil if it has none
	unwatch func()                  // stops waiting for the permit to be lost; nil if it cannot be
	forget  func() bool             // stops waiting for the end of the context of the request; nil if it has none
	over    atomic.Bool

	listed bool // in state.held; not changed once the caller has h
	handed bool // the caller has h, and ends it

	// The number of the attempt, of those of state since that is watched; 0: it was not. It wraps;
	// with a longer one each request would allocate 16 bytes more.
	number uint16

	// since is when the attempt was sent, after Transport.epoch, if it has a number. Once h is
	// listed it is guarded by state.mu, as are the fields below, and is when the response arrived.
	since      time.Duration
	prev, next *hold
}

// Read implements io.Reader. As in net/http it may run concurrently with Close.
func (h *hold) Read(p []byte) (int, error) {
	n, err := h.body.Read(p)
	if h.meter != nil {
		h.meter.read(p[:n], err)
	}
	if err != nil {
		h.end()
	}
	return n, err
}

// Close implements io.Closer. It returns the connection before the permit, so that the next
// request can use it.
func (h *hold) Close() error {
	defer h.end()
	h.meter.close()
	return h.body.Close()
}

// drop ends h and closes its body, unless the caller has h: there is no response, it was set
// aside, or a function of the configuration has panicked.
func (h *hold) drop() {
	if h.handed {
		return
	}
	if h.body != nil {
		h.body.Close()
	}
	h.end()
}

// end releases everything, once.
func (h *hold) end() {
	if h.over.Load() {
		return
	}
	if h.forget != nil {
		h.forget()
	}
	h.lapse()
}

// lapse is end for a request whose context is done: nothing more can be read.
func (h *hold) lapse() {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	if h.cancel != nil {
		h.cancel(nil)
	}
	h.meter.stop() // before the release, so that the next caller finds the returned units
	h.bill.end()
	h.release()
}

// release releases the permit, if there is one.
func (h *hold) release() {
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

// A duplex is a hold with a body that can be written to, as after an upgrade.
type duplex struct {
	*hold
	io.Writer
}

// CloseWrite closes the connection for writing, if it supports that.
func (d *duplex) CloseWrite() error {
	if w, ok := d.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// hand passes resp, the response to a request with method that arrived at now, or just now if
// that is zero, to the caller, together with h. ctx is that of the request. free releases the permit.
func (h *hold) hand(ctx context.Context, resp *http.Response, method string, now time.Time, free bool) {
	empty := bodiless(resp, method)
	if empty {
		h.meter.close()
		h.meter = nil
	}
	if resp.Body == http.NoBody {
		h.end()
		return
	}
	// The context of the attempt outlives the permit. In HTTP/2 the stream of an
	// response without content may still be open: ending the context would interrupt
	// the handler and lose trailers.
	if free || empty {
		h.release()
		h.permit, h.unwatch = nil, nil
		if h.cancel == nil && h.meter == nil {
			h.bill.end()
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

// bodiless reports whether the body of resp is empty. With HTTP/2 an empty body is not
// http.NoBody. A ContentLength of 0 alone does not suffice, because base transports of tests
// leave it out.
func bodiless(resp *http.Response, method string) bool {
	return resp.Body == http.NoBody || method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified ||
		resp.ContentLength == 0 && resp.Header.Get("Content-Length") == "0"
}

// A response before a retry should free its connection for the next attempt, but must remain
// readable until that leaves, because a RoundTripper that has a response returns no error. So
// its first 64 KiB are read into memory, usually all of it, and the rest is dropped.

// mostAside is how much of a response is kept while the call is tried again.
const mostAside = 64 << 10

// errAside is the error after the first mostAside bytes of a response that was kept. The rest
// would have held its connection through the waits before the other attempts.
var errAside = errors.New("sluicehttp: the rest of this response was dropped when the request was tried again")

// setAside reads resp into memory, up to mostAside, and closes it, so that it holds no connection.
// It reports whether there is something to return if no response is better.
func setAside(resp *http.Response, patience time.Duration) bool {
	body := resp.Body
	defer body.Close()
	if stalled(body) { // peek has already waited
		return false
	}
	late := time.AfterFunc(patience, func() { body.Close() })
	content, err := readMost(body)
	if !late.Stop() {
		return false
	}
	if len(content) > mostAside {
		content, err = content[:mostAside], errAside
	}
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(content), broken{err}))
	return true
}

// readMost reads r until it has more than mostAside bytes, and returns its error, which
// distinguishes a short body from one that was cut.
func readMost(r io.Reader) (content []byte, err error) {
	for len(content) <= mostAside && err == nil {
		content = slices.Grow(content, 512)
		var n int
		n, err = r.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
	}
	return content, err
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
