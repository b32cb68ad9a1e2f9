package sluicehttp

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A reply is a response, as claims see it.
type reply struct {
	now    time.Time // when it arrived
	call   uint16    // the number of the call, 0 if it was not counted
	sent   time.Time // when it was sent; now if it was not counted
	began  time.Time // when the gate admitted it, counted or not
	flying int64     // calls in flight
	later  float64   // calls that were sent after it
	total  uint32    // calls that were sent at all

	others bool // further calls are in flight, or wait for the gate
	rate   sluice.Rate
	gate   *sluice.Gate // through which the call left
	spaces bool         // a published window that is not used up may become its rate

	tolerated time.Duration // the longest wait: calls that would have to wait longer fail

	granted   bool // not throttled, and no error either, which may hide a throttling response
	refused   bool
	cached    bool      // it says that the caller's copy is still good, which many limits do not count
	usedUp    bool      // a window is used up, which may explain why it was throttled
	explained bool      // it does, see excuse
	newUnits  bool      // a reset turns out to be in milliseconds, or not to be
	retryAt   time.Time // when the server says to retry, and in which field
	source    string
}

// since returns how many calls were sent after the one with that number, up to that of r.
func (r *reply) since(call uint16) float64 { return float64(r.call - call) }

// took returns how long the response took, or what is assumed if that was not measured.
func (r *reply) took() time.Duration {
	if r.call == 0 {
		return mostOvertaking
	}
	return r.now.Sub(r.sent)
}

// A finding is the believed part of a response about one limit.
type finding struct {
	known  bool      // otherwise as the response says
	ignore bool      // it stops no calls
	bucket bool      // it refills
	until  time.Time // when its window ends

	// Of a limit of which nothing remains, otherwise zero.
	next time.Time // when a bucket has one more
	ask  time.Time // when one call may ask whether until has come

	// Until the calls that were sent later are answered, if they may use up what remains;
	// otherwise zero.
	pending time.Time
	last    lastCall // the call after which others wait, if it has a time

	rate      sluice.Rate     // of a limit with short windows, or that was not used up; or zero
	fresh     bool            // a short window has just begun
	rateEnded bool            // it had one until now
	tooLow    bool            // the estimate of the gate: far too much of the limit remains
	refill    adaptive.Refill // of a bucket
}

// findings are those of a response, in the order of its limits.
type findings [mostClaims]finding

const (
	mostClaims = 8  // of a key: bounds the memory for a server that invents names
	staleClaim = 32 // responses with limits after which one that none was about does not exist any more
)

// least returns how much must be left. One call more would do, but a slow start may send two after a
// response; after a pause it sends one.
func (r *reply) least() float64 {
	if r.others {
		return 1
	}
	return 0
}

// A claim is the statements of responses about one limit. It is guarded by state.mu.
type claim struct {
	name, partition, bucket string
	most                    ratelimit.Amount
	last                    int64 // state.replies at the last response about it

	ending // of its window
	refill // of it as a bucket
	units  thousandth
	tally  tally
	short  shortWindow
	unused unused
	flow   flow

	// That nothing remains, since a response that arrived at emptyAt.
	empty     bool
	emptyAt   time.Time
	emptyCall uint16    // its number
	flying    int64     // calls in flight then
	emptied   int       // granted calls that said so since another window began
	ask       time.Time // when one call may ask; zero for none
	wrong     int       // grants in spite of it, which another window may explain
	refuted   bool      // it stops no calls until one is throttled
	confirmed bool      // one was throttled

	long  bool // it has throttled calls long before the end of a window
	kept  bool // for as long before the end of a window nothing remained, and no call was granted
	spare spare

	rest, rested int // windows in which no call asks, and how many there were the last time
}

// mostRested bounds claim.rested.
const mostRested = 63

