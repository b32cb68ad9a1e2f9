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

// Never is the gap between requests of which there are not two.
const Never = time.Duration(math.MaxInt64)

// Where returns the part of r with the requests for which is reports true.
// Connections, bodies and the log stay as they are.
func (r Record) Where(is func(Request) bool) Record {
	r.Requests = slices.DeleteFunc(slices.Clone(r.Requests), func(q Request) bool { return !is(q) })
	return r
}

// Host is Where for the requests to one host.
func (r Record) Host(host string) Record {
	return r.Where(func(q Request) bool { return q.Host == host })
}

// Arrivals returns the instants at which the requests arrived.
func (r Record) Arrivals() []time.Duration {
	var at []time.Duration
	for _, q := range r.Requests {
		at = append(at, q.Arrived)
	}
	return at
}

// Statuses returns how often each status was answered. 0 counts requests that
// were not answered.
func (r Record) Statuses() map[int]int {
	count := make(map[int]int)
	for _, q := range r.Requests {
		count[q.Status]++
	}
	return count
}

// Refused returns how many requests a limit refused.
func (r Record) Refused() int {
	return len(r.Where(func(q Request) bool { return q.Refused != "" }).Requests)
}

// Closest returns the shortest time between two arrivals, [Never] if there are
// no two.
func (r Record) Closest() time.Duration {
	gap, _ := r.closest()
	return gap
}

// closest returns also the place of the later of the two.
func (r Record) closest() (gap time.Duration, place int) {
	gap = Never
	for i := 1; i < len(r.Requests); i++ {
		if d := r.Requests[i].Arrived - r.Requests[i-1].Arrived; d < gap {
			gap, place = d, i
		}
	}
	return gap, place
}

// MostWithin returns how many requests arrived in that span of time in which
// most did: one as long as per, its beginning included and its end not. It
// panics if per ≤ 0.
func (r Record) MostWithin(per time.Duration) int {
	most, _ := r.mostWithin(per)
	return most
}

func (r Record) mostWithin(per time.Duration) (most, place int) {
	if per <= 0 {
		panic(fmt.Sprintf("sluicetest: within %v", per))
	}
	first := 0
	for i, q := range r.Requests {
		for q.Arrived-r.Requests[first].Arrived >= per {
			first++
		}
		if n := i - first + 1; n > most {
			most, place = n, first
		}
	}
	return most, place
}

// MostInFlight returns how many requests were in flight when most were, those
// that a limit refused included.
func (r Record) MostInFlight() int {
	most, _ := r.mostInFlight()
	return most
}

// mostInFlight returns also the place of the request with which they were.
func (r Record) mostInFlight() (most, place int) {
	var ends []int64
	for _, q := range r.Requests {
		if !q.InFlight {
			ends = append(ends, q.ended)
		}
	}
	slices.Sort(ends)
	over := 0
	for i, q := range r.Requests {
		for over < len(ends) && ends[over] < q.began {
			over++
		}
		if n := i + 1 - over; n > most {
			most, place = n, i
		}
	}
	return most, place
}

// OpenConns returns how many connections are open.
func (r Record) OpenConns() int {
	open := 0
	for _, c := range r.Conns {
		if c.Open {
			open++
		}
	}
	return open
}

// MostConns returns how many connections were open when most were.
func (r Record) MostConns() int {
	q := Record{}
	for _, c := range r.Conns {
		q.Requests = append(q.Requests, Request{InFlight: c.Open, began: c.opened, ended: c.closed})
	}
	return q.MostInFlight()
}

// # The verdicts

// Evenly returns an error if two requests arrived closer together than gap.
// To judge one of several hosts ask r.Host(name).Evenly.
func (r Record) Evenly(gap time.Duration) error {
	closest, i := r.closest()
	if closest >= gap {
		return nil
	}
	return fmt.Errorf("sluicetest: %v arrived %v after %v; want at least %v", r.Requests[i], closest, r.Requests[i-1], gap)
}

// Within returns an error if more than n requests arrived in any span of time as
// long as per, its beginning included and its end not. It panics if per ≤ 0.
func (r Record) Within(n int, per time.Duration) error {
	most, i := r.mostWithin(per)
	if most <= n {
		return nil
	}
	return fmt.Errorf("sluicetest: %d requests arrived within %v, from %v to %v; want at most %d",
		most, per, r.Requests[i], r.Requests[i+most-1], n)
}

// AtOnce returns an error if more than n requests were in flight at once.
func (r Record) AtOnce(n int) error {
	most, i := r.mostInFlight()
	if most <= n {
		return nil
	}
	return fmt.Errorf("sluicetest: %d requests were in flight with %v; want at most %d", most, r.Requests[i], n)
}

// NoneRefused returns an error if a limit refused a request.
func (r Record) NoneRefused() error {
	for _, q := range r.Requests {
		if q.Refused != "" {
			return fmt.Errorf("sluicetest: %d of %d requests were refused, the first of them %v: %s",
				r.Refused(), len(r.Requests), q, q.Refused)
		}
	}
	return nil
}

// Obeyed returns an error if a request arrived after a client was told when to
// come back, and before that: after the end of an earlier request to the same
// host, and before its RetryAt. One that arrived at the very instant of that
// end may have been on its way, and is none.
//
// If a limit refused the earlier request, or its status was 403, 429, 503, 529 or a
// redirect, that holds for all requests to the host. After any other status, such as
// 500 with a Retry-After, it holds only for the same request sent again: one with
// the same method, path and query, and the same body as far as both were read.
// Different calls that are alike in all of these count as one, so a test that makes
// several at once gives each a path of its own.
func (r Record) Obeyed() error {
	hosts := make(map[string][]Request) // those that were told, by host
	for _, q := range r.Requests {
		for _, early := range hosts[q.Host] {
			if !early.InFlight && q.Arrived > early.Ended && q.Arrived < early.RetryAt && (early.holdsAll() || q.repeats(early)) {
				return fmt.Errorf("sluicetest: %v arrived although %v was told to come back at %v", q, early, early.RetryAt)
			}
		}
		if q.RetryAt > 0 {
			hosts[q.Host] = append(hosts[q.Host], q)
		}
	}
	return nil
}

// holdsAll reports whether what q was told is for all requests to its host.
func (q Request) holdsAll() bool {
	switch q.Status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		return true
	}
	return q.Refused != "" || q.Status >= 300 && q.Status < 400
}

// repeats reports whether q looks like early sent again. A server that answers
// early may have read nothing of the body.
func (q Request) repeats(early Request) bool {
	n := min(len(q.Body), len(early.Body))
	return q.Method == early.Method && q.Path == early.Path && bytes.Equal(q.Body[:n], early.Body[:n])
}

// AllRead returns an error if the client did not read a body to its end, or did
// not close it. Bodies are known of a client under [Server.Watch]. It may well
// leave one unread: that only costs the connection.
func (r Record) AllRead() error {
	var errs []error
	for i, b := range r.Bodies {
		switch {
		case !b.Closed:
			errs = append(errs, fmt.Errorf("sluicetest: body %d (%s %s, %d) was not closed", i+1, b.Method, b.URL, b.Status))
		case !b.AtEnd:
			errs = append(errs, fmt.Errorf("sluicetest: body %d (%s %s, %d) was read for %d bytes, not to its end", i+1, b.Method, b.URL, b.Status, b.Read))
		}
	}
	return errors.Join(errs...)
}

// String tells which request it is: "request 3 (GET a.test/x at 1.5s)".
func (q Request) String() string {
	return fmt.Sprintf("request %d (%s %s%s at %v)", q.Number, q.Method, q.Host, q.Path, q.Arrived)
}
