package sluice

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/clean"
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