// note notes the statement of response r about the limit, of which reserve is left to others, and how far
// to believe it.
func (c *claim) note(l *ratelimit.Limit, reserve float64, r *reply, f *finding) {
	remaining, _ := l.Remaining.Value()
	c.noteRefill(l, r)
	spaced, raised := c.short.length > 0, c.unused.calls > 0
	if c.unused.stands { // what comes back as from a bucket is of a window that slides
		c.isWindow()
	}
	tooLow := false
	if c.ofBucket || c.tally.several {
		c.unused.reset()
	} else if !c.refuted { // by a window that slides, perhaps
		tooLow = c.unused.note(l, mostOf(l)-reserve, remaining-reserve, r)
	}
	if c.ofBucket || c.refuted && !spaced || c.tally.several {
		c.short.reset()
	} else {
		c.short.note(l, remaining, reserve, r)
	}
	l.Window = cmp.Or(l.Window, c.short.length)
	switch {
	case r.refused:
		c.confirm(r)
	case r.granted:
		c.test(remaining, r)
	}
	if c.bound(l, c.missing(remaining), remaining, r) {
		c.empty, c.ask, c.spare, c.emptied = false, time.Time{}, newSpare(), 0
		c.rest = max(0, c.rest-1)
	}
	c.tally.note(l, r)
	*f = finding{known: true, ignore: c.refuted || c.tally.several, bucket: c.ofBucket, until: c.until, tooLow: tooLow}
	f.rateEnded = spaced && c.short.length == 0 || raised && c.unused.calls == 0
	f.fresh = c.short.length > 0 && r.granted && 2*remaining >= mostOf(l)
	switch {
	case r.refused || c.refuted:
	case remaining == 0:
		c.exhaust(l, r, f)
		c.spacedEnd(remaining, r, f)
	case c.short.length > 0:
		c.spacedEnd(remaining, r, f)
	case r.granted && r.rate.Count == 0 && !c.ofBucket && countsCalls(l) && l.NextAt.IsZero() && c.spare.note(remaining, r) <= r.least() && remaining < c.spare.waited:
		if f.pending = c.pending(r); !f.pending.IsZero() {
			c.spare.waited = remaining
		}
	}
}

// spacedEnd completes f after a granted call if the short window of r has no more for the calls after it, or will soon
// have no more.
func (c *claim) spacedEnd(remaining float64, r *reply, f *finding) {
	most, known := c.most.Value()
	if !known || !r.granted || c.short.length <= 0 {
		return
	}
	switch spare, at := c.short.end(most, remaining, r); {
	case at.IsZero():
	case spare < 1:
		f.pending = at
	case r.call > 0:
		f.last = lastCall{number: r.total + uint32(min(spare, math.MaxInt16)), until: at}
	}
}

// pending returns until when calls wait for the answers to those in flight, if the window of r ends at
// c.until; zero if that takes too long compared with what is left of the window, or if it may be a bucket
// that is full again soon. Without that a bucket of 200/s with a burst of 20 gave 64 % instead of 83. A
// window that has throttled calls long before its end is not that of a bucket, nor of one object of many.
func (c *claim) pending(r *reply) time.Time {
	took, least := r.took(), longLeft
	if c.long {
		least = leastLong
	}
	if left := c.until.Sub(r.now); left < least || left < manyTimes*took {
		return time.Time{}
	}
	return r.now.Add(2 * took)
}

// Of what is left of a window.
const (
	longLeft  = 10 * time.Second
	manyTimes = 32 // times the time that a call takes
)

// A spare is what remains of a window when all calls that were sent are counted.
type spare struct {
	left float64 // as the response to call said, when sent calls had been sent
	call uint16
	sent uint32

	waited float64 // what remained when calls waited last: if it is no less, those since are not counted
}

// newSpare returns the spare of a window of which nothing is known.
func newSpare() spare { return spare{left: math.Inf(1), waited: math.Inf(1)} }

// note returns what is left after response r: what remained, less the calls that were sent later. Calls
// that were sent earlier may have been overtaken, and not be counted either. So the least of the last
// responses counts.
func (s *spare) note(remaining float64, r *reply) float64 {
	left := remaining - r.later
	if apart := int64(int16(r.call - s.call)); max(apart, -apart) <= r.flying {
		left = min(left, s.left-float64(r.total-s.sent))
	}
	s.left, s.call, s.sent = left, r.call, r.total
	return left
}

// missing returns how much of the maximum is missing, infinitely much if that is unknown.
func (c *claim) missing(remaining float64) float64 {
	if most, known := c.most.Value(); known {
		return most - remaining
	}
	return math.Inf(1)
}

