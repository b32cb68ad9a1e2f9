// Package promise checks that the promises of docs/guarantees.md hold with every feature that
// a call can meet.
//
// It is one table. A row is a [Promise], with a check that reports violations. A
// column is a [Feature], with a [Setup] that makes a [Subject] with that feature: a
// gate, or something else that lets calls start. A cell is the check of its row on the
// setup of its column, so a new promise is one check and a new feature is one setup. A
// cell that is impossible has a reason instead.
//
// The modules run the cells, because only they can have the setups. Each has a
// TestPromise that calls [Run] with its setups, and
//
//	go test -run TestPromise work
//
// runs all of them, as TestPromise/promise/feature. A module fails if it has no setup
// for a column that the table assigns to it, or a setup for one that the table does not
// assign to it. [Table] fails if a column is assigned to no module, if a module of the
// table does not call Run, or if docs/guarantees.md does not name the tests of its promises.
//
// Most cells run in a testing/synctest bubble and compare exact times. On the
// real clock the same checks assert only properties that hold on a slow machine as well: the order,
// that no call is early, that nothing is lost.
package promise

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
)

// A Promise is a row of the table.
type Promise struct {
	// Name is the name of the test.
	Name string

	// Says is the beginning of its paragraph in docs/guarantees.md.
	Says string

	check func(c *check)
}

// A Feature is a column of the table.
type Feature struct {
	// Name is the name of the test.
	Name string

	// Says describes the subjects of this column.
	Says string

	// Runs are the directories of the modules or packages that run the column. The
	// core is ".".
	Runs []string

	// Real reports whether the column runs on the real clock only, and Virtual why it does not
	// run on that at all, if it does not.
	Real    bool
	Virtual string

	// Never has, by promise, the reason why it cannot meet this feature.
	Never map[string]string
}

// Limits are the properties of its subject that a check needs.
type Limits struct {
	Interval time.Duration      // between two calls; a subject that is not Paced ignores it
	Room     int64              // most calls in flight; 0 means no limit
	Policy   sluice.RetryPolicy // of Subject.Call
	Real     bool               // on the real clock
	Grain    time.Duration      // how late a call may be woken there, see sluice.Config

	more   []sluice.Limit // further ones
	peers  peers.Store    // with which a gate shares its learned limit, or nil
	search sluice.Rate    // at which a gate begins to look for the limit of its server; zero: it does not
}

// A Setup makes the subject of a column. It may wait until the subject is ready, on the
// real clock for at most a few intervals. The subject is used until its Close.
type Setup func(tb testing.TB, l Limits) *Subject

// An Ask is the demand of one call.
type Ask struct {
	N      int64         // its cost; 0 means 1
	Within time.Duration // the longest wait; 0 means no bound
}

// OfClaimants returns the number of calls that wait in the gates of the claimants of gate.
func OfClaimants(gate *sluice.Gate) (n int64) {
	for who, s := range gate.Claimants {
		if who.Name != "" { // the gate of a class counts the first of each again
			n += s.Pacing + s.Waiting
		}
	}
	return n
}

func (s *Subject) waiting() int64 {
	if s.Waiting != nil {
		return s.Waiting()
	}
	first := s.Levels[0].Stats()
	return first.Pacing + first.Waiting
}

// A Subject is the object of a check. It lets calls start.
type Subject struct {
	// Do makes one attempt: it blocks until the call may start, calls f while
	// the call is in flight, and returns the error of f or why it did not leave.
	Do func(ctx context.Context, ask Ask, f func() error) error

	// Call makes a call and retries it, by Limits.Policy. An error of f that is a
	// *ServerWait is the answer of a server. nil if the subject has no retries.
	Call func(ctx context.Context, f func() error) error

	// Try makes an attempt if the call may start now, and reports whether it started. nil if the
	// subject cannot.
	Try func() bool

	// Levels are the limits that a call passes, the nearest first.
	Levels []*Level

	// Waiting returns the number of calls that wait; nil means those of the first level.
	Waiting func() int64

	// Origin is the time from now that the first call has to wait.
	Origin time.Duration

	// Late is the delay after its exact time with which each call may start in a bubble,
	// because a limit is a round trip away.
	Late time.Duration

	// Pace is the interval at which calls may start because the gate has learned a pace; 0 if it has
	// not. After a rejection it may be slower.
	Pace time.Duration

	// Paced reports whether calls start an interval apart, Weighs whether a longer gap
	// follows a call of higher cost.
	Paced, Weighs bool

	// Ways are the ways in which a server can set a wait; nil means one.
	Ways []ServerWait

	// Remote reports whether calls start somewhere else: one that is canceled on its way
	// is not seen to leave, and one that is canceled later is in flight for longer.
	Remote bool

	// Unsure reports whether a quota may count a call that was canceled while it asked
	// the quota, because the answer was lost.
	Unsure bool

	// Coarse reports whether a server can only set waits of whole seconds.
	Coarse bool

	// Spend empties the retry budget, so that calls are spaced by d. nil if that is
	// not the feature.
	Spend func(d time.Duration)

	// Beside returns a gate that shares the rate with the subject, by a parent, and has so many times its
	// weight. nil if the subject has no parent.
	Beside func(times int64) *Subject

	// Close stops the goroutines that the subject started; may be nil.
	Close func()
}

// A Level is a gate, or whatever acts as one.
type Level struct {
	Control
	Name         string
	Paced, Roomy bool // it has a rate, a limit on the calls in flight
	Quotas       []Quota

	// Blocks are further ways to delay calls. Each returns a function that undoes it.
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

// A Quota is a further limit of a level. It has so much left that it delays no call
// unless it is emptied.
type Quota struct {
	Name string
	Left func() int64  // how much is left
	Take func(n int64) // takes n, or returns -n if n < 0
	Cost int64         // cost of a call; 0 means 1

	// Rings reports whether it wakes callers that wait for it when something is returned. If not,
	// they ask again when the wait that it named has ended, however long that is.
	Rings bool
}

// A ServerWait is the error of a call that a server rejects, with the time to wait.
type ServerWait struct {
	After  time.Duration
	Status int  // of an HTTP answer; 0 means the usual one
	Alone  bool // it is for this call alone, and does not pause the others
}

func (t *ServerWait) Error() string { return fmt.Sprintf("come back after %v", t.After) }

// ErrDown is an error of a server that sets no wait. It is retried.
var ErrDown = errors.New("the server is down")
