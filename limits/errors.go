package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/sentence"
)

// Why a call may not start. The errors of a context are returned as they are.
var (
	// ErrTooLarge reports a request for more than the limit.
	ErrTooLarge = errors.New("sluice: request is larger than the limit")

	// ErrClosed reports a request to something that was closed.
	ErrClosed = errors.New("sluice: closed")

	// ErrQueueFull reports that the queue has MaxWaiting callers already.
	ErrQueueFull = errors.New("sluice: too many callers are waiting")

	// ErrCanceled reports the use of a reservation that was canceled.
	ErrCanceled = errors.New("sluice: reservation was canceled")

	// ErrTooManyKeys reports a new key when MaxKeys keys are remembered already.
	ErrTooManyKeys = errors.New("sluice: too many keys")

	// ErrSnapshot reports a snapshot that cannot be restored, and why: it is damaged, or of another
	// version or limit.
	ErrSnapshot = errors.New("sluice: snapshot not restored")

	// ErrTimeout reports that the longest wait that the caller allowed has ended. It matches
	// [context.DeadlineExceeded].
	ErrTimeout error = timeoutError{}

	// ErrLeaseLost is the [context.Cause] of the context of a call whose [Lease] was lost while the
	// call was in flight.
	ErrLeaseLost = errors.New("sluice: the permit was lost")
)

type timeoutError struct{}

func (timeoutError) Error() string { return "sluice: waited as long as allowed" }
func (timeoutError) Timeout() bool { return true }
func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

// A WaitError reports a wait that was rejected or given up because it could not have ended in time.
// Nothing was taken. It matches [context.DeadlineExceeded], although the context's Err may still be
// nil.
type WaitError struct {
	By   string        // name of the gate
	For  Cause         // the cause of the wait
	Need time.Duration // the time the caller would have had to wait, or Never
	Have time.Duration // the time it could wait: to its deadline, or the most it allowed

	// Why says more about For, if known: the rate, such as "5/s", or the reason of a pause.
	Why string

	// Until is when the wait would have ended; zero if unknown or never.
	Until time.Time
}

// Error returns both times and the limit that is waited for.
func (e *WaitError) Error() string {
	by := "sluice: "
	if e.By != "" {
		by += e.By + ": "
	}
	need, have := roughly(e.Need), roughly(e.Have)
	wait := sentence.Wait{For: string(e.For), Why: e.Why, End: e.Until}
	if e.Need == Never {
		return fmt.Sprintf("%sthe wait%s would not end, %v were allowed", by, after(" ", wait.Cause()), have)
	}
	if need == have { // they must not look the same unless they are
		need, have = e.Need, e.Have
	}
	what := wait.Cause()
	if !e.Until.IsZero() {
		what = wait.Clause(e.Until.Add(-e.Need))
	}
	return fmt.Sprintf("%swould have to wait %v%s, %v were allowed", by, need, after(" ", what), have)
}

// after returns text after a separator, if there is any.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// Timeout reports true.
func (e *WaitError) Timeout() bool { return true }

// Unwrap returns [context.DeadlineExceeded].
func (e *WaitError) Unwrap() error { return context.DeadlineExceeded }

// roughly rounds d for a reader: near the number that was configured, without the
// nanoseconds that have passed since.
func roughly(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d
}
