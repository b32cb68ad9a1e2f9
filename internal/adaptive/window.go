package adaptive

import "math"

// A window is the belief that the server accepts count in each window of length seconds.
//
// # How is a window told from a bucket?
//
// Until it rejects, a bucket of burst B and rate r grants B·p/(p−r) at pace p: fewer the
// faster the calls. A window grants the same number at any pace. So it is a window if
// two costly cycles at different paces were accepted the same.
type window struct {
	count    float64 // granted per window
	length   float64 // in seconds
	from     float64 // the current window began at this instant, or a little earlier
	last     float64 // the last one that accepted anything began then
	used     float64 // of the current window
	denied   bool    // a call of the current window was rejected
	slides   int     // calls of the current window that were accepted after that
	restarts int     // windows in a row that seem to have begun with a grant after a rejection
	bounds   costly  // what was believed before
	seems    float64 // the length, as the last window says that began late; 0: none did
	fulls    int     // windows in a row since then that were used up
	brackets [2]bracket
	n        int
	wrong    int     // windows in a row in which less than count was accepted
	alike    int     // costly cycles in a row that were accepted the same
	right    int     // windows since one was rejected
	patience int     // windows before more is tried
	extra    float64 // what is tried beyond count
}

// A bracket holds an instant at which a window began: rejected at after, accepted at
// before.
type bracket struct{ after, before float64 }

func (w *window) bracket(b *blockage, call Call) {
	after := b.last
	if b.polls == 0 {
		after = max(b.from.at, call.sent-1.2)
	}
	w.brackets[w.n%len(w.brackets)] = bracket{after, call.sent}
	w.n++
}

// fits reports whether the last costly cycles look like a window, and if so begins to
// use it.
func (w *window) fits(c *Controller, before, now costlyCycle) bool {
	if !w.compare(c, before, now) {
		return false
	}
	if c.service.impaired(c) {
		return false // what is rejected in an incident comes in rows, and more was accepted before
	}
	// What others were accepted is not known exactly, so in a group it may also be chance.
	doubtful := now.granted < fewGranted*c.meanCost || c.cfg.Costly || c.sharing.peers > 1 || c.costly.soon(c, before)
	if now.granted < 8*c.meanCost || doubtful && w.alike < 2 || math.Abs(math.Log(now.active/before.active)) < .15 {
		return false // small numbers, or numbers at one pace, are equal by chance
	}
	length := w.period(now.took)
	if before.took < length/prolonged {
		length = usualBetween(before.least, before.took)
	}
	w.begin(c, now.granted, length, w.brackets[(w.n-1)%len(w.brackets)].before)
	w.used, w.bounds = c.meanCost, c.costly
	return true
}

// prolonged is how many times longer than the cycle before one is that an incident has prolonged: then a window had ended
// in it, but calls were rejected for another reason. A cycle that is only a little shorter may have begun within a window.
const prolonged = 3

// fewGranted is the number of calls below which cycles are alike only if they are equal.
const fewGranted = 16

// compare counts how many costly cycles in a row were accepted the same, and reports whether the
// last two were.
func (w *window) compare(c *Controller, before, now costlyCycle) bool {
	tolerance := .06*before.granted + 2*c.meanCost
	if now.granted < fewGranted*c.meanCost {
		tolerance = .5 * c.meanCost
	}
	if before.granted == 0 || math.Abs(now.granted-before.granted) >= tolerance {
		w.alike = 0
		return false
	}
	w.alike++
	return true
}

// begin begins to believe in windows of count per length, one of which began at from.
func (w *window) begin(c *Controller, count, length, from float64) {
	w.count, w.length, w.from = count, length, from
	w.used, w.denied, w.slides, w.restarts, w.bounds = 0, false, 0, 0, costly{}
	w.seems, w.fulls = 0, 0
	w.wrong, w.patience, w.extra = 0, 2, 0
	c.track(Windowed, count/length, Window)
}

// lengths are those that servers use.
var lengths = [...]float64{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600}

// period returns the shortest usual length that fits the last two beginnings of windows. If the
// windows are longer, a few polls show it. If they were shorter than believed, nothing would,
// and half of the windows were never used.
func (w *window) period(cycle float64) float64 {
	if w.n < 2 {
		return cycle
	}
	a, b := w.brackets[(w.n-2)%len(w.brackets)], w.brackets[(w.n-1)%len(w.brackets)]
	if l := usualBetween(b.after-a.before, b.before-a.after); l < b.before-a.after {
		return l
	}
	return cycle
}

// usualBetween returns the shortest usual length that is not less than least, if it is no more than most, or else that.
func usualBetween(least, most float64) float64 {
	for _, l := range lengths {
		if l >= least {
			return min(l, most)
		}
	}
	return most
}

// usual returns the next instant after t at which a window would begin if it had one of
// the usual lengths and the last one began where the last blockage ended. A call that starts
// then arrives after that instant.
func (w *window) usual(c *Controller, t float64) float64 {
	if w.n == 0 {
		return math.Inf(1)
	}
	last := w.brackets[(w.n-1)%len(w.brackets)].before
	for _, l := range lengths[3:] {
		if last+l > t {
			return last + l + c.arrival()
		}
	}
	return math.Inf(1)
}

