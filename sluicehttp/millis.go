package sluicehttp

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Is a reset in seconds, or in milliseconds?
//
// Nearly all servers write the seconds until a window ends, and a few the milliseconds, without a word:
// "X-Rate-Limit-Reset: 60000" for a minute. Read as seconds, that is most of a day, and all calls give up
// when the window is used up. Several responses tell which it is:
//
//	arrived   reset    end, if in milliseconds   if in seconds
//	0.0 s     60000    60.0 s                    60000.0 s
//	0.3 s     59700    60.0 s                    59700.3 s
//	0.6 s     59400    60.0 s                    59400.6 s
//
// A reset in seconds is 60000 in all three, and as milliseconds its end moves by the time that has passed.
// So a field is in milliseconds if the ends that it names are closer together than the responses are. A
// server that misleads a gate in this way gets a call too early, and throttles it.
const (
	leastSuspicious = 5 * time.Minute        // the default of RetryPolicy.MaxServerWait: calls wait for less
	endsTogether    = 200 * time.Millisecond // by which ends may differ, as responses take different times
	endsObserved    = 500 * time.Millisecond // for how long; more than twice endsTogether
	endsCounted     = 8                      // in how many responses: with fewer, two routes with a window each may agree by chance
)

// A sameEnds is about the last responses whose resets name the same end if they are in milliseconds.
type sameEnds struct {
	field            string
	began            time.Time // when the first of them arrived
	earliest, latest time.Time // the ends that they name
	count            int
}

// note notes the reset of l in a response that arrived at now, and reports whether the field is in
// milliseconds.
func (s *sameEnds) note(l *ratelimit.Limit, now time.Time) bool {
	wait := l.ResetAt.Sub(now)
	if wait < leastSuspicious || l.Rounding == 0 {
		return false
	}
	end := now.Add(wait / 1000)
	if s.field != l.Source || s.latest.Sub(end) > endsTogether || end.Sub(s.earliest) > endsTogether {
		*s = sameEnds{l.Source, now, end, end, 1}
		return false
	}
	if end.Before(s.earliest) {
		s.earliest = end
	}
	if end.After(s.latest) {
		s.latest = end
	}
	s.count++
	return s.count >= endsCounted && now.Sub(s.began) >= endsObserved
}

// inMillis notes the resets in said, and reports whether the header must be read again because a field turns
// out to be in milliseconds.
func (st *state) inMillis(said *ratelimit.Info) (again bool) {
	for i := range said.Limits {
		l := &said.Limits[i]
		if l.ResetAt.Sub(said.Arrived) < leastSuspicious {
			continue // nearly all
		}
		st.mu.Lock()
		if st.resets.note(l, said.Arrived) {
			options := *st.headers.Load()
			options.Millis = append(slices.Clip(options.Millis), l.Source)
			st.headers.Store(&options)
			st.claimed = nil // their windows seemed to end in days
			again = true
		}
		st.mu.Unlock()
	}
	return again
}
