package batch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/limits"
)

// A pause is one of a host, or of the gate if it has no name.
type pause struct {
	name  string
	until time.Time
	why   string
	next  bool // it is no pause: the next call waits that long
}

// A moment is the state of a job at one instant.
type moment struct {
	at       time.Time
	total    int64 // of items, or unknown
	ok       int64
	failed   int64
	skipped  int64
	retries  int64
	attempts int64
	queued   time.Duration // 95 % of first attempts were late by less
	pauses   []pause
	notes    []string      // about hosts
	running  int64         // attempts in flight
	stopping bool          // nothing more is begun
	stopped  time.Duration // by ^Z, so far
	next     time.Time     // when -rate allows the next attempt, if that is not soon
	failure  failure       // the last one of an attempt
	plan     time.Duration // what the gate says that the rest will take
	target   sluice.Rate
}

// since returns the time since then in which the program ran.
func (m moment) since(then moment) time.Duration {
	return m.at.Sub(then.at) - (m.stopped - then.stopped)
}

func (m moment) done() int64 { return m.ok + m.failed + m.skipped }

// now takes the state of the job.
func (j *job) now() moment {
	s := j.tally.Stats()
	m := moment{
		at: time.Now(), total: j.in.total.Load(),
		ok: s.OK, failed: s.Failed, skipped: s.Skipped, retries: s.Retries,
		attempts: int64(s.Queued.Count()) + s.Retries,
		queued:   s.Queued.Quantile(0.95),
		pauses:   j.runner.pauses(),
		notes:    j.hosts.lines(mostHosts),
		stopped:  j.stops.stopped(),
		failure:  j.failures.latest(),
	}
	if i := j.interrupts.Load(); i != nil {
		m.stopping = i.Happened()
	}
	g := j.gate.Stats()
	m.running = g.InFlight
	if m.target = g.Rate; m.target.Burst <= 1 {
		m.target.Burst = 0 // is not worth showing
	}
	if g.LimitedBy == limits.ByRate && g.NextSlot.Sub(m.at) > soon {
		m.next = g.NextSlot
	}
	if g.PausedUntil.After(m.at) {
		m.pauses = append(m.pauses, pause{name: g.Name, until: g.PausedUntil, why: g.PausedWhy})
	}
	if left := m.total - m.done(); left > 0 {
		m.plan = rest(j.gate, g, left)
	}
	return m
}

// rest returns how long the items that are left will take. Some of them are in the gate already, as s
// says: an estimate is for those that come after them.
func rest(gate *sluice.Gate, s sluice.Stats, left int64) time.Duration {
	waiting := s.Pacing + s.Waiting
	more := left - s.InFlight - waiting
	e := gate.Estimate(max(1, more))
	switch {
	case more > 0:
		return e.Total
	case waiting > 0: // until the last of them is done, which starts before one more would
		return max(e.Total-e.Last, e.Total-s.Rate.Interval())
	}
	return e.Total - e.Last
}

// eta returns how long the rest will take, if that is known: what the gate
// says, which knows the pace, or what it would be as fast as it went since
// then, whichever is longer, and after the pauses.
func (m moment) eta(then moment) (time.Duration, bool) {
	left := m.total - m.done()
	if m.total == unknown || left < 0 {
		return 0, false
	}
	eta := m.plan
	span, finished := m.since(then), m.ok+m.failed-then.ok-then.failed
	if finished > 0 && span >= time.Second {
		measured := float64(span) * float64(left) / float64(finished)
		eta = max(eta, time.Duration(min(measured, float64(1<<62))))
	} else if begun := m.attempts - m.retries; left > 0 && (m.plan == 0 || m.running > 0 || begun > m.ok+m.failed && len(m.pauses) == 0) {
		// Too little to judge by. The gate knows how long calls took, not how
		// long those in flight will take, of which none has ended lately, nor how
		// long those that failed will wait before they are tried again.
		return 0, false
	}
	for _, p := range m.pauses {
		if left > 0 && p.name != "" { // the gate knows of its own pause
			eta = max(eta, p.until.Sub(m.at)+m.plan)
		}
	}
	return eta, true
}

// progressEvery is the interval at which a terminal is drawn.
const progressEvery = 200 * time.Millisecond

// progress shows how the job is going: a bar, the numbers below it, and a line for each pause.
func (j *job) progress() cli.Progress { return progressOf(j.now) }

func progressOf(now func() moment) cli.Progress {
	var past history
	past.add(now())
	return cli.Progress{
		Every: progressEvery,
		Lines: func(width int, red func(string) string) []string {
			m := now()
			return append([]string{m.gauge(width), m.detail(past.add(m), red)}, m.paused()...)
		},
		Line: func() string {
			m := now()
			plain := func(s string) string { return s }
			return strings.Join(append([]string{m.count() + ", " + m.detail(past.add(m), plain)}, m.paused()...), "; ")
		},
	}
}