// confirm notes that a call was throttled: the claim of the server is true.
func (c *claim) confirm(r *reply) {
	if !c.ask.IsZero() && !r.sent.Before(c.ask) && r.now.Before(c.until) { // it has asked
		c.rested = min(2*c.rested+1, mostRested)
		c.rest = c.rested
	}
	c.empty, c.ask, c.wrong, c.refuted, c.confirmed = false, time.Time{}, 0, false, true
}

// test notes that a call was granted, which may refute that nothing remains.
func (c *claim) test(remaining float64, r *reply) {
	switch {
	case !c.empty || r.call == 0 || r.sent.Before(c.emptyAt):
		return // the call says nothing about it
	case !r.now.Before(c.until):
		return // the window has ended, see bound
	}
	// Calls in flight may have been counted after the reset.
	taken := r.since(c.emptyCall) + float64(c.flying)
	missing := c.missing(remaining)
	fresh := missing <= taken || math.IsInf(missing, 1) && remaining > 0
	if fresh && remaining > 0 {
		c.empty, c.ask, c.wrong = false, time.Time{}, 0
		return
	}
	if c.wrong++; !fresh || c.wrong > 1 {
		c.empty, c.ask, c.refuted, c.kept, c.rest, c.rested = false, time.Time{}, true, false, 0, 0
	}
}

// exhaust completes f after a granted call after which nothing remains.
func (c *claim) exhaust(l *ratelimit.Limit, r *reply, f *finding) {
	if at, bucket := c.opens(l, r); bucket {
		f.next = at
		return
	}
	if !c.empty {
		c.empty, c.emptyAt, c.emptyCall, c.flying = true, r.now, r.call, r.flying
	}
	if c.ask.IsZero() && (c.rest == 0 || fits(r.rate, l)) {
		at, least := c.from, leastGain
		if paced := c.pacedEnd(l, r); paced.After(at) {
			at, least = paced, 0
		}
		if at.Before(r.now) {
			at = r.now
		}
		if gain := c.until.Sub(at); gain >= least && gain >= c.until.Sub(r.now)/8 {
			c.ask = at
		}
	}
	c.emptied++
	c.kept = c.kept || c.until.Sub(r.now) >= leastLong
	if f.ask = c.ask; c.confirmed || !c.ask.IsZero() || r.tolerated == 0 || c.until.Sub(r.now) <= r.tolerated {
		return
	}
	switch {
	case c.emptied >= doubtful:
		c.ask, f.ask = r.now, r.now
	case r.flying > 0 || r.later > 0: // these may show that it is
		f.ask = r.now.Add(2 * r.took())
	}
}

// pacedEnd returns when the window of l ends if it is as long as calls at the configured rate need to use it up; the
// zero time if others have used it as well. Calls that start at that rate use up a window of any length then, so that
// little is lost by waiting until then. A window that begins with a call ends just when the next one comes: about half
// of those that did not wait were throttled, and most servers ask for a whole second.
func (c *claim) pacedEnd(l *ratelimit.Limit, r *reply) time.Time {
	most, known := l.Max.Value()
	if !known || r.rate.Count == 0 || 1+c.short.granted < most*3/4 {
		return time.Time{}
	}
	return c.short.began.Add(ofSeconds(most / perSecond(r.rate)))
}

// doubtful is how many calls of a window are granted although nothing remains that it is doubtful: one takes
// the last unit, and a server that counts late grants a few more.
const doubtful = 4

// leastGain is how much earlier a call must be by asking: one that is throttled may cost a second.
// It must also be an eighth of the wait.
const leastGain = 250 * time.Millisecond

// fits reports whether rate is known to be no faster than l allows.
func fits(rate sluice.Rate, l *ratelimit.Limit) bool {
	most, known := l.Max.Value()
	return known && rate.Count > 0 && l.Window > 0 && perSecond(rate)*l.Window.Seconds() <= most
}

