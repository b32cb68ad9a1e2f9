package sluicehttp

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A failure is how an attempt failed.
type failure struct {
	err       error       // a *StatusError, or that of the base transport
	throttled bool        // the server throttled because there were too many
	unclear   bool        // it may have: the gate knows by the answers to others
	passed    bool        // then: if it did not, the response is no failure and the caller gets it
	at        time.Time   // the earliest time to send it again; zero if unknown
	atOnce    bool        // because of the calls in flight, it says
	cached    bool        // the response comes from a cache: it is about this call
	explained bool        // a published window explains why
	unit      sluice.Unit // whose limit has throttled it, if the response says so
	final     error       // why there must be no other attempt, or nil
}

// judge returns how an attempt failed that was answered with resp at now, or nil if it did
// not fail. said is the content of resp.
func (c *call) judge(resp *http.Response, said *ratelimit.Info, now time.Time) *failure {
	safe := c.safe
	wanted := said.ShouldRetry != nil && *said.ShouldRetry
	unclear := !said.Throttled && said.ShouldRetry == nil && said.RetryAt.IsZero() && mayBeRefusal(resp.StatusCode) &&
		!(c.other && resp.StatusCode < 500)
	later := !said.Throttled && !said.RetryAt.IsZero() && comesLater(resp.StatusCode)
	switch {
	case said.Throttled:
		// The server has not processed the request, so any method may be tried
		// again, unless it did a part of it. That includes 529, which means busy. 503 may also mean a
		// failure, and then only the server knows.
		refused := resp.StatusCode != http.StatusServiceUnavailable || wanted
		if refused && !c.partly && !c.t.cfg.NoRetryThrottled {
			safe = true
		}
	case wanted && resp.StatusCode >= 400:
		safe = true // the server knows
	case !c.t.retryStatus(resp.StatusCode) && !unclear && !later:
		return nil
	}
	f := &failure{err: &StatusError{resp.StatusCode, said.Reason}, unclear: unclear || later}
	f.passed = unclear && !c.t.retryStatus(resp.StatusCode)
	switch {
	case said.ShouldRetry != nil && !wanted:
		f.final = sluice.ErrPermanent
	case !safe:
		f.final = ErrUnsafe
	}
	if f.throttled, f.at = said.Throttled, said.RetryAt; !f.throttled {
		f.at = c.t.later(f.at, now)
	} else if f.explained, f.atOnce, f.cached = c.explained, c.atOnce, said.FromCache; c.spent != nil {
		f.unit = c.spent.exhausted(said)
	}
	return f
}

// marked returns the error of f for sluice.RetryLoop. After a throttle it pauses the gate.
// After any other failure the time is for this call only, which may be at fault itself.
func (f *failure) marked() error {
	switch {
	case f.throttled:
		err := f.err
		if f.cached {
			err = &errs.Alone{Err: err}
		}
		if f.atOnce {
			err = &errs.AtOnce{Err: err}
		}
		if f.explained {
			err = &errs.Explained{Err: err}
		}
		err = sluice.ThrottledFor(err, time.Until(f.at)) // zero if unknown
		if f.unit != "" {
			err = sluice.ThrottledBy(err, f.unit)
		}
		return err
	case !f.at.IsZero() && f.unclear:
		return sluice.MaybeThrottled(sluice.RetryAfter(f.err, time.Until(f.at)))
	case !f.at.IsZero():
		return sluice.RetryAfter(f.err, time.Until(f.at))
	case f.passed:
		return sluice.MaybeThrottled(sluice.Permanent(f.err))
	case f.unclear:
		return sluice.MaybeThrottled(f.err)
	}
	return f.err
}

// mayBeRefusal reports whether some servers use status, without a word about when to come back,
// for too many calls, and others for something else.
func mayBeRefusal(status int) bool {
	switch status {
	case http.StatusServiceUnavailable, // nginx limit_req and limit_conn, HAProxy, Ollama
		http.StatusInternalServerError, // Apache mod_qos
		http.StatusForbidden,           // Apache mod_evasive, many firewalls
		420,                            // the old Twitter: enhance your calm
		430,                            // Shopify: security rejection
		508,                            // CloudLinux: resource limit is reached
		509,                            // cPanel and others: bandwidth limit exceeded
		999:                            // LinkedIn, Yahoo: request denied
		return true
	}
	return false
}

// comesLater reports whether status is one of a request that may succeed later if the response says when: a lock
// or a conflict with another request that ends (423, 409), or a server that cannot take a body now (413, RFC 9110,
// section 15.5.14). Without a time they are final. Some servers mean too many calls in flight.
func comesLater(status int) bool {
	switch status {
	case http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusLocked:
		return true
	}
	return false
}

// judgeError returns how an attempt failed that ended with err.
func (c *call) judgeError(err error, unwritten bool) *failure {
	f := &failure{err: err, unclear: mayBeDropped(err)}
	switch {
	case hopeless(err) || c.t.refusedByProxy(err) || !wellFormed(c.req) || canceled(c.req):
		f.final = sluice.ErrPermanent
	case !c.safe && !unwritten && !neverWritten(err):
		f.final = ErrUnsafe
	}
	return f
}

// mayBeDropped reports whether some servers end a call with err, without a response, because there are
// too many, and others because they failed: a cap on connections resets those above it, and an HTTP/2
// server says ENHANCE_YOUR_CALM in a GOAWAY, whose error in net/http has no exported type.
func mayBeDropped(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || slices.ContainsFunc(drops, func(drop error) bool { return errors.Is(err, drop) }) {
		return true
	}
	var stream streamError
	if errors.As(err, &stream) {
		return stream.Code == refusedStream || stream.Code == enhanceYourCalm
	}
	return strings.Contains(err.Error(), "ENHANCE_YOUR_CALM")
}
