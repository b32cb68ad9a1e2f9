package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A state is what a gate is doing, in a word, for a color and for sorting.
type state string

const (
	idle     state = "idle"
	flowing  state = "flowing"  // calls leave as they arrive
	waiting  state = "waiting"  // calls wait
	refusing state = "refusing" // calls are refused by the gate
	paused   state = "paused"
	failing  state = "failing" // the server refuses calls, or they fail
)

// why returns what a gate is doing, and one sentence about why it is as slow as it is and what
// would change that. It depends on nothing but its arguments.
func why(s sluice.Stats, f flow, now time.Time) (state, string) {
	st, text := held(s, f, now)
	reason, n := f.refusedFor()
	if n == 0 {
		return st, text + "."
	}
	if st == idle || st == flowing {
		if text = refusals[reason]; text == "" {
			text = "an error of one of its limits"
		}
		return refusing, fmt.Sprintf("Refuses %s: %s.", pace(f.refused), text)
	}
	return st, fmt.Sprintf("%s; it refuses %s (%s).", text, pace(f.refused), strings.ReplaceAll(reason, "_", " "))
}

// refusals say why calls are refused and what would change that, by the words of
// [sluice.Refusals].
var refusals = map[string]string{
	"busy":       "TryAcquire does not wait, and there was no room; Acquire would wait",
	"deadline":   "the calls would have to wait longer than they may; longer deadlines or fewer calls would help",
	"cancelled":  "the callers gave up while they waited",
	"too_large":  "the calls cost more than a limit ever allows at once; make them smaller",
	"queue_full": "the queue is as long as MaxWaiting allows; fewer callers or a larger bound would help",
	"closed":     "the gate is closed",
}

// held is why without what is refused, and without the period.
func held(s sluice.Stats, f flow, now time.Time) (state, string) {
	queue := s.Pacing + s.Waiting
	switch {
	case s.PausedUntil.After(now):
		return paused, pauseText(s, queue, s.PausedUntil.Sub(now))
	case queue > 0 && s.LimitedBy != "":
		return heldBy(s, f, queue)
	case queue > 0:
		return waiting, calls(queue) + ", and can leave"
	case s.Spacing > 0:
		return failing, fmt.Sprintf("No call waits, but too many have failed: calls leave at least %s apart until others succeed", rough(s.Spacing))
	case f.leaving > 0 && s.InFlight > 0:
		return flowing, fmt.Sprintf("Nothing holds calls up: they leave as they arrive, and %s in flight", are(s.InFlight))
	case f.leaving > 0:
		return flowing, "Nothing holds calls up: they leave as they arrive"
	case s.InFlight > 0:
		return flowing, fmt.Sprintf("No call waits; %s in flight, so the server decides how long they take", are(s.InFlight))
	}
	return idle, "Nothing to do: no calls arrive"
}

func pauseText(s sluice.Stats, queue int64, left time.Duration) string {
	text := "Paused for another " + rough(left)
	if s.PausedWhy != "" {
		text += " (" + clean(s.PausedWhy) + ")"
	}
	if queue == 0 {
		return text + "; no call waits"
	}
	return text + fmt.Sprintf("; %s until then, or until somebody resumes the gate", calls(queue))
}

// calls writes how many calls wait.
func calls(n int64) string {
	if n == 1 {
		return "1 call waits"
	}
	return count(n) + " calls wait"
}

func are(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return count(n) + " are"
}

// heldBy is about the first of the waiting calls.
func heldBy(s sluice.Stats, f flow, queue int64) (state, string) {
	n := calls(queue)
	switch s.LimitedBy {
	case limits.ByRate:
		if most := perSecond(s.Rate); f.over >= 5*time.Second && f.leaving < 0.8*most {
			return waiting, fmt.Sprintf("%s for the rate of %v, and only %s leave: the program is too busy, or calls cost more than 1", n, s.Rate, pace(f.leaving))
		}
		return waiting, fmt.Sprintf("%s for the rate of %v; a higher rate would let more leave, if the server grants it", n, s.Rate)
	case limits.ByConcurrency:
		return waiting, concurrencyText(s, f, n)
	case limits.ByPause:
		return paused, n + " for the end of a pause"
	case limits.ByRetryBudget:
		return failing, fmt.Sprintf("%s because too many calls failed: calls leave %s apart, and each success halves that", n, rough(s.Spacing))
	case limits.ByLearned:
		return learnedText(s, n)
	case limits.BySlowStart:
		return waiting, n + " for a slow start after a pause: each response lets two more leave; with a rate there would be none"
	case limits.ByBackoff:
		return failing, n + " before a retry; fewer failures would help"
	case limits.BySemaphore:
		return waiting, n + " for the semaphore that the gate shares with others"
	case limits.ByParent:
		return waiting, n + " for the gate above this one, which has a sentence of its own"
	}
	if name, ok := strings.CutPrefix(string(s.LimitedBy), "limit "); ok {
		return waiting, fmt.Sprintf("%s for the limit %s, which is used up; cheaper calls, or more of it, would help", n, clean(name))
	}
	return waiting, fmt.Sprintf("%s for the %s", n, clean(string(s.LimitedBy)))
}

// concurrencyText names the time that a call takes, by Little's law: what is in flight is how
// many leave per second, times how long each takes. It holds only if a call takes one place.
func concurrencyText(s sluice.Stats, f flow, n string) string {
	if l := s.Learned; l != nil && l.Concurrency > 0 && s.InFlight >= l.Concurrency {
		return fmt.Sprintf("%s because the server gets slow or refuses with more than %s in flight; only the server can change that", n, count(l.Concurrency))
	}
	text := fmt.Sprintf("%s for one of the %s in flight to end", n, count(s.InFlight))
	if s.InFlight == 1 {
		text = n + " for the one in flight to end"
	}
	if f.leaving <= 0 {
		return text + ", and none has for a while: the server may hang"
	}
	took := time.Duration(float64(s.InFlight) / f.leaving * float64(time.Second))
	return fmt.Sprintf("%s, about %s each; a faster server or a higher Concurrency would help", text, rough(took))
}

func learnedText(s sluice.Stats, n string) (state, string) {
	l := s.Learned
	switch {
	case l == nil:
		return waiting, n + " for the limit of the server that the gate has learned"
	case l.Blocked:
		return failing, n + " because the server refuses all calls; one at a time asks whether it grants again"
	case l.Phase == "searching":
		return waiting, fmt.Sprintf("%s while the gate looks for the limit of the server, now at %s; a configured rate would end the search", n, pace(l.Pace))
	case l.Window != (sluice.Rate{}):
		return waiting, fmt.Sprintf("%s for the next window: the server grants %v; only a higher quota there would help", n, l.Window)
	case l.Concurrency > 0 && s.InFlight >= l.Concurrency:
		return waiting, fmt.Sprintf("%s because the server gets slow or refuses with more than %s in flight; only the server can change that", n, count(l.Concurrency))
	case l.Proven > 0 && l.Refuted > 0:
		return waiting, fmt.Sprintf("%s because the server granted %s and refused %s; only a higher quota there would help", n, pace(l.Proven), pace(l.Refuted))
	}
	return waiting, fmt.Sprintf("%s because the server refuses more than about %s; only a higher quota there would help", n, pace(l.Pace))
}
