package live

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live/internal/clean"
	"github.com/sluice-go/sluice/observe/live/internal/sentence"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A view is one gate as the page shows it, with and without JavaScript. The numbers are for
// the chart, the strings for people.
type view struct {
	ID    uint64 `json:"id"`
	Name  string `json:"name"`
	State state  `json:"state"`
	Why   string `json:"why"`

	Leaving  string `json:"leaving"`
	Asked    string `json:"asked"`
	Waiting  string `json:"waiting"`
	InFlight string `json:"inFlight"`
	Refused  string `json:"refused"`
	Wait     string `json:"wait"`

	Pace  float64 `json:"pace"`            // now, per second; -1: unknown
	Limit float64 `json:"limit,omitzero"`  // asked, per second
	Low   float64 `json:"low,omitzero"`    // proven by the server
	High  float64 `json:"high,omitzero"`   // refuted by the server
	Can   string  `json:"can,omitempty"`   // fields that can be changed: p, r, c
	Rate  string  `json:"rate,omitempty"`  // the value that r changes
	Most  int64   `json:"most,omitzero"`   // the value that c changes
	Facts []fact  `json:"facts,omitempty"` // the details
}

// A fact is one line of the details.
type fact struct {
	Term string `json:"term"`
	Text string `json:"text"`
}

// viewOf returns how a gate looks at a time.
func viewOf(h *history, now time.Time, control bool) view {
	s, f := &h.gate.Stats, h.flow()
	v := view{
		ID:       h.id,
		Name:     h.name,
		Leaving:  "–",
		Asked:    askedText(s),
		Waiting:  count(s.Pacing + s.Waiting),
		InFlight: inFlightText(s),
		Refused:  "–",
		Wait:     "–",
		Pace:     -1,
		Limit:    asked(s),
		Facts:    facts(&h.gate, f, now),
	}
	v.State, v.Why = why(*s, f, now)
	v.Why = h.withBelow(v.Why)
	if f.over > 0 {
		v.Leaving, v.Refused, v.Pace = paceAs(f.leaving, s.Rate), pace(f.refused), digits(f.lately)
	}
	if f.waits > 0 {
		v.Wait = lessThan(f.p50) + " / " + lessThan(f.p99)
	}
	if l := s.Learned; l != nil {
		v.Low, v.High = digits(l.AcceptedRate), digits(l.ThrottledRate)
	}
	if control {
		if v.Can = can(h.gate.Control); v.Can != "" {
			v.Rate, v.Most = rateText(s.Rate), s.Concurrency
		}
	}
	return v
}

// asked returns the pace that is asked for, per second: the rate, or the learned limit if that is
// less. 0 means none.
func asked(s *sluice.Stats) float64 {
	most := perSecond(s.Rate)
	if l := s.Learned; l != nil && l.Pace > 0 && (most == 0 || l.Pace < most) {
		most = l.Pace
	}
	return digits(most)
}

func askedText(s *sluice.Stats) string {
	switch l := s.Learned; {
	case l != nil && l.Pace > 0 && asked(s) < perSecond(s.Rate):
		return fmt.Sprintf("%s learned, %v asked", pace(l.Pace), s.Rate)
	case l != nil && l.Pace > 0 && s.Rate == (sluice.Rate{}):
		return pace(l.Pace) + " learned"
	case s.Rate == (sluice.Rate{}):
		return "no rate"
	}
	return s.Rate.String() + " asked"
}

// concurrency returns the bound of the calls in flight, configured or learned, 0 for none.
func concurrency(s *sluice.Stats) int64 {
	most := s.Concurrency
	if l := s.Learned; l != nil && l.Concurrency > 0 && (most == 0 || l.Concurrency < most) {
		most = l.Concurrency
	}
	return most
}

func inFlightText(s *sluice.Stats) string {
	if most := concurrency(s); most > 0 {
		return count(s.InFlight) + " of " + count(most)
	}
	return count(s.InFlight)
}

// atMost writes a quantile: an upper bound, by powers of two.
func atMost(d time.Duration) string {
	if d == limits.Never {
		return "days"
	}
	return rough(d)
}

// lessThan writes a quantile for the table, so that it does not look measured. Only a call that
// did not wait has waited exactly as long.
func lessThan(d time.Duration) string {
	if d == 0 {
		return "0 s"
	}
	return "< " + atMost(d)
}

