// Package errs has functions of several packages for the errors of package limits before
// they return them.
package errs

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

const prefix = "sluice: "

// For returns err, which is about a wait, with the known facts about that.
func For(w sentence.Wait, err error) error {
	switch e := err.(type) {
	case *limits.WaitError:
		c := *e // it may be shared
		c.For, c.Why = limits.Cause(w.For), w.Why
		return &c
	}
	if err == limits.ErrTimeout && w.For != "" {
		t := &timeout{wait: w}
		if !w.End.IsZero() {
			t.at = time.Now()
		}
		return t
	}
	return err
}

// A timeout is an ErrTimeout with the reason for the wait.
type timeout struct {
	wait sentence.Wait
	at   time.Time // when it ended, if it is known when the wait would have
}

func (t *timeout) Error() string {
	text := t.wait.Cause()
	if !t.at.IsZero() {
		text = t.wait.Clause(t.at) + ","
	}
	return prefix + "waited " + text + " as long as allowed"
}
func (t *timeout) Timeout() bool { return true }
func (t *timeout) Unwrap() error { return limits.ErrTimeout }

// Named returns err as one of the limiter called name: errors.Is and errors.As see err, and
// the message has the name. Without a name it is err itself. The errors of a context are
// returned unwrapped: no limiter is to blame for them.
func Named(name string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *limits.WaitError:
		if e.By != "" {
			return e
		}
		c := *e // it may be shared
		c.By = name
		return &c
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
