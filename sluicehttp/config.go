package sluicehttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Config describes a [Transport]. Every field may be left out: the zero Config
// retries, and follows what servers answer, without a rate or limit of its own.
type Config struct {
	// Gate is what the gate of each key is made from; its Name is the key. Its
	// Parent, Permits and the meters of its Quotas are shared by all keys.
	Gate sluice.Config

	// NewGate, if set, makes the gate of a key in place of Gate, which must
	// then be zero. It must return a gate of its own for each key, and not
	// use the transport.
	NewGate func(key string) (*sluice.Gate, error)

	// Keys says when the gate of a key is forgotten and how many there may be.
	// When there are MaxKeys gates, a new key takes the place of a gate that no
	// request uses and that a server has paused or slowed down. So a server with
	// many names cannot keep other hosts from getting a gate. If the evicted
	// server is called again, the first request may be too early, and the server
	// can refuse it once more. A gate is kept as long as its configured rate
	// would delay a call, or if it has quotas; if there are only such gates, the
	// new key gets sluice.ErrTooManyKeys.
	//
	// If EvictAt and MaxKeys are both 0, EvictAt is 10,000 and MaxKeys is
	// sluice.MostKeys: beyond 10,000 there are only gates that are in use or that
	// must be kept, and from 10 times EvictAt on no gate is kept because of its
	// rate or quotas. Set MaxKeys if you have more keys than that. Forget, if set, is called after the transport has agreed.
	// Evict, if set, is called in place of Forget before a gate is evicted.
	Keys sluice.KeyedConfig

	// Key names the gate that a request must pass. nil means one for each
	// scheme, host and port. It must not change the request, and may be called
	// by several goroutines at once.
	Key func(req *http.Request) string

	// Policy says when a request is tried again; its zero value is that of
	// sluice.RetryPolicy. Its AttemptTimeout bounds an attempt until the header of
	// the answer is there, and not the reading of the body: a long download is
	// no failure. Its Retry is asked about errors of the base transport, and
	// about a *StatusError, that would be retried otherwise, but not about
	// throttles.
	Retry sluice.RetryPolicy

	// MaxPause is the longest pause of a key that a server can cause: by a
	// Retry-After, by a limit of which nothing remains, or by the interval of a
	// pace that the server sets. A longer pause is cut to MaxPause, and Stats
	// shows that as a Warning. 0 means 24 h, or RetryPolicy.MaxServerWait if that is
	// longer; negative means no bound. Transport.Resume ends a pause earlier.
	MaxPause time.Duration

	// AlsoRetry are further statuses to retry, such as 409. The call that got
	// such an answer obeys its Retry-After.
	// They must be from 400 to 599, and not 501: a server that does not know
	// how now will not know in a second.
	AlsoRetry []int

	// Idempotent, if set, reports whether a request may be sent twice although
	// its method does not say so, such as a POST to an API that only computes or
	// recognizes copies. It is called once for each request, redirects included,
	// but not for requests that may be sent twice anyway: by their method, an
	// Idempotency-Key or Overrides.Idempotent. It must not change the request or
	// read its body, and may be called by several goroutines at once.
	Idempotent func(req *http.Request) bool

	// KeepRefused leaves a throttled request alone that is not idempotent, such
	// as a POST. Otherwise it is retried: the server said that it did not
	// process it.
	KeepRefused bool

	// ReleaseAtHeaders gives the permit back when the header of an answer is
	// there. Otherwise it is held until the body was read or closed: until
	// then the server is at work, and the connection in use.
	ReleaseAtHeaders bool

	// LongHeld is how long a permit is held before Stats counts it as held
	// for long. 0 means 1 min. It must not be negative.
	LongHeld time.Duration

	// Spread makes the pace of a key follow what the server says is left of a
	// limit: what remains, evenly until its reset, but never faster than the
	// configured rate. What a bucket gets until its reset counts as well. It
	// begins when less than this share of the quota remains: 0.1 for the last
	// tenth, 1 for always, 0 for never. A limit without a known quota is spread
	// only by 1.
	Spread float64

	// FromPolicy takes the limits of a key that has no rate of its own from
	// what the server publishes: the rate from the slowest of its policies, and
	// the concurrency, if none is configured, from a policy for that. Until
	// the first answer tells, calls that have no configured concurrency go one
	// by one. Stats shows what is in force.
	FromPolicy bool

	// Headers says how to read the header fields of the servers.
	Headers ratelimit.Options

	// Inspect, if set, looks at each answer for what header fields do not say:
	// GitHub, AWS, Anthropic, Google, GraphQL, several of them by Inspectors,
	// or a function of your own. Answers that look like an error of Amazon are
	// inspected by AWS first, also if Inspect is nil.
	Inspect Inspector
}

// An Inspector looks at an answer, for servers that say in the body that there
// were too many calls, or until when. said is what status and header say; it may
// be changed: Throttled makes the answer a throttle, RetryAt says when to come
// back, ShouldRetry No prevents a retry.
//
// peek returns the beginning of the body, at most 64 KiB, and leaves the body as
// it was. It blocks until that much has come or the body ends, for a second or the
// AttemptTimeout at most, whichever is shorter; then it returns what has come.
// Meanwhile the permit is held, and the key is paused if the header says so. So call
// peek only for answers that may be throttles, never for a stream. An Inspector must
// not change the response or read its body.
type Inspector func(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot)

const defaultLongHeld = time.Minute

// check returns an error unless cfg can be built.
func (cfg *Config) check() error {
	switch {
	case cfg.NewGate != nil && !reflect.ValueOf(cfg.Gate).IsZero():
		return errors.New("both Gate and NewGate")
	case cfg.LongHeld < 0:
		return fmt.Errorf("negative LongHeld %v", cfg.LongHeld)
	case !(cfg.Spread >= 0 && cfg.Spread <= 1): // so written for NaN
		return fmt.Errorf("spread of %v: must be from 0 to 1", cfg.Spread)
	}
	for _, status := range cfg.AlsoRetry {
		if status < 400 || status > 599 || status == http.StatusNotImplemented {
			return fmt.Errorf("status %d of AlsoRetry is not one to retry", status)
		}
	}
	if err := cfg.Headers.Check(); err != nil {
		return err
	}
	_, err := sluice.New(cfg.Gate) // would the gates have an error it is known now
	return err
}

// withDefaults returns cfg with every field set, and nothing shared with the
// caller that the caller may change.
func (cfg Config) withDefaults() Config {
	if cfg.LongHeld == 0 {
		cfg.LongHeld = defaultLongHeld
	}
	cfg.AlsoRetry = slices.Clone(cfg.AlsoRetry)
	cfg.Gate.Limits = slices.Clone(cfg.Gate.Limits)
	cfg.Headers.Times = maps.Clone(cfg.Headers.Times)
	cfg.Headers.CacheMarkers = slices.Clone(cfg.Headers.CacheMarkers)
	return cfg
}
