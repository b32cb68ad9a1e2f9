// Package strays tells calls that are throttled at random from those at a limit.
//
// A server that throttles because there are too many calls throttles most of those that are in flight
// together, once its allowance is used up. One that sheds load at random, or has a bad machine behind its
// balancer, throttles one here and there, however few there are: a gate that learned from them was slower with
// each, and at 5 % ended at a hundredth of what was possible. If each also paused all calls, because it came with
// a Retry-After of a second, one call in a hundred left a fiftieth of the throughput.
//
// The calls that are in flight when the first of them is throttled are a flight. While a gate knows no limit, a
// flight with few throttled calls teaches nothing, and after the pause that the server asked for, if any, the gate
// continues as before. After three of them, strays concern only themselves. A limit that is nearly
// enough for all calls looks the same: it is exceeded by that share at most.
//
//	in flight together    throttled    it is
//	                32            1    a stray
//	                32            7    a limit
//	                 4            1    a limit, as far as is known
//	                 4            2    a stray, if that many flights were before
//
// Of the first calls of a gate one that is throttled may be the end of a small window, so the gate slows down at
// once. It takes that back when it turns out that the others of its flight were accepted.
//
// A search for the limit that starts again after each pause uses up the same allowance in about as many calls. So if
// the flights are apart by 39 and by 43 calls, there is a limit, although of 12 calls in flight one is throttled: those
// had left before it.
package strays

import "time"

const (
	many   = 8  // calls in flight together that tell strays from a limit
	share  = .2 // of them are throttled at most
	after  = 64 // calls that have started since a limit showed: the first calls use up a small window
	enough = 3  // flights after which few mean strays, and twice as many a limit
	mean   = 32 // flights whose mean counts then

	regularly = 8 // runs of calls between flights are equal if they differ by one call of so many at most
)

// A Counter counts how many calls of each flight were throttled. The zero Counter has seen none. It is not safe for
// concurrent use.
type Counter struct {
	began   time.Duration // the end of the instant at which the first of the flight was throttled
	size    int64         // calls that were in flight then
	n       int           // that were throttled of them
	since   int64         // calls that had started then
	run     int64         // of these, since the flight before
	regular bool          // and those were about as many as before that one
	calls   int64         // that had started when the last of these was throttled
	from    int64         // that had started when a flight showed a limit last
	flights int           // since then, with few throttled calls
	small   int           // since then, that were too small to tell
	lately  [2]float64    // throttled and started calls of the last flights
	known   bool          // there were strays
	taught  bool          // a call of this flight taught the gate
}

// Add counts a throttle, at now, of a call that left at since when inFlight were in flight with it. calls is
// how many had started.
func (s *Counter) Add(now, since time.Duration, inFlight, calls int64) {
	if since >= s.began {
		if s.flights > 0 {
			s.lately[0] += float64(s.n) - s.lately[0]/mean
			s.lately[1] += float64(calls-s.since) - s.lately[1]/mean
		}
		run := calls - s.since
		s.regular = max(run, s.run) < after && regularly*min(run, s.run) >= (regularly-1)*max(run, s.run)
		s.since, s.run = calls, run
		// Not now: a call that leaves at this instant may be throttled at it.
		s.began, s.size, s.n, s.taught = now+1, inFlight, 0, false
		if inFlight >= many {
			s.flights++
			s.known = s.known || s.flights > enough
		} else {
			s.small++
		}
	}
	s.calls = calls
	if s.n++; !s.low() {
		s.from, s.flights, s.small, s.lately = calls, 0, 0, [2]float64{}
	}
}

// low reports whether no more of the flight are throttled than there may be strays.
func (s *Counter) low() bool {
	n, most := float64(s.n), share*float64(s.size)
	if s.flights > enough { // two of the few that do not wait for themselves may be strays
		return n <= max(2, 2*most) && s.lately[0] <= share*max(after, s.lately[1])
	}
	return n <= most || s.size < many && s.n == 1 && s.small <= s.flights
}

// Few reports whether a call that left at since and was throttled is a stray, as far as is known.
func (s *Counter) Few(since time.Duration) bool { return since < s.began && s.flights > 0 && s.low() }

// Regular reports whether the same allowance seems to have been used up again, see above. At random, that happens to
// one flight in thirty.
func (s *Counter) Regular() bool { return s.regular && s.flights <= enough }

// Settled reports whether these are not the first calls any more.
func (s *Counter) Settled() bool { return s.flights > enough || s.calls-s.from >= after }

// Alone reports whether such a call concerns only itself.
func (s *Counter) Alone(since time.Duration) bool { return s.flights > enough && s.Few(since) }

// Known reports whether there were strays, ever.
func (s *Counter) Known() bool { return s.known }

// Teach notes that the gate learns from a throttled call that left at since.
func (s *Counter) Teach(since time.Duration) { s.taught = since < s.began }

// Forget is called when what the gate learns is from elsewhere.
func (s *Counter) Forget() { s.taught = false }

// Mistaken reports whether the gate learns from a flight with few throttled calls: once, after a call was
// accepted that left at since, later than that flight.
func (s *Counter) Mistaken(since time.Duration) bool {
	if !s.taught || since < s.began {
		return false
	}
	s.taught = false
	return s.size >= many && s.low()
}
