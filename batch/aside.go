package batch

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// ErrSuspended matches the error of an item that failed without an attempt, because its group is
// suspended.
var ErrSuspended = errors.New("batch: its group is set aside")

// A Suspend says when a group of items is suspended, and the fate of its items. Without
// Config.Group all items are one group.
//
// A group is suspended when After attempts in a row have failed, none of them with a definite
// answer, as a [sluice.Permanent] error is. Its items then wait. After 2 s one of them is tried, as
// a probe, and again 4 s after that has failed, and so on, up to a minute. It is back as soon as an
// item is ok or gets a definite answer. When a probe has failed, or three if there was an item that
// was ok before:
//
//   - with Wait, the items go on waiting;
//   - otherwise, if another group had an item that was ok since the failures began, or
//     within the minute before, the items fail immediately, and match [ErrSuspended];
//   - otherwise the batch ends soon, with [ErrHalted].
//
// A probe is an ordinary item: it is retried, and its outcome counts.
type Suspend struct {
	// After is a number of attempts. 0 means 12, negative that no group is ever suspended.
	After int

	// Wait lets the items of a group, at most [Config].ReadAhead, wait for as long as its probes fail.
	Wait bool

	// Changed, if set, is called in order when a group is suspended, after each probe that fails, and
	// when the group is back. It must not block or use the batch.
	Changed func(GroupState)
}

// A GroupState is the answer of [Suspend] about a group.
type GroupState struct {
	Group   string    // as returned by Config.Group
	Why     error     // the last failure; nil: the group is not suspended any more
	Failing bool      // its items fail immediately
	Probe   time.Time // when an item is tried next
}

const (
	asideAfter    = 12              // default of Aside.After
	firstProbe    = 2 * time.Second // from the failure to the first probe
	longestProbe  = time.Minute     // between two probes
	patience      = 3               // failed probes of a group that has worked
	stillWorks    = time.Minute     // how long one success shows that other groups work
	idleGroups    = 10_000          // groups without items that are remembered
	aheadOfGroups = 10_000          // default of Config.ReadAhead with a Group
	freshInAll    = 64              // see scheduler
	freshInGroup  = 2

	overtakenAfter = 10 * time.Millisecond
)

var errAttempts = errors.New("batch: its attempts fail")

// asideError is the error of an item of a group that fails immediately.
func asideError(group string, why error) error {
	return fmt.Errorf("%w (%s): %w", ErrSuspended, group, why)
}

// haltError is why a batch ends if a group fails and no other one works.
func haltError(group string, attempts int, why error) error {
	if group != "" {
		group = " for " + group
	}
	return fmt.Errorf("%w: %d attempts in a row%s failed, the last: %w", ErrHalted, attempts, group, why)
}

// healthOf returns the health of the server as shown by an outcome.
func healthOf(s state, err error) health {
	switch {
	case s == unfinished || errors.Is(err, ErrSuspended):
		return unknown
	case s == done || permanent(err):
		return well
	}
	return unwell
}

// permanent reports whether err is a definite answer.
func permanent(err error) bool {
	if stopped, ok := errors.AsType[*sluice.RetryError](err); ok {
		return errors.Is(stopped.Why, sluice.ErrPermanent)
	}
	return errors.Is(err, sluice.ErrPermanent)
}