// count is how far the job is.
func (m moment) count() string {
	if m.total == unknown {
		return fmt.Sprintf("%d done", m.done())
	}
	return fmt.Sprintf("%d/%d done", m.done(), m.total)
}

// detail is the rest of what there is to say, with rates measured since then; what matters
// most comes first, because a narrow terminal cuts the rest. red writes what is bad.
func (m moment) detail(then moment, red func(string) string) string {
	var parts []string
	switch eta, ok := m.eta(then); {
	case m.stopping:
		parts = append(parts, fmt.Sprintf("stopping, %d running", m.running))
	case ok:
		parts = append(parts, "ETA "+cli.Roughly(eta.Round(100*time.Millisecond)))
	case m.total != unknown && m.total > m.done():
		parts = append(parts, "ETA unknown")
	}
	parts = append(parts, fmt.Sprintf("%d ok", m.ok))
	failed := fmt.Sprintf("%d failed", m.failed)
	if m.failed > 0 {
		failed = red(failed)
	}
	parts = append(parts, failed)
	if m.retries > 0 {
		parts = append(parts, fmt.Sprintf("%d retried", m.retries))
	}
	if m.skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", m.skipped))
	}
	rate := 0.0
	if span := m.since(then).Seconds(); span > 0 {
		rate = float64(m.attempts-then.attempts) / span
	}
	speed := fmt.Sprintf("%.3g/s", rate)
	if m.target != (sluice.Rate{}) {
		speed += " of " + m.target.String()
	}
	if !m.next.IsZero() {
		speed += ", the next at " + ceil(m.next)
	}
	parts = append(parts, speed)
	if !m.stopping && m.running > 0 {
		parts = append(parts, fmt.Sprintf("%d running", m.running))
	}
	if m.queued > 0 {
		parts = append(parts, "late by "+cli.Roughly(m.queued))
	}
	return strings.Join(parts, ", ")
}

// widestBar is the most columns of the bar itself: a wide one would be left behind, in pieces,
// when the terminal becomes narrower.
const widestBar = 60

// gauge returns how far the job is: as text, and as a bar if the total is known.
func (m moment) gauge(width int) string {
	text := m.count()
	room := min(width-cli.Columns(text)-len(" []"), widestBar)
	if m.total <= 0 || room < 3 {
		return text
	}
	full := int(int64(room) * min(m.done(), m.total) / m.total)
	return text + " [" + strings.Repeat("=", full) + strings.Repeat("-", room-full) + "]"
}

// mostHosts is how many hosts have a line of their own.
const mostHosts = 4

// soon is a wait that is not worth a word.
const soon = 5 * time.Second

// paused has a line for each pause, for each host that is set aside, and for the last attempt that
// failed while its item may be tried again.
func (m moment) paused() []string {
	var lines []string
	slices.SortFunc(m.pauses, func(a, b pause) int { return b.until.Compare(a.until) })
	for i, p := range m.pauses {
		if i == mostHosts {
			lines = append(lines, fmt.Sprintf("%d more are paused, until %s or less", len(m.pauses)-i, ceil(p.until)))
			break
		}
		line := cmp.Or(p.name, "all") + " paused until " + ceil(p.until)
		if p.next {
			line = p.name + ": the next call at " + ceil(p.until)
		}
		if p.why != "" {
			line += " (" + p.why + ")"
		}
		lines = append(lines, cli.Plain(line, cli.MostOfError))
	}
	lines = append(lines, m.notes...)
	if m.failure.why != "" && (m.total == unknown || m.done() < m.total) && m.ok+m.failed < m.attempts {
		line := "last failed attempt, at " + ceil(m.failure.at) + ": "
		if m.failure.of != "" {
			line += m.failure.of + ": "
		}
		lines = append(lines, cli.Plain(line+m.failure.why, cli.MostOfItem))
	}
	return lines
}

// history keeps the moments that rates are measured over.
type history struct{ recent []moment }

// rateOver is the time that rates are measured over.
const rateOver = 5 * time.Second

// add takes a moment and returns the one to measure from.
func (h *history) add(m moment) (then moment) {
	h.recent = append(h.recent, m)
	// A time in which no item ended says nothing about how long the rest will take.
	for len(h.recent) > 2 && m.since(h.recent[1]) >= rateOver && m.done() > h.recent[1].done() {
		h.recent = h.recent[1:]
	}
	return h.recent[0]
}
