package sluicehttp

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Config configures a [Transport]. The zero Config retries and respects servers, without a rate or
// limit of its own. Its functions are called concurrently; they must not change the request, read
// its body, or keep the body that they get.
type Config struct {
	// Rate and Concurrency are short for those of Gate, for each key; set each in one place. The
	// zero Rate means no limit.
	Rate sluice.Rate

	// Concurrency is described above. 0 means no limit.
	Concurrency int64

	// Gate configures the gate of each key; its Name is the key. All keys share its Parent,
	// Semaphore and Limits.
	Gate sluice.Config

	// NewGate, if set, makes a new gate for a key, in place of Gate. It must not use the transport.
	NewGate func(key string) (*sluice.Gate, error)

	// Keys says when the gate of a key is evicted, and how many gates there may be. At MaxKeys, a
	// new key replaces a gate that no request uses, even if a server has paused it or slowed it down,
	// unless its configured rate would delay a call or the state of one of its Limits would be lost;
	// if there is none, the new key fails with [limits.ErrTooManyKeys].
	//
	// If EvictAt and MaxKeys are both 0, EvictAt is 10,000, and gates are kept for their rate or
	// Limits only up to 10 times EvictAt. Without Evict, Forget is called.
	Keys sluice.KeyedConfig

	// Key returns the name of the gate for a request. nil means one for each scheme, host and port.
	Key func(req *http.Request) string

	// Claimant, if set, returns on whose behalf a request is made, such as a tenant, before each
	// attempt. The claimants of a key take turns, see [sluice.Claimant]. Gate must have no
	// Semaphore. Do not use a header of callers that you do not trust.
	Claimant func(req *http.Request) sluice.Claimant

	// Retry is the policy for retries. Its AttemptTimeout applies until the header of the response
	// arrives. 0 means 10 min, but none for a request with a body of more than 1 MiB or of unknown
	// length; negative means none. After it only an idempotent request is sent again. Its Retryable
	// is called for errors of the base transport and for a *StatusError that would be retried
	// otherwise.
	Retry sluice.RetryPolicy

	// MaxPause is the longest pause of a key that a server can cause. A longer one is cut, with a
	// Warning in Stats. 0 means 24 h, or Retry.MaxServerWait if that is longer; negative means no
	// bound.
	MaxPause time.Duration

	// AlsoRetry are further statuses to retry, such as 409. They must be from 400
	// to 599, and not 501.
	AlsoRetry []int

	// Idempotent, if set, reports whether a request may be sent twice although its method is not
	// idempotent, such as a POST whose body is a query. It is called once, and gets the body as Cost
	// does.
	Idempotent func(req *http.Request, body []byte) bool

	// Cost, if set, returns the estimated amounts of a request in limits that count more than
	// calls, see sluice.Costs and docs/http.md. The amount of sluice.Cost is the n of the call,
	// unless Overrides.Cost is set.
	//
	// It is called once for each request, before the queue, with up to 1 MiB of the body if that can
	// be read again: by GetBody, or because its length is known and at most 64 KiB. Otherwise body is
	// nil. A negative amount fails the request.
	Cost func(req *http.Request, body []byte) sluice.Costs

	// Usage, if set, writes the actual amounts of a request, as far as it finds them in the
	// response, into used, where they replace earlier ones. They correct the Cost, as Report.Settle
	// does, except those below 0 and above 10⁹. It must not read the body, change resp, or keep part.
	//
	// It gets the body in parts, while the caller reads it: the data of each event of a
	// text/event-stream, and then nil; any other body as one part. Of more than 64 KiB a part is
	// the last 64 KiB or, if it begins with {, its JSON without white space, with "" for strings of
	// more than 1 KiB and [] for arrays still longer than 4 KiB. It is compressed if the request has
	// an Accept-Encoding of its own.
	//
	// The last part comes when the body was read to its end, and resp.Trailer is complete, or when
	// it is closed; not if the context of the request ends before.
	Usage func(resp *http.Response, part []byte, used sluice.Costs)

	// NoRetryThrottled turns off retries of throttled requests that are not idempotent.
	NoRetryThrottled bool

	// ReleaseAtHeaders releases the permit when the header of a response arrives.
	ReleaseAtHeaders bool

	// OnAttempt, if set, is called after each attempt with the key of its gate, when the header of
	// the response has arrived or there is none. It should return soon.
	OnAttempt func(key string, a Attempt)

	// LeakThreshold is how long a permit must be held to count in Stats.HeldLong. 0 means
	// 1 min.
	LeakThreshold time.Duration

	// Published is how the limits that servers publish are used.
	Published Published

	// Headers configures how header fields are read.
	Headers ratelimit.Options

	// Inspect, if set, reads limits that are not in the header of a response, for APIs that are not
	// recognized without it, see docs/http.md. said has those of status and header, and may be
	// changed: Throttled makes the response a throttle, RetryAt is when to retry, and ShouldRetry =
	// new(false) prevents a retry. A Reason that is "requests" or a unit of Cost says whose limit
	// has rejected the request.
	//
	// peek returns the beginning of the body, up to 64 KiB, unpacked if it is gzip and without a byte
	// order mark, and leaves the body whole. It waits for it, for at most a second and the
	// AttemptTimeout, while the permit is held. Call it only for responses that may be throttled,
	// never for a stream. The response must not be changed, nor its body read.
	Inspect func(resp *http.Response, peek func() []byte, said *ratelimit.Info)
}

