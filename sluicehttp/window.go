package sluicehttp

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Short windows
//
// A server that grants 20 calls per second and says so is used best by a call every 50 ms, if more calls
// wait than it grants. If they leave as soon as something remains, they use up each window in a moment and
// wait for its end, which most servers state as a whole second; and some calls of each window are
// throttled, from which the gate estimates a lower rate. So a limit with a short window becomes the rate
// of the gate while calls wait. 200 per second are then used to 97 % (67 before), 20 to 94 % (85 to
// 89): see TestTransport_Claims. Long windows stay bursts: 30 calls of an hour should not take an hour.
//
// The length of a window is stated by few servers. It is the time from one response that shows that
// all is back to the next one, if little remained in between. That is often too long, as calls do not
// come just then, so the shortest of the last three counts, in whole seconds.
//
//	remaining of 20   20 13 5 0     19 12 4 0     20 …
//	                  ├── 1.07 s ───┤── 1.93 s ───┤
//
// If each accepted call takes one of what remains for a while, nothing comes back meanwhile, as it does in a
// small bucket. Then one window is enough, or none, if the end was never further than a second. With three,
// a search had passed the limit, or a throttle had led to an estimate far below it: 500 calls at 50 per second
// took 14.6 s instead of 11.8.
//
// A small bucket looks the same if it is used in this way, and so does the limit of one of many
// accounts. So the rate must prove true: if calls start at that pace for two windows, less than a quarter
// remains at the end of one. If more remains twice in a row, or if calls wait for something else four
// times, the limit is of another kind or of some of the calls. Then it is no rate for a minute, the next time for two,
// and so on. If few calls start, there is nothing to space, and the rate ends, too.

// A shortWindow is the knowledge about the windows of one limit, as far as they are short.
type shortWindow struct {
	began   time.Time        // when a response showed that a window had begun
	left    time.Duration    // until the reset, as it said
	low     float64          // the least that remained since
	lowAt   time.Time        // when the response came that said low
	granted float64          // calls since began
	fastest time.Duration    // of their responses, and of the one at began
	lengths [3]time.Duration // of the last windows, the last one first
	longest time.Duration    // until the reset, as any response said
	highest float64          // that remained
	emptied bool             // a response said that little remains

	// The limit is a rate while length, of all windows, is more than 0.
	length time.Duration
	from   time.Time // when the current two windows began
	sent   uint32    // calls before
	least  float64   // that remained since
	failed int       // verdicts in a row that it is no rate,
	few    int       // and that few calls start

	barring
}

// A barring is the time until which a limit is no rate.
type barring struct {
	barred time.Time
	bar    time.Duration // the last one
}

// longer returns the next barring at now: twice as long as the last one, and at least shortest.
func (b barring) longer(now time.Time, shortest time.Duration) barring {
	bar := min(max(2*b.bar, shortest), longestBar)
	return barring{now.Add(bar), bar}
}

const (
	longestShort = 2 * time.Second       // the longest window that is short
	early        = 50 * time.Millisecond // by which a window may seem too short, as responses take different times
	plainly      = time.Second / 8       // a bucket of 20 that is full again in a second gets back 2 meanwhile,
	leastPlain   = 8                     // and a smaller one too few
	mostVerdicts = 2                     // in a row
	shortestBar  = time.Minute
	longestBar   = time.Hour
)

// note notes the response r, after which remaining is left of l. Of both reserve is left to others.
func (w *shortWindow) note(l *ratelimit.Limit, remaining, reserve float64, r *reply) {
	most, known := l.Max.Value()
	most, remaining = most-reserve, remaining-reserve
	if !known || most < 2 || !countsCalls(l) || !l.NextAt.IsZero() || r.call == 0 || r.now.Before(w.barred) {
		return
	}
	left := l.ResetAt.Sub(r.now)
	if r.granted && !r.cached {
		w.granted++
		w.fastest = min(w.fastest, r.took())
	}
	switch {
	case r.sent.Before(w.began): // it may be about the window before
	case w.began.IsZero() || remaining >= max(most/2, w.low+2, w.low+most/4) && !r.sent.Before(w.lowAt):
		if !w.began.IsZero() && w.granted <= mostGranted(most) { // otherwise there were several, or it is a bucket
			copy(w.lengths[1:], w.lengths[:])
			w.lengths[0] = r.now.Sub(w.began)
		}
		w.began, w.left, w.low, w.lowAt, w.granted, w.fastest = r.now, left, remaining, r.now, 0, r.took()
	case remaining < w.low:
		w.low, w.lowAt = remaining, r.now
	}
	w.longest, w.highest, w.emptied = max(w.longest, left), max(w.highest, remaining), w.emptied || remaining <= most/8
	plain := w.emptied && w.highest >= most/2 && w.granted >= most/4 && most-w.low > w.granted && most >= leastPlain && r.now.Sub(w.began) >= plainly
	length := w.length
	if length == 0 {
		length = w.measure(l.Window, plain)
	}
	switch {
	case remaining > most, remaining <= most/8 && left > w.left+l.Rounding+mostOvertaking:
		w.fail(r.now) // a bucket: the emptier it is, the later it is full
	case length > 0 && w.granted > mostGranted(most)*(1+r.now.Sub(w.began).Seconds()/length.Seconds()):
		w.fail(r.now)
	case w.length > 0:
		w.prove(most, remaining, l.Window > 0, r)
	case (plain || w.low <= most/4) && 0 < length && length <= longestShort && r.now.Sub(r.sent) <= length && waits(r.gate):
		w.length, w.from = length, time.Time{}
	}
}

