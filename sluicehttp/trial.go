package sluicehttp

import (
	"math"
	"time"
)

// # Whose limit is a throttle without a time?
//
// A throttle that says when to retry delays its route, and others ask (see scope.go). One that says
// nothing delays nobody: a gate learns from it. If the host's gate did, a search of one call a second
// made a thousand other calls a second wait for it. But nobody need ask here: the others go on, more
// slowly at worst, and their answers tell.
//
// From the first such throttle of a route on, a trial counts how the calls of that route and of all
// others are answered, if they were sent after it. What is more probable, that all are throttled with
// the same probability, or those of this route with another one? If it is that, clearly (a likelihood
// ratio, Wilks 1938), the route is a scope:
//
//	this route      others          times as probable
//	throttled all   throttled all
//	      2    2          0   16                 530
//	      3    4          0   16                 500
//	      3    4          0   30               2,700
//	      4    6          1   30                 550
//
// An answer that may be a throttle, such as 503, counts as one: a route that fails by itself is a scope
// as well, and spends a retry budget of its own.
//
// So many calls must have been sent meanwhile that bad luck is no explanation, even if it is asked
// for each of many routes. The estimate of the host's gate in the trial was about this route: the
// gate of the route adopts it, and the host's discards it, unless others were throttled, too.

const (
	mostTrials   = 16   // of a host, at the same time
	longestTrial = 512  // answers
	enoughProof  = 1000 // a route has a limit of its own if that is so many times as probable
)

// A trial is the evidence that a route has a limit of its own.
type trial struct {
	began       time.Time
	sent        time.Time // when the first call was sent that was throttled
	own, others answers   // of calls sent since
}

// answers are counts of them.
type answers struct{ granted, refused float64 }

func (a *answers) note(refused bool) {
	if refused {
		a.refused++
	} else {
		a.granted++
	}
}

func (a answers) all() float64 { return a.granted + a.refused }

// likelihood is the logarithm of that of a, if calls are throttled as often as a says.
func (a answers) likelihood() (sum float64) {
	for _, n := range []float64{a.granted, a.refused} {
		if n > 0 {
			sum += n * math.Log(n/a.all())
		}
	}
	return sum
}

// proves reports whether the route has a limit of its own, as far as is known.
func (t *trial) proves() bool {
	if t.own.refused < 2 || t.own.refused*t.others.all() <= t.others.refused*t.own.all() {
		return false
	}
	same := answers{t.own.granted + t.others.granted, t.own.refused + t.others.refused}
	return t.own.likelihood()+t.others.likelihood()-same.likelihood() > math.Log(enoughProof)
}

// ofTrial returns the scope of the route of w, a throttle without a time or a response that may be
// one, if it has a limit of its own, as far as is known; otherwise nil. s is locked.
func (s *scopes) ofTrial(c *call, w *word) *scope {
	if sc := s.scopeOf(w.route); sc != nil || !s.try(w) {
		return sc
	}
	return s.scopeFor(c, w)
}

// try notes in all trials how the call of w, through the host's gate, was answered, and reports whether
// its route has a limit of its own. s is locked.
func (s *scopes) try(w *word) (proven bool) {
	refused := w.refused || w.unclear
	if len(s.trials) == 0 && !refused {
		return false
	}
	if refused && s.trials[w.route] == nil {
		s.beginTrial(w)
	}
	for route, t := range s.trials {
		switch {
		case w.now.Sub(t.began) > longWait || t.own.all()+t.others.all() >= longestTrial:
			s.endTrial(route)
		case w.sent.Before(t.sent):
		case route == w.route:
			t.own.note(refused)
		default:
			t.others.note(refused)
		}
	}
	t := s.trials[w.route]
	return refused && t != nil && t.proves()
}

// beginTrial begins a trial of the route of w, instead of the oldest one if there are too many.
func (s *scopes) beginTrial(w *word) {
	if len(s.trials) >= mostTrials {
		var oldest uint64
		for route, t := range s.trials {
			if s.trials[oldest] == nil || t.began.Before(s.trials[oldest].began) {
				oldest = route
			}
		}
		delete(s.trials, oldest)
	}
	if s.trials == nil {
		s.trials = make(map[uint64]*trial)
	}
	s.trials[w.route] = &trial{began: w.now, sent: w.sent}
	s.change(busy, 0)
}

// endTrial ends the trial of a route.
func (s *scopes) endTrial(route uint64) {
	delete(s.trials, route)
	s.quiet()
}

// inherit gives st, the scope of a route since its trial, the estimate of the host's gate, which
// discards it unless others were throttled, too.
func (s *scopes) inherit(st *state, othersRefused bool) {
	host := s.host.gate
	if host.Stats().Learned == nil {
		return
	}
	_ = st.gate.Restore(host.Snapshot())
	if !othersRefused {
		host.Forget()
	}
}
