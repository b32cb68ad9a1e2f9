package live

import (
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// Each cause has a sentence, with what would change it.
func TestWhy(t *testing.T) {
	rate := sluice.Rate{Count: 5, Per: time.Second}
	learned := func(l sluice.Learned) sluice.Stats {
		return sluice.Stats{Pacing: 2, LimitedBy: limits.ByLearned, InFlight: 6, Learned: &l}
	}
	held := func(by limits.Cause) sluice.Stats {
		return sluice.Stats{Rate: rate, Concurrency: 8, InFlight: 8, Waiting: 12, LimitedBy: by, Spacing: 200 * time.Millisecond}
	}
	refused := func(r sluice.Refusals) flow { return flow{over: time.Second, refused: 3, reasons: r} }
	for name, c := range map[string]struct {
		stats sluice.Stats
		flow  flow
		state state
		want  string
	}{
		"idle":            {sluice.Stats{}, flow{}, idle, "Nothing to do: no calls arrive."},
		"flowing":         {sluice.Stats{}, flow{leaving: 2}, flowing, "Nothing holds calls up: they leave as they arrive."},
		"flowing, two":    {sluice.Stats{InFlight: 2}, flow{leaving: 2}, flowing, "Nothing holds calls up: they leave as they arrive, and 2 are in flight."},
		"slow server":     {sluice.Stats{InFlight: 1}, flow{}, flowing, "No call waits; 1 is in flight, so the server decides how long they take."},
		"after failures":  {sluice.Stats{Spacing: time.Second}, flow{}, failing, "No call waits, but too many have failed: calls leave at least 1.0 s apart until others succeed."},
		"about to leave":  {sluice.Stats{Waiting: 1}, flow{}, waiting, "1 call waits, and can leave."},
		"paused":          {sluice.Stats{PausedUntil: noon.Add(42 * time.Second), PausedWhy: "429"}, flow{}, paused, "Paused for another 42 s (429); no call waits."},
		"paused, waiting": {sluice.Stats{PausedUntil: noon.Add(time.Hour), Waiting: 3, LimitedBy: limits.ByPause}, flow{}, paused, "Paused for another 1 h; 3 calls wait until then, or until somebody resumes the gate."},
		"pause is over":   {sluice.Stats{PausedUntil: noon}, flow{}, idle, "Nothing to do: no calls arrive."},
		"rate":            {held(limits.ByRate), flow{}, waiting, "12 calls wait for the rate of 5/s; a higher rate would let more leave, if the server grants it."},
		"rate, delivered": {held(limits.ByRate), flow{over: 5 * time.Second, leaving: 4.5}, waiting, "12 calls wait for the rate of 5/s; a higher rate would let more leave, if the server grants it."},
		"rate, late":      {held(limits.ByRate), flow{over: 5 * time.Second, leaving: 2}, waiting, "12 calls wait for the rate of 5/s, and only 2/s leave: the program is too busy, or calls cost more than 1."},
		"concurrency":     {held(limits.ByConcurrency), flow{leaving: 5}, waiting, "12 calls wait for one of the 8 in flight to end, about 1.6 s each; a faster server or a higher Concurrency would help."},
		"hanging":         {held(limits.ByConcurrency), flow{}, waiting, "12 calls wait for one of the 8 in flight to end, and none has for a while: the server may hang."},
		"pause above":     {held(limits.ByPause), flow{}, paused, "12 calls wait for the end of a pause."},
		"retry budget":    {held(limits.ByRetryBudget), flow{}, failing, "12 calls wait because too many calls failed: calls leave 200 ms apart, and each success halves that."},
		"slow start":      {held(limits.BySlowStart), flow{}, waiting, "12 calls wait for a slow start after a pause: each response lets two more leave; with a rate there would be none."},
		"backoff":         {held(limits.ByBackoff), flow{}, failing, "12 calls wait before a retry; fewer failures would help."},
		"semaphore":       {held(limits.BySemaphore), flow{}, waiting, "12 calls wait for the semaphore that the gate shares with others."},
		"parent":          {held(limits.ByParent), flow{}, waiting, "12 calls wait for the gate above this one, which has a sentence of its own."},
		"further limit":   {held("limit tokens"), flow{}, waiting, "12 calls wait for the limit tokens, which is used up; cheaper calls, or more of it, would help."},
		"unknown cause":   {held("weather"), flow{}, waiting, "12 calls wait for the weather."},

		"searching": {learned(sluice.Learned{Phase: "searching", Pace: 40}), flow{}, waiting, "2 calls wait while the gate looks for the limit of the server, now at 40/s; a configured rate would end the search."},
		"tracking":  {learned(sluice.Learned{Phase: "tracking", Proven: 18.9, Refuted: 20.3}), flow{}, waiting, "2 calls wait because the server granted 18.9/s and refused 20.3/s; only a higher quota there would help."},
		"one bound": {learned(sluice.Learned{Phase: "bounding", Pace: 0.05}), flow{}, waiting, "2 calls wait because the server refuses more than about 3/m; only a higher quota there would help."},
		"windowed":  {learned(sluice.Learned{Phase: "windowed", Window: sluice.Rate{Count: 100, Per: time.Minute}}), flow{}, waiting, "2 calls wait for the next window: the server grants 100/m; only a higher quota there would help."},
		"capped":    {learned(sluice.Learned{Phase: "capped", Concurrency: 6}), flow{}, waiting, "2 calls wait because the server gets slow or refuses with more than 6 in flight; only the server can change that."},
		"blocked":   {learned(sluice.Learned{Blocked: true}), flow{}, failing, "2 calls wait because the server refuses all calls; one at a time asks whether it grants again."},
		"capped, room": {
			sluice.Stats{Waiting: 1, InFlight: 6, LimitedBy: limits.ByConcurrency, Learned: &sluice.Learned{Concurrency: 6}}, flow{leaving: 1}, waiting,
			"1 call waits because the server gets slow or refuses with more than 6 in flight; only the server can change that.",
		},

		"busy":              {sluice.Stats{}, refused(sluice.Refusals{Busy: 3}), refusing, "Refuses 3/s: TryAcquire does not wait, and there was no room; Acquire would wait."},
		"closed":            {sluice.Stats{}, refused(sluice.Refusals{Closed: 3, Busy: 1}), refusing, "Refuses 3/s: the gate is closed."},
		"other":             {sluice.Stats{}, refused(sluice.Refusals{Other: 1}), refusing, "Refuses 3/s: an error of one of its limits."},
		"rate and deadline": {held(limits.ByRate), refused(sluice.Refusals{QueueFull: 3}), waiting, "12 calls wait for the rate of 5/s; a higher rate would let more leave, if the server grants it; it refuses 3/s (queue full)."},
	} {
		t.Run(name, func(t *testing.T) {
			state, got := why(c.stats, c.flow, noon)
			if state != c.state || got != c.want {
				t.Errorf("got %s: %q\nwant %s: %q", state, got, c.state, c.want)
			}
		})
	}
	for reason := range (sluice.Refusals{}).All() {
		if refusals[reason] == "" && reason != "other" {
			t.Errorf("no text for %q", reason)
		}
	}
}

// Whatever a gate says, there is one sentence: a state, no line break, one period at the end.
// It says "wait" if and only if calls wait, whatever else is true.
func TestWhy_Properties(t *testing.T) {
	causes := []limits.Cause{
		"", limits.ByRate, limits.ByConcurrency, limits.ByPause, limits.ByRetryBudget, limits.ByLearned,
		limits.BySlowStart, limits.ByBackoff, limits.BySemaphore, limits.ByParent, "limit x\ny",
	}
	property := func(pacing, inFlight uint8, cause uint8, pause int16, phase bool, pace, proven, refuted float64, leaving float64, r sluice.Refusals) bool {
		s := sluice.Stats{Pacing: int64(pacing % 4), InFlight: int64(inFlight % 3)}
		if s.Pacing > 0 {
			s.LimitedBy = causes[int(cause)%len(causes)]
		}
		if pause > 0 {
			s.PausedUntil, s.PausedWhy = noon.Add(time.Duration(pause)*time.Second), "line\nbreak"
		}
		if phase {
			s.Learned = &sluice.Learned{Pace: pace, Proven: proven, Refuted: refuted}
		}
		st, text := why(s, flow{over: time.Second, leaving: leaving, refused: 1, reasons: r}, noon)
		waits := strings.Contains(text, "call waits") || strings.Contains(text, "calls wait")
		none := strings.Contains(strings.ToLower(text), "no call waits")
		ok := st != "" && !strings.Contains(text, "\n") && strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "..") && (waits && !none) == (s.Pacing > 0)
		if !ok {
			t.Logf("%s: %q of %+v", st, text, s)
		}
		return ok
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}
