package sluicehttp

import (
	"math"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Limits that are not used up
//
// A few throttled calls may lead to an estimate that is far too low, and it stays: where each throttled call costs ten
// seconds, a gate seldom tries a faster pace. But the header shows what the limit would still grant. If more than a quarter
// of a window remained at its end, although calls waited for the pace of the gate, more calls may be made in the next.
//
//	remaining of 30   14  12 … 11      13  11 … 10      12   7 …  2
//	                  ├── 19 granted ──┤── 20 granted ──┤── 28 per 10 s
//
// Some servers publish windows, but count the calls of the last ten seconds, as httprate does: a window that slides. Then
// more calls are granted in a window than what remains falls by; or a burst uses up one, the next grants what is left of a
// window, and so on. The rate of such a limit is its maximum per window. Either way the estimate is forgotten. With 30 calls
// in ten seconds of httprate, a gate had kept to 1.9 calls per second for minutes, and a search to 30 in 20 s.
//
// The length of a window is the time between two resets, and others are multiples of it. The reset of a bucket moves with
// each call, or with the time, so it must have stood still longer than that, or have moved by a length where that would
// have moved by another. Short windows are in window.go. If a call is throttled although much remains, another limit did
// it, and if four windows with enough calls grant no more than the four before, the rate was no help. Then it ends, and is
// not tried again for a while.

// An unused is the knowledge about a limit as far as it is not used up.
type unused struct {
	began   time.Time     // when the first response about the current window came
	until   time.Time     // when it ends
	length  time.Duration // of a window; 0 if unknown
	stands  bool          // its end does
	fitted  int           // windows, one after the other, that were no bucket
	most    float64       // that remained in it
	least   float64
	granted float64
	last    float64 // granted in the one before, 0 if it is unknown
	missing float64 // at the first response

	since unusedSince

	calls  float64 // per window, as the rate says; 0 for none
	before float64 // granted per window before it was tried
	barring
}

// An unusedSince is what has been seen since the last judgement.
type unusedSince struct {
	windows float64
	total   float64 // granted in them
	slides  bool    // one does
	weighed bool    // a call takes more than one, or others take some
}

const (
	leastUnused = 2 * longestShort // a window
	fewGranted  = 8                // that say nothing about a window
	judged      = 4                // windows
	enoughFit   = 3                // that were no bucket

	shortestUnused = 5 * time.Minute // bar
	spareShare     = 32              // of a limit is left, and two: otherwise a sliding window is used up a moment too early
)

// note notes the response r, after which remaining of most is left of l; both without what is left to others. It reports
// whether the estimate of the gate is now known to be too low.
func (u *unused) note(l *ratelimit.Limit, most, remaining float64, r *reply) (tooLow bool) {
	if math.IsInf(most, 1) || most < fewGranted || !countsCalls(l) || !l.NextAt.IsZero() || r.call == 0 || !r.spaces {
		return false
	}
	near := l.Rounding + mostOvertaking
	period := l.ResetAt.Sub(u.until)
	moved, unsure := u.ofBucket(l, near, most-remaining, r)
	switch {
	case r.refused:
		u.refuse(most, remaining, r.now)
		return false
	case !r.granted || r.cached || period < -near:
		return false
	case u.until.IsZero():
		u.begin(l, r, most, remaining)
	case period > near:
		if u.fits(period, near, moved, unsure) {
			tooLow = u.judge(most, math.Round(float64(period)/float64(u.length)), r)
		}
		u.begin(l, r, most, remaining)
	default:
		u.stands = u.stands || moved > unsure
	}
	u.most, u.least = max(u.most, remaining), min(u.least, remaining)
	u.granted++
	return tooLow
}

// refuse notes that a call was throttled at now while remaining of most was left: if that is much, another limit did it.
func (u *unused) refuse(most, remaining float64, now time.Time) {
	if remaining > most/4 && (u.calls > 0 || !now.Before(u.barred)) {
		u.fail(now)
	}
}

func (u *unused) begin(l *ratelimit.Limit, r *reply, most, remaining float64) {
	u.began, u.until, u.least, u.granted = r.now, l.ResetAt, remaining, 0
	u.most, u.missing = remaining, max(1, most-remaining)
}

// ofBucket returns by how much the reset of a bucket would have moved since the first response about the window, and how
// far that may be from the truth: it is the time that missing takes to come back.
func (u *unused) ofBucket(l *ratelimit.Limit, near time.Duration, missing float64, r *reply) (moved, unsure time.Duration) {
	more := (missing - u.missing) / u.missing
	moved = r.now.Sub(u.began) + time.Duration(more*float64(u.until.Sub(u.began)))
	return moved, 2*near + time.Duration(math.Abs(more)*float64(l.Rounding))
}

// fits reports whether period is of one or more windows of a known length, and learns that. The reset of a bucket would
// have moved by about moved.
func (u *unused) fits(period, near, moved, unsure time.Duration) bool {
	if u.length > 0 && period > u.length-near {
		if over := period % u.length; min(over, u.length-over) <= near {
			if (period - moved).Abs() > unsure {
				u.fitted++
			}
			u.stands = u.stands || u.fitted >= enoughFit
			return true
		}
	}
	*u = unused{length: period, stands: u.stands && u.length == 0, barring: u.barring} // perhaps
	return false
}

// judge judges the window that has ended, the first of n.
func (u *unused) judge(most, n float64, r *reply) (tooLow bool) {
	if u.calls > 0 && n > 1 { // few calls came
		u.since = unusedSince{}
		return false
	}
	seen, fell, share := &u.since, u.most-u.least, u.share(most)
	seen.windows += n
	seen.total += u.granted
	seen.slides = seen.slides || share || u.granted-fell >= max(3, most/8)
	seen.weighed = seen.weighed || fell > 1.5*u.granted+2
	if u.last = u.granted; n > 1 {
		u.last = 0
	}
	each, enough := seen.total/seen.windows, seen.windows >= judged
	switch {
	case u.length < leastUnused || !u.stands || r.now.Before(u.barred) || !waits(r.gate):
	case u.calls > 0 && enough && each < 1.1*u.before:
		u.fail(r.now)
		return false
	case n == 1 && u.granted >= fewGranted && u.least > most/4:
		more := u.granted * (most - spareOf(most)) / max(1, most-u.least)
		tooLow = u.pace(r.gate)*u.length.Seconds() < more && u.raise(more)
	case u.calls == 0 && (share || enough) && seen.slides && !seen.weighed && each < .8*most && u.pace(r.gate) > 0:
		tooLow = u.raise(most - spareOf(most))
	}
	if enough {
		u.since = unusedSince{}
	}
	return tooLow
}

// share reports whether the window that has ended and the one before have granted no more than one together, and one of
// them nearly all.
func (u *unused) share(most float64) bool {
	return u.last > 0 && max(u.last, u.granted) > .6*most && math.Abs(u.last+u.granted-most) <= most/8
}

// spareOf returns how much of most is left: otherwise a window that slides is used up a moment too early.
func spareOf(most float64) float64 { return max(2, most/spareShare) }

// raise sets the rate to so many calls in a window. An estimate that is lower is forgotten.
func (u *unused) raise(calls float64) (tooLow bool) {
	calls = math.Floor(calls)
	if calls <= u.calls {
		return false
	}
	u.before = u.since.total / u.since.windows
	u.calls, u.since = calls, unusedSince{}
	return true
}

// pace returns at how many calls per second those of gate start: infinitely many if nothing is known, and 0 if
// something else than a pace limits them.
func (u *unused) pace(gate *sluice.Gate) float64 {
	pace := math.Inf(1)
	if known := gate.Stats().Learned; known != nil && known.Window.Count > 0 {
		pace = perSecond(known.Window)
	} else if known != nil {
		pace = known.Pace
	}
	if u.calls > 0 {
		pace = min(pace, u.calls/u.length.Seconds())
	}
	return pace
}

// fail notes that the rate is no help.
func (u *unused) fail(now time.Time) {
	*u = unused{barring: u.barring.longer(now, shortestUnused)}
}

// reset forgets all but until when there is no rate.
func (u *unused) reset() { *u = unused{barring: u.barring} }

// rate returns the rate at which the limit is used, or zero.
func (u *unused) rate() sluice.Rate {
	if u.calls < 1 || u.calls > float64(u.length) {
		return sluice.Rate{}
	}
	return sluice.Rate{Count: int64(u.calls), Per: u.length}
}