// digits rounds x to four digits, which is as much as a chart shows.
func digits(x float64) float64 {
	if x <= 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-3)
	return math.Round(x/unit) * unit
}

// facts returns the details of a gate. The order is the order of a call: it arrives, waits,
// leaves, and the server says something.
func facts(g *Gate, f flow, now time.Time) []fact {
	s := &g.Stats
	all := make([]fact, 0, 10)
	add := func(term, text string) {
		if text != "" {
			all = append(all, fact{term, text})
		}
	}
	if f.over > 0 {
		add("Arriving", pace(f.arriving)+", in the last "+rough(f.over))
	}
	add("Waiting", waitingText(s))
	if f.waits > 0 {
		add("Waited", fmt.Sprintf("half of %s calls less than %s, 99 %% less than %s, in the last minute", count(f.waits), atMost(f.p50), atMost(f.p99)))
	}
	add("Parent", clean.Text(s.Parent))
	add("Pace", askedText(s)+spacingText(s))
	for i, l := range g.Limits {
		if i == 4 {
			add("Server says", fmt.Sprintf("%d more limits", len(g.Limits)-i))
			break
		}
		add("Server says", saysText(l, g.SeenAt, now))
	}
	if l := s.Learned; l != nil {
		add("Learned", clean.Text(l.String()))
		add("Server refused", fmt.Sprintf("%s calls, %s of them taken for chance", count(l.Throttled), count(l.Ignored)))
	}
	if s.PausedUntil.After(now) {
		add("Paused", clean.Text(list("until "+sentence.Clock(s.PausedUntil, now), s.PausedWhy)))
	}
	if s.LastError != "" {
		add("Last error", clean.Text(rough(now.Sub(s.LastErrorAt))+" ago: "+s.LastError))
	}
	add("Retries", retriesText(s, f))
	add("So far", totalsText(s))
	return all
}

func waitingText(s *sluice.Stats) string {
	if s.Pacing+s.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf("%s for the pace, %s for room in flight", count(s.Pacing), count(s.Waiting))
}

func spacingText(s *sluice.Stats) string {
	if s.Spacing == 0 {
		return ""
	}
	return ", but at least " + rough(s.Spacing) + " apart after failures"
}

func retriesText(s *sluice.Stats, f flow) string {
	text := count(s.Retried)
	if f.retried > 0 {
		text += ", now " + pace(f.retried)
	}
	return text + "; the budget holds " + count(s.RetryTokens) + " tokens"
}

func totalsText(s *sluice.Stats) string {
	text := count(s.Admitted) + " have left"
	for reason, n := range s.Rejected.All() {
		if n > 0 {
			text += fmt.Sprintf(", %s refused (%s)", count(n), strings.ReplaceAll(reason, "_", " "))
		}
	}
	if s.Unreturned > 0 {
		text += fmt.Sprintf(", %s units could not be given back", count(s.Unreturned))
	}
	return text
}

// saysText is the statement of a server about one limit.
func saysText(l ratelimit.Limit, seen, now time.Time) string {
	var text string
	unit := l.Unit
	if unit == "" {
		unit = "requests"
	}
	remaining, known := amount(l.Remaining)
	most, bounded := amount(l.Max)
	switch {
	case known && bounded:
		text = fmt.Sprintf("%s of %s %s remain", remaining, most, unit)
	case known:
		text = fmt.Sprintf("%s %s remain", remaining, unit)
	case bounded:
		text = fmt.Sprintf("%s %s", most, unit)
	default:
		return ""
	}
	if l.Name != "" && l.Name != unit && l.Name != "default" {
		text = l.Name + ": " + text
	}
	if l.Window > 0 {
		text += " per " + rough(l.Window)
	}
	if l.ResetAt.After(now) {
		text += ", new in " + rough(l.ResetAt.Sub(now))
	}
	if age := now.Sub(seen); age >= time.Second && !seen.IsZero() {
		text += "; said " + rough(age) + " ago"
	}
	return clean.Text(text)
}

// amount writes an amount that a server counts.
func amount(a ratelimit.Amount) (text string, known bool) {
	n, known := a.Value()
	if n == math.Trunc(n) && n < 1e15 {
		return count(int64(n)), known
	}
	return a.String(), known
}
