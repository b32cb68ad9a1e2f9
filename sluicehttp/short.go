package sluicehttp

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

// A shortError is the error if a wait does not fit the deadline of a request: the Timeout of a
// client, or that of a context.
type shortError struct {
	text string
	err  error // a *limits.WaitError, or a *sluice.RetryError because of one
}

func (e *shortError) Error() string { return e.text }
func (e *shortError) Unwrap() error { return e.err }

// Timeout returns true.
func (e *shortError) Timeout() bool { return true }

// tooShort returns err, with a better text if it is about a wait beyond the deadline of the
// request.
func (c *call) tooShort(err error) error {
	wait, ok := errors.AsType[*limits.WaitError](err)
	deadline, bounded := c.ctx.Deadline()
	if !ok || !bounded {
		return err
	}
	text := "sluicehttp: " + c.key.String() + ": " + shortText(wait, deadline.Sub(c.began))
	if stopped, ok := errors.AsType[*sluice.RetryError](err); ok && stopped.Last != nil {
		text += ": " + stopped.Last.Error()
	}
	return &shortError{text, err}
}

// shortText says that a wait is too long for a request with that timeout.
func shortText(wait *limits.WaitError, timeout time.Duration) string {
	what, w := "wait", sentence.Wait{For: string(wait.For), Why: wait.Why, End: wait.Until}
	long := what
	switch wait.For {
	case limits.ByPause, limits.ByBackoff:
		what = string(wait.For) // its reason follows, as the last error
		long = what + w.Until(wait.Until.Add(-wait.Need))
	case "":
	default:
		what, long = "wait "+w.Cause(), "wait "+w.Clause(wait.Until.Add(-wait.Need))
	}
	if wait.Need == limits.Never {
		return fmt.Sprintf("the timeout of %s is shorter than the %s, which does not end", seconds(timeout), what)
	}
	// The message shows the configured timeout, unless earlier attempts took a
	// significant part of it.
	left := wait.Have < timeout-timeout/20 || wait.Need <= timeout
	least := timeout
	if left {
		least = wait.Have
	}
	round := wait.Need
	if round >= 10*time.Second { // without the jitter
		round = round.Truncate(time.Second)
	}
	// Two different numbers that look the same get milliseconds, or all their digits; of
	// two equal numbers one is left out.
	have, need := seconds(least), seconds(round)
	if have == need || round <= least {
		have, need = least.Round(time.Millisecond).String(), wait.Need.Round(time.Millisecond).String()
	}
	if have == need {
		have, need = least.String(), wait.Need.String()
	}
	switch whole := seconds(timeout); {
	case have == need && wait.Have >= timeout:
		return fmt.Sprintf("the timeout of %s is over when the %s ends", whole, what)
	case have == need:
		return fmt.Sprintf("what is left of the timeout of %s, %s, is over when the %s ends", whole, have, what)
	case left && have != whole:
		return fmt.Sprintf("what is left of the timeout of %s, %s, is shorter than the %s %s", whole, have, need, long)
	}
	return fmt.Sprintf("the timeout of %s is shorter than the %s %s", have, need, long)
}

// seconds formats d in a few digits: "10 s", "1.5 s", "2 ms".
func seconds(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatFloat(float64(d.Round(10*time.Microsecond))/float64(time.Millisecond), 'f', -1, 64) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	case d.Round(time.Second) < 10*time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()), 'f', -1, 64) + " s"
	}
	return d.Round(time.Second).String()
}
