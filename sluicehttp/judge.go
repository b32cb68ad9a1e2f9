package sluicehttp

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A failure is how an attempt failed.
type failure struct {
	err       error       // a *StatusError, or that of the base transport
	throttled bool        // the server refused because there were too many
	at        time.Time   // the earliest time to send it again; zero if unknown
	unit      sluice.Unit // whose limit has refused it, if the response says so
	final     error       // why there must be no other attempt, or nil
}

// judge returns how an attempt failed that was answered with resp at now, or nil if it did
// not fail. said is what resp says.
func (c *call) judge(resp *http.Response, said *ratelimit.Info, now time.Time) *failure {
	safe := c.safe
	wanted := said.ShouldRetry != nil && *said.ShouldRetry
	switch {
	case said.Throttled:
		// The server has not processed the request, so any method may be tried
		// again. That includes 529, which means busy. 503 may also mean a
		// failure, and then only the server knows.
		refused := resp.StatusCode != http.StatusServiceUnavailable || wanted
		if refused && !c.t.cfg.KeepRefused {
			safe = true
		}
	case wanted && resp.StatusCode >= 400:
		safe = true // the server knows
	case !c.t.retryStatus(resp.StatusCode):
		return nil
	}
	f := &failure{err: &StatusError{resp.StatusCode, said.Reason}}
	switch {
	case said.ShouldRetry != nil && !wanted:
		f.final = sluice.ErrPermanent
	case !safe:
		f.final = ErrUnsafe
	}
	if f.throttled, f.at = said.Throttled, said.RetryAt; !f.throttled {
		f.at = c.t.later(f.at, now)
	} else if c.spent != nil {
		f.unit = c.spent.exhausted(said)
	}
	return f
}

// marked returns the error of f for sluice.Attempts. After a throttle it pauses the gate.
// After any other failure the time is for this call only, which may be at fault itself.
func (f *failure) marked() error {
	switch {
	case f.throttled:
		err := sluice.RetryAt(f.err, f.at) // zero if unknown
		if f.unit != "" {
			err = sluice.Exhausted(err, f.unit)
		}
		return err
	case !f.at.IsZero():
		return sluice.NotBefore(f.err, f.at)
	}
	return f.err
}

// judgeError returns how an attempt failed that ended with err.
func (c *call) judgeError(err error, unwritten bool) *failure {
	f := &failure{err: err}
	switch {
	case hopeless(err) || c.t.refusedByProxy(err) || !wellFormed(c.req) || canceled(c.req):
		f.final = sluice.ErrPermanent
	case !c.safe && !unwritten && !neverWritten(err):
		f.final = ErrUnsafe
	}
	return f
}
