// Package sentence writes the sentences of Sluice about a wait. Errors, sluice.Stats, logs and the live
// page use it, so that all of them say the same about the same wait.
package sentence

import (
	"fmt"
	"strings"
	"time"
)

// A Wait is the known facts about the wait of a call, or of several.
type Wait struct {
	For string    // a limits.Cause, or ""
	Why string    // details about it: a rate, the reason of a pause, the name of a parent …
	End time.Time // zero if unknown

	// AtLeast is set if the calls may wait longer: End is that of the first one, or of one limit.
	AtLeast bool
}

// Cause returns the reason for the wait, such as "for the rate of 2/m", or "" if that is unknown.
func (w Wait) Cause() string {
	text := "for the " + w.For
	if w.For == "" {
		return ""
	}
	switch {
	case w.Why == "":
	case w.For == "pause", w.For == "retry budget":
		text += " (" + w.Why + ")"
	case w.For == "parent":
		text += " " + w.Why
	default:
		text += " of " + w.Why
	}
	return text
}

// Clause returns the reason for the wait and its end it lasts, as seen at now: "for the limit
// day, until midnight".
func (w Wait) Clause(now time.Time) string { return joined(w.Cause(), w.until(now)) }

// Text returns Clause with the time until then: "for the limit day, until midnight (4 h 50 min)".
func (w Wait) Text(now time.Time) string {
	left := w.End.Sub(now)
	until := w.until(now)
	switch {
	case w.End.IsZero() || left <= 0:
	case until != "":
		until += " (" + Rough(left) + ")"
	default:
		until = "for another " + Rough(left)
	}
	if until != "" && w.AtLeast {
		until = "at least " + until
	}
	return joined(w.Cause(), until)
}

// Below returns w, which is for a parent, with the text of up about the first call that waits
// there. The calls that wait for the parent do so at least as long.
func (w Wait) Below(up Wait) Wait {
	w.Why = joined(w.Why, up.Cause())
	if w.End, w.AtLeast = up.End, true; up.End.IsZero() {
		w.Why = joined(w.Why, ends[up.For])
	}
	return w
}

// Until returns ", until 12:01:00" for a wait of a minute or more whose end is known, else "".
func (w Wait) Until(now time.Time) string {
	if until := w.until(now); until != "" && !w.End.IsZero() {
		return ", " + until
	}
	return ""
}

// until returns when a wait of a minute or more ends, and the event that ends one with an unknown
// end. It is "" for a shorter wait: then only its length says something.
func (w Wait) until(now time.Time) string {
	switch left := w.End.Sub(now); {
	case w.End.IsZero():
		return ends[w.For]
	case left < time.Minute-time.Millisecond: // which has passed since
		return ""
	}
	return "until " + Clock(w.End, now)
}

// ends are the events that end a wait for causes that have no time.
var ends = map[string]string{
	"concurrency": "until a call in flight ends",
	"semaphore":   "until a permit is released",
	"slow start":  "until a call in flight ends",
}

func joined(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, ", ")
}

// Calls returns "1 call waits" or "12 calls wait".
func Calls(n int64) string {
	if n == 1 {
		return "1 call waits"
	}
	return Grouped(fmt.Sprint(n)) + " calls wait"
}

// Clock returns t to the second, with its date if that is not the day of now, or "midnight" if it
// is the next one. Midnight of UTC is named as well, for most quotas end then.
func Clock(t, now time.Time) string {
	t = t.Round(time.Second)
	now = now.In(t.Location())
	y, m, d := now.Date()
	if t.Equal(time.Date(y, m, d+1, 0, 0, 0, 0, t.Location())) {
		return "midnight"
	}
	text := t.Format("15:04:05")
	if t.Year() != y || t.YearDay() != now.YearDay() {
		text = t.Format("2006-01-02 15:04:05")
	}
	if u := t.UTC(); u.Equal(u.Truncate(24*time.Hour)) && text[len(text)-8:] != "00:00:00" {
		text += " (midnight UTC)"
	}
	return text
}

// Rough returns a time to be glanced at: 1.6 s, 42 s, 2 min 5 s, 1 h 5 min.
func Rough(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", max(1, d.Microseconds()))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Truncate(time.Second).Seconds())
	case d < time.Hour:
		return parts(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return parts(d, time.Hour, "h", time.Minute, "min")
	}
	return parts(d, 24*time.Hour, "days", time.Hour, "h")
}

func parts(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Grouped puts a comma before each group of three digits.
func Grouped(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
