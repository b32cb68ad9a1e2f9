// Package synclog helps tests in a testing/synctest bubble to state which calls were let
// through, and when, and which failed.
package synclog

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Log collects how calls ended.
type Log struct {
	Start time.Time // the origin of instants

	mu   sync.Mutex
	left []Left
}

// Left is the end of a call.
type Left struct {
	Caller int
	At     time.Duration
	Err    error
}

// At is a call that was let through at an instant.
func At(caller int, at time.Duration) Left { return Left{caller, at, nil} }

// Failed is a call that failed with err at an instant.
func Failed(caller int, at time.Duration, err error) Left { return Left{caller, at, err} }

// New returns an empty log that starts now.
func New() *Log { return &Log{Start: time.Now()} }

// Call calls f in its own goroutine and records when it returned. Call
// returns when f has returned or everything in the bubble blocks, so that
// calls arrive in order.
func (l *Log) Call(caller int, f func() error) {
	go func() {
		err := f()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = append(l.left, Left{caller, time.Since(l.Start), err})
	}()
	synctest.Wait()
}

// Want compares all calls that ended so far with want. Those of one instant
// are treated as simultaneous, because the scheduler may run them in any order. Errors are
// compared by errors.Is.
func (l *Log) Want(t testing.TB, want ...Left) {
	t.Helper()
	got := l.Sofar()
	byTime(want)
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got\n\t%v\nwant\n\t%v", got, want)
	}
}

func same(got, want Left) bool {
	return got.Caller == want.Caller && got.At == want.At && errors.Is(got.Err, want.Err)
}

// Sofar returns the calls that ended so far, in the order of the instants.
func (l *Log) Sofar() []Left {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := slices.Clone(l.left)
	byTime(got)
	return got
}

func byTime(ls []Left) {
	slices.SortFunc(ls, func(a, b Left) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Caller, b.Caller))
	})
}
