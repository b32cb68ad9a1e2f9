package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
)

// sum is what several instances came to: their own figures added up, and what the
// server saw.
type sum struct {
	figures
	MostPerPeriod    int64  `json:"most_per_period"`    // accepted calls in any period of the rate
	AllowedPerPeriod int64  `json:"allowed_per_period"` // of the server's limit: the rate and its bucket
	Instances        []part `json:"instances"`

	fetched          int64
	tooFast, tooMany int64
	notStarted       int64
}

// part is one instance, as the server saw it and as it reported itself.
type part struct {
	Instance  int    `json:"instance"`
	Accepted  int64  `json:"accepted"`  // by the server
	Throttled int64  `json:"throttled"` // by the server
	Attempts  int64  `json:"attempts"`  // reported
	Lost      int64  `json:"lost"`      // of its share; all of it, if it did not report
	Ended     string `json:"ended"`     // "" or why it did not end well

	seen  apiserver.Tally
	share int64
	known bool
}

// result adds up the run.
func (t *together) result(wall time.Duration) sum {
	seen := t.server.Report()
	s := sum{figures: figures{
		Throttled: seen.TooFast + seen.TooMany, RateAllowed: t.perSecond(), RateDelivered: seen.Arrivals.PerSecond,
		SpacingP50: seen.Arrivals.P50.Microseconds(), SpacingP99: seen.Arrivals.P99.Microseconds(),
		MaxInFlight: seen.MaxInFlight, Wall: wall.Seconds(), Ideal: float64(t.n) / t.perSecond(),
	}, tooFast: seen.TooFast, tooMany: seen.TooMany}
	s.MostPerPeriod, s.AllowedPerPeriod = t.server.MostPerPeriod()
	callers := t.server.Callers()
	for _, in := range t.all {
		items := int64(in.items(t.n))
		p := part{Instance: in.number, Lost: items, seen: callers[agentOf(in.share)], share: items, known: in.reported}
		p.Accepted, p.Throttled = p.seen.Accepted, p.seen.TooFast+p.seen.TooMany
		if in.reported {
			p.Attempts, p.Lost = in.Attempts, in.figures.Lost
			s.notStarted += items - in.Calls
		}
		if in.err != nil {
			p.Ended = in.err.Error()
		}
		s.Calls += in.Calls
		s.Attempts += p.Accepted + p.Throttled
		s.Lost += p.Lost
		s.fetched += items - p.Lost
		s.Instances = append(s.Instances, p)
	}
	return s
}

// table is the end of the run in words and columns.
func (t *together) table(s sum) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s items at %s, at most %s in flight, by %d processes of %s workers that share these limits\n",
		thousands(int64(t.n)), t.rate, thousands(t.concurrency), t.instances, thousands(int64(t.workers)))
	fmt.Fprintf(&b, "in the Redis at %s; the numbers are as the server saw them\n\n", t.options.redis)
	row := func(name, cell string) { fmt.Fprintf(&b, "%-28s %14s\n", name, cell) }
	row("calls accepted", thousands(s.Attempts-s.Throttled))
	row("429s", thousands(s.Throttled))
	if s.Throttled > 0 {
		row("  over the rate", thousands(s.tooFast))
		row("  over the concurrency", thousands(s.tooMany))
	}
	row("items lost", thousands(s.Lost))
	row("rate allowed", rateText(s.RateAllowed))
	row("rate delivered", rateText(s.RateDelivered))
	row("  of the allowed", fmt.Sprintf("%.2f %%", 100*s.RateDelivered/s.RateAllowed))
	row(fmt.Sprintf("most in any %v", t.rate.Per), fmt.Sprintf("%s of %s", thousands(s.MostPerPeriod), thousands(s.AllowedPerPeriod)))
	row("spacing p50", fmt.Sprintf("%.3f ms", float64(s.SpacingP50)/1000))
	row("spacing p99", fmt.Sprintf("%.3f ms", float64(s.SpacingP99)/1000))
	row("most in flight", fmt.Sprintf("%s of %s", thousands(s.MaxInFlight), thousands(t.concurrency)))
	row("wall time", fmt.Sprintf("%.2f s", s.Wall))
	row("ideal (items ÷ rate)", fmt.Sprintf("%.2f s", s.Ideal))
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%-12s %10s %10s %10s %10s\n", "instance", "share", "accepted", "429s", "lost")
	for _, p := range s.Instances {
		line := fmt.Sprintf("%-12d %10s %10s %10s %10s  %s", p.Instance, thousands(p.share), thousands(p.Accepted), thousands(p.Throttled), thousands(p.Lost), p.Ended)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "\nTogether they fetched %s of %s in %.2f s, with %s.\n",
		thousands(s.fetched), plural(int64(t.n), "item"), s.Wall, plural(s.Throttled, "429"))
	if t.out != "" {
		fmt.Fprintf(&b, "Each wrote its own to %s.1 to %s.%d.\n", t.out, t.out, t.instances)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// writeJSON writes the one object that -json promises.
func (t *together) writeJSON(w io.Writer, s sum) error {
	if err := json.NewEncoder(w).Encode(map[string]sum{"gate": s}); err != nil {
		return fmt.Errorf("writing the JSON: %w", err)
	}
	return nil
}
