package sluicetest

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Limit is a limit of a server: a rate, a quota, a number of requests in flight, or several of
// these.
type Limit struct {
	// Name is the name in the record and in headers. Empty means "default", except with a Cost.
	Name string

	// Count per Per is the rate: Burst units may come together, and one more every
	// Per/Count, without rounding. 0 per 0 means no rate. A Burst of 0 means 1.
	Count int64
	Per   time.Duration
	Burst int64

	// Quota is the number of units that may come in each Window. The first window begins
	// when the server is made, the next one when it ends. 0 in 0 means no quota.
	Quota  int64
	Window time.Duration

	// Concurrency is the maximum number of requests in flight. 0 means unlimited.
	Concurrency int64

	// Cost returns the number of units of the rate and of the quota that a request takes, by its
	// header and its whole body. nil means 1. It must not read r.Body, and is called concurrently. A
	// request that costs more than Burst or Quota is always rejected.
	Cost func(r *http.Request, body []byte) int64

	// Key groups requests: each key has its own limit. nil means one limit for all.
	Key func(r *http.Request) string

	// Status is the status of a rejection. 0 means 429.
	Status int

	// Body is the body of a rejection, JSON if it begins with {. Empty means a line of text.
	Body string

	// HeaderStyle writes headers about the limit into every response. nil writes none.
	HeaderStyle HeaderStyle
}

// Enforce passes requests that are within all limits and rejects all others, which are then counted
// by none. Of several limits that reject a request, the one with the longest wait counts.
//
//	sluicetest.Enforce(
//		sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 80, HeaderStyle: sluicetest.OpenAI},
//		sluicetest.Limit{Name: "tokens", Count: 60_000, Per: time.Minute, Burst: 10_000, Cost: tokens},
//	)
//
// The time that counts is when a request reaches this layer or, if a limit has a Cost, when its
// body has been read.
//
// It panics if a number of a limit is negative, if only one of two fields that belong together is
// set, or if Burst times Per is more than 292 years.
func Enforce(limits ...Limit) Layer {
	limits = append([]Limit(nil), limits...)
	readsBody := false
	for i := range limits {
		l := &limits[i]
		l.mustBePossible()
		if l.Burst == 0 {
			l.Burst = 1
		}
		if l.Status == 0 {
			l.Status = http.StatusTooManyRequests
		}
		readsBody = readsBody || l.Cost != nil
	}
	return func(next http.Handler) http.Handler {
		e := &enforcer{limits: limits, readsBody: readsBody, next: next}
		for range limits {
			e.keys = append(e.keys, make(map[string]*usage))
		}
		return http.HandlerFunc(e.serve)
	}
}

func (l *Limit) mustBePossible() {
	mistake := ""
	switch {
	case l.Count < 0 || l.Per < 0 || l.Burst < 0 || l.Quota < 0 || l.Window < 0 || l.Concurrency < 0:
		mistake = "a negative number"
	case (l.Count == 0) != (l.Per == 0):
		mistake = "Count needs Per"
	case l.Burst > 0 && l.Count == 0:
		mistake = "Burst needs Count"
	case (l.Quota == 0) != (l.Window == 0):
		mistake = "Quota needs Window"
	case l.Burst > 0 && int64(l.Per) > math.MaxInt64/l.Burst:
		mistake = "Burst times Per is more than 292 years"
	case l.Cost != nil && l.Name == "":
		mistake = "Cost needs Name"
	case l.Status != 0 && (l.Status < 200 || l.Status > 999):
		mistake = fmt.Sprintf("status %d", l.Status)
	}
	if mistake != "" {
		panic("sluicetest: Limit: " + mistake)
	}
}

// An enforcer applies several limits together.
type enforcer struct {
	limits    []Limit
	readsBody bool
	next      http.Handler

	mu   sync.Mutex
	keys []map[string]*usage // of each limit
}

func (e *enforcer) serve(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	asked := e.asked(x, r)
	by, standings := e.decide(x, asked)
	for i := range e.limits {
		if f := e.limits[i].HeaderStyle; f != nil {
			f(w.Header(), standings[i])
		}
	}
	if by < 0 {
		x.charges = append(x.charges, asked...)
		e.next.ServeHTTP(w, r)
		return
	}
	l, reason := &e.limits[by], asked[by].reason
	x.note(func(r *Request) {
		r.ThrottledBy = strings.TrimSpace(l.Name + " " + reason)
		if wait := standings[by].Wait; wait > 0 {
			r.RetryAt = asked[by].at + wait
		}
	})
	if l.Body == "" {
		http.Error(w, reason+" exceeded", l.Status)
		return
	}
	if strings.HasPrefix(l.Body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(l.Status)
	_, _ = io.WriteString(w, l.Body)
}

// asked returns the units that r needs of each limit.
func (e *enforcer) asked(x *exchange, r *http.Request) []*charge {
	var body []byte
	if e.readsBody {
		body = x.readBody(r)
	}
	asked := make([]*charge, len(e.limits))
	for i := range e.limits {
		c := &charge{e: e, limit: &e.limits[i], cost: 1}
		if c.limit.Key != nil {
			c.key = c.limit.Key(r)
		}
		if c.limit.Cost != nil {
			c.cost = max(0, c.limit.Cost(r, body))
		}
		asked[i] = c
	}
	return asked
}

// decide counts a request, or rejects it: then by is the limit that rejects. It reads the
// clock under the lock, so that requests are decided in the order of their times.
func (e *enforcer) decide(x *exchange, asked []*charge) (by int, standings []LimitState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := x.server.now()
	by, longest := -1, time.Duration(-1)
	for i, c := range asked {
		u := e.keys[i][c.key]
		if u == nil {
			u = new(usage)
			e.keys[i][c.key] = u
		}
		u.advance(c.limit, now)
		c.usage, c.at, c.reason = u, now, u.refuses(c.limit, c.cost)
		if c.reason == "" {
			continue
		}
		wait := u.standing(c.limit, now, c.cost).Wait
		if c.reason == tooLarge {
			wait = math.MaxInt64
		}
		if wait > longest {
			by, longest = i, wait
		}
	}
	for i, c := range asked {
		cost := int64(1) // of the next request, as far as is known
		switch {
		case by < 0:
			c.usage.take(c.limit, c.cost)
			x.ends = append(x.ends, c.end)
		case i == by:
			cost = c.cost
		}
		s := c.usage.standing(c.limit, now, cost)
		if s.Throttled, s.Now = i == by, time.Now(); c.reason == tooLarge {
			s.Wait = 0
		}
		standings = append(standings, s)
	}
	return by, standings
}
