package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
)

// A call is a request, however often it is sent.
//
//	   ┌───────────────────────────────────────────────────────────┐
//	   ▼                                                           │
//	Next: backoff, then the gate ──► send ──► read ──► judge ──► Ended: another?
//	   │                                                │          │
//	   │ throttled: the response set aside, or an error   │ fine     │ no: the response, or the error
//	   ▼                                                ▼          ▼
//
// The permit is held from Next until the response is judged. Then it is released before the
// backoff, or passed on with the body that the caller gets.
type call struct {
	t         *Transport
	req       *http.Request
	ctx       context.Context // of req, with the costs of the call
	o         *Overrides
	key       key
	host      *state // of key
	at        *state // through whose gate it goes: that of host, or of a scope, which is pinned for it
	route     uint64 // 0 while it is not known
	cost      int64
	safe      bool      // it may be sent twice
	explained bool      // a published window explains why the last attempt was throttled, see excuse
	partly    bool      // the server did a part of it in the last attempt
	other     bool      // the server named another reason in the last attempt than too many calls
	page      *page     // of the report, or nil
	began     time.Time // zero if ctx has no deadline
	body      replay

	attempts sluice.RetryLoop

	// aside is a response that is returned if there is no better one. cancel ends
	// the context of its attempt, or is nil.
	aside  *http.Response
	cancel context.CancelCauseFunc

	spent *spending // nil without a Config.Cost
}

// counts returns the state that notes the responses to the call of h.
func (c *call) counts(h *hold) *state {
	if h.state.key.route == askName {
		return c.host
	}
	return h.state
}

// goTo lets c go on through the gate of st, which is pinned unless it is the host.
func (c *call) goTo(st *state) {
	before := c.at
	c.at = st
	c.attempts.Move(st.gate)
	if before != c.host {
		before.unpin()
	}
}

// unpin lets go of the scope of c.
func (c *call) unpin() {
	if c.at != c.host {
		c.at.unpin()
	}
}

// server returns the destination of the request.
func (c *call) server() key {
	if c.key.scheme != "" {
		return c.key
	}
	return destination(c.req)
}

// noted reports whether somebody wants to know of attempts.
func (c *call) noted() bool { return c.page != nil || c.t.cfg.OnAttempt != nil }

// clock returns the time for a note, or the zero time if there is none.
func (c *call) clock() (now time.Time) {
	if c.noted() {
		now = time.Now()
	}
	return now
}

// free reports whether to release the permit when the header arrives.
func (c *call) free() bool { return c.t.cfg.ReleaseAtHeaders || c.o.ReleaseAtHeaders }

// discard closes the response that was set aside.
func (c *call) discard() {
	if c.aside != nil {
		c.aside.Body.Close() // its error does not matter
	}
	if c.cancel != nil {
		c.cancel(nil)
	}
	c.aside, c.cancel = nil, nil
}

// blame returns err for the caller: an error of the context unwrapped.
func (c *call) blame(err error) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.tooShort(err)
}

// stop notes in the report why there is no other attempt, and when to retry, if known.
func (c *call) stop(err error, at time.Time) {
	if c.page == nil {
		return
	}
	if stopped, ok := errors.AsType[*sluice.RetryError](err); ok {
		err = stopped.Why
		if !stopped.RetryAt.IsZero() {
			at = stopped.RetryAt
		}
	}
	if long, ok := errors.AsType[*serverWait](err); ok {
		at = long.at
	}
	c.page.stopped(c.tooShort(err), at)
}
