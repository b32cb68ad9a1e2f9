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
	// Waiting how many wait behind them.
	Pacing, Waiting int64

	// OldestWait is how long the first of them has waited, 0 if no caller waits; in a parent,
	// since the first caller of a child came to the parent.
	OldestWait time.Duration

	// LimitedBy is the cause that delays the first of them, empty if no caller waits.
	// If it is limits.ByParent, the Stats of the parent name the cause. Why says more.
	LimitedBy limits.Cause

	// NextSlot is when the rate, a pause and the Spacing let the next call start. It may have passed.
	NextSlot time.Time

	// PausedUntil is the end of the present pause and PausedWhy its reason; zero without one.
	PausedUntil time.Time
	PausedWhy   string

	// Spacing is the least time between calls that a gate keeps after its retry budget was empty,
	// whatever its rate and burst, see RetryValue; 0 normally. RetryTokens is the content of the
	// budget.
	Spacing     time.Duration
	RetryTokens int

	// Learned is the estimate of the limit of the server, nil while the gate does not learn.
	Learned *Learned

	Admitted   uint64        // calls that may start
	Rejected   Rejections    // calls that may not
	Retried    uint64        // further attempts that RetryValue and RetryLoop decided on
	Unreturned uint64        // units that could not be returned, so limits allow less
	Waits      WaitHistogram // how long admitted calls waited

	// LastError is the error of the last call that was rejected because it would have waited too
	// long or cost too much, or because a limit could not decide. It has at most 300 bytes, and of a
	// URL only host and path.
	LastError   string
	LastErrorAt time.Time

	held sentence.Wait // of the calls that wait, for Why
	at   time.Time     // of the Stats
}

