package sluicehttp

import (
	"context"
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
	label     uint32 // of route, see reroute.Label; 0 if none is needed
	major     bool   // it is one with its major parameter, see ofMajor
	cost      int64
	safe      bool      // it may be sent twice
	explained bool      // a published window explains why the last attempt was throttled, see excuse
	partly    bool      // the server did a part of it in the last attempt
	other     bool      // the server named another reason in the last attempt than too many calls
	atOnce    bool      // it said that it throttled because of the calls in flight
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

// server returns the destination of the request.
func (c *call) server() key {
	if c.key.scheme != "" {
		return c.key
	}
	return destination(c.req)
}
