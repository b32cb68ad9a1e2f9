package sluicetest

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Limit is what a server allows: a rate, a quota, a number of requests in flight, or
// several of these. A request that one of them refuses is counted by none.
type Limit struct {
	// Name is the name in the record and in headers; empty means "default" in
	// headers.
	Name string

	// Count per Per is the rate: Burst requests may come at once, and one more
	// every Per/Count, without rounding. 0 per 0 means no rate. A Burst of 0
	// means 1.
	Count int64
	Per   time.Duration
	Burst int64

	// Quota is how many requests may come in each Window. The first window begins
	// when the server is made, the next one when it ends. 0 in 0 means no quota.
	Quota  int64
	Window time.Duration

	// Concurrency is how many requests may be in flight. 0 means unlimited.
	Concurrency int64

	// Key groups requests: each key has a limit of its own. nil means one limit
	// for all requests.
	Key func(r *http.Request) string

	// Status is the status of a refusal. 0 means 429.
	Status int

	// Family writes headers about the limit into every response. nil writes none.
	Family Family
}

// Enforce passes requests that are within limit and refuses all others. The time that
// counts is when a request reaches this layer. If one Enforce encloses another, the outer
// one also counts what the inner one refuses.
//
// It panics if a number of limit is negative, if only one of two fields that belong
// together is set, or if Burst times Per is more than 292 years.
func Enforce(limit Limit) Layer {
	limit.mustBePossible()
	if limit.Burst == 0 {
		limit.Burst = 1
	}
	if limit.Status == 0 {
		limit.Status = http.StatusTooManyRequests
	}
	return func(next http.Handler) http.Handler {
		e := &enforcer{limit: limit, next: next, keys: make(map[string]*usage)}
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
	case l.Status != 0 && (l.Status < 200 || l.Status > 999):
		mistake = fmt.Sprintf("status %d", l.Status)
	}
	if mistake != "" {
		panic("sluicetest: Limit: " + mistake)
	}
}

// An enforcer applies a Limit.
type enforcer struct {
	limit Limit
	next  http.Handler

	mu   sync.Mutex
	keys map[string]*usage
}

func (e *enforcer) serve(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	key := ""
	if e.limit.Key != nil {
		key = e.limit.Key(r)
	}
	now, u, reason, s := e.decide(x.server.now, key)
	s.Now = time.Now()
	if e.limit.Family != nil {
		e.limit.Family(w.Header(), s)
	}
	if !s.Refused {
		leave := func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			u.inFlight--
		}
		x.leave = append(x.leave, leave)
		e.next.ServeHTTP(w, r)
		return
	}
	x.note(func(r *Request) {
		r.Refused = strings.TrimSpace(e.limit.Name + " " + reason)
		if s.Wait > 0 {
			r.RetryAt = now + s.Wait
		}
	})
	http.Error(w, reason+" exceeded", e.limit.Status)
}

// decide counts a request of key, or refuses it. It reads the clock under the lock, so
// that requests are decided in the order of their times.
func (e *enforcer) decide(clock func() time.Duration, key string) (now time.Duration, u *usage, reason string, s Standing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = clock()
	if u = e.keys[key]; u == nil {
		u = new(usage)
		e.keys[key] = u
	}
	u.advance(&e.limit, now)
	reason = u.refuses(&e.limit)
	if reason == "" {
		u.take(&e.limit)
	}
	s = u.standing(&e.limit, now)
	s.Refused = reason != ""
	return now, u, reason, s
}

// A usage is what a limit has counted for one key. It shares no code with the limiters
// that it is used to test.
//
// The rate is a bucket of Burst·Per units. A request adds Per units, and Count units
// leak out each nanosecond. All of these are integers, so nothing drifts.
type usage struct {
	at       time.Duration // time of the last advance
	level    int64
	used     int64 // in the window of at
	inFlight int64
}

// advance accounts for the time until now.
func (u *usage) advance(l *Limit, now time.Duration) {
	if l.Count > 0 {
		if elapsed := int64(now - u.at); elapsed > u.level/l.Count {
			u.level = 0
		} else {
			u.level -= elapsed * l.Count
		}
	}
	if l.Window > 0 && now/l.Window != u.at/l.Window {
		u.used = 0
	}
	u.at = now
}

// refuses returns the part of l that has no room for a request, or "".
func (u *usage) refuses(l *Limit) string {
	switch {
	case l.Concurrency > 0 && u.inFlight >= l.Concurrency:
		return "concurrency"
	case l.Quota > 0 && u.used >= l.Quota:
		return "quota"
	case l.Count > 0 && u.level > (l.Burst-1)*int64(l.Per):
		return "rate"
	}
	return ""
}

func (u *usage) take(l *Limit) {
	u.inFlight++
	if l.Quota > 0 {
		u.used++
	}
	if l.Count > 0 {
		u.level += int64(l.Per)
	}
}

// standing returns the state of the part of l with the fewest requests left.
func (u *usage) standing(l *Limit, now time.Duration) Standing {
	s := Standing{Name: l.Name, Remaining: math.MaxInt64}
	if s.Name == "" {
		s.Name = "default"
	}
	wait := time.Duration(0) // the longest of the parts that have nothing left
	part := func(limit, remaining int64, window, reset, next time.Duration) {
		if remaining < s.Remaining {
			s.Limit, s.Window, s.Remaining, s.Reset = limit, window, remaining, reset
		}
		if remaining == 0 {
			wait = max(wait, next)
		}
	}
	if l.Count > 0 {
		per, size := int64(l.Per), l.Burst*int64(l.Per)
		drains := func(units int64) time.Duration { return time.Duration(ceilDiv(max(0, units), l.Count)) }
		part(l.Count, (size-u.level)/per, l.Per, drains(u.level), drains(u.level-(size-per)))
	}
	if l.Quota > 0 {
		ends := l.Window - now%l.Window
		part(l.Quota, l.Quota-u.used, l.Window, ends, ends)
	}
	if l.Concurrency > 0 {
		part(l.Concurrency, l.Concurrency-u.inFlight, 0, 0, 0)
	}
	s.Wait = wait
	return s
}

// ceilDiv returns a / b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	if a%b > 0 {
		return a/b + 1
	}
	return a / b
}
