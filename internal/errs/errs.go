// Package errs holds the errors that more than one package returns. Each
// exists once, so that errors.Is and errors.As give the same answer whichever
// package the caller knows it from. The public packages re-export them.
package errs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const prefix = "sluice: "

var (
	// ErrTooLarge reports a request for more than the limit, which no wait
	// can satisfy.
	ErrTooLarge = errors.New("sluice: request is larger than the limit")

	// ErrClosed reports a request to something that was closed.
	ErrClosed = errors.New("sluice: closed")

	// ErrQueueFull reports that as many callers wait as may wait.
	ErrQueueFull = errors.New("sluice: too many callers are waiting")

	// ErrCancelled reports the use of a reservation that was cancelled.
	ErrCancelled = errors.New("sluice: reservation was cancelled")

	// ErrTooManyKeys reports a new key when as many as may be are remembered.
	ErrTooManyKeys = errors.New("sluice: too many keys")

	// ErrSnapshot reports a snapshot that cannot be read: damaged, of another
	// version, or of another kind of limit.
	ErrSnapshot = errors.New("sluice: unreadable snapshot")

	// ErrOtherQuota reports a snapshot of a quota other than the one in force.
	ErrOtherQuota = errors.New("sluice: snapshot of another quota")

	// ErrTimeout reports that the longest wait the caller allowed is over. It
	// matches [context.DeadlineExceeded].
	ErrTimeout error = timeoutError{}
)

type timeoutError struct{}

func (timeoutError) Error() string { return "sluice: waited as long as allowed" }
func (timeoutError) Timeout() bool { return true }
func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

// A WaitError reports a wait that was refused or given up because it could
// not have ended in time. Nothing was consumed. It matches
// [context.DeadlineExceeded], although the context's own Err may still be nil.
type WaitError struct {
	By   string        // name of the gate, if it has one
	For  Limit         // which limit of the gate it is that takes so long
	Need time.Duration // how long the caller would have had to wait
	Have time.Duration // how long it could wait: to its deadline, or the most it allowed
}

func (e *WaitError) Error() string {
	by := prefix
	if e.By != "" {
		by += e.By + ": "
	}
	need, have := roughly(e.Need), roughly(e.Have)
	if e.Need == Never {
		return fmt.Sprintf("%sthe wait%s would not end, %v were allowed", by, e.For.forIt(), have)
	}
	if need == have { // they must not look the same unless they are
		need, have = e.Need, e.Have
	}
	return fmt.Sprintf("%swould have to wait %v%s, %v were allowed", by, need, e.For.forIt(), have)
}

// roughly rounds d for people, who look for the number that they configured and not
// for how many nanoseconds ago that was.
func roughly(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d
}

// A Limit names what holds calls up.
type Limit string

func (l Limit) forIt() string {
	if l == "" {
		return ""
	}
	return " for the " + string(l)
}

// For returns err, which is about a wait, with limit as what the wait was for.
func For(limit Limit, err error) error {
	switch e := err.(type) {
	case *WaitError:
		return &WaitError{By: e.By, For: limit, Need: e.Need, Have: e.Have}
	case timeoutError:
		if limit != "" {
			return &timeout{limit}
		}
	}
	return err
}

// A timeout is an ErrTimeout that knows for what.
type timeout struct{ limit Limit }

func (t *timeout) Error() string { return prefix + "waited" + t.limit.forIt() + " as long as allowed" }
func (t *timeout) Timeout() bool { return true }
func (t *timeout) Unwrap() error { return ErrTimeout }

// Never is the Need of a wait that has no end: longer than 292 years.
const Never = time.Duration(1<<63 - 1)

// Timeout reports true: the error is about time.
func (e *WaitError) Timeout() bool { return true }

// Unwrap returns [context.DeadlineExceeded].
func (e *WaitError) Unwrap() error { return context.DeadlineExceeded }

// Named returns err as one of the limiter called name: errors.Is and errors.As
// see err, the message says who. Without a name it is err itself. The errors
// of a context come back bare: no limiter is to blame for them.
func Named(name string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *WaitError:
		if e.By != "" {
			return e
		}
		return &WaitError{By: name, For: e.For, Need: e.Need, Have: e.Have} // it may be shared
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
