// Package wording formats text about gates for people: times, numbers, and strings from elsewhere,
// which are first made fit to be shown. Stats, errors and logs of Sluice use it. The package is for
// authors of pages and exporters, see package ext.
package wording

import (
	"time"

	"github.com/sluice-go/sluice/internal/clean"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

// Clean returns a string from elsewhere as it may be shown: of an address only host and path,
// nothing that is named as a secret (token=…), no control characters, and at most 300 bytes and
// "…". It is not HTML; a page must escape it.
func Clean(text string) string { return clean.Text(text) }

// Rough returns a time to be glanced at: 1.6 s, 42 s, 2 min 5 s, 1 h 5 min.
func Rough(d time.Duration) string { return sentence.Rough(d) }

// Clock returns t to the second, with its date if that is not the day of now, or "midnight" if it
// is the next one. Midnight of UTC is named as well.
func Clock(t, now time.Time) string { return sentence.Clock(t, now) }

// Grouped puts a comma before each group of three digits.
func Grouped(digits string) string { return sentence.Grouped(digits) }

// Pause describes a pause as sluice.Stats.Why does if calls wait: "for the pause (429),
// for another 42 s". It cleans the reason.
func Pause(why string, until, now time.Time) string {
	return sentence.Wait{For: string(limits.ByPause), Why: Clean(why), End: until}.Text(now)
}
