package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
)

// A call is one request on its way through a gate, however often it is sent.
//
//	   ┌───────────────────────────────────────────────────────────┐
//	   ▼                                                           │
//	Next: backoff, then the gate ──► send ──► read ──► judge ──► Failed: another?
//	   │                                                │          │
//	   │ refused: the answer set aside, or an error     │ fine     │ no: the answer, or the error
//	   ▼                                                ▼          ▼
//
// The permit is held from Next until the answer is judged; then it is given back
// before the backoff, or goes along with the body that the caller gets.
type call struct {
	t      *Transport
	req    *http.Request
	ctx    context.Context // of req, or ended by req.Cancel as well
	o      *Overrides
	key    key
	weight int64
	safe   bool      // it may be sent twice
	page   *page     // of the report, or nil
	began  time.Time // zero if ctx has no deadline
	body   replay

	// An answer that was set aside for a better one, and what ends the context
	// of its attempt, or nil.
	aside  *http.Response
	cancel func()

	canceling *canceling // ends ctx; nil if req has no Cancel
	handed    bool       // a hold that was handed over calls its end

	resp *http.Response
}

// run sends c through the gate of st, as often as it takes.
func (c *call) run(st *state) (*http.Response, error) {
	st.heads(c.server())
	policy := c.t.cfg.Retry
	policy.Retryable = nil // asked by final
	attempts := sluice.NewAttempts(st.gate, policy)
	if retriedOutside(c.req) {
		attempts.Charge()
	}
	for {
		var asked time.Time
		if c.page != nil {
			asked = time.Now()
		}
		permit, err := attempts.Next(c.ctx, c.weight)
		if err != nil {
			return c.refused(err)
		}
		req, err := c.body.next(c.req, !c.o.NoRetry)
		if err != nil {
			permit.Release()
			return c.refused(err)
		}
		c.discard()
		resp, again, err := c.attempt(req, st, permit, &attempts, asked)
		if !again {
			return resp, err
		}
	}
}

// attempt sends req once, with permit. again reports that it is to be tried once
// more; otherwise it returns what RoundTrip does.
func (c *call) attempt(req *http.Request, st *state, permit *sluice.Permit, attempts *sluice.Attempts, asked time.Time) (resp *http.Response, again bool, err error) {
	h := &hold{permit: permit, state: st}
	handed := false
	var open *http.Response // to close if an Inspector, or another function of the configuration, panics
	defer func() {
		if open != nil {
			open.Body.Close()
		}
		if !handed { // there is no answer, it was set aside, or something panicked
			h.end()
		}
	}()
	var sent time.Time
	if c.page != nil {
		sent = time.Now()
	}
	resp, unwritten, err := c.send(req, h)
	open = resp
	now := time.Now()

	var f *failure
	if err == nil {
		said := st.read(resp, now, c.patience())
		st.learn(&said, now)
		if said.Throttled && said.Global {
			st.pauseAll(c.server(), pause{said.RetryAt, said.RetrySource + ": all calls"}, now)
		}
		f = c.judge(resp, &said, now)
	} else {
		f = c.judgeError(err, unwritten)
	}
	c.note(asked, sent, now, resp, f)
	if f == nil {
		open = nil
		st.adjust()
		if resp.StatusCode < 500 {
			attempts.Succeeded()
		}
		handed = true
		c.hand(h, resp, now, c.free())
		return resp, false, nil
	}

	stopped := c.fail(f, attempts)
	open = nil
	if resp != nil {
		st.adjust() // after a throttle has paused the gate
	}
	switch {
	case stopped == nil && resp == nil:
		return nil, true, nil
	case stopped == nil:
		c.setAside(resp, h)
		return nil, true, nil
	case resp == nil:
		return nil, false, c.failed(f, stopped)
	}
	c.stop(stopped, f.at)
	handed = true
	c.hand(h, resp, now, c.free())
	return resp, false, nil
}

