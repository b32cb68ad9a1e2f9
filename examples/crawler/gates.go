package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// attempts is how often a page is asked for that fails.
const attempts = 3

// newGates returns the gates: one for each host, and above them one for all,
// which each request passes at the same instant.
func newGates(o options, interval func(key string) time.Duration) (*sluice.Keyed[string], error) {
	all, err := sluice.New(sluice.Config{Name: "all hosts", Concurrency: o.jobs, Rate: o.rate})
	if err != nil {
		return nil, err
	}
	return sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{
			Name:        key,
			Concurrency: o.perHost,
			Rate:        sluice.Rate{Count: 1, Per: interval(key)},
			CatchUp:     -1, // strict: no gap is ever shorter, even if we are late
			Parent:      all,
		})
	}, sluice.KeyedConfig{})
}

// An answer is what a host answered.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	cut      bool // whether there was more of it
	attempts int
	sent     time.Time     // the last time
	waited   time.Duration // before the first attempt
	took     time.Duration // the last one
}

// A statusError is an answer that counts as a failure: too many requests, or
// something wrong at the server.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s", e.status, http.StatusText(e.status))
}

// fetch asks for u through the gate of h. want says how many bytes of an
// answer to read, 0 for none. It returns an error if the last attempt failed,
// and the answer even then, as far as there is one.
func (c *crawler) fetch(ctx context.Context, gate *sluice.Gate, h *host, u *url.URL, want func(*http.Response) int64) (answer, error) {
	queued, tries := time.Now(), 0
	var last answer
	_, err := sluice.RetryValue(ctx, gate, c.policy(h), func(ctx context.Context) (struct{}, error) {
		sent := time.Now()
		if tries++; tries == 1 {
			last.waited = sent.Sub(queued)
		}
		c.departed(gate, h, sent)
		resp, body, err := c.get(ctx, u, want)
		took := time.Since(sent)
		c.returned(gate, h, took, err == nil && resp.StatusCode < 400)
		last = answer{attempts: tries, sent: sent, waited: last.waited, took: took}
		if err != nil {
			return struct{}{}, err
		}
		last.status, last.header, last.body = resp.StatusCode, resp.Header, body
		if most := want(resp); int64(len(body)) > most {
			last.body, last.cut = body[:most], true
		}
		return struct{}{}, c.obey(gate, h, resp)
	})
	return last, err
}

// policy is when to try again. The waits that we impose on ourselves must not
// count as more than a host may ask for.
func (c *crawler) policy(h *host) sluice.RetryPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sluice.RetryPolicy{
		Attempts:       attempts,
		MaxServerWait:  max(c.o.maxWait, c.o.maxDelay, h.interval),
		AttemptTimeout: c.o.timeout,
	}
}

// get makes one request. It reads one byte more than is wanted, to know
// whether there is more.
func (c *crawler) get(ctx context.Context, u *url.URL, want func(*http.Response) int64) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, sluice.Permanent(err)
	}
	req.Header.Set("User-Agent", c.o.agent)
	resp, err := c.client.Do(req)
	if err != nil {
		var wrong *tls.CertificateVerificationError
		var name *net.DNSError
		if errors.As(err, &wrong) || errors.As(err, &name) && name.IsNotFound {
			err = sluice.Permanent(err)
		}
		return nil, nil, err
	}
	defer resp.Body.Close()
	most := want(resp)
	if most == 0 {
		return resp, nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, nil, err
	}
	return resp, body, nil
}

// departed notes that a request leaves now. The gate has spaced out its grants;
// this spaces out the departures, which may be later by as much as it took to
// wake up.
func (c *crawler) departed(gate *sluice.Gate, h *host, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.departs(now)
	gate.PauseUntil(now.Add(h.interval), "the delay between requests")
}

// returned is called when a request has ended and still has its permit, so
// that what it makes the gate wait for holds for the next one. A request that
// failed, which is often quick, never makes it wait for less than one that did
// not.
func (c *crawler) returned(gate *sluice.Gate, h *host, took time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		h.latency = took
	}
	var wait time.Duration
	if c.o.factor > 0 {
		wait = c.o.maxDelay
		if s := c.o.factor * max(took, h.latency).Seconds(); s < wait.Seconds() {
			wait = time.Duration(s * float64(time.Second))
		}
	}
	if c.o.fromEnd {
		wait = max(wait, h.interval)
	}
	if wait > 0 {
		gate.PauseUntil(time.Now().Add(wait), "the delay after a request")
	}
}

// obey does what a response asks for: a pause, and from then on a delay that is
// twice as long if there were too many requests. It returns an error if the
// answer is a failure.
func (c *crawler) obey(gate *sluice.Gate, h *host, resp *http.Response) error {
	said, _ := ratelimit.Parse(resp.StatusCode, resp.Header, time.Now())
	if until, source := said.PauseUntil(); !until.IsZero() {
		gate.PauseUntil(until, source)
	}
	switch status := resp.StatusCode; {
	case said.Throttled:
		c.mu.Lock()
		h.throttled++
		// Not beyond the longest delay that we would obey; and if it is there
		// already, that is how it stays.
		longer := max(h.interval, min(2*h.interval, c.o.maxDelay))
		c.setInterval(gate, h, longer)
		c.mu.Unlock()
		return sluice.RetryAt(&statusError{status}, said.RetryAt)
	case status >= 500 && status != http.StatusNotImplemented:
		return &statusError{status}
	}
	return nil
}

// setInterval changes the delay of a host. It is called with the lock held.
func (c *crawler) setInterval(gate *sluice.Gate, h *host, interval time.Duration) {
	h.interval = interval
	if err := gate.SetRate(sluice.Rate{Count: 1, Per: interval}); err != nil {
		panic(err) // options.check and package robots have looked at it
	}
}
