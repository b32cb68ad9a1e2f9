package sluicetest

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// Settle corrects the cost of r in the limits called name: used is the actual usage. A handler may
// call it at any time; the last call applies. Unused units are free immediately; additional ones
// are taken even if they do not fit. A quota whose window has ended does not change.
//
//	sluicetest.Settle(r, "tokens", promptTokens+completionTokens)
//
// It panics if used is negative or no limit of that name has admitted r.
func Settle(r *http.Request, name string, used int64) {
	if used < 0 {
		panic(fmt.Sprintf("sluicetest: Settle: %d %s", used, name))
	}
	x, found := exchangeOf(r), false
	for _, c := range x.charges {
		if c.limit.Name == name {
			c.settle(x.server.now, used)
			found = true
		}
	}
	if !found {
		panic(fmt.Sprintf("sluicetest: Settle: no limit called %q has let the request in", name))
	}
}

// A charge is the units that a request needs of a limit, and takes from it if it is let in.
type charge struct {
	e     *enforcer
	limit *Limit
	key   string

	usage  *usage        // the rest is guarded by e.mu
	at     time.Duration // when it was decided
	cost   int64
	reason string // why the limit rejects it, or ""
}

// end ends the request.
func (c *charge) end() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.usage.inFlight--
}

func (c *charge) settle(clock func() time.Duration, used int64) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	l, u, more := c.limit, c.usage, used-c.cost
	u.advance(l, clock())
	if l.Count > 0 {
		per := int64(l.Per)
		most := (math.MaxInt64 - u.level) / per // no debt is longer than 292 years
		if more < -u.level/per {
			u.level = 0
		} else {
			u.level += min(more, most) * per
		}
	}
	if l.Quota > 0 && u.at/l.Window == c.at/l.Window {
		u.used += min(more, math.MaxInt64-u.used)
	}
	c.cost = used
}

// Why a limit rejects a request.
const (
	tooMany  = "concurrency"
	usedUp   = "quota"
	tooFast  = "rate"
	tooLarge = "size" // it will never fit
)

// A usage is the count of a limit for one key. It shares no code with the limiters
// that it is used to test.
//
// The rate is a bucket of Burst·Per drops. Each unit adds Per drops, and Count drops leak
// out each nanosecond. All of these are integers, so nothing drifts. Settle may overfill
// the bucket and the quota.
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

// refuses returns why l has no room for a request of that cost, or "".
func (u *usage) refuses(l *Limit, cost int64) string {
	switch {
	case l.Quota > 0 && cost > l.Quota, l.Count > 0 && cost > l.Burst:
		return tooLarge
	case l.Concurrency > 0 && u.inFlight >= l.Concurrency:
		return tooMany
	case cost == 0:
		return ""
	case l.Quota > 0 && u.used > l.Quota-cost:
		return usedUp
	case l.Count > 0 && u.level > (l.Burst-cost)*int64(l.Per):
		return tooFast
	}
	return ""
}

func (u *usage) take(l *Limit, cost int64) {
	u.inFlight++
	if l.Quota > 0 {
		u.used += cost
	}
	if l.Count > 0 {
		u.level += cost * int64(l.Per)
	}
}

// standing returns the state of the part of l with the fewest units left, and the time
// until a request of that cost fits all parts.
func (u *usage) standing(l *Limit, now time.Duration, cost int64) LimitState {
	s := LimitState{Name: l.Name, Unit: "requests", Remaining: math.MaxInt64}
	if s.Name == "" {
		s.Name = "default"
	}
	if l.Cost != nil {
		s.Unit = l.Name
	}
	part := func(limit, remaining int64, window, reset time.Duration) {
		if remaining = max(0, remaining); remaining < s.Remaining {
			s.Limit, s.Window, s.Remaining, s.Reset = limit, window, remaining, reset
		}
	}
	if l.Count > 0 {
		per, size := int64(l.Per), l.Burst*int64(l.Per)
		drains := func(drops int64) time.Duration { return time.Duration(ceilDiv(max(0, drops), l.Count)) }
		part(l.Count, (size-u.level)/per, l.Per, drains(u.level))
		if cost <= l.Burst {
			s.Wait = drains(u.level - (size - cost*per))
		}
	}
	if l.Quota > 0 {
		ends := l.Window - now%l.Window
		part(l.Quota, l.Quota-u.used, l.Window, ends)
		if cost <= l.Quota && u.used > l.Quota-cost {
			s.Wait = max(s.Wait, ends)
		}
	}
	if l.Concurrency > 0 {
		part(l.Concurrency, l.Concurrency-u.inFlight, 0, 0)
	}
	return s
}

// ceilDiv returns a / b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	if a%b > 0 {
		return a/b + 1
	}
	return a / b
}
