package sluice

import "time"

// # When does a gate begin to learn?
//
// Learning costs time, and a gate that is never told of a throttled call must not pay for it. So a gate
// begins at a throttled call. By then it knows only how many calls have started lately (type recently),
// and that those in flight belong to the time before.
//
// A throttled call may be chance: some servers are overloaded for 1 call in 50, whatever the
// pace. So a gate without a rate begins as a slow start does: when the server asks for a
// wait, or throttles 3 of 16 calls. A gate with a rate, its own or its parent's, or with
// further limits that are known, was told the limit by somebody who should know. It begins at the second
// throttled call within 500 if the server asks for waits, and at the third within 32 if not. Calls that
// were in flight at the same time and throttled count as one. The gate stops learning when its rate has
// been accepted for long.
const (
	strikeTold   = 500
	strikeUntold = 32
)

// strikes are the last throttling responses to a gate with a rate.
type strikes struct {
	end     time.Duration // of the last one: calls that left before belong to it
	n       int
	granted [2]int64 // calls by the gate before the last ones
}

// add records a throttling response and reports whether it is one too many.
func (s *strikes) add(now, since time.Duration, granted int64, told bool) bool {
	if s.n > 0 && since < s.end {
		return false
	}
	few := s.n >= 2 && granted-s.granted[0] <= strikeUntold
	if told {
		few = s.n >= 1 && granted-s.granted[1] <= strikeTold
	}
	s.granted[0], s.granted[1] = s.granted[1], granted
	s.end = now + 1
	s.n++
	return few
}

// recently is the number of calls that had started at two times, 15 s apart or more. Only calls
// that are measured are noted, see flight.Hold.
type recently struct {
	early, late sofar
	begun       bool
	from        time.Duration // since when calls have left without a long pause
}

// longPause is the time without a call after which earlier accepted calls say nothing any more.
const longPause = time.Minute

type sofar struct {
	at          time.Duration
	calls, cost int64
}

// note is called when a call ends that left at since.
func (r *recently) note(since time.Duration, here sofar) {
	now := here.at
	if !r.begun { // calls that were accepted before, as after Forget, are in early
		first := max(r.early.at, since)
		r.begun = true
		r.early.at, r.late.at, r.from = first, first, first
		return
	}
	if now-r.late.at > longPause {
		r.from = since
	}
	if now-r.late.at > 15*time.Second {
		r.early, r.late = r.late, here
	}
}

// suspects records that a call that left at since was throttled, and reports whether it is time to
// learn. weighed says that many calls were throttled lately.
func (m *memory) suspects(here sofar, since, asked time.Duration, weighed bool) bool {
	now := here.at
	if m.given.any() {
		if many := m.strikes.add(now, since, here.calls, asked > 0); many || asked > 0 {
			return many
		}
		m.slowStart(now, since, 0, false)
		return false
	}
	m.ramp = m.ramp.refuse(now, since, asked, false)
	return weighed || asked > 0 || m.ramp.on && m.ramp.began > now
}

// slowStart records for the slow start that the server throttled a call that left at since and asked
// for a wait of asked. Without one, asked = 0, the call counts if it is one of many, as far as is known,
// or surely is. A gate with a rate needs no slow start, one that learns decides by itself, and one whose
// server publishes how fast its limits refill starts as they do after a pause.
func (m *memory) slowStart(now, since, asked time.Duration, surely bool) {
	if asked > 0 && m.limits.refill() {
		return
	}
	if m.rate.Count == 0 && m.learner == nil {
		m.ramp = m.ramp.refuse(now, since, asked, surely)
		m.answersCount.Store(true)
	}
}
