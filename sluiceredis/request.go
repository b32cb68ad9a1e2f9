package sluiceredis

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A limit is a rule as a store asks it, the same for all keys.
type limit struct {
	kinds.Rule
	away   OutagePolicy
	sign   string // limits of the same sign are asked in the same way
	shared atomic.Pointer[share]
}

// A share is the share of one of so many instances, or nil.
type share struct {
	among int64
	kinds.Rule
}

func newLimit(rule kinds.Rule, away OutagePolicy) *limit {
	return &limit{Rule: rule, away: away, sign: rule.Tag() + string('0'+rune(away))}
}

// share returns the share of one of that many instances, or nil if there is none.
func (l *limit) share(among int64) kinds.Rule {
	s := l.shared.Load()
	if s == nil || s.among != among {
		s = &share{among, l.Share(among)}
		l.shared.Store(s)
	}
	return s.Rule
}

// A spot is a limit at a key of Redis.
type spot struct {
	*limit
	key string
}

// A sign is a first key, and how it and all others are asked: requests of the same sign
// share calls.
type sign struct{ key, of string }

func (a spot) sign() sign { return sign{a.key, a.limit.sign} }

// signOf returns the sign of several limits.
func signOf(spots []spot) sign {
	s := spots[0].sign()
	for _, a := range spots[1:] {
		s.of += fmt.Sprintf(" %q %q", a.key, a.limit.sign)
	}
	return s
}

// A request is for units of some limits, from all or from none, and its result.
type request struct {
	parts []part

	// calls is the number of times that it asks for these units, one after the other until they do
	// not fit; 0 means once. admitted is the number of times that they did.
	calls, admitted int64

	// by is the limit that rejects, −1 if none does. If several do it is the first
	// that never admits so many or, if there is none, the one that rejects longest.
	by int

	now  int64         // the server's clock, µs since 1970
	sent time.Duration // when the script was sent or a little earlier, since the store was made
}

// A part is the share of a request that concerns one limit.
type part struct {
	spot
	n int64

	// res is, of a request that was admitted, the result that this limit alone would have returned; of
	// another whether it would have admitted it, and its content. The limit of a pacer is
	// the number of calls of 1 that may start together after idleness.
	res limits.Result
	end int64 // the value of the state for the taken units, or 0
}

// A single is a request for one limit, in one piece of memory.
type single struct {
	request
	one [1]part
}

// granted reports whether all limits admit the request.
func (r *request) granted() bool { return r.by < 0 }

// nothing reports whether r is for nothing.
func (r *request) nothing() bool {
	for i := range r.parts {
		if r.parts[i].n > 0 {
			return false
		}
	}
	return true
}

// ever reports whether the limits can ever admit r.
func (r *request) ever() bool {
	for i := range r.parts {
		if r.parts[i].n > r.parts[i].Most() {
			return false
		}
	}
	return true
}

// decided reports whether the script decides requests like r. The result of others is known, except
// for the decision of each of several limits.
func (r *request) decided() bool { return !r.nothing() && (len(r.parts) > 1 || r.ever()) }

// equal reports whether r asks the limits of o for the same.
func (r *request) equal(o *request) bool {
	for i := range r.parts {
		if r.parts[i].n != o.parts[i].n {
			return false
		}
	}
	return true
}

// bulk returns the number of units of r for those that take a script long.
func (r *request) bulk() (units int64) {
	for i := range r.parts {
		if p := &r.parts[i]; p.AtOnce() == kinds.SlidingAtOnce && p.n <= p.Most() {
			units += p.n * r.times()
		}
	}
	return units
}

// times returns the number of times that r asks for its units.
func (r *request) times() int64 { return max(1, r.calls) }

// decideAll decides r by states of its limits, as often as it asks.
func (r *request) decideAll(states []kinds.State) {
	for r.admitted < r.times() {
		if r.decide(states); !r.granted() {
			break
		}
		r.admitted++
	}
	if r.admitted > 0 {
		r.by = -1
	}
}

// decide decides r once, by states of its limits.
func (r *request) decide(states []kinds.State) {
	for i, s := range states {
		r.parts[i].res.RetryAfter = s.Wait(r.parts[i].n)
	}
	r.judge()
	for i, s := range states {
		p := &r.parts[i]
		if r.granted() && p.n > 0 {
			p.end = s.Take(p.n)
		}
		p.res.Remaining, p.res.Limit, p.res.ResetAfter = s.Holds()
	}
}

// forget discards the ends of the taken units.
func (r *request) forget() {
	for i := range r.parts {
		r.parts[i].end = 0
	}
}

// judge finds the limit that rejects by these results.
func (r *request) judge() {
	worst := time.Duration(0)
	r.by = -1
	for i := range r.parts {
		if wait := r.parts[i].res.RetryAfter; wait > worst {
			worst, r.by = wait, i
		}
	}
}

// eachRun calls f with runs of equal requests.
func eachRun(requests []*request, f func(run []*request)) {
	for len(requests) > 0 {
		i := 1
		for i < len(requests) && requests[0].equal(requests[i]) {
			i++
		}
		f(requests[:i])
		requests = requests[i:]
	}
}
