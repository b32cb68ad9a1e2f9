package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live/internal/clean"
	"github.com/sluice-go/sluice/observe/live/internal/sentence"
)

// A state describes a gate in a word, for a color and for sorting.
type state string

const (
	idle     state = "idle"
	flowing  state = "flowing"  // calls start as they arrive
	waiting  state = "waiting"  // calls wait
	refusing state = "refusing" // calls are rejected by the gate
	paused   state = "paused"
	failing  state = "failing" // the server throttles calls, or they fail
)

// leastRefused is the share of the calls that are sent that must be rejected for the gate to be
// shown as rejecting. It does not depend on whether a call waits at the moment: of calls that give
// up soon, one sample has some and the next has none.
const leastRefused = 0.01

// why returns the activity of a gate, and one sentence about why it is as slow as it is and how to
// change that. Its words about a wait are [sluice.Stats.Why]. It depends on nothing but its
// arguments.
func why(s sluice.Stats, f flow, now time.Time) (state, string) {
	st, text := held(s, f, now)
	reason, n := f.refusedFor()
	switch {
	case n == 0:
		return st, text + "."
	case st == paused, st == failing, f.refused < leastRefused*f.leaving: // then that is why
		return st, fmt.Sprintf("%s; it refuses %s (%s).", text, pace(f.refused), strings.ReplaceAll(reason, "_", " "))
	}
	text = fmt.Sprintf("Refuses %s: %s", pace(f.refused), refusals[reason])
	if s.LastError != "" && hasError[reason] {
		text += " (last error: " + s.LastError + ")"
	}
	if wait := s.Why(); wait != "" {
		text += "; " + wait
	}
	return refusing, text + "."
}

// refusals say why calls are rejected and how to change that, by the words of
// [sluice.Refusals].
var refusals = map[string]string{
	"busy":       "TryAcquire does not wait, and there was no room; Acquire would wait",
	"deadline":   "the calls would have to wait longer than they may; longer deadlines or fewer calls would help",
	"canceled":   "the callers gave up while they waited",
	"too_large":  "the calls cost more than a limit ever allows at once; make them smaller",
	"queue_full": "the queue is as long as MaxWaiting allows; fewer callers or a larger MaxWaiting would help",
	"closed":     "the gate is closed",
	"other":      "a limit cannot decide; calls are sent again when it can, or if its outage policy lets them through",
}

// hasError are the reasons of which Stats.LastError says more.
var hasError = map[string]bool{"deadline": true, "too_large": true, "other": true}

// held is why without the rejections, and without the period.
func held(s sluice.Stats, f flow, now time.Time) (state, string) {
	queue := s.Pacing + s.Waiting
	switch {
	case s.PausedUntil.After(now):
		return paused, pauseText(s, now)
	case queue > 0 && s.LimitedBy != "":
		st, help := heldBy(s, f)
		return st, s.Why() + help
	case queue > 0:
		return waiting, s.Why() + ", and can be sent"
	case s.Spacing > 0:
		return failing, fmt.Sprintf("No call waits, but too many have failed: calls are sent at least %s apart until others succeed", rough(s.Spacing))
	case f.leaving > 0 && s.InFlight > 0:
		return flowing, fmt.Sprintf("Nothing holds calls up: they leave as they arrive, and %s in flight", are(s.InFlight))
	case f.leaving > 0:
		return flowing, "Nothing holds calls up: they leave as they arrive"
	case s.InFlight > 0:
		return flowing, fmt.Sprintf("No call waits; %s in flight, so the server decides how long they take", are(s.InFlight))
	}
	return idle, "Nothing to do: no calls arrive"
}

