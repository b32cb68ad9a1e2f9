package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A result is what came of a run. Its times are those of the full speed.
type result struct {
	OK        int     `json:"ok"`        // completions, with those that the log had
	Items     int     `json:"items"`     // prompts
	Requests  int     `json:"requests"`  // that the server got
	Throttled int     `json:"throttled"` // of these, the 429s
	Took      float64 `json:"took_s"`
	Ideal     float64 `json:"ideal_s"` // the time in which the server allows as many tokens as were used

	name    string
	skipped int   // by the log
	used    int64 // tokens
	failed  int
	first   error // of those that failed
}

func newResult(t *trial, took time.Duration) result {
	seen := t.api.Record()
	r := result{
		Items:     t.n,
		Requests:  len(seen.Requests),
		Throttled: seen.Throttled(),
		Took:      took.Seconds() * float64(t.speed()),
		name:      t.name,
		skipped:   int(t.tally.Stats().Skipped),
		used:      t.api.used.Load(),
		failed:    int(t.failed.Load()),
	}
	r.OK = int(t.ok.Load()) + r.skipped
	r.Ideal = max(0, float64(r.used-tokenBurst)*60/tokensPerMinute)
	if err := t.firstError.Load(); err != nil {
		r.first = *err
	}
	return r
}

// writeJSON writes an object with a member for each run.
func writeJSON(w io.Writer, done []result) error {
	all := make(map[string]result)
	for _, r := range done {
		all[r.name] = r
	}
	if err := json.NewEncoder(w).Encode(all); err != nil {
		return fmt.Errorf("writing the JSON: %w", err)
	}
	return nil
}

// titles are the names of the runs for people.
var titles = map[string]string{
	sdkAlone: "SDK alone", sdkRetries: "SDK, 10 retries", viaSluice: "through Sluice",
}

// writeTable writes a column for each run.
func writeTable(w io.Writer, o options, done []result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s completions with %s and %d goroutines. The server allows %s requests (burst %d)\nand %s tokens (burst %s) per minute.",
		thousands(int64(o.n)), o.vendor.sdk, o.workers, thousands(requestsPerMinute), requestBurst, thousands(tokensPerMinute), thousands(tokenBurst))
	if o.fast {
		fmt.Fprintf(&b, " Everything ran %d times as fast; the times\nare those of the full speed.", fastBy)
	}
	b.WriteString("\n\n")
	row := func(name string, cell func(result) string) {
		fmt.Fprintf(&b, "%-26s", name)
		for _, r := range done {
			fmt.Fprintf(&b, " %16s", cell(r))
		}
		b.WriteByte('\n')
	}
	count := func(name string, of func(result) int) {
		row(name, func(r result) string { return thousands(int64(of(r))) })
	}
	row("", func(r result) string { return titles[r.name] })
	count("completions", func(r result) int { return r.OK })
	if o.resume {
		count("  of them in the log", func(r result) int { return r.skipped })
	}
	count("failed", func(r result) int { return r.failed })
	left := func(r result) int { return r.Items - r.OK - r.failed }
	if slices.ContainsFunc(done, func(r result) bool { return left(r) > 0 }) {
		count("interrupted", left)
	}
	count("requests", func(r result) int { return r.Requests })
	count("  throttled (429)", func(r result) int { return r.Throttled })
	row("tokens used", func(r result) string { return thousands(r.used) })
	row("time", func(r result) string { return clock(r.Took) })
	row("ideal for these tokens", func(r result) string { return clock(r.Ideal) })
	row("  reached", func(r result) string {
		if r.Ideal == 0 {
			return "-" // the burst was enough
		}
		return fmt.Sprintf("%.1f %%", 100*r.Ideal/r.Took)
	})
	for _, r := range done {
		if r.first != nil {
			fmt.Fprintf(&b, "\n%s, the first failure:\n\t%v\n", titles[r.name], r.first)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

// clock writes a time: 42.5 s, 5 min 40.0 s.
func clock(seconds float64) string {
	tenths := int64(seconds*10 + 0.5)
	if tenths < 600 {
		return fmt.Sprintf("%.1f s", float64(tenths)/10)
	}
	return fmt.Sprintf("%d min %4.1f s", tenths/600, float64(tenths%600)/10)
}

// thousands writes 12345 as 12,345.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