// An ending is the time at which a window ends, according to responses: after from, and by until.
type ending struct {
	from, until time.Time

	// The response to the call that was sent last.
	call      uint16
	sent      time.Time
	remaining float64

	// Whether the reset moves, as that of a bucket does.
	moves    int     // how often in a row it has moved although nothing had come back
	moved    perUnit // then
	grown    perUnit // when it was further away because more was missing
	shortest stretch // to the reset, since it was further away last
	ofBucket bool
}

// A perUnit is the time for each missing unit, according to responses in a row that agree.
type perUnit struct {
	constant    int // how many
	least, most float64
}

// agree notes that the time is between least and most, in nanoseconds, and reports whether enough responses agree.
func (u *perUnit) agree(least, most float64) bool {
	if u.constant == 0 || least > u.most || most < u.least {
		*u = perUnit{0, least, most}
	}
	u.least, u.most = max(u.least, least), min(u.most, most)
	u.constant++
	return u.constant == bucketProof
}

// A stretch is the time to a reset while so much was missing.
type stretch struct {
	left    time.Duration
	took    time.Duration // by the call that says so
	missing float64
}

// perUnit returns the bounds of the time for each missing unit. A remaining half may be stated as 0.
func (s stretch) perUnit(rounding time.Duration) (least, most float64) {
	return float64(s.left-rounding) / s.missing, float64(s.left+s.took) / (s.missing - 1)
}

// bucketProof is after how many moves a limit is a bucket.
const bucketProof = 3

// bound bounds the end by the response r, after which remaining is left of l and missing is not,
// and reports whether another window may have begun.
func (e *ending) bound(l *ratelimit.Limit, missing, remaining float64, r *reply) (another bool) {
	if r.call > 0 && r.sent.Before(e.sent) {
		return false // a call that was sent later has been answered
	}
	before := *e
	e.call, e.sent, e.remaining = r.call, r.sent, remaining
	left := l.ResetAt.Sub(r.now)
	e.grow(left, l.Rounding, missing, r)
	from, until := r.sent.Add(left-l.Rounding), l.ResetAt
	if l.Window > 0 && left > l.Window {
		until = r.now.Add(l.Window)
	}
	ended := !r.sent.Before(e.until)
	over := from.After(e.until) || ended
	switch {
	case before.until.IsZero():
	case remaining > before.remaining:
		e.moves, e.moved.constant, another = 0, 0, true
	case over:
		another = true
		// In a window that has begun since, others may have used what is missing.
		if taken := r.since(before.call); !ended && r.call > 0 && before.call > 0 && missing > 2*taken+2 && !math.IsInf(missing, 1) {
			e.move(left, l.Rounding, missing, r)
		}
	case e.moves > 0:
		// Some windows begin again with each call. Only the last response is true.
	default: // the same window
		if from.Before(e.from) {
			from = e.from
		}
		if until.After(e.until) {
			until = e.until
		}
	}
	e.from, e.until = from, until
	return another
}

// move notes that the reset has moved although missing has not come back.
func (e *ending) move(left, rounding time.Duration, missing float64, r *reply) {
	e.moves++
	if left < 4*rounding {
		return // then any time for each missing unit would do
	}
	if e.moved.agree(stretch{left, r.now.Sub(r.sent), missing}.perUnit(rounding)) {
		e.ofBucket = true
	}
}

// grow notes whether the reset is further away because more is missing, which that of a window never is. So a reset of
// a few roundings is enough: of ten with two per second, which are full after 5 s, each burst had waited for all ten.
func (e *ending) grow(left, rounding time.Duration, missing float64, r *reply) {
	now, before := stretch{left, r.now.Sub(r.began), missing}, e.shortest
	switch {
	case math.IsInf(missing, 1):
		return
	case before.missing == 0, missing <= before.missing, left < before.left:
		e.shortest = now
		return
	case left <= before.left+rounding+mostOvertaking:
		return
	}
	e.shortest = now
	least, most := now.perUnit(rounding)
	if l, m := before.perUnit(rounding); l > most || m < least {
		e.grown = perUnit{} // such as the time to the next one, which is none while some remain
	} else if e.grown.agree(max(l, least), min(m, most)) {
		e.ofBucket = true
	}
}

// isWindow notes that it is no bucket.
func (e *ending) isWindow() { e.ofBucket, e.moved, e.grown = false, perUnit{}, perUnit{} }
