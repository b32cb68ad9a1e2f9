package sluicetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"
)

// Filter returns a copy of r with only the requests for which keep returns true.
func (r Record) Filter(keep func(Request) bool) Record {
	r.Requests = slices.DeleteFunc(slices.Clone(r.Requests), func(q Request) bool { return !keep(q) })
	return r
}

// Host is Filter for the requests to one host.
func (r Record) Host(host string) Record {
	return r.Filter(func(q Request) bool { return q.Host == host })
}

// Arrivals returns the times at which the requests arrived.
func (r Record) Arrivals() []time.Duration {
	var at []time.Duration
	for _, q := range r.Requests {
		at = append(at, q.Arrived)
	}
	return at
}

// Throttled returns the number of requests that a limit rejected.
func (r Record) Throttled() int {
	return len(r.Filter(func(q Request) bool { return q.ThrottledBy != "" }).Requests)
}

// MostInFlight returns the largest number of requests in flight at the same time, including those
// that a limit rejected.
func (r Record) MostInFlight() int {
	var ends []int64
	for _, q := range r.Requests {
		if !q.InFlight {
			ends = append(ends, q.ended)
		}
	}
	slices.Sort(ends)
	most, over := 0, 0
	for i, q := range r.Requests {
		for over < len(ends) && ends[over] < q.began {
			over++
		}
		most = max(most, i+1-over)
	}
	return most
}

// CheckSpacing returns an error if two requests arrived less than gap apart.
func (r Record) CheckSpacing(gap time.Duration) error {
	closest, at := time.Duration(math.MaxInt64), 0
	for i := 1; i < len(r.Requests); i++ {
		if d := r.Requests[i].Arrived - r.Requests[i-1].Arrived; d < closest {
			closest, at = d, i
		}
	}
	if closest >= gap {
		return nil
	}
	return fmt.Errorf("sluicetest: %v arrived %v after %v; want at least %v", r.Requests[at], closest, r.Requests[at-1], gap)
}

// CheckRate returns an error if more than n requests arrived in any interval of length per,
// including its start and excluding its end. It panics if per ≤ 0.
func (r Record) CheckRate(n int, per time.Duration) error {
	if per <= 0 {
		panic(fmt.Sprintf("sluicetest: within %v", per))
	}
	most, at, first := 0, 0, 0
	for i, q := range r.Requests {
		for q.Arrived-r.Requests[first].Arrived >= per {
			first++
		}
		if in := i - first + 1; in > most {
			most, at = in, first
		}
	}
	if most <= n {
		return nil
	}
	return fmt.Errorf("sluicetest: %d requests arrived within %v, from %v to %v; want at most %d",
		most, per, r.Requests[at], r.Requests[at+most-1], n)
}

// CheckRetryAfter returns an error if a request arrived too early: after the end of an earlier
// request to the same host, and before the RetryAt of that.
//
// If a limit rejected the earlier request, or its status was 403, 429, 503, 529 or a redirect, its
// RetryAt holds for all requests to the host, and otherwise only for the same request sent again: one
// with the same method, path and query, and the same body as far as both were read.
func (r Record) CheckRetryAfter() error {
	hosts := make(map[string][]Request) // those with a RetryAt, by host
	for _, q := range r.Requests {
		for _, early := range hosts[q.Host] {
			if !early.InFlight && q.Arrived > early.Ended && q.Arrived < early.RetryAt && (early.holdsAll() || q.repeats(early)) {
				return fmt.Errorf("sluicetest: %v arrived before the RetryAt of %v, %v", q, early, early.RetryAt)
			}
		}
		if q.RetryAt > 0 {
			hosts[q.Host] = append(hosts[q.Host], q)
		}
	}
	return nil
}

// holdsAll reports whether the RetryAt of q is for all requests to its host.
func (q Request) holdsAll() bool {
	switch q.Status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		return true
	}
	return q.ThrottledBy != "" || q.Status >= 300 && q.Status < 400
}

// repeats reports whether q looks like early sent again. A server that answered early
// may have read nothing of the body.
func (q Request) repeats(early Request) bool {
	n := min(len(q.Body), len(early.Body))
	return q.Method == early.Method && q.Path == early.Path && bytes.Equal(q.Body[:n], early.Body[:n])
}

// CheckBodies returns an error if the client did not read the body of a response to its end, or did
// not close it. It covers clients under [Server.Watch], such as [Server.Client].
func (r Record) CheckBodies() error {
	var errs []error
	for i, b := range r.bodies {
		switch {
		case !b.closed:
			errs = append(errs, fmt.Errorf("sluicetest: body %d (%s %s, %d) was not closed", i+1, b.method, b.url, b.status))
		case !b.atEnd:
			errs = append(errs, fmt.Errorf("sluicetest: body %d (%s %s, %d) was read for %d bytes, not to its end", i+1, b.method, b.url, b.status, b.read))
		}
	}
	return errors.Join(errs...)
}

// String identifies the request: "request 3 (GET a.test/x at 1.5s)".
func (q Request) String() string {
	return fmt.Sprintf("request %d (%s %s%s at %v)", q.Number, q.Method, q.Host, q.Path, q.Arrived)
}
