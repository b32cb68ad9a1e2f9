// Package errs has what several packages do to the errors of package limits before
// they return them.
package errs

import (
	"context"
	"strings"

	"github.com/sluice-go/sluice/limits"
)

const prefix = "sluice: "

// For returns err, which is about a wait, with cause as what the wait was for.
func For(cause limits.Cause, err error) error {
	switch e := err.(type) {
	case *limits.WaitError:
		return &limits.WaitError{By: e.By, For: cause, Need: e.Need, Have: e.Have}
	}
	if err == limits.ErrTimeout && cause != "" {
		return &timeout{cause}
	}
	return err
}

// A timeout is an ErrTimeout with what the wait was for.
type timeout struct{ cause limits.Cause }

func (t *timeout) Error() string {
	return prefix + "waited for the " + string(t.cause) + " as long as allowed"
}
func (t *timeout) Timeout() bool { return true }
func (t *timeout) Unwrap() error { return limits.ErrTimeout }

// Named returns err as one of the limiter called name: errors.Is and errors.As
// see err, and the message has the name. Without a name it is err itself. The errors
// of a context come back bare: no limiter is to blame for them.
func Named(name string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *limits.WaitError:
		if e.By != "" {
			return e
		}
		return &limits.WaitError{By: name, For: e.For, Need: e.Need, Have: e.Have} // it may be shared
	}
	if name == "" || err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	return &named{name, err}
}

type named struct {
	name string
	err  error
}

func (e *named) Error() string {
	return prefix + e.name + ": " + strings.TrimPrefix(e.err.Error(), prefix)
}

func (e *named) Unwrap() error { return e.err }