// String returns s in one line for people, such as
//
//	github: 5/s, 3 of 8 in flight, 1,010 admitted, 3 rejected; 12 calls wait for the rate of 5/s, for another 2.4 s
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
		add("calls %s apart after failures", sentence.Rough(s.Spacing))
	}
	add("%s admitted", grouped(s.Admitted))
	var rejected uint64
	for _, n := range s.Rejected.All() {
		rejected += n
	}
	if rejected > 0 {
		add("%s rejected", grouped(rejected))
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

// Why gives the number of calls that wait, the cause and the time until then, without a period,
// such as
//
//	30 calls wait for the rate of 2/m, until 19:26:00 (15 min)
//
// It is "" if no call waits. For the rate and a pause the time is that of the last call, "at least"
// if the gate has a parent or Limits; for other causes that of the first, "at least". Of a URL it shows only host and path.
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

// clock returns t to the millisecond, with its date if that is not today's.
func clock(t time.Time) string {
	now := time.Now().In(t.Location())
	if t.Year() != now.Year() || t.YearDay() != now.YearDay() {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05.000")
}

// about returns the facts of the gate about cause.
func (t *turnstile) about(cause limits.Cause) string {
	if cause == "" {
		return ""
	}
	s := Stats{Rate: t.rate, Concurrency: t.room.limit, Spacing: t.budget.spacing}
	switch cause {
	case limits.ByPause:
		s.PausedWhy = clean.Text(t.why) // the error of another call: its secrets are no business of this one
	case limits.ByLearned:
		s.Learned = t.learner.learned(&t.queue)
	case limits.ByParent:
		s.Parent = t.above
	}
	return s.about(cause)
}

// blame implements queue.Config.Blame.
func (t *turnstile) blame(now, need time.Duration, n int64) sentence.Wait {
	var cause limits.Cause
	switch {
	case need > 0:
		cause = t.slowest(now, need)
	case t.queue.Len() == 0:
		cause = t.holdsUp(now, n)
	default:
		cause = t.holds(now)
	}
	w := sentence.Wait{For: string(cause), Why: t.about(cause)}
	if left := t.heldFor(now, cause); left > 0 {
		w.End = t.queue.Time(sat.Add(now, left))
	}
	return w
}

// heldFor returns how long cause delays the head of the queue at least, as it has said, 0 if
// it has not or is the gate itself.
func (t *turnstile) heldFor(now time.Duration, cause limits.Cause) time.Duration {
	if cause == "" || cause != t.held.by || t.held.until <= now || t.held.until == queue.Forever {
		return 0
	}
	return t.held.until - now
}

// slowest returns the main cause of a wait of need, which the schedule adds up to.
func (t *turnstile) slowest(now, need time.Duration) limits.Cause {
	if paused := max(0, t.schedule.Paused()-now); paused > need-paused {
		return limits.ByPause
	}
	return limits.ByRate
}

// holds returns the cause that delays the head of the queue, or "".
func (t *turnstile) holds(now time.Duration) limits.Cause {
	var by limits.Cause
	t.queue.Each(func(n int64) bool {
		by = t.holdsUp(now, n)
		return false
	})
	return by
}

// queues returns the event of a call of n that is about to wait. It has the cause of the first
// caller, if there is one.
func (t *turnstile) queues(ctx context.Context, n int64) Event {
	t.queue.Lock()
	defer t.queue.Unlock()
	now := t.queue.Now()
	cause := t.holds(now)
	if cause == "" {
		cause = t.holdsUp(now, n)
	}
	e := Event{Kind: EventQueued, Context: ctx, N: n, LimitedBy: cause, Why: t.about(cause)}
	if wait := t.schedule.Wait(now, t.queue.Weight()); wait != queue.Forever {
		e.Wait = max(wait, t.heldFor(now, cause))
	}
	return e
}

// holdsUp returns the cause that delays a call of n at the head of the queue, or "".
func (t *turnstile) holdsUp(now time.Duration, n int64) limits.Cause {
	if !t.room.has(n) {
		return limits.ByConcurrency
	}
	wait := t.schedule.Wait(now, 0)
	switch braked, cause := t.brakes.peek(now, t.room.calls.Calls()); {
	case braked > wait && t.slowest(now, braked) != limits.ByPause: // which has a reason, and nearly its end
		return cause
	case max(wait, braked) > 0:
		return t.slowest(now, max(wait, braked))
	}
	return t.held.by
}

// ends returns when the wait of the calls for cause, which delays the first of them, is over,
// the zero time if that is unknown. atLeast means that it is so for the first of several, or that
// a parent or further limits may delay them more.
func (t *turnstile) ends(now time.Duration, cause limits.Cause) (end time.Time, atLeast bool) {
	at := queue.Forever
	switch cause {
	case "", limits.ByConcurrency, limits.BySemaphore:
		return time.Time{}, false
	case t.held.by:
		left := t.heldFor(now, cause)
		if left == 0 {
			return time.Time{}, false
		}
		at, atLeast = now+left, true
	case limits.ByRate, limits.ByPause:
		at = sat.Add(now, t.schedule.Wait(now, t.queue.AheadOfLast()))
		if t.asksMore {
			return t.endsAt(at), true
		}
	default:
		t.queue.Each(func(n int64) bool {
			at, atLeast = sat.Add(now, t.peek(now, n).For), true
			return false
		})
	}
	return t.endsAt(at), atLeast && t.queue.Len() > 1
}

// endsAt returns at as a time, zero if it never comes.
func (t *turnstile) endsAt(at time.Duration) time.Time {
	if at == queue.Forever {
		return time.Time{}
	}
	return t.queue.Time(at)
}

// countWaiting divides the calls that wait into those that wait only for their time, and the others:
// for permits, or for a parent. The queue is locked.
func (t *turnstile) countWaiting(s *Stats, now time.Duration) {
	if s.Pacing = s.Waiting; t.room.limit > 0 {
		s.Pacing = 0
		room := t.room.limit - s.InFlight
		t.queue.Each(func(n int64) bool {
			if room -= t.room.unit.of(n); room < 0 {
				return false
			}
			s.Pacing++
			return true
		})
	}
	s.Waiting -= s.Pacing
	if came, waits := t.queue.Oldest(); waits {
		s.OldestWait = now - came
	}
}
