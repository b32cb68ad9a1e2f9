package sluicehttp

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/refills"
	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// inspect completes said, the limits in the header of resp: by those makers that some
// has a bit for, by Config.Inspect, which has the last word, and by when to retry. resp
// arrived at now. Its body is waited for for at most patience. partly, other and atOnce are those of
// an answer.
func (st *state) inspect(resp *http.Response, some uint32, said *ratelimit.Info, now time.Time, patience time.Duration) (partly, other, atOnce bool) {
	if inspect := st.t.cfg.Inspect; inspect != nil || some != 0 {
		seen, header := *said, *said // copies, so that only an inspection causes allocations
		a := answer{resp: resp, peek: st.peeker(resp, &header, now, patience), said: &seen}
		a.inspectAs(some, patience)
		if inspect != nil {
			inspect(resp, a.peek, &seen)
		}
		if seen.Throttled && !said.Throttled && seen.RetryAt.IsZero() {
			st.whenRefused(&seen, resp, now)
		}
		*said, partly, other, atOnce = seen, a.partly, a.other, a.atOnce
	}
	if !said.RetryAt.IsZero() {
		said.RetryAt = st.cut(said.RetryAt, now, said.RetrySource)
	}
	if said.Throttled {
		st.when(said, now)
	}
	return partly, other, atOnce
}

// whenRefused reads when to retry from the header of resp as if its status had said that it is
// a throttling response: a Retry-After, or when the exhausted limit opens.
func (st *state) whenRefused(said *ratelimit.Info, resp *http.Response, now time.Time) {
	if resp.StatusCode < 300 { // whose Retry-After was not read
		as429, _ := ratelimit.Parse(http.StatusTooManyRequests, resp.Header, now, st.t.cfg.Headers)
		if said.RetryAt, said.RetrySource = as429.RetryAt, as429.RetrySource; !said.RetryAt.IsZero() {
			return
		}
	}
	said.Throttled = false // so that PauseUntil looks at the limits
	said.RetryAt, said.RetrySource = said.PauseUntil()
	said.Throttled = true
}

// noteWarnings counts warnings and keeps the last one.
func (st *state) noteWarnings(warnings []ratelimit.Warning) {
	if len(warnings) > 0 {
		st.mu.Lock()
		st.warnings += uint64(len(warnings))
		st.warning = warnings[len(warnings)-1]
		st.mu.Unlock()
	}
}

// when decides when a throttle ends: never earlier than the server says.
func (st *state) when(said *ratelimit.Info, now time.Time) {
	if said.RetryAt.IsZero() && said.Floor > 0 {
		said.RetryAt, said.RetrySource = st.floor(said.Floor, now), "its kind"
		return // all calls of a burst wait until the same time
	}
	said.RetryAt = st.t.later(said.RetryAt, now)
}

// floor returns the end of a wait of least, doubled for each earlier wait after which
// another call was throttled.
func (st *state) floor(least time.Duration, now time.Time) time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	if now.Before(st.floorUntil) {
		return st.floorUntil // refused in the same burst
	}
	const most = 24 * time.Hour
	wait := most
	if n := st.floors.Add(1); n < 20 {
		wait = min(least<<(n-1), most)
	}
	st.floorUntil = st.t.later(now.Add(wait), now)
	return st.floorUntil
}

// later returns at, which is up to a second later by jitter if it is after now. The jitter
// makes no wait longer than MaxServerWait, and no wait is longer than the longest pause.
func (t *Transport) later(at, now time.Time) time.Time {
	wait := at.Sub(now)
	switch {
	case at.IsZero() || wait <= 0:
		return at
	case wait >= t.mostPause:
		return now.Add(t.mostPause)
	}
	most := min(wait/10, time.Second, t.mostPause-wait)
	if tolerated := t.tolerated; wait <= tolerated {
		most = min(most, tolerated-wait)
	}
	return at.Add(time.Duration(t.random() * float64(most)))
}

// heed applies the limits in the response to h, as far as they are believed: to the gate through
// which its call left, or to that of another scope, whose limit it is.
func (c *call) heed(h *hold, said *ratelimit.Info, now time.Time) {
	var found findings
	st := c.counts(h)
	bucket := said.Bucket
	if bucket != "" && c.host.scopes != nil {
		if said.Bucket = ofMajor(bucket, c.req); said.Bucket != bucket {
			c.host.scopes.namesBucket(c)
		}
	}
	c.explained = st.noteClaims(h, said, &found, now)
	to := c.concerns(h, said, &found, now)
	if to.key.route == askName {
		to = c.host
	}
	if to == st {
		h.bill.answered(said, &found, now)
		st.learn(said, &found, now)
	} else {
		rest := *said
		rest.Limits = nil
		h.bill.answered(&rest, &found, now)
		c.explained = to.adopt(said, now)
	}
	switch {
	case to == c.at:
	case said.Throttled || unclear(said):
		c.goTo(to)
	case to != c.host:
		to.unpin()
	}
	said.Bucket = bucket
}

// learn notes a response, and pauses the gate if a limit is exhausted. A throttle
// pauses it later, in call.fail, and adjust changes its rate and concurrency after that.
//
// That something remains is no rate: 10,000 requests with a reset in 10 s do not permit
// 1,000 per second. By how much it changes between two responses may be one, see flow.go.
func (st *state) learn(said *ratelimit.Info, found *findings, now time.Time) {
	spreading := st.spread.Load() != 0
	if !said.Throttled && len(said.Limits) == 0 && said.RetryAt.IsZero() &&
		said.Rate == (sluice.Rate{}) && !spreading && st.floors.Load() == 0 && st.t.cfg.Published.Spread < 1 && !st.spaced.Load() {
		return // most responses say nothing
	}
	// A published limit holds calls up itself, without a slow start at the end.
	at, source := st.emptyUntil(said, found, now)
	if pending, of := found.pendingUntil(said); pending.After(at) && !st.t.cfg.Published.Disabled {
		at, source = pending, of
	}
	if at.After(now) && st.published == nil {
		why := source + ": nothing remains"
		if source == said.RetrySource { // of a redirect
			why = (&StatusError{Status: said.Status}).Error()
		}
		usedup.Pause(st.gate, st.t.later(st.cut(at, now, source), now), why)
	}
	st.noteLast(said, found)
	st.noteRefills(said, found)
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(said.Limits) > 0 {
		st.limits, st.seen = said.Limits, now
	}
	if !said.Throttled && !now.Before(st.floorUntil) {
		st.floors.Store(0)
	}
	if st.fromPolicy() {
		st.notePolicy(said)
	}
	if st.t.cfg.Published.Spread > 0 {
		st.noteRemaining(said, now)
	}
	if st.spacesWindows() {
		st.noteWindows(said, found)
	}
}

// noteRefills tells the gate the findings about buckets.
func (st *state) noteRefills(said *ratelimit.Info, found *findings) {
	if st.t.cfg.Published.Disabled {
		return
	}
	for i := range min(len(said.Limits), len(found)) {
		if r := found[i].refill; r != (adaptive.Refill{}) {
			refills.Tell(st.gate, r)
		}
	}
}
