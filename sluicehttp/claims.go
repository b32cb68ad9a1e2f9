package sluicehttp

import (
	"cmp"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # How far a header is believed
//
// A response says that nothing remains until the reset. It does not say which kind of limit that
// is, and servers round. So it is a claim, and earlier responses, and the results of later calls,
// show how much of it is true.
//
// When does the window end? The reset of a window stands still, and each response bounds it: a
// whole second s, which is rounded up, means that at some instant between the request and its
// response the rest was more than s−1 and at most s seconds. The span that all responses of one
// window allow is much shorter than a second. In a window of 1 s that began with the first of 20
// requests:
//
//	sent, answered at   0, 20 ms    50, 70 ms   …   950, 970 ms
//	reset               1 s         1 s         …   1 s
//	ends by             1.02 s      1.07 s      …   1.97 s          so by 1.02 s
//
// Taken at its word, the last response made calls wait for 1 s instead of 50 ms.
//
// Is it a window? The reset of a bucket, when it is full, moves with each call. A reset has moved
// if two responses allow no common end. It also moves when another window begins, but then all is
// back, except for the units of calls since then. If more is missing than calls were sent, nothing
// has come back. Three times in a row, with the same time for each missing unit, that is a bucket,
// see refill.go.
//
// Is it true at all? Sliding windows and small buckets often say that nothing remains, and grant
// the next call. A call that is sent after such a response and granted before the reset refutes
// it, unless another window has begun. Then this limit stops no calls until one is throttled.
//
// If no call is sent, nothing is refuted. So if rounding leaves at least a quarter of a second
// open, one call asks as soon as the reset is possible. If it is throttled, none asks in the next
// window, then in the next three, and so on.
//
// Only one call can take the last unit. If several of a window were granted, said that nothing remains, and
// the reset is so far away that calls would fail instead of waiting, one asks immediately, unless some were
// throttled before: a server that always says so lost all calls but the first ones. Until those in flight are
// answered, calls wait.
//
// Does the rest suffice? Calls that were sent later are not counted in it. If they may use it up, calls
// wait until these are answered: only the response to the last of them says whether something is left.
// Without that each window of 100 ended with as many throttled calls as were in flight, and a gate that
// learned from them used the next window at 5 calls per second. They wait once for each number
// that remains, because a limit of some of the calls does not count the others.
//
// Is it about all calls? A limit that has two maxima, or two buckets, under one name is several
// limits, each of some of the calls. It is not known here which, so none of them stops calls. Neither
// does one that has granted more than it can, see tally.go.

// throttledByOthers notes that a call was throttled by a response that shows no limit: what remains of those that are
// published is known from the last response.
func (st *state) throttledByOthers(now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range st.claimed {
		if most, known := c.most.Value(); known {
			c.unused.refuse(most, c.unused.least, now)
			c.flow.fail(now)
		}
	}
}

// noteClaims notes the limits in the response to h, and how far to believe them. explained says that they explain
// why its call was throttled.
func (st *state) noteClaims(h *hold, said *ratelimit.Info, found *findings, now time.Time) (explained bool) {
	if len(said.Limits) == 0 {
		if said.Throttled {
			st.throttledByOthers(now)
		}
		return false
	}
	if st.watched.CompareAndSwap(false, true) {
		st.unseen.Store(st.gate.Stats().InFlight)
	}
	r := reply{gate: st.gate, now: now, began: cmp.Or(reroute.AdmittedAt(h.permit), now), call: h.number, sent: now, flying: st.inFlight.Load(), granted: !said.Throttled && said.Status < 400, refused: said.Throttled, cached: said.Status == http.StatusNotModified, total: st.sent.Load(), retryAt: said.RetryAt, source: said.RetrySource, tolerated: st.t.tolerated}
	switch {
	case h.state != st: // a call that asks, which another gate has counted
		r.call = 0
	case r.call > 0:
		r.sent = st.t.epoch.Add(h.since)
		r.later = float64(max(0, int16(uint16(r.total)-r.call))) // no call has the number 0
	default:
		r.later = float64(r.total) + float64(max(0, st.unseen.Add(-1)))
	}
	r.others = r.later > 0 || r.flying > 0 || waits(st.gate)
	refills := st.claims(said, &r, found)
	if r.newUnits {
		st.gate.Resume() // from a pause that was a thousand times too long
	}
	if r.retryAt.Before(said.RetryAt) {
		said.RetryAt = st.t.later(r.retryAt, now)
	}
	if refills > 0 {
		// The server has not said when to retry, but when the bucket is full.
		said.RetryAt, said.RetrySource, said.Floor = time.Time{}, "", refills
		st.when(said, now)
	}
	if r.explained && !said.RetryAt.After(now) { // the window ends up to a second later than it says
		said.RetryAt = now.Add(time.Second)
	}
	return r.explained
}

// claims is noteClaims with r. It returns how long a bucket needs for one more if r was throttled
// and says only when that is full.
func (st *state) claims(said *ratelimit.Info, r *reply, found *findings) (refills time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replies++
	spaces := st.spacesWindows()
	r.spaces = spaces && !st.t.cfg.Gate.Adaptive.AvoidThrottling // which keeps what throttled calls have shown
	r.rate = st.configured
	if st.windowRate.Count > 0 {
		r.rate = st.windowRate
	}
	for i := range min(len(said.Limits), mostClaims) {
		l := &said.Limits[i]
		if _, known := l.Remaining.Value(); !known || l.ResetAt.IsZero() || l.Unit == concurrent {
			continue
		}
		c, several := st.claimOf(l, said.Bucket)
		if c == nil {
			continue
		}
		if r.call > 0 && !r.cached && c.units.note(l, r.now) {
			c.ending, c.refill, c.tally, c.short, c.unused, c.flow, c.empty = ending{}, refill{}, tally{}, shortWindow{}, unused{}, flow{}, false
			r.newUnits = true
		}
		if c.units.proven && r.source == l.Source {
			r.retryAt = l.ResetAt
		}
		f := &found[i]
		most := mostOf(l)
		reserve := st.t.cfg.Published.reserve(most)
		c.note(l, reserve, r, f)
		if remaining, _ := l.Remaining.Value(); reserve == 0 && countsCalls(l) && !c.tally.several && c.short.length == 0 {
			f.refill = c.flow.note(l, remaining, r)
		}
		if f.ignore = f.ignore || several; f.ignore {
			f.pending, f.last = time.Time{}, lastCall{}
		}
		if !several && !c.tally.several && spaces {
			if f.rate = c.short.rate(most, reserve); f.rate.Count == 0 {
				f.rate = c.unused.rate()
			}
		}
		if !f.ignore && c.explains(l, r) && most > 0 {
			r.usedUp = true
		}
		if wait, bucket := c.nextOf(l, r); bucket && r.refused && r.source == l.Source {
			refills = max(refills, wait)
		}
	}
	r.explained = r.refused && st.mayExcuse() && st.excuse.accepts(r)
	return refills
}

// claimOf returns the claim about l, or nil if there are too many limits, and whether its name is
// that of several. st.mu is held.
func (st *state) claimOf(l *ratelimit.Limit, bucket string) (c *claim, several bool) {
	for i := 0; i < len(st.claimed); i++ {
		other := st.claimed[i]
		switch {
		case other.name != l.Name || other.partition != l.Partition:
		case other.most == l.Max && other.bucket == bucket:
			c = other
		case st.replies-other.last > staleClaim: // the maximum has changed
			st.claimed[i] = st.claimed[len(st.claimed)-1]
			st.claimed = st.claimed[:len(st.claimed)-1]
			i--
		default:
			several = true
		}
	}
	switch {
	case c != nil:
	case len(st.claimed) < mostClaims:
		c = &claim{name: l.Name, partition: l.Partition, bucket: bucket, most: l.Max, spare: newSpare()}
		st.claimed = append(st.claimed, c)
	default:
		return nil, several
	}
	c.last = st.replies
	return c, several
}

// emptyUntil returns until when no call should be sent because nothing remains of a limit, as far
// as that is believed. It is zero after a throttle, which pauses the gate anyway.
func (st *state) emptyUntil(said *ratelimit.Info, found *findings, now time.Time) (at time.Time, source string) {
	if said.Throttled {
		return at, source
	}
	at, source = said.PauseUntil()
	switch use := &st.t.cfg.Published; {
	case !at.IsZero() && source == said.RetrySource: // of a redirect
		return at, source
	case use.Disabled || at.IsZero() && use.Reserve == 0:
		return time.Time{}, ""
	}
	at = time.Time{}
	for i := range said.Limits {
		l := &said.Limits[i]
		remaining, known := l.Remaining.Value()
		reserve := st.t.cfg.Published.reserve(mostOf(l))
		exhausted := known && (remaining == 0 || reserve > 0 && remaining < 1+reserve)
		if !exhausted || l.ResetAt.IsZero() || l.Unit == concurrent || !l.NextAt.IsZero() && !countsCalls(l) {
			continue // for LLM tokens: a small call may pass
		}
		opens := found.opens(i, l, now)
		if reserve > 0 {
			opens = found.opensAbove(i, l, reserve, now)
		}
		if opens.After(at) {
			at, source = opens, l.Source
		}
	}
	return at, source
}

// pendingUntil returns until when no call should be sent because those in flight may use up what remains
// of a limit in said. The server has not said so, and it is no evidence about whose limit that is.
func (found *findings) pendingUntil(said *ratelimit.Info) (at time.Time, source string) {
	for i := range min(len(said.Limits), len(found)) {
		if found[i].pending.After(at) {
			at, source = found[i].pending, said.Limits[i].Source
		}
	}
	return at, source
}

// opens returns when a call may be sent if nothing remains of l, limit i; zero if now.
func (found *findings) opens(i int, l *ratelimit.Limit, now time.Time) time.Time {
	switch {
	case i >= len(found) || !found[i].known:
		if l.NextAt.IsZero() {
			return l.ResetAt
		}
		return l.NextAt
	case found[i].ignore:
		return time.Time{}
	case !found[i].next.IsZero():
		return found[i].next
	case found[i].ask.After(now):
		return found[i].ask
	case !found[i].ask.IsZero():
		// Not now: then calls start at the pace or, without one, one call asks and the others
		// follow its response (slow start).
		return now.Add(1)
	}
	return found[i].until
}

// opensAbove is opens for a limit of which reserve, more than 0, is left to others. No call asks: one that
// is granted takes from the reserve and proves nothing.
func (found *findings) opensAbove(i int, l *ratelimit.Limit, reserve float64, now time.Time) time.Time {
	known := i < len(found) && found[i].known
	remaining, _ := l.Remaining.Value()
	missing := mostOf(l) - remaining
	switch {
	case known && found[i].ignore:
		return time.Time{}
	case !l.NextAt.IsZero() || known && found[i].bucket:
		if missing <= 0 {
			return time.Time{}
		}
		short := min(missing, 1+reserve-remaining)
		return now.Add(time.Duration(float64(l.ResetAt.Sub(now)) * short / missing))
	case known:
		return found[i].until
	}
	return l.ResetAt
}

// improve replaces the fields of l, limit i, that are known better.
func (found *findings) improve(i int, l *ratelimit.Limit) {
	switch {
	case i >= len(found) || !found[i].known:
	case found[i].bucket && l.NextAt.IsZero():
		l.NextAt = l.ResetAt // not zero: see published.note
	case !found[i].bucket && l.NextAt.IsZero() && found[i].until.Before(l.ResetAt):
		l.ResetAt = found[i].until
	}
}