// hand gives resp to the caller, and with it h, see hold.hand.
func (c *call) hand(h *hold, resp *http.Response, now time.Time, free bool) {
	if k := c.canceling; k != nil {
		attempt := h.cancel
		h.cancel = func() {
			if attempt != nil {
				attempt()
			}
			k.end(nil)
		}
		c.handed = true
	}
	h.hand(c.ctx, resp, c.req.Method, now, free)
}

// server returns where the request goes.
func (c *call) server() key {
	if c.key.scheme != "" {
		return c.key
	}
	return destination(c.req)
}

// note writes an attempt into the report.
func (c *call) note(asked, sent, now time.Time, resp *http.Response, f *failure) {
	if c.page == nil {
		return
	}
	a := Attempt{Waited: sent.Sub(asked), Sent: sent, Took: now.Sub(sent)}
	if resp != nil {
		a.Status = resp.StatusCode
	}
	if f != nil {
		a.Err = f.err
	}
	c.page.attempted(a)
}

// fail tells the gate of a failure, and returns why there is no other attempt, or
// nil if there is to be one.
func (c *call) fail(f *failure, attempts *sluice.Attempts) error {
	if why := c.final(f); why != nil {
		if f.throttled { // or else Permanent would count as an answer of a server that is well
			attempts.Failed(c.ctx, sluice.Permanent(f.marked())) // pauses the gate, if the throttle has a time
		}
		return why
	}
	return attempts.Failed(c.ctx, f.marked())
}

// final returns why f must not be followed by another attempt, or nil.
func (c *call) final(f *failure) error {
	retry := c.t.cfg.Retry.Retryable
	switch {
	case f.final != nil:
		return f.final
	case c.o.NoRetry:
		return ErrNoRetry
	case !c.body.can():
		return ErrReplay
	case retry != nil && !f.throttled && !retry(f.err):
		return sluice.ErrPermanent
	}
	return nil
}

// free reports whether the permit is to be given back when the header is there.
func (c *call) free() bool { return c.t.cfg.ReleaseAtHeaders || c.o.ReleaseAtHeaders }

// setAside keeps resp in case that there will be none better, and with it the
// context of its attempt.
func (c *call) setAside(resp *http.Response, h *hold) {
	if setAside(resp, c.patience()) {
		c.aside, c.cancel, h.cancel = resp, h.cancel, nil
	}
}

// discard closes the answer that was set aside.
func (c *call) discard() {
	if c.aside != nil {
		c.aside.Body.Close() // nobody wants to know
	}
	if c.cancel != nil {
		c.cancel()
	}
	c.aside, c.cancel = nil, nil
}

// refused returns what RoundTrip does when there is no other attempt because of
// err: the answer that was set aside, if there is one. A caller who has given up
// does not want it; one who is late may.
func (c *call) refused(err error) (*http.Response, error) {
	c.stop(err, time.Time{})
	resp, ended := c.aside, c.ended()
	if resp == nil || ended == context.Canceled || ended == errCanceled {
		c.discard()
		return nil, c.blame(err)
	}
	if c.cancel != nil || c.canceling != nil {
		c.hand(&hold{cancel: c.cancel}, resp, time.Time{}, false)
	}
	return resp, nil
}

// failed returns the error of a call that ended without an answer because of f,
// after which there is no other attempt because of stopped.
func (c *call) failed(f *failure, stopped error) error {
	c.stop(stopped, f.at)
	if is[*sluice.RetryError](stopped) && c.ended() == nil {
		return c.blame(stopped)
	}
	return f.err // as if there were only the base transport
}

// blame returns err as the caller is to see it: an error of the context bare.
func (c *call) blame(err error) error {
	if err := c.ended(); err != nil {
		return err
	}
	return c.tooShort(err)
}

// stop notes in the report why there is no other attempt, and when the server
// wants to be called again, if that is known.
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
	c.page.stopped(c.tooShort(err), at)
}
