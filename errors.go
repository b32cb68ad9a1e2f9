package sluice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/clean"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

// These errors say why [RetryValue] gave up: they are the Why of a [RetryError], which
// matches them.
var (
	// ErrPermanent: the error was marked with Permanent, or RetryPolicy.Retryable
	// returned false. An error marked with Permanent matches it, too.
	ErrPermanent = errors.New("the error is permanent")

	// ErrAttempts: RetryPolicy.Attempts are used up.
	ErrAttempts = errors.New("no attempts left")

	// ErrElapsed: the next attempt would come after RetryPolicy.MaxElapsed.
	ErrElapsed = errors.New("no time left for another attempt")

	// ErrServerWait: the server requested a longer wait than RetryPolicy.MaxServerWait.
	ErrServerWait = errors.New("the server asks for too long a wait")

	// ErrBudget: too many calls of the gate fail, so its retry budget is empty.
	ErrBudget = errors.New("the retry budget is empty")
)

// A RetryError is the error of [RetryValue] when it gives up: the error of the last attempt,
// and why there is no other. It matches both.
type RetryError struct {
	Gate string // its name
	Last error  // of the last attempt, nil if none was made

	// Why there is no other attempt: ErrPermanent, ErrAttempts, ErrElapsed, ErrServerWait,
	// ErrBudget, the error of the context, or the error of the gate, such as a
	// *limits.WaitError.
	Why error

	Attempts int           // that were made
	Elapsed  time.Duration // from the start of the first attempt

	// RetryAt is when to retry: the time that the server set, or when the next attempt would have
	// come; zero if unknown.
	RetryAt time.Time
}

// Error returns Why, Last and when to come back.
func (s *RetryError) Error() string {
	var b strings.Builder
	b.WriteString("sluice: ")
	if s.Gate != "" {
		b.WriteString(s.Gate + ": ")
	}
	attempts := "attempts"
	if s.Attempts == 1 {
		attempts = "attempt"
	}
	why := strings.TrimPrefix(strings.TrimPrefix(s.Why.Error(), "sluice: "), s.Gate+": ")
	fmt.Fprintf(&b, "gave up after %d %s: %s", s.Attempts, attempts, why)
	if !s.RetryAt.IsZero() {
		second := s.RetryAt.Add(time.Second - 1).Truncate(time.Second) // rounded up: never too early
		fmt.Fprintf(&b, ", come back at %s", second.Format(time.RFC3339))
	}
	if s.Last != nil {
		fmt.Fprintf(&b, ": %v", s.Last)
	}
	return b.String()
}

// Timeout reports whether the last attempt timed out or the next one would have come too late.
func (s *RetryError) Timeout() bool { return isTimeout(s.Why) || s.Last != nil && isTimeout(s.Last) }

// Unwrap returns Why and Last.
func (s *RetryError) Unwrap() []error {
	if s.Last == nil {
		return []error{s.Why}
	}
	return []error{s.Why, s.Last}
}

// Permanent marks err as one that must not be retried, by any RetryValue that returns it. The error
// keeps its message and matches [ErrPermanent]. It shows that the server is well, unless it is also
// marked with ThrottledFor or RetryAfter, or is a timeout. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error        { return e.error }
func (e *permanentError) Is(target error) bool { return target == ErrPermanent }

// An elapsedError is ErrElapsed because of a known wait, for the gate or because the server asked
// for it and MaxServerWait allows it. Its message has the settings, so that the user sees which one
// to change.
type elapsedError struct {
	wait    time.Duration
	cause   string // what the wait at the gate is for, "" if that is unknown
	server  bool   // the server asked for it
	most    time.Duration
	elapsed time.Duration
}

func (e *elapsedError) Error() string {
	wait := e.wait.Round(time.Millisecond).String()
	if e.cause != "" {
		wait += " " + e.cause
	}
	text := fmt.Sprintf("%v: the wait of %s ends after MaxElapsed (%v)", ErrElapsed, wait, e.elapsed)
	switch {
	case !e.server:
		return text
	case e.most == limits.Never:
		return text + ", although MaxServerWait allows any wait"
	}
	return fmt.Sprintf("%s, although MaxServerWait allows %v", text, e.most)
}

func (e *elapsedError) Unwrap() error { return ErrElapsed }

// ThrottledFor marks err as a throttle, the response of a server that requests a wait of d before
// the next call, such as the status 429 with a Retry-After. The error keeps its message. The wait
// is at least 1 ms. d ≤ 0 means that the server set no time. ThrottledFor(nil, d) is nil.
func ThrottledFor(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	e := &throttledError{error: err}
	if d > 0 {
		e.at = time.Now().Add(d)
	}
	return e
}

// ThrottledBy marks err, which should also be marked with [ThrottledFor], with the unit whose limit
// has rejected the call. A gate with [Adaptive] then need not guess. [Calls] and [Cost] are units as
// well. ThrottledBy(nil, unit) is nil.
func ThrottledBy(err error, unit Unit) error {
	if err == nil {
		return nil
	}
	return &exhaustedError{err, unit}
}

