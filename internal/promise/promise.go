// Package promise checks that what README.md promises holds with every feature
// that a call can meet.
//
// It is one table. A row is a [Promise], with a check that says what breaks it. A
// column is a [Feature], with a [Setup] that makes something that lets calls leave
// and has that feature. A cell is the check of its row on the setup of its column, so
// a new promise is one check and a new feature is one setup. A cell that cannot be
// has a reason instead.
//
// The modules run the cells, because only they have the setups: each has a
// TestPromise that calls [Run] with its setups, and
//
//	go test -run TestPromise work
//
// runs all of them, as TestPromise/promise/feature. A module fails if the table
// gives it a column for which it has no setup, or if it has one that the table
// does not give it. [Table] fails if a column is given to no module, if a module
// of the table does not call Run, and if README.md does not name the tests of its
// promises.
//
// Most cells run in a testing/synctest bubble and compare exact instants. On the
// real clock the same checks assert only what no slow machine can break: the
// order, that no call is early, that nothing is lost.
package promise

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// A Promise is a row of the table.
type Promise struct {
	// Name is that of the test.
	Name string

	// Says is the beginning of its paragraph in README.md.
	Says string

	check func(c *check)
}

// A Feature is a column of the table.
type Feature struct {
	// Name is that of the test.
	Name string

	// Says is what the subjects of this column have.
	Says string

	// Runs are the folders of the modules or packages that run the column. The
	// core is ".".
	Runs []string

	// Real says that the column is about the real clock.
	Real bool

	// Never says of a promise why it cannot meet this feature.
	Never map[string]string
}

// Limits are what a check needs of its subject.
type Limits struct {
	Interval time.Duration      // between two calls; a subject that is not Paced ignores it
	Room     int64              // most calls in flight; 0 means no limit
	Policy   sluice.RetryPolicy // of Call
	Real     bool               // by the real clock
}

// A Setup makes the subject of a column. It may wait until the subject is ready,
// but in a real run no longer than some intervals. tb is for what a setup needs of
// a test; the subject is used until its Close.
type Setup func(tb testing.TB, l Limits) *Subject

// An Ask is what one call asks for.
type Ask struct {
	N      int64         // what it weighs; 0 means 1
	Within time.Duration // the longest wait; 0 means no bound
}

// A Subject lets calls leave: what a check is about.
type Subject struct {
	// Do makes one attempt: it blocks until the call may leave, calls f while
	// the call is in flight, and returns the error of f or why it did not leave.
	Do func(ctx context.Context, ask Ask, f func() error) error

	// Call makes a call and retries it, by Limits.Policy. An error of f that is a
	// *Told is what a server says. nil if the subject has no retries.
	Call func(ctx context.Context, f func() error) error

	// Try makes an attempt if the call may leave now, and reports whether it did.
	// nil if the subject has no such verb.
	Try func() bool

	// Levels are the limits that a call passes, the nearest first.
	Levels []*Level

	// Origin is how long from now the first call has to wait.
	Origin time.Duration

	// Late is how much later than exactly each call may leave in a bubble, because a
	// limit is a round trip away.
	Late time.Duration

	// Paced says that calls leave an interval apart, Weighs that a heavier call
	// is followed by a longer gap.
	Paced, Weighs bool

	// Ways are how a server can say when to come back; nil means one.
	Ways []Told

	// Remote says that calls leave somewhere else: one that is cancelled on its way is
	// not seen to leave, and one that is cancelled later is in flight for longer.
	Remote bool

	// Unsure says that a quota may count a call that was cancelled while the quota was
	// asked, because nothing is known of a question without an answer.
	Unsure bool

	// Coarse says that a server can only name whole seconds.
	Coarse bool

	// Spend empties the retry budget, so that calls are spaced by d. nil if that is
	// not the feature.
	Spend func(d time.Duration)

	// Close ends what the subject started; nil if that is nothing.
	Close func()
}

// A Level is one gate, or what stands for one.
type Level struct {
	Control
	Name         string
	Paced, Roomy bool // it has a rate, a limit of calls in flight
	Quotas       []Quota

	// Blocks are further ways to block it. Each returns what undoes it.
	Blocks map[string]func() (undo func())
}

// A Control changes a level. A *sluice.Gate is one.
type Control interface {
	SetRate(rate sluice.Rate) error
	SetConcurrency(limit int64) error
	PauseUntil(t time.Time, why string)
	Resume()
	Stats() sluice.Stats
}

// A Quota is a further limit of a level, of which so much is left that it
// does not bind unless it is emptied.
type Quota struct {
	Name   string
	Left   func() int64  // how much is left
	Take   func(n int64) // takes n if n > 0, and gives back -n otherwise
	Weight int64         // what a call takes; 0 means 1
}

// A Told is what a server says that refuses a call: when to come back.
type Told struct {
	After  time.Duration
	Status int  // of an HTTP answer; 0 means the usual one
	Alone  bool // it is about this call alone, and does not pause the others
}

func (t *Told) Error() string { return fmt.Sprintf("come back after %v", t.After) }

// ErrDown is an error of a server that says nothing more, and that is retried.
var ErrDown = errors.New("the server is down")
