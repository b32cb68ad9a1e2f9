package sluice

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/internal/clean"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

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