// mostGranted returns how many calls are granted from one response to the next that shows that a window of
// most has begun: 26 of 20, as some of the next window are counted before it shows.
func mostGranted(most float64) float64 { return most + most/4 + 1 }

// measure returns the length of the windows, which the server states as stated, or 0; 0 if it is not known.
// Where each of several routes has a limit, all seems to come back much too soon. If plain, it is no bucket.
func (w *shortWindow) measure(stated time.Duration, plain bool) time.Duration {
	switch {
	case stated > 0 && w.lengths[0] > 0 && w.lengths[0] < stated-early:
		return 0
	case stated > 0:
		return stated
	case w.lengths[2] > 0:
		return (slices.Min(w.lengths[:]) + early).Truncate(time.Second)
	case plain && 0 < w.lengths[0] && w.lengths[0] < 3*time.Second/2, plain && 0 < w.longest && w.longest <= time.Second+early:
		return time.Second // a longer one may seem so because calls did not come just then
	}
	return 0
}

// end returns how many more calls may be sent after the granted call of r, after which remaining is left, and until when
// those after them wait, as they would be throttled in this window; the zero time if none waits. At first many calls may
// have left that were not spaced; later the wait is short, or others use the limit, too, and one call in each window pays
// for them.
func (w *shortWindow) end(most, remaining float64, r *reply) (spare float64, at time.Time) {
	at = w.began.Add(w.length - w.fastest/2)
	left := at.Sub(r.now)
	if left <= 0 {
		return 0, time.Time{}
	}
	spare = max(0, remaining-r.later)
	switch first := r.rate.Count == 0; {
	case first && spare < most/2*left.Seconds()/w.length.Seconds():
		return 0, at
	case !first && left <= w.length/4:
		return spare, at
	}
	return 0, time.Time{}
}

// prove checks, every two windows, that little remains of one if calls start at the pace of the limit, of
// which most may be used.
func (w *shortWindow) prove(most, remaining float64, stated bool, r *reply) {
	if !w.from.IsZero() {
		w.least = min(w.least, remaining)
		took := r.now.Sub(w.from)
		if took < 2*w.length {
			return
		}
		switch slow := float64(r.total-w.sent) < 1.5*most; {
		case took > 3*w.length, slow && !waits(r.gate):
			if w.few++; w.few >= mostVerdicts {
				w.reset()
				return
			}
		case !slow && w.least > most/4 && w.length > time.Second && !stated:
			w.length = time.Second // windows of a second seem longer if few calls come at their ends
		case slow, w.least > most/4:
			if w.failed++; w.failed >= 2*mostVerdicts || !slow && w.failed >= mostVerdicts { // it may be slow at first
				w.fail(r.now)
				return
			}
		default:
			w.failed, w.few = 0, 0
		}
	}
	w.from, w.sent, w.least = r.now, r.total, remaining
}

// waits reports whether a call waits for gate.
func waits(gate *sluice.Gate) bool {
	s := gate.Stats()
	return s.Pacing > 0 || s.Waiting > 0
}

// reset forgets all but until when the limit is no rate.
func (w *shortWindow) reset() { *w = shortWindow{barring: w.barring} }

// fail notes that the limit is no rate.
func (w *shortWindow) fail(now time.Time) {
	*w = shortWindow{barring: w.barring.longer(now, shortestBar)}
}

// rate returns the rate at which calls use the windows of a limit of most evenly, but for reserve; zero if
// it is none, or faster than a call in a nanosecond, as without a known maximum.
func (w *shortWindow) rate(most, reserve float64) sluice.Rate {
	if w.length <= 0 || most-reserve > float64(w.length) {
		return sluice.Rate{}
	}
	return sluice.Rate{Count: max(1, int64(most-reserve)), Per: w.length}
}

// spacesWindows reports whether limits with short windows become the rate of the gate: unless a rate is
// configured, or what remains is spread anyway, or is used by several processes that share an estimate.
func (st *state) spacesWindows() bool {
	use := &st.t.cfg.Published
	return !use.Disabled && use.Spread == 0 && st.configured.Count == 0 && st.t.cfg.Gate.Adaptive.Peers == nil
}

// noteWindows notes the slowest rate of the limits with short windows, or that are not used up, in a response. A
// rate ends when its limit says so, or when responses no longer show it: those of errors, and of some routes, do not.
func (st *state) noteWindows(said *ratelimit.Info, found *findings) {
	var slowest sluice.Rate
	ended := false
	st.fresh = false
	for i := range min(len(said.Limits), len(found)) {
		f := &found[i]
		st.fresh = st.fresh || f.fresh || f.tooLow
		if f.tooLow {
			st.outdated = learned
		}
		switch {
		case f.rate.Count > 0 && slower(f.rate, slowest):
			slowest = f.rate
		case f.rateEnded:
			ended = true
		}
	}
	if st.unsaid++; slowest.Count > 0 || ended {
		st.unsaid = 0
	}
	switch {
	case slowest.Count > 0:
		st.windowRate = st.cutRate(slowest, "a published window")
		st.spaced.Store(true)
	case ended || st.unsaid > staleClaim:
		st.windowRate = sluice.Rate{}
	}
}
