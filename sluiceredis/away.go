package sluiceredis

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// An OutagePolicy decides calls while the server does not answer, except for a [Semaphore],
// which then leases nothing. The zero OutagePolicy is the policy of the store.
type OutagePolicy int

const (
	// FailClosed rejects all calls with [ErrOutage].
	FailClosed OutagePolicy = 1 + iota

	// FailOpen allows all calls that the limit could ever allow. They are not counted, and no pause
	// of a pacer delays them.
	FailOpen

	// LocalShare decides in this process, by the limit divided by the number of live instances,
	// rounded down: see [Config.Instances]. If that is 0, calls are rejected as with FailClosed. A
	// pacer lets one call start per interval × instances. If n is more than the share, RetryAfter is
	// the time until the server may be back.
	//
	// A share is always as full as if it had decided the calls of this process, and never less full
	// than the limit. After the outage, the next script for the key reports units that the share
	// allowed and that still apply. If i of M instances are cut off, all together allow at most
	// (1 + i/M) times as much as the limit, in any window.
	LocalShare
)

// String returns "default", "fail closed", "fail open" or "local share".
func (p OutagePolicy) String() string {
	if !p.valid() {
		return fmt.Sprintf("OutagePolicy(%d)", int(p))
	}
	return policies[p]
}

var policies = [...]string{"default", "fail closed", "fail open", "local share"}

func (p OutagePolicy) valid() bool { return p >= 0 && int(p) < len(policies) }

// policyOf returns the policy that was passed as the last argument, 0 without one.
func policyOf(onOutage []OutagePolicy) (p OutagePolicy) {
	if len(onOutage) > 1 {
		panic(fmt.Sprintf("sluiceredis: %d outage policies, want at most one", len(onOutage)))
	}
	for _, p = range onOutage {
	}
	return p
}

// policy returns the policy of a limit that says p.
func (s *Store) policy(p OutagePolicy) OutagePolicy {
	if p == 0 {
		return s.away
	}
	return p
}

// honor returns p, which is that of a limit.
func (s *Store) honor(p OutagePolicy) OutagePolicy {
	if p == LocalShare {
		s.beats.wanted.Store(true)
	}
	return p
}

// ErrOutage reports a call that was rejected because the server did not answer. Nothing was taken,
// unless the error also matches [ErrAmbiguous]. If the script was sent, it also matches the error
// that was returned.
var ErrOutage = errors.New("sluiceredis: the server is away")

// An outageError reports a call that was rejected during an outage.
type outageError struct {
	server string        // which of several, if the client tells; see [Topology]
	sent   bool          // this call was sent, or an attempt was made
	since  time.Duration // the time since the server became unavailable; 0 if it was asked
	retry  time.Duration // when it is worth asking again
	cause  error         // the last failure
	why    string        // another cause of the rejection; or ""
}

// Error returns the decision and its reason in one line.
func (e *outageError) Error() string {
	server := "the server"
	if e.server != "" {
		server += " at " + e.server
	}
	text := "sluiceredis: rejected: " + server
	if e.sent {
		text += " cannot be asked: "
	} else {
		text += fmt.Sprintf(" has been away for %v: ", e.since.Round(time.Millisecond))
	}
	text += strings.TrimPrefix(e.cause.Error(), "sluiceredis: ")
	if e.why != "" {
		text += "; " + e.why
	}
	return text
}

// Unwrap returns the errors that e matches.
func (e *outageError) Unwrap() []error {
	if e.sent {
		return []error{ErrOutage, e.cause}
	}
	return []error{ErrOutage} // the cause is that of another call
}

// because returns e with a reason.
func (e *outageError) because(format string, args ...any) *outageError {
	also := *e
	also.why = fmt.Sprintf(format, args...)
	return &also
}

// # How is a call decided?
//
// run sends it, or returns an outageError if the server is unavailable, or does not answer now.
// Then the policy decides in this process, and the caller gets a result unless the policy
// rejects or its context is done. A call of unknown outcome may so be counted twice, here
// and on the server: fewer calls, never more.

// isAway reports whether a call for key would not be sent, or would be a probe.
func (s *Store) isAway(key string) bool {
	return s.breaker.Trouble() && s.breaker.Away(s.place(key))
}
