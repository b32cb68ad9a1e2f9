package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// An OutagePolicy decides calls while the server does not answer. It does not apply
// to a [Semaphore], which then lends nothing.
type OutagePolicy int

const (
	// AsStore is the policy of the store; in [Config] it is FailClosed.
	AsStore OutagePolicy = iota

	// FailClosed refuses all calls with an [*AwayError].
	FailClosed

	// FailOpen admits all calls that the limit could ever admit. They are not
	// counted, and no pause of a pacer holds them up.
	FailOpen

	// LocalShare decides in this process, by the limit divided by the number of
	// live instances, rounded down: see [Config.Instances]. If the limit is
	// smaller than that number there is no share, and calls are refused as by
	// FailClosed. A pacer can always be shared: each instance leaves one call per
	// interval × instances. Results are those of the share. A call larger than
	// the share may come again when the server may be back.
	//
	// While the server answers, a share is kept as full as if it had granted
	// what the server granted to this process, and never less full than the
	// limit. What a share grants is reported to the server, as far as it still
	// counts, by the next call for the key after the outage.
	LocalShare
)

// String returns "as store", "fail closed", "fail open" or "local share".
func (p OutagePolicy) String() string {
	if !p.valid() {
		return fmt.Sprintf("Policy(%d)", int(p))
	}
	return policies[p]
}

var policies = [...]string{"as store", "fail closed", "fail open", "local share"}

func (p OutagePolicy) valid() bool { return p >= 0 && int(p) < len(policies) }

// mustBeValid is for policies given by position.
func (p OutagePolicy) mustBeValid() {
	if !p.valid() {
		panic("sluiceredis: no such policy: " + p.String())
	}
}

// policy returns the policy of a limit that says p.
func (s *Store) policy(p OutagePolicy) OutagePolicy {
	if p == AsStore {
		return s.away
	}
	return p
}

// heed returns p, which is that of a limit. It panics if there is no such policy.
func (s *Store) heed(p OutagePolicy) OutagePolicy {
	p.mustBeValid()
	if p == LocalShare {
		s.beats.wanted.Store(true)
	}
	return p
}

// ErrAway reports a call that was refused because the server did not answer. The
// error is an [*AwayError].
var ErrAway = errors.New("sluiceredis: the server is away")

// An AwayError reports a call that was refused during an outage. It matches [ErrAway], and
// if the call was sent also its cause: [ErrAmbiguous] or a [*ServerError], for
// example.
type AwayError struct {
	Server string        // which of several, if the client tells; see [Topology]
	Sent   bool          // this call was sent, or an attempt was made
	For    time.Duration // how long the server has been away; 0 if it was asked
	Retry  time.Duration // when it is worth asking again
	Cause  error         // the last failure
	Why    string        // what else led to the refusal; or ""
}

// Error returns in one line what was decided and why.
func (e *AwayError) Error() string {
	who := "the server"
	if e.Server != "" {
		who += " at " + e.Server
	}
	text := "sluiceredis: refused: " + who
	if e.Sent {
		text += " cannot be asked: "
	} else {
		text += fmt.Sprintf(" has been away for %v: ", e.For.Round(time.Millisecond))
	}
	text += strings.TrimPrefix(e.Cause.Error(), "sluiceredis: ")
	if e.Why != "" {
		text += "; " + e.Why
	}
	return text
}

// Unwrap returns what e matches.
func (e *AwayError) Unwrap() []error {
	if e.Sent {
		return []error{ErrAway, e.Cause}
	}
	return []error{ErrAway} // the cause is that of another call
}

// because returns e with a reason.
func (e *AwayError) because(format string, args ...any) *AwayError {
	also := *e
	also.Why = fmt.Sprintf(format, args...)
	return &also
}

// # What becomes of a call?
//
// run sends it, or says by an AwayError that it could not be answered: because
// the server is away, or just now. Then here decides, by the policy, and the
// caller gets an answer, unless the policy is to refuse or his context is over.
// A call of unknown outcome may so be counted twice, here and on the server:
// fewer calls, never more.

// decide has requests answered by the server or, if that cannot be asked, here.
func (c *commit[K, O]) decide(ctx context.Context, key K, requests []O) error {
	err := c.run(c.store, ctx, key, requests)
	var away *AwayError
	if c.here == nil || !errors.As(err, &away) {
		return err
	}
	return c.here(c.store, key, requests, away)
}
