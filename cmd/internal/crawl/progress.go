package crawl

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

const (
	progressEvery = 500 * time.Millisecond // is the interval at which a terminal is drawn
	rateOver      = 30 * time.Second       // the time that pages per second are measured over
)

// A moment is the state of a crawl at one instant.
type moment struct {
	totals
	at       time.Time
	left     int64         // links that will be visited, as far as is known
	longest  time.Duration // for the host that takes longest
	active   int
	inFlight int64
	pauses   []string
	paused   int
	next     string // the host that is waited for if none is active, until when, and why
}

// now takes the state of the crawl. Of a million hosts only those are looked at that are
// active.
func (c *crawler) now() moment {
	m := moment{at: time.Now()}
	c.gates.Stats(func(key string, s sluice.Stats) bool {
		m.inFlight += s.InFlight
		if wait := s.PausedUntil.Sub(m.at); wait > longWait {
			if m.paused++; len(m.pauses) < 2 {
				m.pauses = append(m.pauses, fmt.Sprintf("%s paused until %s (%s)", key, clock(s.PausedUntil), s.PausedWhy))
			}
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	m.totals = c.totals
	m.left = min(c.totals.Queued, int64(c.o.pages-c.totals.Taken))
	m.active = len(c.active)
	if m.active == 0 && len(c.waiting) > 0 && !c.waiting[0].far && c.waiting[0].at > m.at.UnixNano() {
		m.next = c.waitFor(c.waiting[0])
	}
	for _, h := range c.active {
		left := min(h.Queued, int64(c.o.hostPages-h.Taken))
		m.longest = max(m.longest, time.Duration(left)*c.delayOf(h.hostRecord))
	}
	return m
}

// waitFor says until when a host waits, and why. It is called with the lock held.
func (c *crawler) waitFor(w waiting) string {
	var h hostRecord
	if _, err := getJSON(c.store.db, hostKeyOf('h', w.id), &h); err != nil {
		c.fail(err)
		return ""
	}
	text := fmt.Sprintf("%s waits until %s", h.Key, clock(time.Unix(0, w.at)))
	switch {
	case h.Aside > 0:
		return fmt.Sprintf("%s, pause %d of %d (%d requests failed, the last: %s)", text, h.Aside, asideMost, h.Bad, h.Last)
	case h.Bad > 0 || h.RobotsTries > 0:
		return fmt.Sprintf("%s (%s)", text, h.Last)
	}
	return text + " (" + delayBetween + ")"
}

// clock is an instant to be read soon: with its day only if that is not today.
func clock(t time.Time) string {
	if now := time.Now(); t.YearDay() != now.YearDay() || t.Sub(now).Abs() > 24*time.Hour {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// eta is how long the frontier will take, as it is: at the speed since then, or at the
// delay of the host that has most links, whichever is longer.
func (m moment) eta(then moment) (time.Duration, bool) {
	done, span := m.Taken-then.Taken, m.at.Sub(then.at)
	if done <= 0 || span < time.Second {
		return 0, false
	}
	eta := time.Duration(min(float64(span)*float64(m.left)/float64(done), float64(1<<62)))
	return max(eta, m.longest), true
}

// line is what there is to say; what matters most comes first, because a narrow terminal
// cuts the rest.
func (m moment) line(then moment) string {
	parts := []string{plural(int(m.Pages), "page")}
	if eta, ok := m.eta(then); ok {
		parts = append(parts, fmt.Sprintf("%d left, ETA %s", m.left, cli.Roughly(eta.Round(100*time.Millisecond))))
	} else {
		parts = append(parts, fmt.Sprintf("%d left, ETA unknown", m.left))
	}
	if span := m.at.Sub(then.at).Seconds(); span > 0 {
		parts = append(parts, fmt.Sprintf("%.3g/s", float64(m.Taken-then.Taken)/span))
	}
	parts = append(parts, fmt.Sprintf("%d failed", m.Failed))
	if m.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", m.Refused))
	}
	parts = append(parts, fmt.Sprintf("%d in flight", m.inFlight), fmt.Sprintf("%d active of %s", m.active, plural(int(m.Hosts), "host")),
		fmt.Sprintf("%d known", m.Known))
	if m.next != "" {
		parts = append(parts, m.next)
	}
	if m.paused > 0 {
		parts = append(parts, strings.Join(m.pauses, ", "))
	}
	if n := m.paused - len(m.pauses); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more paused", n))
	}
	return cli.Plain(strings.Join(parts, ", "), cli.MostOfError)
}

// progress shows how the crawl is going: a line, which is gone at the end, when there is a table.
func (c *crawler) progress() cli.Progress { return progressOf(c.now) }

func progressOf(now func() moment) cli.Progress {
	past := []moment{now()}
	line := func() string {
		m := now()
		past = append(past, m)
		for len(past) > 2 && m.at.Sub(past[1].at) >= rateOver {
			past = past[1:]
		}
		return m.line(past[0])
	}
	return cli.Progress{
		Every: progressEvery,
		Lines: func(int, func(string) string) []string { return []string{line()} },
		Fades: true,
		Line:  line,
	}
}
