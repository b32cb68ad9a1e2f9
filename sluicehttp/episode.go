package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/usedup"
)

// An episode is the time in which it is found out whose limit it is.
type episode struct {
	began, until time.Time
	scopes       map[*scope]struct{} // that began with it
	refusedOf    map[uint64]struct{} // routes
	others       map[uint64]struct{} // routes that are known to call, at most a few
	ask          *state              // gate through which others ask; nil: they are free. Pinned
	asking       int64               // calls in flight through it
	granted      float64             // calls of other routes that were sent since
	refused      float64
	asked        int // of these, with the host's gate asking
	timer        *time.Timer
}

// begin begins an episode, in which calls ask through ask. s is locked.
func (s *scopes) begin(w *word, ask *state) {
	e := &episode{
		began: w.now, until: w.until, ask: ask, asking: 1,
		scopes: map[*scope]struct{}{}, refusedOf: map[uint64]struct{}{}, others: map[uint64]struct{}{},
	}
	ask.mustSet(ask.gate.SetConcurrency(1))
	s.e = e
	e.timer = time.AfterFunc(min(askStall, w.until.Sub(w.now)), func() { s.tick(e) })
}

// tick is called when an ask of e may hang, and when e ends.
func (s *scopes) tick(e *episode) {
	s.mu.Lock()
	var do todo
	if s.e == e {
		if left := time.Until(e.until); left <= 0 {
			do = s.finish()
		} else {
			if ask := e.ask; ask != nil {
				e.asking++
				ask.mustSet(ask.gate.SetConcurrency(e.asking))
				left = min(left, askStall)
			}
			e.timer.Reset(left)
		}
	}
	s.mu.Unlock()
	do.run()
}

// A todo is the work to be done without the lock.
type todo []func()

func (do todo) run() {
	for _, f := range do {
		f()
	}
}

// forgetOthers is called at the end of e. If no other route has called since it began, that of e is the only
// one that is known from now on: the gate of the host learns from it again, until another route calls. s is
// locked.
//
// A bot asks for its name first, and then sends messages. Nobody answers there whose limit it is, and a
// gate that asked each time never learned: it got 69 % of 30 messages per second, and its retry budget
// was empty after two minutes.
func (s *scopes) forgetOthers(e *episode) {
	if e.granted > 0 || e.refused > 0 || len(e.others) > 0 || len(e.refusedOf) != 1 || len(s.of) > 0 || len(s.trials) > 0 {
		return
	}
	for route := range e.refusedOf {
		s.last.Store(&visit{route: route})
	}
	s.change(0, several)
}

// free lets all that wait for ask leave, and go on without it.
func (e *episode) free() todo {
	ask := e.ask
	if ask == nil {
		return nil
	}
	e.ask = nil
	return todo{func() {
		reroute.TurnAway(ask.gate, everyRoute)
		// For those that come late. It is not set under the lock: those that wait would then leave
		// before the pause of the host begins, which is done before this.
		ask.mustSet(ask.gate.SetConcurrency(0))
		ask.unpin()
	}}
}

func everyRoute(uint32) bool { return true }

// grant notes that a call was granted. s is locked.
func (s *scopes) grant(w *word) (do todo) {
	e := s.e
	if e != nil && !w.now.Before(e.until) {
		return s.finish()
	}
	if e == nil || !w.asked && !w.sent.After(e.began) || !s.others(w) {
		return nil
	}
	e.granted++
	if w.asked && e.ask != nil {
		if e.asking *= 2; e.asking >= mostAsking {
			return e.free()
		}
		e.ask.mustSet(e.ask.gate.SetConcurrency(e.asking))
	}
	return nil
}

// others reports whether w was sent while another scope was surely told to wait: not at its end, which
// comes a little later for some than for others.
func (s *scopes) others(w *word) bool {
	mine := s.of[w.route]
	for sc := range s.e.scopes {
		if sc != mine && w.sent.Before(sc.began.Add(sc.until.Sub(sc.began)*4/5)) {
			return true
		}
	}
	return false
}

// refuse notes that a call of another route was throttled, and reports whether that shows that all are.
func (e *episode) refuse(w *word) bool {
	e.refused++
	if w.asked {
		e.asked++
	}
	e.refusedOf[w.route] = struct{}{}
	if (e.refused+1)/(e.granted+e.refused+2) < 1./4 {
		return false
	}
	return e.asked >= enoughAsked || e.refused >= enoughAsked || e.noneLeft()
}

// crowd reports whether w, of a call that was in flight when e began, shows that all are throttled: so
// were all routes that are known to call, and all are to wait as long.
func (e *episode) crowd(w *word) bool {
	if w.shows || e.granted > 0 || len(e.refusedOf) < enoughAsked || !e.noneLeft() {
		return false
	}
	wait := w.until.Sub(w.now)
	for sc := range e.scopes {
		if other := sc.until.Sub(sc.began); max(wait-other, other-wait) > time.Second+max(wait, other)/8 {
			return false
		}
	}
	return true
}

// noneLeft reports whether all routes that are known to call were throttled.
func (e *episode) noneLeft() bool {
	for route := range e.others {
		if _, refused := e.refusedOf[route]; !refused {
			return false
		}
	}
	return true
}

// widen ends the episode, if there is one: the limit is the host's. s is locked.
func (s *scopes) widen(w *word) (do todo) {
	s.restAt = w.now
	e := s.e
	if e == nil {
		return nil
	}
	until, why := e.until, w.why
	if w.until.After(until) {
		until = w.until
	}
	host := s.host.gate
	do = todo{func() { host.PauseUntil(until, why) }}
	s.rested = min(2*s.rested+1, mostWaits)
	s.rest = s.rested
	return append(do, s.end()...)
}

// finish ends the episode because the waits are over. s is locked.
func (s *scopes) finish() (do todo) {
	e := s.e
	if e.granted > 0 {
		s.own, s.rest, s.rested = true, 0, 0
		do = e.free()
		e.timer.Stop()
		s.e = nil
		s.quiet()
		return do
	}
	if e.refused > 0 || len(e.refusedOf) > 1 {
		s.rested = min(2*s.rested+1, mostWaits)
		s.rest = s.rested
	}
	// Those that have waited must not leave together: the host begins slowly, as after its own pause.
	host, until := s.host.gate, time.Now().Add(time.Millisecond)
	do = todo{func() { usedup.Restart(host, until, "after the waits of its routes") }}
	do = append(do, s.end()...)
	s.forgetOthers(e)
	return do
}

// end ends the episode and its scopes.
func (s *scopes) end() (do todo) {
	e := s.e
	e.timer.Stop()
	for sc := range e.scopes {
		for route, other := range s.of {
			if other == sc {
				delete(s.of, route)
			}
		}
		gate := sc.st.gate
		do = append(do, func() { reroute.TurnAway(gate, everyRoute) })
	}
	do = append(do, e.free()...)
	s.e = nil
	s.quiet()
	return do
}
