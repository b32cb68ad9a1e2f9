package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// RoundTrip implements [http.RoundTripper]. It sends req, retries it if Config allows, and returns
// the last response with a nil error, whatever its status.
//
// Without a response, the error is that of the base transport if there was one attempt; the
// error of the context; a [*sluice.RetryError]; or that of the gate if it rejected the request.
// If a wait cannot end before the deadline of the context, which http.Client.Timeout sets,
// RoundTrip returns immediately, with an error that matches [*limits.WaitError] and
// [context.DeadlineExceeded]. The deprecated Request.Cancel ends an attempt, and then there is no
// other.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.init()
	c := call{t: t, req: req, ctx: req.Context()}
	if err := c.begin(); err != nil {
		if req.Body != nil {
			req.Body.Close() // its error does not matter
		}
		return nil, err
	}
	defer c.body.end()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if st := t.pinned(c.key); st != nil { // the common case, without a closure
		defer st.unpin()
		return c.run(st)
	}
	return c.enter()
}

// begin prepares c for the choice of a gate.
func (c *call) begin() (err error) {
	switch {
	case c.req.URL == nil:
		return errors.New("sluicehttp: the request has no URL")
	case c.req.Header == nil:
		return errors.New("sluicehttp: the request has no header")
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if _, bounded := c.ctx.Deadline(); bounded {
		c.began = time.Now()
	}
	c.o = overridesOf(c.ctx)
	if c.cost, err = c.o.cost(); err != nil {
		return err
	}
	c.key, c.safe = c.t.keyOf(c.req, c.o), c.idempotent()
	c.page = newPage(c.ctx, c.key)
	return nil
}

// prepare makes the body of c ready to be sent, and determines whether it may be sent twice and its
// cost.
func (c *call) prepare() (err error) {
	if c.req.Body != nil {
		c.body, err = newReplay(c.ctx, c.req, !c.o.NoRetry || c.t.cfg.Cost != nil)
	}
	idempotent, cost := c.t.cfg.Idempotent, c.t.cfg.Cost
	if err == nil && (!c.safe && idempotent != nil || cost != nil) {
		err = c.ask(idempotent, cost)
	}
	if err != nil {
		c.stop(err, time.Time{})
	}
	return err
}

// enter runs c with the gate of its key, which it makes if there is none.
func (c *call) enter() (resp *http.Response, err error) {
	entered := false
	err = c.t.use(c.key, func(st *state) (err error) {
		entered = true
		resp, err = c.run(st)
		return err
	})
	if !entered { // no gate
		c.stop(err, time.Time{})
	}
	return resp, err
}

// run sends c through the gate of st until there is no other attempt.
func (c *call) run(st *state) (*http.Response, error) {
	st.goesTo(c)
	c.attempts = st.attempts
	c.host, c.at = st, st
	if st.scopes != nil {
		defer c.unpin()
		st.scopes.note(c)
		c.label = labelOf(c.route)
	}
	if retriedOutside(c.req) {
		c.attempts.ChargeRetry()
	}
	for {
		asked := c.clock()
		h := new(hold)
		req, err := c.next(h)
		if err != nil {
			return c.refused(err)
		}
		c.discard()
		resp, again, err := c.attempt(req, h, asked)
		if !again {
			return resp, err
		}
	}
}

// next waits for the permit of another attempt, which h gets, and returns its request.
func (c *call) next(h *hold) (*http.Request, error) {
	if err := c.admit(h); err != nil {
		return nil, err
	}
	h.permit, h.bill = &h.own, c.newBill(h, &h.own)
	req, err := c.body.next(c.req, !c.o.NoRetry)
	if err != nil {
		h.bill.failed(time.Now())
		h.permit.Release()
	}
	return req, err
}

// admit waits for the permit of another attempt, in the gate that it needs.
func (c *call) admit(h *hold) error {
	for {
		if s := c.host.scopes; s != nil && (s.mode.Load()&busy != 0 || c.at != c.host) {
			c.goTo(s.where(c))
		}
		h.state = c.at
		if c.spent != nil {
			c.spent.of = c.counts(h).published
		}
		switch err := c.take(h); {
		case err == reroute.ErrTurnedAway:
		case err != nil:
			return err
		case c.host.scopes.strayed(c):
			_, _ = c.attempts.Done(c.ctx, reroute.ErrTurnedAway)
			*h = hold{}
		default:
			return nil
		}
	}
}

// take waits for the permit of another attempt, in line with the calls of its claimant.
func (c *call) take(h *hold) error {
	claimant := c.t.cfg.Claimant
	if claimant == nil {
		return c.takeIn(h)
	}
	return c.at.gate.For(claimant(c.req), func(gate *sluice.Gate) error {
		c.attempts.Move(gate)
		return c.takeIn(h)
	})
}

// takeIn is take in the gate of c.attempts.
func (c *call) takeIn(h *hold) error {
	if c.label != 0 {
		reroute.Label(&h.own, c.label)
	}
	_, err := c.attempts.Next(c.ctx, c.cost, &h.own)
	return err
}

// attempt sends req once, with the permit of h, which was asked for at asked. again reports
// whether there is another attempt; if not, the other results are those of RoundTrip.
func (c *call) attempt(req *http.Request, h *hold, asked time.Time) (resp *http.Response, again bool, err error) {
	defer h.drop()
	sent := c.clock()
	resp, unwritten, err := c.send(req, h)
	var now time.Time // of arrival; zero if nothing depends on it
	var f *failure
	if err == nil {
		h.body = resp.Body
		f, now = c.learn(h, resp)
	} else {
		now = time.Now()
		h.bill.failed(now)
		f = c.judgeError(err, unwritten)
	}
	if c.noted() {
		c.note(h.state, asked, sent, now, resp, f)
	}
	switch {
	case f == nil:
		return c.succeeded(resp, h, now), false, nil
	case resp == nil:
		stopped := c.fail(f)
		if stopped == nil {
			return nil, true, nil
		}
		return nil, false, c.failed(f, stopped)
	}
	resp = c.unsuccessful(resp, h, f, now)
	return resp, resp == nil, nil
}

// succeeded returns resp, which did not fail, for the caller.
func (c *call) succeeded(resp *http.Response, h *hold, now time.Time) *http.Response {
	c.counts(h).adjust()
	if resp.StatusCode < 500 {
		c.attempts.Done(c.ctx, nil)
	}
	c.hand(h, resp, now, c.free())
	return resp
}

// unsuccessful returns resp, which failed with f, for the caller, or sets it aside and returns
// nil if there is another attempt.
func (c *call) unsuccessful(resp *http.Response, h *hold, f *failure, now time.Time) *http.Response {
	stopped := c.fail(f)
	h.body = nil
	c.counts(h).adjust() // after a throttle has paused the gate
	if stopped == nil {
		c.setAside(resp, h)
		return nil
	}
	if !f.passed {
		c.stop(stopped, f.at)
	}
	c.hand(h, resp, now, c.free())
	return resp
}

// learn applies the limits in resp, the response to the attempt of h, and judges it.
// It also returns when resp arrived, or the zero time if resp says nothing, as most do, and
// that needs no note either.
func (c *call) learn(h *hold, resp *http.Response) (*failure, time.Time) {
	st := h.state
	said, warnings := ratelimit.Parse(resp.StatusCode, resp.Header, time.Time{}, c.t.cfg.Headers)
	now := said.Arrived
	some := uint32(0)
	if resp.StatusCode >= 400 || resp.StatusCode == http.StatusOK {
		some = c.speakers(resp)
	}
	if some == 1<<envelopeMaker && st.lengths.fine(resp, c.patience()) {
		some = 0
	}
	if now.IsZero() {
		if resp.StatusCode < 400 && c.t.cfg.Inspect == nil && some == 0 && h.bill == nil && st.floors.Load() == 0 && !st.spaced.Load() && !c.noted() && !c.host.scopes.watch() {
			return nil, now
		}
		now = time.Now()
	}
	if resp.StatusCode >= 400 {
		c.t.fromCache(resp, &said, now)
	}
	c.partly, c.other, c.atOnce = st.inspect(resp, some, &said, now, c.patience())
	if said.ShouldRetry != nil && !*said.ShouldRetry {
		// No waiting ends it: an account without credit, a spend limit. It says nothing about how
		// often calls may be made.
		said.Throttled, said.Global = false, false
	}
	st.noteWarnings(warnings)
	if said.Throttled && said.FromCache {
		said.Global = false
	} else {
		c.heed(h, &said, now)
	}
	if said.Throttled && said.Global {
		st.pauseAll(c.server(), pause{said.RetryAt, said.RetrySource + ": all calls"}, now)
	}
	return c.judge(resp, &said, now), now
}

// hand passes resp and h to the caller, see hold.hand.
func (c *call) hand(h *hold, resp *http.Response, now time.Time, free bool) {
	h.handed = true
	c.page.billed(h.bill)
	h.meter = newMeter(c.t.cfg.Usage, h.bill, resp)
	h.hand(c.ctx, resp, c.req.Method, now, free)
}

// note adds an attempt to the report, and passes it to Config.OnAttempt.
func (c *call) note(st *state, asked, sent, now time.Time, resp *http.Response, f *failure) {
	a := Attempt{Waited: sent.Sub(asked), Sent: sent, Took: now.Sub(sent)}
	if resp != nil {
		a.Status = resp.StatusCode
	}
	if f != nil && !f.passed {
		a.Err = f.err
	}
	if c.page != nil {
		c.page.attempted(a)
	}
	if c.t.cfg.OnAttempt != nil {
		c.t.cfg.OnAttempt(st.key.String(), a)
	}
}

// fail reports a failure to the gate, and returns why there is no other attempt, or nil if
// there is one.
func (c *call) fail(f *failure) error {
	if why := c.final(f); why != nil {
		if f.throttled || f.unclear { // otherwise Permanent would count as a success of the server
			c.attempts.Done(c.ctx, sluice.Permanent(f.marked())) // pauses the gate, if the throttle has a time
		}
		return why
	}
	_, err := c.attempts.Done(c.ctx, f.marked())
	return err
}

// final returns why there must be no attempt after f, or nil.
func (c *call) final(f *failure) error {
	retry := c.t.cfg.Retry.Retryable
	switch {
	case f.final != nil:
		return f.final
	case c.o.NoRetry:
		return errNoRetry
	case !c.body.can():
		return ErrReplay
	case retry != nil && !f.throttled && !f.passed && !retry(f.err):
		return sluice.ErrPermanent
	}
	return nil
}

// setAside keeps resp, and the context of its attempt, in case there is no better response.
func (c *call) setAside(resp *http.Response, h *hold) {
	if setAside(resp, c.patience()) {
		c.aside, c.cancel, h.cancel = resp, h.cancel, nil
	}
}

// refused returns the results of RoundTrip if err prevents another attempt: the response that
// was set aside, unless the caller has canceled the request.
func (c *call) refused(err error) (*http.Response, error) {
	c.stop(err, time.Time{})
	resp := c.aside
	if resp == nil || c.ctx.Err() == context.Canceled {
		c.discard()
		return nil, c.blame(err)
	}
	if c.cancel != nil {
		c.hand(&hold{cancel: c.cancel}, resp, time.Time{}, false)
	}
	return resp, nil
}

// failed returns the error of a call that failed with f and without a response; stopped is
// why there is no other attempt.
func (c *call) failed(f *failure, stopped error) error {
	c.stop(stopped, f.at)
	if is[*sluice.RetryError](stopped) && c.ctx.Err() == nil {
		return c.blame(stopped)
	}
	return f.err // as from the base transport alone
}

// unpin lets go of the scope of c.
func (c *call) unpin() {
	if c.at != c.host {
		c.at.unpin()
	}
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
