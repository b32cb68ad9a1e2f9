package sluicetest

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Limit is what a server allows, and how it says so. A request that one of
// the three refuses counts for none of them.
type Limit struct {
	// Name stands in the record, and in headers that carry one; "default"
	// there if it is empty.
	Name string

	// Count per Per is the rate: Burst requests may come at once, and one more
	// each Per/Count. Neither is rounded. 0 per 0 means no rate; a Burst of 0
	// means 1.
	Count int64
	Per   time.Duration
	Burst int64

	// Quota is how many requests may come in each Window, the first of which
	// begins with the making of the server, the next when it ends. 0 in 0 means
	// no quota.
	Quota  int64
	Window time.Duration

	// Concurrency is how many requests may be in flight. 0 means no limit.
	Concurrency int64

	// Key tells what is limited together: each key has its own limit. nil means
	// that all requests are one; see [ByHost] and [ByPath].
	Key func(r *http.Request) string

	// Status is the answer to what is too much. 0 means 429.
	Status int

	// Family writes the headers that tell a client how it stands, with every
	// answer. nil writes none.
	Family Family
}

// ByHost is a Key: the host of the request.
func ByHost(r *http.Request) string { return r.Host }

// ByPath is a Key: host and path of the request, without the query.
func ByPath(r *http.Request) string { return r.Host + r.URL.Path }

// Enforce enforces limit: what is within it passes, with headers of the family,
// and the rest is refused. The instant that counts is the one at which a request
// gets here. It panics if a number of limit is negative, only one of two that go
// together is given, or Burst·Per is more than 292 years.
//
// Of two limits, one within the other, the outer counts what the inner refuses.
func Enforce(limit Limit) Layer {
	limit.mustBePossible()
	if limit.Burst == 0 {
		limit.Burst = 1
	}
	if limit.Status == 0 {
		limit.Status = http.StatusTooManyRequests
	}
	return func(next http.Handler) http.Handler {
		e := &enforcer{limit: limit, next: next, keys: make(map[string]*meter)}
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

// An enforcer is a Limit at work.
type enforcer struct {
	limit Limit
	next  http.Handler

	mu   sync.Mutex
	keys map[string]*meter
}

func (e *enforcer) serve(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	key := ""
	if e.limit.Key != nil {
		key = e.limit.Key(r)
	}
	now, m, reason, s := e.judge(x.server.now, key)
	s.Now = x.clock()
	if e.limit.Family != nil {
		e.limit.Family(w.Header(), s)
	}
	if !s.Refused {
		leave := func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			m.inFlight--
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

// judge counts a request of key, or refuses it. The clock is read under the
// lock, so that requests are judged in the order in which they are.
func (e *enforcer) judge(clock func() time.Duration, key string) (now time.Duration, m *meter, reason string, s Standing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = clock()
	if m = e.keys[key]; m == nil {
		m = new(meter)
		e.keys[key] = m
	}
	m.advance(&e.limit, now)
	reason = m.refuses(&e.limit)
	if reason == "" {
		m.take(&e.limit)
	}
	s = m.standing(&e.limit, now)
	s.Refused = reason != ""
	return now, m, reason, s
}

// A meter is what a limit has counted for one key. It is written plainly, and
// shares nothing with the limiters that it may be used to judge.
//
// The rate is a bucket that holds Burst·Per units. A request pours in Per of
// them, and Count leak out each nanosecond: whole numbers all of them, so that
// 3 per second are 3 per second for ever.
type meter struct {
	at       time.Duration // when it was advanced to
	level    int64
	used     int64 // in the window of at
	inFlight int64
}

// advance lets time pass until now.
func (m *meter) advance(l *Limit, now time.Duration) {
	if l.Count > 0 {
		if elapsed := int64(now - m.at); elapsed > m.level/l.Count {
			m.level = 0
		} else {
			m.level -= elapsed * l.Count
		}
	}
	if l.Window > 0 && now/l.Window != m.at/l.Window {
		m.used = 0
	}
	m.at = now
}

// refuses returns what a request would be too much for, or "".
func (m *meter) refuses(l *Limit) string {
	switch {
	case l.Concurrency > 0 && m.inFlight >= l.Concurrency:
		return "concurrency"
	case l.Quota > 0 && m.used >= l.Quota:
		return "quota"
	case l.Count > 0 && m.level > (l.Burst-1)*int64(l.Per):
		return "rate"
	}
	return ""
}

func (m *meter) take(l *Limit) {
	m.inFlight++
	if l.Quota > 0 {
		m.used++
	}
	if l.Count > 0 {
		m.level += int64(l.Per)
	}
}

// standing returns how a client stands with the tightest part of l.
func (m *meter) standing(l *Limit, now time.Duration) Standing {
	s := Standing{Name: l.Name, Remaining: math.MaxInt64}
	if s.Name == "" {
		s.Name = "default"
	}
	wait := time.Duration(0) // of all parts that have nothing left
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
		part(l.Count, (size-m.level)/per, l.Per, drains(m.level), drains(m.level-(size-per)))
	}
	if l.Quota > 0 {
		ends := l.Window - now%l.Window
		part(l.Quota, l.Quota-m.used, l.Window, ends, ends)
	}
	if l.Concurrency > 0 {
		part(l.Concurrency, l.Concurrency-m.inFlight, 0, 0, 0)
	}
	s.Wait = wait
	return s
}

// ceilDiv is a / b, rounded up. a is not negative, b is positive.
func ceilDiv(a, b int64) int64 {
	if a%b > 0 {
		return a/b + 1
	}
	return a / b
}