// Published is how a Transport uses the limits that servers publish in headers. The zero Published
// is on: requests stop before a limit is exceeded, see docs/http.md. A limit whose windows last at
// most two seconds becomes the rate of a key while requests wait, if none is configured and
// Gate.Adaptive.Peers is not set.
type Published struct {
	// Disabled means that an exhausted limit delays no requests, and that a gate learns nothing from
	// published limits.
	Disabled bool

	// Spread sends the remaining quota of a limit evenly until its reset, when less than this share
	// of the limit remains: 0.1 means the last tenth, 1 always; 0 means never. Only 1 spreads a
	// limit whose maximum is unknown. Limits of other units than requests are spread only with a
	// Cost.
	//
	// With 1, a key also has the slowest rate, with a burst of 1, and the concurrency that its server
	// publishes, if none is configured; a Gate.Rate that has only a Burst is an error. Until the
	// first response, calls without a configured concurrency go one by one.
	Spread float64

	// Reserve is the share of each limit with a known maximum that is left to other programs: 0.1
	// means the last tenth, and 0 means none. It must be less than 1.
	Reserve float64
}

// check returns an error unless p can be used.
func (p *Published) check() error {
	switch { // written so that NaN is an error
	case !(p.Spread >= 0 && p.Spread <= 1):
		return fmt.Errorf("spread of %v: must be from 0 to 1", p.Spread)
	case !(p.Reserve >= 0 && p.Reserve < 1):
		return fmt.Errorf("reserve of %v: must be from 0 to less than 1", p.Reserve)
	case p.Disabled && (p.Spread > 0 || p.Reserve > 0):
		return errors.New("published limits are off, with a Spread or a Reserve")
	}
	return nil
}

// reserve returns how much of most, which is infinite if unknown, is left to others.
func (p *Published) reserve(most float64) float64 {
	if math.IsInf(most, 1) {
		return 0
	}
	return p.Reserve * most
}

const defaultLongHeld = time.Minute

// unite moves Rate and Concurrency to Gate.
func (cfg *Config) unite() error {
	switch rated := cfg.Rate != (sluice.Rate{}); {
	case cfg.NewGate != nil && (rated || cfg.Concurrency != 0):
		return errors.New("a Rate or a Concurrency with NewGate, which makes the gates")
	case rated && cfg.Gate.Rate != (sluice.Rate{}):
		return errors.New("both Rate and Gate.Rate")
	case cfg.Concurrency != 0 && cfg.Gate.Concurrency != 0:
		return errors.New("both Concurrency and Gate.Concurrency")
	case rated:
		cfg.Gate.Rate = cfg.Rate
	}
	if cfg.Concurrency != 0 {
		cfg.Gate.Concurrency = cfg.Concurrency
	}
	cfg.Rate, cfg.Concurrency = sluice.Rate{}, 0
	return nil
}

// check returns an error unless cfg can be built.
func (cfg *Config) check() error {
	switch {
	case cfg.NewGate != nil && !reflect.ValueOf(cfg.Gate).IsZero():
		return errors.New("both Gate and NewGate")
	case cfg.LeakThreshold < 0:
		return fmt.Errorf("negative LongHeld %v", cfg.LeakThreshold)
	case cfg.Claimant != nil && cfg.Gate.Semaphore != nil:
		return errors.New("both a Claimant and a Gate.Semaphore, whose permits calls would hold while they wait")
	}
	if err := cfg.Published.check(); err != nil {
		return err
	}
	for _, status := range cfg.AlsoRetry {
		if status < 400 || status > 599 || status == http.StatusNotImplemented {
			return fmt.Errorf("status %d in AlsoRetry: must be from 400 to 599, and not 501", status)
		}
	}
	gate := cfg.Gate
	if gate.Adaptive.Peers != nil {
		gate.Name = "key" // gates have the names of their keys
	}
	_, err := sluice.New(gate) // an error of all gates
	return err
}

// withDefaults returns cfg with defaults, and with copies of slices that the caller may
// change.
func (cfg Config) withDefaults() Config {
	if cfg.LeakThreshold == 0 {
		cfg.LeakThreshold = defaultLongHeld
	}
	cfg.AlsoRetry = slices.Clone(cfg.AlsoRetry)
	cfg.Gate.Limits = slices.Clone(cfg.Gate.Limits)
	cfg.Headers.Millis = slices.Clone(cfg.Headers.Millis)
	cfg.Headers.CacheMarkers = slices.Clone(cfg.Headers.CacheMarkers)
	return cfg
}