// resume corrects the window by a blockage in it that has ended. If nothing of the window
// was accepted before, it has only just begun.
func (w *window) resume(c *Controller, call Call) {
	if w.denied && w.used > .1*w.count+2*call.cost && call.sent < w.from+.9*w.length {
		if w.slides++; w.slides >= mostSlides { // a window that is used up accepts nothing until it ends
			c.track(Tracking, w.count/w.length, Measured)
			return
		}
	}
	if w.used > .1*w.count+2*call.cost || call.sent < w.from+.1*w.length {
		return
	}
	if w.restarts++; w.restarts >= mostRestarts {
		w.fail(c, call)
		return
	}
	if w.last > 0 {
		longer := max(w.length, call.sent-w.last)
		if w.seems > 0 { // once may be an incident
			w.length = min(w.seems, longer)
		}
		w.seems, w.fulls = longer, 0
		for _, l := range lengths {
			if math.Abs(l-w.length) < .05*l {
				w.length = l
			}
		}
	}
	w.from = call.sent
}

// mostRestarts is how many windows in a row may begin of which nearly nothing is accepted. Each may be the one before, whose
// length was believed to be too short. A bucket whose server bans looks the same at the pace at which a window is used, each ban
// seems to begin another window, and none would end.
const mostRestarts = 3

// fail returns to what was believed before, after call was accepted.
func (w *window) fail(c *Controller, call Call) {
	if w.bounds.low == 0 {
		c.track(Tracking, w.count/2/w.length, Measured)
		return
	}
	c.costly.restore(c, w.bounds, call)
}

// front is how much faster than its mean a window is used: what is left of its time
// bridges what the client does not know.
const front = 3

func (w *window) pace() float64 { return front * w.count / w.length }

// pass lets time pass until t, which may begin another window.
func (w *window) pass(c *Controller, t float64) {
	if t >= w.from+w.length && (w.begun() || !c.blockage.on) { // else it may be longer
		if w.used > .5*w.count {
			w.last, w.restarts = w.from, 0
		}
		w.from += math.Floor((t-w.from)/w.length) * w.length
		w.next(c)
	}
}

// opens returns when the window lets the next call start, 0 if immediately.
func (w *window) opens(meanCost float64) float64 {
	if w.used+meanCost/2 < w.count+w.extra {
		return 0
	}
	return w.from + w.length
}

// next begins another window. If all is well, it tries more now and then: the server may
// have become more generous, or it may not count in windows at all.
func (w *window) next(c *Controller) {
	full := w.used+c.meanCost/2 >= w.count+w.extra
	switch {
	case full && w.extra > 0: // more was accepted
		w.fulls++
		w.wrong = 0
		w.count += w.extra
		w.extra *= 2
	case full:
		w.fulls++
		w.wrong = 0
		if w.right++; w.right >= w.patience {
			w.extra, w.right = c.meanCost, 0
		}
	case w.denied && w.extra > 0 && w.used+c.meanCost/2 >= w.count:
		w.extra, w.patience = 0, min(16, 2*w.patience)
	case w.denied:
		w.wrong++
		switch {
		case w.wrong > 3: // it is something else
			c.track(Tracking, max(w.used, c.meanCost, w.count/2)/w.length, Measured)
		case w.wrong > 1:
			w.count = max(w.used, w.count/2)
		}
		w.extra = 0
	}
	if w.fulls >= enoughFull {
		w.seems = 0
	}
	w.used, w.denied, w.slides = 0, false, 0
}

// enoughFull windows in a row that begin when they should show that they are not longer.
const enoughFull = 2

// mostSlides is how many calls a window may accept after it has refused some: one or two may have overtaken
// others, and the end of a window is known to a tenth of its length.
const mostSlides = 4

// refused corrects the count by a call of this window that was rejected.
func (w *window) refused(call Call) {
	if call.sent >= w.from {
		w.used -= call.cost
		w.denied = true
	}
}

// poll returns when to ask a blocked server again, not after next: soon after an instant at
// which a window may have begun, and when one may begin.
func (w *window) poll(c *Controller, t, next float64) float64 {
	if w.begun() {
		if w.used >= .9*w.count {
			return w.from + w.length + c.arrival()
		}
		return min(next, w.from+w.length)
	}
	before, after := w.begins(t)
	if soon := t - before; soon < .1*(before-w.last) {
		c.blockage.gap = min(c.blockage.gap, max(.1, soon))
		next = min(next, t+c.blockage.gap)
	}
	return min(next, after+c.arrival())
}

// arrival is how long after the expected beginning of a window a call starts, so that it does
// not arrive before: the one that the beginning is known from may have been slower.
func (c *Controller) arrival() float64 { return .01 + .5*c.refusal }

// begun reports whether any of the current window was accepted, as far as is known.
func (w *window) begun() bool { return w.last == 0 || !w.denied || w.used >= .1*w.count }

// begins returns the last instant until t and the next one at which a window may begin, if the
// current one has not: its length was taken for too short, and is a longer one of the usual.
func (w *window) begins(t float64) (before, after float64) {
	before, after = w.last, w.last+w.length
	for _, l := range lengths {
		if after > t {
			return before, after
		}
		if l > w.length {
			before, after = after, w.last+l
		}
	}
	return after, math.Inf(1)
}