// pauseText is about a pause, whatever else delays the calls that wait.
func pauseText(s sluice.Stats, now time.Time) string {
	if s.LimitedBy == limits.ByPause && s.Pacing+s.Waiting > 0 {
		return s.Why() + "; Resume would end it"
	}
	pause := sentence.Wait{For: string(limits.ByPause), Why: clean.Text(s.PausedWhy), End: s.PausedUntil}.Text(now)
	if wait := s.Why(); wait != "" {
		return wait + "; all must wait " + pause
	}
	return "No call waits; the next would wait " + pause
}

func are(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return count(n) + " are"
}

// fewestExpected is the number of calls that must have been due for a pace below the rate to mean
// something.
const fewestExpected = 10

// heldBy says how to help the calls that wait, in addition to Stats.Why.
func heldBy(s sluice.Stats, f flow) (state, string) {
	switch s.LimitedBy {
	case limits.ByRate:
		if s.Parent != "" { // which may be why fewer are sent
			return waiting, "; a higher rate would help, if the parent and the server grant it"
		}
		most := perSecond(s.Rate)
		if f.over >= 5*time.Second && most*f.over.Seconds() >= fewestExpected && f.leaving < 0.8*most {
			return waiting, fmt.Sprintf(", and only %s are sent: the program is too busy, or calls cost more than 1", paceAs(f.leaving, s.Rate))
		}
		return waiting, "; a higher rate would help, if the server grants it"
	case limits.ByConcurrency:
		return waiting, concurrencyText(s, f)
	case limits.ByPause:
		return paused, ""
	case limits.ByRetryBudget:
		return failing, "; each success halves that"
	case limits.ByLearned:
		return learnedText(s)
	case limits.BySlowStart:
		return waiting, "; each response lets two more start; with a rate there would be no slow start"
	case limits.ByBackoff:
		return failing, "; fewer failures would help"
	case limits.BySemaphore:
		return waiting, "; others share it, and more permits would help"
	case limits.ByParent:
		return waiting, "; a larger limit of the parent would help"
	}
	if strings.HasPrefix(string(s.LimitedBy), "limit") {
		return waiting, "; cheaper calls, or a larger limit, would help"
	}
	return waiting, ""
}

// concurrencyText names the time that a call takes, by Little's law: calls in flight are starts per
// second, times the duration of each. It holds only if a call takes one place.
func concurrencyText(s sluice.Stats, f flow) string {
	switch l := s.Learned; {
	case l != nil && l.Concurrency > 0 && s.InFlight >= l.Concurrency:
		return cappedText(l)
	case f.over <= 0:
		return ""
	case f.leaving <= 0:
		return "; none has in the last " + rough(f.over) + ": the server may hang"
	}
	took := time.Duration(float64(s.InFlight) / f.leaving * float64(time.Second))
	last := time.Duration(float64(s.Pacing+s.Waiting) / f.leaving * float64(time.Second))
	return fmt.Sprintf(", about %s each, and the last is sent in about %s; a faster server or a higher Concurrency would help", rough(took), rough(last))
}

func cappedText(l *sluice.Learned) string {
	return fmt.Sprintf(": the server gets slow or refuses with more than %s in flight; only the server can change that", count(l.Concurrency))
}

func learnedText(s sluice.Stats) (state, string) {
	l := s.Learned
	switch {
	case l == nil:
		return waiting, ""
	case l.Blocked:
		return failing, ": the server refuses all calls; one at a time asks whether it grants again"
	case l.Phase == "searching":
		return waiting, "; the gate still looks for the limit of the server, and a configured rate would end the search"
	case l.Window != (sluice.Rate{}):
		return waiting, ": the server grants that; only a higher quota there would help"
	case l.Concurrency > 0 && s.InFlight >= l.Concurrency:
		return waiting, cappedText(l)
	case l.AcceptedRate > 0 && l.ThrottledRate > 0:
		return waiting, fmt.Sprintf(": the server granted %s and refused %s; only a higher quota there would help", pace(l.AcceptedRate), pace(l.ThrottledRate))
	}
	return waiting, ": the server refuses more than that; only a higher quota there would help"
}
