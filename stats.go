package sluice

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/clean"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

// Stats is the state of a gate at one moment, with counts since its beginning.
type Stats struct {
	Name        string
	Parent      string // the name of Config.Parent
	Concurrency int64  // the limit that applies, 0 for none
	Rate        Rate   // as configured or set, the zero Rate for none

	// InFlight is the amount in flight, in the unit of the concurrency limit.
	InFlight int64

	// Pacing is how many callers wait only for the rate, a pause or one of Config.Limits, and
	// Waiting how many wait behind them, also for room in flight.
	Pacing, Waiting int64

	// OldestWait is how long the first of them has waited, 0 if no caller waits; in a parent,
	// since the first caller of a child came to the parent.
	OldestWait time.Duration

	// LimitedBy is the cause that delays the first of them, empty if no caller waits.
	// If it is limits.ByParent, the Stats of the parent name the cause. Why says more.
	LimitedBy limits.Cause

	// NextSlot is the earliest time at which the rate, a pause and the current Spacing let the
	// next call start. It may have passed.
	NextSlot time.Time

	// PausedUntil is the end of the present pause and PausedWhy the text passed to
	// PauseUntil. Zero if the gate is not paused.
	PausedUntil time.Time
	PausedWhy   string

	// Spacing is the least time between calls that a gate keeps after its retry budget was empty,
	// whatever its rate and burst, see RetryValue; 0 normally. RetryTokens is the content of the
	// budget.
	Spacing     time.Duration
	RetryTokens int

	// Learned is the estimate of the gate about the limit of its server, nil while it does
	// not learn: see [Adaptive].
	Learned *Learned

	Admitted   uint64        // calls that may start
	Rejected   Rejections    // calls that may not
	Retried    uint64        // further attempts that RetryValue and RetryLoop decided on
	Unreturned uint64        // units that could not be returned, so limits allow less
	Waits      WaitHistogram // how long admitted calls waited

	// LastError is the error of the last call that was rejected because it would have waited too
	// long or cost too much, or because a limit could not decide, such as one in a Redis that is
	// unavailable. It names the limit and not the gate, and has at most 300 bytes, and of a URL
	// only host and path. Other rejections do not change it.
	LastError   string
	LastErrorAt time.Time

	held sentence.Wait // of the calls that wait, for Why
	at   time.Time     // of the Stats
}

// String returns s in one line for people, such as
//
//	github: 5/s, 3 of 8 in flight, 1,010 granted, 3 refused; 12 calls wait for the rate of 5/s, for another 2.4 s
//
// Parts that are zero are left out. The form may change.
func (s Stats) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.Rate != (Rate{}) {
		add("%v", s.Rate)
	}
	if s.Concurrency > 0 {
		add("%s of %s in flight", grouped(s.InFlight), grouped(s.Concurrency))
	} else {
		add("%s in flight", grouped(s.InFlight))
	}
	if !s.PausedUntil.IsZero() && (s.LimitedBy != limits.ByPause || s.held.End.IsZero()) { // else Why says it
		add("paused until %s", clock(s.PausedUntil))
		if s.PausedWhy != "" {
			parts[len(parts)-1] += " (" + clean.Text(s.PausedWhy) + ")"
		}
	}
	if s.Learned != nil {
		add("learned %v", s.Learned)
	}
	if s.Spacing > 0 {
		add("calls %v apart after failures", s.Spacing)
	}
	add("%s granted", grouped(s.Admitted))
	var refused uint64
	for _, n := range s.Rejected.All() {
		refused += n
	}
	if refused > 0 {
		add("%s refused", grouped(refused))
	}
	if s.Retried > 0 {
		add("%s retried", grouped(s.Retried))
	}
	line := strings.Join(parts, ", ")
	if why := s.Why(); why != "" {
		line += "; " + why
	}
	if s.LastError != "" {
		line += "; last error"
		if !s.at.IsZero() {
			line += " " + sentence.Rough(s.at.Sub(s.LastErrorAt)) + " ago"
		}
		line += ": " + s.LastError
	}
	if s.Name != "" {
		line = s.Name + ": " + line
	}
	return line
}

// String returns the Stats of g in one line for people.
func (g *Gate) String() string { return g.Stats().String() }

