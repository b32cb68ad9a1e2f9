package sluice

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strings"
	"sync/atomic"
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

	// Pacing is how many callers wait only for the rate, a pause or one of
	// Config.Limits: there is room in flight for them. Waiting is how many wait behind
	// those, for room, too.
	Pacing, Waiting int64

	// OldestWait is how long the caller has waited that came first of them, 0 if no caller
	// waits. In a parent it counts from when the first caller of a child came to the parent.
	OldestWait time.Duration

	// LimitedBy is the cause that delays the first of them, empty if no caller waits.
	// If it is limits.ByParent, the Stats of the parent name the cause. Why says more.
	LimitedBy limits.Cause

	// NextSlot is the earliest time at which the rate, a pause and the present
	// Spacing let the next call start. It may have passed; a response that shortens
	// the Spacing brings it forward.
	NextSlot time.Time

	// PausedUntil is the end of the present pause and PausedWhy the text passed to
	// PauseUntil. Zero if the gate is not paused.
	PausedUntil time.Time
	PausedWhy   string

	// Spacing is the least time between calls that a gate keeps after its retry
	// budget was empty, whatever its rate and burst; 0 normally. Each success and
	// each definite answer halve it, and so do every 30 s in which no call fails.
	// RetryTokens is the content of the budget.
	Spacing     time.Duration
	RetryTokens int

	// Learned is the estimate of the gate about the limit of its server, nil while it does
	// not learn: see [Adaptive].
	Learned *Learned

	Admitted   uint64        // calls that may leave
	Rejected   Rejections    // calls that may not
	Retried    uint64        // further attempts that RetryValue and RetryLoop decided on
	Unreturned uint64        // units that could not be returned, so those limits allow less
	Waits      WaitHistogram // how long granted calls waited

	// LastError is the error of the last call that was refused because it would have waited
	// too long or cost too much, or because a limit could not decide, such as one in a Redis
	// that is away. It has the name of the limit and not that of the gate, at most 300 bytes,
	// and of an address only host and path. Calls that were refused for another reason of
	// Refusals leave it as it is.
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

// grouped returns n with a comma before each group of three digits.
func grouped[T int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rejections counts the calls that a gate refused, by reason. [Rejections.All] names the
// reasons as Event.Reason does.
type Rejections struct {
	Busy      uint64 // "busy": TryAcquire when the call would have had to wait
	Deadline  uint64 // "deadline": WaitError, ErrTimeout, ErrServerWait or the deadline of a context
	Canceled  uint64 // "canceled": a canceled context
	TooLarge  uint64 // "too_large": ErrTooLarge
	QueueFull uint64 // "queue_full": ErrQueueFull
	Closed    uint64 // "closed": ErrClosed
	Other     uint64 // "other": the error of a limit or of Config.Semaphore
}

// All yields each reason and its count, in the order of the fields.
func (r Rejections) All() iter.Seq2[string, uint64] {
	counts := [...]uint64{r.Busy, r.Deadline, r.Canceled, r.TooLarge, r.QueueFull, r.Closed, r.Other}
	return func(yield func(string, uint64) bool) {
		for i, n := range counts {
			if !yield(reasons[i], n) {
				return
			}
		}
	}
}

// A reason is why a call was refused: the number of a field of Rejections.
type reason int

const (
	reasonBusy reason = iota
	reasonDeadline
	reasonCancelled
	reasonTooLarge
	reasonQueueFull
	reasonClosed
	reasonOther
)

// reasons are the words for Event.Reason.
var reasons = [...]string{"busy", "deadline", "canceled", "too_large", "queue_full", "closed", "other"}

func reasonOf(err error) reason {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrServerWait):
		return reasonDeadline
	case errors.Is(err, context.Canceled):
		return reasonCancelled
	case errors.Is(err, limits.ErrTooLarge):
		return reasonTooLarge
	case errors.Is(err, limits.ErrQueueFull):
		return reasonQueueFull
	case errors.Is(err, limits.ErrClosed):
		return reasonClosed
	}
	return reasonOther
}

// Stats returns a consistent picture of the gate, except for Why about parents. Only
// the counts of refusals and waits may be a call behind, and a call that is just arriving may count
// as granted although it then has to wait. Its cost grows with Pacing, the number of callers that
// wait although there is room in flight.
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

