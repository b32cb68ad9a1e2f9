package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// With -url, -timeout bounds silence: until the header of a response, which is what the attempt
// timeout of the transport does, and then between two parts of the body, which is done here. A
// large body that keeps coming may take as long as it takes. A body that stalls or is cut is
// asked for again, like an attempt that failed, if that is safe.

// A brokenBody is the error of a body that was cut, or that was silent for too long.
type brokenBody struct{ error }

func (e brokenBody) Unwrap() error { return e.error }

// A listener reads a body, and calls hang if nothing comes for as long as wait.
type listener struct {
	body io.Reader
	wait time.Duration // 0: for ever
	hang func()
}

func (l listener) Read(p []byte) (int, error) {
	if l.wait > 0 {
		defer time.AfterFunc(l.wait, l.hang).Stop()
	}
	return l.body.Read(p)
}

// errSilent is the cause that ends a request whose body is silent.
var errSilent = errors.New("silent")

// readBody reads the body of resp, whose request hang ends with the cause errSilent.
func (c *caller) readBody(ctx context.Context, resp *http.Response, hang context.CancelCauseFunc) (output, error) {
	var out output
	body := listener{resp.Body, c.policy.AttemptTimeout, func() { hang(errSilent) }}
	more, err := out.stdout.readFrom(body, maxBody)
	url := resp.Request.URL.Redacted()
	switch {
	case err != nil && context.Cause(ctx) == errSilent:
		err = brokenBody{fmt.Errorf("reading %s: nothing came for %v (-timeout)", url, c.policy.AttemptTimeout)}
	case isFile(err):
		err = fmt.Errorf("keeping the body of %s: %w", url, err)
	case err != nil:
		err = brokenBody{fmt.Errorf("reading %s: %w", url, err)}
	case more:
		err = fmt.Errorf("%s: the response is longer than %d MiB", url, maxBody>>20)
	default:
		return out, out.stdout.endLine()
	}
	out.close()
	return output{}, err
}

// isFile reports whether err is of a file, and not of a connection.
func isFile(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is
}

// run makes the call of s. A broken body counts as an attempt that failed: there are at most
// -retries of them.
func (c *caller) run(ctx context.Context, s subject) (output, error) {
	t := new(trip)
	ctx = context.WithValue(ctx, tripKey{}, t)
	for broken := 1; ; broken++ {
		out, err := c.call(ctx, s)
		if _, is := errors.AsType[brokenBody](err); !is || !c.safe() || ctx.Err() != nil {
			return out, err
		}
		if broken >= c.policy.Attempts {
			return out, fmt.Errorf("%w%s", err, tried(broken, nil))
		}
		t.end()
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

// A trip is the attempt of a call that is under way, see departing.
type trip struct{ arrive func() }

type tripKey struct{}

// end ends the attempt, if there is one.
func (t *trip) end() {
	if t.arrive != nil {
		t.arrive()
	}
}