type exhaustedError struct {
	error
	unit Unit
}

func (e *exhaustedError) Unwrap() error { return e.error }

// exhausted returns the unit that err was marked with, or "".
func exhausted(err error) Unit {
	if e, ok := errors.AsType[*exhaustedError](err); ok {
		return e.unit
	}
	return ""
}

// MaybeThrottled marks err as an answer that may or may not mean too many calls, such as a 503
// without a time, or a 403. If such answers come in bursts while other calls are accepted, the gate
// treats them like errors marked with [Throttled]; otherwise, and if fewer calls do not help, for at
// least a minute as ordinary errors.
//
// MaybeThrottled(Permanent(err)) is retried only if it is treated as throttled,
// Permanent(MaybeThrottled(err)) never. An additional mark with ThrottledFor takes precedence, and one
// with RetryAfter has the time of either meaning.
// MaybeThrottled(nil) is nil.
func MaybeThrottled(err error) error {
	if err == nil {
		return nil
	}
	return &unclearError{err}
}

type unclearError struct{ error }

func (e *unclearError) Unwrap() error { return e.error }

type throttledError struct {
	error
	at      time.Time // zero if the server set none
	weighed bool      // the mark was unclear, and the evidence is for it
}

func (e *throttledError) Unwrap() error { return e.error }

// explained reports whether a published limit explains the throttle.
func (e *throttledError) explained() bool {
	_, ok := e.error.(*errs.Explained)
	return ok
}

// RetryAfter marks err as a failure after which this call must not be tried again for d, such as the
// status 502 with a Retry-After. Unlike [ThrottledFor] it does not pause the gate: it is an ordinary
// failure. The next attempt comes after d or the backoff, whichever is longer.
// RetryPolicy.MaxServerWait, RetryPolicy.MaxElapsed and the deadline of the context limit the wait.
// If err is also marked with ThrottledFor and a wait, only that counts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayedError{err, time.Now().Add(max(0, d))}
}

type delayedError struct {
	error
	at time.Time
}

func (e *delayedError) Unwrap() error { return e.error }

// delayed returns the latest time of RetryAfter that err was marked with, or the zero time.
// It leaves out marks inside a RetryError, as marks does.
func delayed(err error) (at time.Time) {
	var inner []error
	switch e := err.(type) {
	case *RetryError:
		return at
	case *delayedError:
		at = e.at
		inner = []error{e.error}
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, err := range inner {
		if t := delayed(err); t.After(at) {
			at = t
		}
	}
	return at
}

// A mark is the mark of an error.
type mark struct {
	permanent bool
	throttled *throttledError // the one with the longest wait; nil if there is none
	unclear   bool            // by MaybeThrottled,
	within    bool            // and inside that, permanent
}

// marks returns the mark of err. It leaves out throttles inside a RetryError: those
// paused the gate that gave up.
func marks(err error) (m mark) {
	switch e := err.(type) {
	case nil:
		return m
	case *RetryError:
		return mark{permanent: errors.Is(e.Why, ErrPermanent)}
	case *unclearError:
		inner := marks(e.error)
		return mark{throttled: inner.throttled, unclear: true, within: inner.permanent || inner.within}
	case *permanentError:
		m.permanent = true
	case *throttledError:
		m.throttled = e
	}
	var inner []error
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, err := range inner {
		n := marks(err)
		m.permanent = m.permanent || n.permanent
		m.unclear, m.within = m.unclear || n.unclear, m.within || n.within
		if n.throttled != nil && (m.throttled == nil || n.throttled.at.After(m.throttled.at)) {
			m.throttled = n.throttled
		}
	}
	return m
}

// wait returns how long it is until the time that the server set; not positive if there
// is none or it has passed.
func (e *throttledError) wait() time.Duration {
	if e.at.IsZero() {
		return 0
	}
	return time.Until(e.at)
}

// A pausedError ends the wait of a call in a gate that is paused for longer than
// RetryPolicy.MaxServerWait.
type pausedError struct {
	left  time.Duration // of the pause
	until time.Time
	why   string
}

func (e *pausedError) Error() string {
	wait := sentence.Wait{For: string(limits.ByPause), Why: clean.Text(e.why), End: e.until}
	return fmt.Sprintf("sluice: %v, %v %s", ErrServerWait, e.left.Round(time.Millisecond), wait.Clause(e.until.Add(-e.left)))
}

func (e *pausedError) Unwrap() error { return ErrServerWait }

// isTimeout reports whether err is about time: the server may still be working on the
// attempt. The caller has checked that the context of the call is not done.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// Throttled is [ThrottledFor] for a response without a time, such as most with the status 429.
// Throttled(nil) is nil.
func Throttled(err error) error { return ThrottledFor(err, 0) }
