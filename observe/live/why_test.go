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
	refused := func(r sluice.Rejections) flow { return flow{over: time.Second, refused: 3, reasons: r} }
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
		"after failures":  {sluice.Stats{Spacing: time.Second}, flow{}, failing, "No call waits, but too many have failed: calls are sent at least 1.0 s apart until others succeed."},
		"about to leave":  {sluice.Stats{Waiting: 1}, flow{}, waiting, "1 call waits, and can be sent."},
		"paused":          {sluice.Stats{PausedUntil: noon.Add(42 * time.Second), PausedWhy: "429"}, flow{}, paused, "No call waits; the next would wait for the pause (429), for another 42 s."},
		"paused, waiting": {sluice.Stats{PausedUntil: noon.Add(time.Hour), Waiting: 3, LimitedBy: limits.ByPause}, flow{}, paused, "3 calls wait for the pause; Resume would end it."},
		"pause is over":   {sluice.Stats{PausedUntil: noon}, flow{}, idle, "Nothing to do: no calls arrive."},
		"rate":            {held(limits.ByRate), flow{}, waiting, "12 calls wait for the rate of 5/s; a higher rate would help, if the server grants it."},
		"rate, parent":    {sluice.Stats{Pacing: 12, LimitedBy: limits.ByRate, Rate: sluice.PerSecond(5), Parent: "account"}, flow{over: 5 * time.Second, leaving: 3.3}, waiting, "12 calls wait for the rate of 5/s; a higher rate would help, if the parent and the server grant it."},
		"rate, delivered": {held(limits.ByRate), flow{over: 5 * time.Second, leaving: 4.5}, waiting, "12 calls wait for the rate of 5/s; a higher rate would help, if the server grants it."},
		"rate, late":      {held(limits.ByRate), flow{over: 5 * time.Second, leaving: 2}, waiting, "12 calls wait for the rate of 5/s, and only 2/s are sent: the program is too busy, or calls cost more than 1."},
		"concurrency":     {held(limits.ByConcurrency), flow{over: 2 * time.Second, leaving: 5}, waiting, "12 calls wait for the concurrency of 8, until a call in flight ends, about 1.6 s each, and the last is sent in about 2.4 s; a faster server or a higher Concurrency would help."},
		"hanging":         {held(limits.ByConcurrency), flow{over: 10 * time.Second}, waiting, "12 calls wait for the concurrency of 8, until a call in flight ends; none has in the last 10 s: the server may hang."},
		"first sample":    {held(limits.ByConcurrency), flow{}, waiting, "12 calls wait for the concurrency of 8, until a call in flight ends."},
		"pause above":     {held(limits.ByPause), flow{}, paused, "12 calls wait for the pause."},
		"retry budget":    {held(limits.ByRetryBudget), flow{}, failing, "12 calls wait for the retry budget (calls are 200 ms apart after failures); each success halves that."},
		"slow start":      {held(limits.BySlowStart), flow{}, waiting, "12 calls wait for the slow start, until a call in flight ends; each response lets two more start; with a rate there would be no slow start."},
		"backoff":         {held(limits.ByBackoff), flow{}, failing, "12 calls wait for the backoff; fewer failures would help."},
		"semaphore":       {held(limits.BySemaphore), flow{}, waiting, "12 calls wait for the semaphore, until a permit is released; others share it, and more permits would help."},
		"parent":          {held(limits.ByParent), flow{}, waiting, "12 calls wait for the parent without a name; a larger limit of the parent would help."},
		"further limit":   {held("limit tokens"), flow{}, waiting, "12 calls wait for the limit tokens; cheaper calls, or a larger limit, would help."},
		"unknown cause":   {held("weather"), flow{}, waiting, "12 calls wait for the weather."},

		"searching": {learned(sluice.Learned{Phase: "searching", Pace: 40}), flow{}, waiting, "2 calls wait for the learned limit of 40/s; the gate still looks for the limit of the server, and a configured rate would end the search."},
		"tracking":  {learned(sluice.Learned{Phase: "tracking", AcceptedRate: 18.9, ThrottledRate: 20.3}), flow{}, waiting, "2 calls wait for the learned limit: the server granted 18.9/s and refused 20.3/s; only a higher quota there would help."},
		"one bound": {learned(sluice.Learned{Phase: "bounding", Pace: 0.05}), flow{}, waiting, "2 calls wait for the learned limit of 0.05/s: the server refuses more than that; only a higher quota there would help."},
		"windowed":  {learned(sluice.Learned{Phase: "windowed", Window: sluice.Rate{Count: 100, Per: time.Minute}}), flow{}, waiting, "2 calls wait for the learned limit of 100/m: the server grants that; only a higher quota there would help."},
		"capped":    {learned(sluice.Learned{Phase: "capped", Concurrency: 6}), flow{}, waiting, "2 calls wait for the learned limit of 6 in flight: the server gets slow or refuses with more than 6 in flight; only the server can change that."},
		"blocked":   {learned(sluice.Learned{Blocked: true}), flow{}, failing, "2 calls wait for the learned limit: the server refuses all calls; one at a time asks whether it grants again."},
		"capped, room": {
			sluice.Stats{Waiting: 1, InFlight: 6, LimitedBy: limits.ByConcurrency, Learned: &sluice.Learned{Concurrency: 6}}, flow{leaving: 1}, waiting,
			"1 call waits for the concurrency, until a call in flight ends: the server gets slow or refuses with more than 6 in flight; only the server can change that.",
		},

		"busy":                {sluice.Stats{}, refused(sluice.Rejections{Busy: 3}), refusing, "Refuses 3/s: TryAcquire does not wait, and there was no room; Acquire would wait."},
		"closed":              {sluice.Stats{}, refused(sluice.Rejections{Closed: 3, Busy: 1}), refusing, "Refuses 3/s: the gate is closed."},
		"other":               {sluice.Stats{}, refused(sluice.Rejections{Other: 1}), refusing, "Refuses 3/s: a limit cannot decide; calls are sent again when it can, or if its outage policy lets them through."},
		"its error":           {sluice.Stats{LastError: "limit hour: away"}, refused(sluice.Rejections{Other: 1}), refusing, "Refuses 3/s: a limit cannot decide; calls are sent again when it can, or if its outage policy lets them through (last error: limit hour: away)."},
		"an older error":      {sluice.Stats{LastError: "limit hour: away"}, refused(sluice.Rejections{QueueFull: 1}), refusing, "Refuses 3/s: the queue is as long as MaxWaiting allows; fewer callers or a larger MaxWaiting would help."},
		"queue full":          {held(limits.ByRate), refused(sluice.Rejections{QueueFull: 3}), refusing, "Refuses 3/s: the queue is as long as MaxWaiting allows; fewer callers or a larger MaxWaiting would help; 12 calls wait for the rate of 5/s."},
		"deadline":            {sluice.Stats{LastError: "no time"}, refused(sluice.Rejections{Deadline: 3}), refusing, "Refuses 3/s: the calls would have to wait longer than they may; longer deadlines or fewer calls would help (last error: no time)."},
		"deadline, one waits": {sluice.Stats{LastError: "no time", Pacing: 1, LimitedBy: limits.ByRate, Rate: rate}, refused(sluice.Rejections{Deadline: 3}), refusing, "Refuses 3/s: the calls would have to wait longer than they may; longer deadlines or fewer calls would help (last error: no time); 1 call waits for the rate of 5/s."},
		"slow rate":           {sluice.Stats{Pacing: 1, LimitedBy: limits.ByRate, Rate: sluice.Rate{Count: 2, Per: time.Minute}}, flow{over: 10 * time.Second}, waiting, "1 call waits for the rate of 2/m; a higher rate would help, if the server grants it."},
		"one in 100":          {held(limits.ByRate), flow{over: time.Second, leaving: 300, refused: 3, reasons: sluice.Rejections{QueueFull: 3}}, refusing, "Refuses 3/s: the queue is as long as MaxWaiting allows; fewer callers or a larger MaxWaiting would help; 12 calls wait for the rate of 5/s."},
		"one in 101":          {held(limits.ByRate), flow{over: time.Second, leaving: 303, refused: 3, reasons: sluice.Rejections{QueueFull: 3}}, waiting, "12 calls wait for the rate of 5/s; a higher rate would help, if the server grants it; it refuses 3/s (queue full)."},
		"paused, refusing":    {sluice.Stats{PausedUntil: noon.Add(time.Minute)}, refused(sluice.Rejections{Deadline: 3}), paused, "No call waits; the next would wait for the pause, until 12:01:00 (1 min); it refuses 3/s (deadline)."},
	} {
		t.Run(name, func(t *testing.T) {
			state, got := why(c.stats, c.flow, noon)
			if state != c.state || got != c.want {
				t.Errorf("got %s: %q\nwant %s: %q", state, got, c.state, c.want)
			}
		})
	}
	for reason := range (sluice.Rejections{}).All() {
		if refusals[reason] == "" {
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
	property := func(pacing, inFlight uint8, cause uint8, pause int16, phase bool, pace, proven, refuted float64, leaving float64, r sluice.Rejections) bool {
		s := sluice.Stats{Pacing: int64(pacing % 4), InFlight: int64(inFlight % 3)}
		if s.Pacing > 0 {
			s.LimitedBy = causes[int(cause)%len(causes)]
		}
		if pause > 0 {
			s.PausedUntil, s.PausedWhy = noon.Add(time.Duration(pause)*time.Second), "line\nbreak"
		}
		if phase {
			s.Learned = &sluice.Learned{Pace: pace, AcceptedRate: proven, ThrottledRate: refuted}
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