// clock returns t to the millisecond, with its date if that is not today's.
func clock(t time.Time) string {
	now := time.Now().In(t.Location())
	if t.Year() != now.Year() || t.YearDay() != now.YearDay() {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05.000")
}

// Stats returns a consistent picture of the gate, except for Why about parents. The counts of
// rejections and waits may be a call behind, and an arriving call may count as admitted
// although it then has to wait. The cost of Stats grows with Pacing.
func (g *Gate) Stats() Stats {
	g.queue.Lock()
	now := g.queue.Now()
	g.queue.Advance(now)
	g.counters.passed(g.room.calls.Passed()) // also those that lost their slot after the lane was closed
	budget := g.budget.at(now)
	s := Stats{
		Name:        g.name,
		Concurrency: g.room.limit,
		Rate:        g.rate,
		InFlight:    g.room.used(),
		Waiting:     int64(g.queue.Len()),
		LimitedBy:   (*admitter)(g).holds(now),
		NextSlot:    g.queue.Time(max(g.schedule.Slot(), now+g.budget.peek(now, 0))),
		Spacing:     budget.spacing,
		RetryTokens: budget.tokens,
		Admitted:    g.granted,
		Unreturned:  g.stranded.Load(),
		Learned:     g.learner.learned(&g.queue),
	}
	if until := g.schedule.Paused(); until > now {
		s.PausedUntil, s.PausedWhy = g.queue.Time(until), g.why
	}
	(*admitter)(g).countWaiting(&s, now)
	s.held.End, s.held.AtLeast = (*admitter)(g).ends(now, s.LimitedBy)
	s.at = g.queue.Time(now)
	g.queue.Unlock()

	if g.parent != nil {
		s.Parent = g.parent.name
	}
	s.held.For, s.held.Why = string(s.LimitedBy), s.about(s.LimitedBy)
	if s.LimitedBy == limits.ByParent {
		s.held = s.held.Below(g.parent.heldUp())
	}
	if last := g.lastError.Load(); last != nil {
		s.LastError, s.LastErrorAt = last.String(), g.queue.Time(last.at)
	}
	s.Rejected = g.counters.rejections()
	s.Retried = g.retried.Load()
	s.Waits = g.waits.snapshot(s.Admitted)
	return s
}

// countWaiting divides the calls that wait into those that wait only for their time, and the others:
// for permits, or for a parent. The queue is locked.
func (g *admitter) countWaiting(s *Stats, now time.Duration) {
	if s.Pacing = s.Waiting; g.room.limit > 0 {
		s.Pacing = 0
		room := g.room.limit - s.InFlight
		g.queue.Each(func(n int64) bool {
			if room -= g.room.unit.of(n); room < 0 {
				return false
			}
			s.Pacing++
			return true
		})
	}
	borrowing := int64(g.borrowers.Len())
	if borrowing > 0 && s.Waiting == 0 {
		s.LimitedBy = limits.BySemaphore
	}
	s.Waiting += borrowing - s.Pacing
	if came, waits := g.queue.Oldest(); waits {
		s.OldestWait = now - came
	}
	if borrowing > 0 {
		s.OldestWait = max(s.OldestWait, now-g.borrowers.Front().Value.(time.Duration))
	}
}

// Why gives the number of calls that wait, the cause and the time until then, without a period,
// such as
//
//	30 calls wait for the rate of 2/m, until 19:26:00 (15 min)
//
// It is "" if no call waits. For the rate and a pause the time is that of the last call, as far as
// it is known; for other causes that of the first one, "at least". Of a URL in the reason of a
// pause it shows only host and path.
func (s Stats) Why() string {
	n := s.Pacing + s.Waiting
	if n == 0 {
		return ""
	}
	w, now := s.held, s.at
	if w.For == "" { // s was not made by a gate
		w.For, w.Why, now = string(s.LimitedBy), s.about(s.LimitedBy), time.Now()
	}
	w.For, w.Why = clean.Text(w.For), clean.Text(w.Why) // names and reasons, which may have secrets
	text := sentence.Calls(n)
	if what := w.Text(now); what != "" {
		text += " " + what
	}
	return text
}

// about returns the facts of s about cause, for sentence.Wait.Why.
func (s *Stats) about(cause limits.Cause) string {
	switch cause {
	case limits.ByRate:
		if s.Rate.Count > 0 {
			return s.Rate.String()
		}
	case limits.ByPause:
		return s.PausedWhy
	case limits.ByConcurrency:
		if s.Concurrency > 0 {
			return grouped(s.Concurrency)
		}
	case limits.ByRetryBudget:
		if s.Spacing > 0 {
			return "calls are " + sentence.Rough(s.Spacing) + " apart after failures"
		}
	case limits.ByLearned:
		return s.Learned.bound()
	case limits.ByParent:
		if s.Parent != "" {
			return strconv.Quote(s.Parent)
		}
		return "without a name"
	}
	return ""
}

// bound returns the kind of limit in l: a window, a pace, or a number in flight.
func (l *Learned) bound() string {
	switch {
	case l == nil:
	case l.Window != (Rate{}):
		return l.Window.String()
	case l.Pace > 0:
		return perSecond(l.Pace)
	case l.Concurrency > 0:
		return grouped(l.Concurrency) + " in flight"
	}
	return ""
}

// about returns the facts of the gate about cause.
func (r *admitter) about(cause limits.Cause) string {
	if cause == "" {
		return ""
	}
	s := Stats{Rate: r.rate, Concurrency: r.room.limit, Spacing: r.budget.spacing}
	switch cause {
	case limits.ByPause:
		s.PausedWhy = clean.Text(r.why) // the error of another call: its secrets are no business of this one
	case limits.ByLearned:
		s.Learned = r.learner.learned(&r.queue)
	case limits.ByParent:
		s.Parent = r.parent.name
	}
	return s.about(cause)
}

// blame implements queue.Config.Blame.
func (r *admitter) blame(now, need time.Duration, n int64) sentence.Wait {
	var cause limits.Cause
	switch {
	case need > 0:
		cause = r.slowest(now, need)
	case r.queue.Len() == 0:
		cause = r.holdsUp(now, n)
	default:
		cause = r.holds(now)
	}
	w := sentence.Wait{For: string(cause), Why: r.about(cause)}
	if left := r.heldFor(now, cause); left > 0 {
		w.End = r.queue.Time(sat.Add(now, left))
	}
	return w
}

// heldFor returns how long cause delays the head of the queue at least, as it has said, 0 if
// it has not or is the gate itself.
func (r *admitter) heldFor(now time.Duration, cause limits.Cause) time.Duration {
	if cause == "" || cause != r.held.by || r.held.until <= now || r.held.until == queue.Forever {
		return 0
	}
	return r.held.until - now
}

// slowest returns the main cause of a wait of need, which the schedule adds up to.
func (r *admitter) slowest(now, need time.Duration) limits.Cause {
	if paused := max(0, r.schedule.Paused()-now); paused > need-paused {
		return limits.ByPause
	}
	return limits.ByRate
}

// holds returns the cause that delays the head of the queue, or "".
func (r *admitter) holds(now time.Duration) limits.Cause {
	var by limits.Cause
	r.queue.Each(func(n int64) bool {
		by = r.holdsUp(now, n)
		return false
	})
	return by
}

// queues returns the event of a call of n that is about to wait. It has the cause of the first
// caller, if there is one.
func (r *admitter) queues(ctx context.Context, n int64) Event {
	r.queue.Lock()
	defer r.queue.Unlock()
	now := r.queue.Now()
	cause := r.holds(now)
	if cause == "" {
		cause = r.holdsUp(now, n)
	}
	e := Event{Kind: EventQueued, Context: ctx, N: n, LimitedBy: cause, Why: r.about(cause)}
	if wait := r.schedule.Wait(now, r.queue.Weight()); wait != queue.Forever {
		e.Wait = max(wait, r.heldFor(now, cause))
	}
	return e
}

// holdsUp returns the cause that delays a call of n at the head of the queue, or "".
func (r *admitter) holdsUp(now time.Duration, n int64) limits.Cause {
	if !r.room.has(n) {
		return limits.ByConcurrency
	}
	wait := r.schedule.Wait(now, 0)
	switch braked, cause := r.brakes.peek(now, r.room.calls.Calls()); {
	case braked > wait && r.slowest(now, braked) != limits.ByPause: // which has a reason, and nearly its end
		return cause
	case max(wait, braked) > 0:
		return r.slowest(now, max(wait, braked))
	}
	return r.held.by
}

// ends returns when the wait of the calls for cause, which delays the first of them, is over,
// the zero time if that is unknown. atLeast means that it is so for the first of several.
func (r *admitter) ends(now time.Duration, cause limits.Cause) (end time.Time, atLeast bool) {
	at := queue.Forever
	switch cause {
	case "", limits.ByConcurrency, limits.BySemaphore:
		return time.Time{}, false
	case r.held.by:
		left := r.heldFor(now, cause)
		if left == 0 {
			return time.Time{}, false
		}
		at, atLeast = now+left, true
	case limits.ByRate, limits.ByPause:
		at = sat.Add(now, r.schedule.Wait(now, r.queue.AheadOfLast()))
	default:
		r.queue.Each(func(n int64) bool {
			at, atLeast = sat.Add(now, r.peek(now, n).For), true
			return false
		})
	}
	if at == queue.Forever {
		return time.Time{}, false
	}
	return r.queue.Time(at), atLeast && r.queue.Len() > 1
}

// heldUp returns the cause for which the first call in the queue of g waits, and the gates above g.
func (g *Gate) heldUp() sentence.Wait {
	r := (*admitter)(g)
	g.queue.Lock()
	now := g.queue.Now()
	cause := r.holds(now)
	w := sentence.Wait{For: string(cause), Why: r.about(cause)}
	w.End, w.AtLeast = r.ends(now, cause)
	g.queue.Unlock()
	if cause == limits.ByParent {
		w = w.Below(g.parent.heldUp())
	}
	return w
}