// counters are for Stats.
type counters struct {
	granted   uint64 // guarded by the queue's lock
	sent      uint64 // their cost, likewise
	refused   [reasonOther + 1]atomic.Uint64
	lastError atomic.Pointer[lastError]
	retried   atomic.Uint64
	stranded  atomic.Uint64
	waits     waits
}

// sofar returns the number of calls that have started at now.
func (c *counters) sofar(now time.Duration) sofar { return sofar{now, c.granted, c.sent} }

// passed counts n calls, of cost 1, that were granted without the lock.
func (c *counters) passed(n int64) {
	c.granted += uint64(n)
	c.sent += uint64(n)
}

func (c *counters) rejections() Rejections {
	return Rejections{
		Busy:      c.refused[reasonBusy].Load(),
		Deadline:  c.refused[reasonDeadline].Load(),
		Canceled:  c.refused[reasonCancelled].Load(),
		TooLarge:  c.refused[reasonTooLarge].Load(),
		QueueFull: c.refused[reasonQueueFull].Load(),
		Closed:    c.refused[reasonClosed].Load(),
		Other:     c.refused[reasonOther].Load(),
	}
}

// WaitHistogram is a histogram of waiting times. Bucket 0 counts calls that did not wait,
// bucket i > 0 those that waited at least half of 2^i µs and less than 2^i µs. Bucket 1
// also counts shorter waits, and the last bucket longer ones.
type WaitHistogram [waitBuckets]uint64

const waitBuckets = 44 // the last one begins at 2^42 µs, 50 days

// bound returns the upper bound of bucket i: all waits in it are shorter.
func bound(i int) time.Duration {
	switch {
	case i <= 0:
		return 0
	case i >= waitBuckets-1:
		return limits.Never
	}
	return time.Microsecond << i
}

// Count returns the number of calls.
func (w WaitHistogram) Count() uint64 {
	var n uint64
	for _, c := range w {
		n += c
	}
	return n
}

// Quantile returns a time that at least the share q of the calls, 0 ≤ q ≤ 1, did not
// exceed: the upper bound of a bucket, and so, from 1 µs on, at most twice the exact
// time.
func (w WaitHistogram) Quantile(q float64) time.Duration {
	rank := q * float64(w.Count())
	var n uint64
	for i, c := range w {
		n += c
		if n > 0 && float64(n) >= rank {
			return bound(i)
		}
	}
	return 0
}

// waits is the histogram as it grows, without the calls that did not wait.
type waits [waitBuckets]atomic.Uint64

// add counts a granted call that waited for d.
func (w *waits) add(d time.Duration) {
	if d <= 0 {
		return
	}
	i := bits.Len64(uint64(d / time.Microsecond))
	w[min(max(i, 1), waitBuckets-1)].Add(1)
}

func (w *waits) snapshot(granted uint64) (s WaitHistogram) {
	for i := range w {
		s[i] = w[i].Load()
	}
	if waited := s.Count(); waited < granted {
		s[0] = granted - waited
	}
	return s
}

// A lastError is the content of Stats.LastError.
type lastError struct {
	err  error  // of a kind that is small; nil: see text
	text string // of any other: a gate must not keep the contents of an error
	at   time.Duration
}

// refuse counts a call that was refused with err at now, and returns the reason.
func (c *counters) refuse(now time.Duration, err error) reason {
	why := reasonOf(err)
	c.refused[why].Add(1)
	c.noteError(now, why, err)
	return why
}

// noteError records with which error a call was refused at now.
func (c *counters) noteError(now time.Duration, why reason, err error) {
	if why != reasonDeadline && why != reasonTooLarge && why != reasonOther {
		return
	}
	last := &lastError{at: now}
	_, small := err.(*limits.WaitError)
	switch small = small || err == limits.ErrTooLarge || err == limits.ErrTimeout || err == context.DeadlineExceeded; {
	case small:
		last.err = err
	default:
		last.text = lastErrorText(err)
	}
	c.lastError.Store(last)
}

func lastErrorText(err error) string {
	return clean.Text(strings.TrimPrefix(err.Error(), "sluice: "))
}

// String returns the text of the error; "" for nil.
func (e *lastError) String() string {
	switch {
	case e == nil:
		return ""
	case e.err != nil:
		return lastErrorText(e.err)
	}
	return e.text
}
