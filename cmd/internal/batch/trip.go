package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// With -url, -timeout bounds silence: until the header of a response, and then between two parts
// of the body. A large body that keeps coming may take as long as it takes, or as -max-time says.
// A body that stalls or is cut is asked for again, like an attempt that failed, if that is safe.

// A trip is the request of a call that is under way. A call that is tried again, or follows a
// redirect, has several, one after the other.
type trip struct {
	arrive func()         // ends the attempt for batch
	hop    *http.Response // the redirect that the request follows
	ctx    context.Context
	cancel context.CancelCauseFunc
	long   func() // ends -max-time
	leave  func() // of the room
}

type tripKey struct{}

// end ends the request, if there is one, but not the attempt.
func (t *trip) end() {
	if t.cancel != nil {
		t.long()
		t.leave()
		t.cancel(nil)
		t.cancel = nil
	}
}

// The causes that end a request.
var errSilent, errLong = errors.New("-timeout"), errors.New("-max-time")

// A lateError is the error of a request that was ended for a cause.
type lateError struct {
	cause error
	after time.Duration
	body  bool // the header has come
}

func (e lateError) Error() string {
	switch {
	case e.cause == errLong:
		return fmt.Sprintf("not complete after %v (-max-time)", e.after)
	case e.body:
		return fmt.Sprintf("nothing came for %v (-timeout)", e.after)
	}
	return fmt.Sprintf("no response within %v (-timeout)", e.after)
}

func (lateError) Timeout() bool { return true }

// late returns the error of a request that ended with err, which is another one if it was ended.
func (d *departing) late(t *trip, err error, body bool) error {
	switch cause := context.Cause(t.ctx); {
	case err == nil:
	case cause == errSilent:
		return lateError{cause, d.timeout, body}
	case cause == errLong:
		return lateError{cause, d.maxTime, body}
	}
	return err
}

// departing makes the requests, behind all gates. It tells batch when an attempt starts, and when
// it is over if another one may follow; otherwise the attempt lasts until the body was read, which
// is when run returns. A redirect that is followed belongs to its attempt.
type departing struct {
	base             *http.Transport
	timeout, maxTime time.Duration // 0: none
	failures         *failures
	stops            *stops
	room             room
	backlog          *backlog
}

func (d *departing) RoundTrip(req *http.Request) (*http.Response, error) {
	t := req.Context().Value(tripKey{}).(*trip)
	t.end()
	if err := d.backlog.wait(req.Context()); err != nil {
		return nil, err
	}
	if req.Response == nil || req.Response == t.hop {
		t.arrive = batch.StartAttempt(req.Context())
	}
	t.hop = req.Response
	t.ctx, t.cancel = context.WithCancelCause(req.Context())
	t.long = d.after(d.maxTime, t.cancel, errLong)
	d.room.enter()
	t.leave = d.room.leave
	resp, err := d.send(req.WithContext(t.ctx), t)
	if err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil // its body will be read
	}
	// The call may wait for a gate now, and it needs no room there.
	t.leave()
	t.leave = func() {}
	switch {
	case err != nil && req.Context().Err() != nil: // the job ends
	case err != nil:
		d.failures.add(req.URL.Host, err.Error())
	case resp.StatusCode < http.StatusBadRequest:
		return resp, nil
	default:
		d.failures.add(req.URL.Host, resp.Status)
	}
	t.arrive()
	return resp, err
}

// send sends a request. If the system has no handle for another connection, it waits until another
// call has ended.
func (d *departing) send(req *http.Request, t *trip) (*http.Response, error) {
	for last := false; ; {
		exits := d.room.exited()
		silent := d.after(d.timeout, t.cancel, errSilent)
		resp, err := d.base.RoundTrip(req)
		silent()
		if err == nil || !isScarce(err) || last {
			return resp, d.late(t, err, false)
		}
		d.base.CloseIdleConnections()
		last = !d.room.wait(t.ctx, exits)
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// after cancels a request for a cause when the program has run for limit, if that is not 0.
func (d *departing) after(limit time.Duration, cancel context.CancelCauseFunc, cause error) (stop func()) {
	if limit == 0 {
		return func() {}
	}
	return d.stops.after(limit, func() { cancel(cause) })
}

// A listener reads the body of a response, which must not be silent for too long.
type listener struct {
	body io.Reader
	*departing
	*trip
}

func (l listener) Read(p []byte) (int, error) {
	defer l.after(l.timeout, l.cancel, errSilent)()
	n, err := l.body.Read(p)
	if err != nil && err != io.EOF {
		err = brokenBody{l.late(l.trip, err, true)}
	}
	return n, err
}

// A brokenBody is the error of a body that was cut, or that was silent for too long.
type brokenBody struct{ error }

func (e brokenBody) Unwrap() error { return e.error }

// readBody reads the body of resp, or puts it into the file of an item in the directory of -results.
func (c *caller) readBody(t *trip, resp *http.Response, s subject) (output, error) {
	url := resp.Request.URL.Redacted()
	most := c.o.maxBody
	if n := resp.ContentLength; most > 0 && n > most && resp.Body != http.NoBody {
		return output{}, tooLong(url, most)
	}
	var out output
	file, err := c.o.resultFile(s, false)
	if err != nil {
		return output{}, err
	}
	more, err := out.stdout.readFrom(listener{resp.Body, c.departing, t}, most, file)
	switch _, broken := errors.AsType[brokenBody](err); {
	case broken:
		err = brokenBody{fmt.Errorf("reading %s: %w", url, err)}
	case err != nil:
		err = fmt.Errorf("keeping the body of %s: %w", url, err)
	case more:
		err = tooLong(url, most)
	case c.o.results != "":
		return out, nil // as it came
	default:
		return out, out.stdout.endLine()
	}
	out.close()
	return output{}, err
}

func tooLong(url string, most int64) error {
	return fmt.Errorf("%s: the response is longer than %v (-max-body)", url, cli.Bytes(most))
}

// run makes the call of s. A broken body counts as an attempt that failed: there are at most
// -retries of them.
func (c *caller) run(ctx context.Context, s subject) (output, error) {
	t := new(trip)
	defer t.end()
	ctx = context.WithValue(ctx, tripKey{}, t)
	for broken := 1; ; broken++ {
		out, err := c.call(ctx, t, s)
		if _, is := errors.AsType[brokenBody](err); !is || !c.safe() || ctx.Err() != nil {
			return out, err
		}
		if broken >= c.policy.Attempts {
			return out, fmt.Errorf("%w%s", err, tried(broken, nil))
		}
		t.end()
		t.arrive()
		select {
		case <-time.After(c.policy.Backoff(broken, 0, rand.Float64())):
		case <-ctx.Done():
			return out, &sluice.RetryError{Last: err, Why: context.Cause(ctx), Attempts: broken}
		}
	}
}

// safe reports whether the request may be made again although the server has answered.
func (c *caller) safe() bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete}, c.method)
}
