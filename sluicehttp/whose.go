package sluicehttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A word is a statement of a response that may delay calls.
type word struct {
	route   uint64
	sent    time.Time // when the call was granted
	now     time.Time
	until   time.Time   // until when to wait; zero if it does not say
	why     string      // for Stats
	refused bool        // otherwise something is exhausted, if until is set
	unclear bool        // it may be a throttling response: see unclear
	of      fingerprint // the exhausted limit, as far as is known
	shows   bool        // that there is a limit, and it is exhausted
	all     bool        // it names the account or the host
	named   bool        // it names the bucket of the limit
	asked   bool        // the call asked for the others
}

// concerns returns whose limit the response to h is about, pinned if it is neither of h nor the host's:
// said is its content, found how far to believe it.
func (c *call) concerns(h *hold, said *ratelimit.Info, found *findings, now time.Time) *state {
	s := c.host.scopes
	if s == nil {
		return h.state
	}
	mode := s.mode.Load()
	at, source := h.state.emptyUntil(said, found, now)
	exhausted := at.After(now) && source != said.RetrySource
	if mode&busy == 0 && !said.Throttled && !exhausted && len(said.Limits) == 0 && !unclear(said) {
		return h.state // as most
	}
	if said.Bucket != "" && !exhausted && h.state == c.host {
		at, source = said.PauseUntil() // the claims of the host's gate are about all buckets
		exhausted = !said.Throttled && at.After(now) && !c.t.cfg.Published.Disabled
	}
	w := word{route: c.routeNumber(), named: said.Bucket != "", sent: reroute.AdmittedAt(h.permit), now: now, refused: said.Throttled, unclear: unclear(said), asked: h.state.key.route == askName}
	switch {
	case said.Throttled:
		w.all = namesAll(said)
		if said.RetryAt.After(now) {
			w.until, w.why = said.RetryAt, (&StatusError{said.Status, said.Reason}).Error()
		}
	case exhausted:
		w.until, w.why = c.t.later(h.state.cut(at, now, source), now), source+": nothing remains"
	}
	w.note(said)
	if mode&several == 0 {
		s.holdUp(c, &w, said)
		return h.state
	}
	if h.state.key.route != "" && !w.asked {
		return s.inScope(c, h.state, &w, said)
	}
	return s.judge(c, &w, said)
}

// note notes in w the exhausted limit that said shows.
func (w *word) note(said *ratelimit.Info) {
	for i := range said.Limits {
		if l := &said.Limits[i]; isZero(l.Remaining) && l.Unit != concurrent {
			w.of, w.shows = fingerprintOf(l, said), true
			return
		}
	}
}

func fingerprintOf(l *ratelimit.Limit, said *ratelimit.Info) fingerprint {
	return fingerprint{short(l.Name), short(l.Partition), short(said.Bucket), l.Max}
}

// namesAll reports whether a throttle says that it is about the account or the host, whatever the
// route.
func namesAll(said *ratelimit.Info) bool {
	return said.Global || said.RetrySource == "its kind" || strings.EqualFold(said.Scope, "global") || strings.HasPrefix(said.Reason, "secondary")
}

// well reports whether said is an answer that is no throttling response, as far as is known.
func well(said *ratelimit.Info) bool {
	return !said.Throttled && said.Status < 500 && !mayBeRefusal(said.Status) && said.Status != http.StatusTooManyRequests
}

// unclear reports whether said may be a throttle that does not say so. Not 403, which is the answer of
// some routes to all calls.
func unclear(said *ratelimit.Info) bool {
	return !said.Throttled && said.ShouldRetry == nil && said.RetryAt.IsZero() &&
		said.Status != http.StatusForbidden && mayBeRefusal(said.Status)
}

// holdUp notes that the host is delayed because of its only route.
func (s *scopes) holdUp(c *call, w *word, said *ratelimit.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.show(w, said)
	if s.mode.Load()&several != 0 { // another route has come
		return
	}
	switch {
	case w.all:
		s.held = nil
		s.change(0, alone)
	case w.until.IsZero() || w.refused && w.tooLong():
	case s.held == nil || w.until.After(s.held.until):
		s.held = &scope{name: routeName(c.req), began: w.now, until: w.until}
		s.change(alone, 0)
	}
}

// tooLong reports whether a wait is as long as that of a ban, and shows no limit.
func (w *word) tooLong() bool { return w.until.Sub(w.now) > longWait && !w.shows }

// inScope is concerns for a call of a scope.
func (s *scopes) inScope(c *call, st *state, w *word, said *ratelimit.Info) *state {
	var do todo
	s.mu.Lock()
	sc := s.of[w.route]
	to := st
	switch {
	case w.refused && sc == nil: // it has ended meanwhile
		s.mu.Unlock()
		return s.judge(c, w, said)
	case w.refused && (w.all || s.again(sc, w)):
		do, to = s.widen(w), s.host
	case w.until.IsZero() && well(said):
		do = s.grant(w)
	}
	s.mu.Unlock()
	do.run()
	return to
}

// again reports whether w, a throttling response after the wait of sc has ended, shows that others have made it
// longer: nobody else was granted, so that it is the route's is not proven.
func (s *scopes) again(sc *scope, w *word) bool {
	if s.e == nil || s.e.granted > 0 || w.until.IsZero() || w.sent.Before(sc.until) {
		return false
	}
	_, unproven := s.e.scopes[sc]
	return unproven
}

// judge is concerns for a call of the host's gate, or one that asks.
func (s *scopes) judge(c *call, w *word, said *ratelimit.Info) *state {
	s.mu.Lock()
	do, sc, asks := s.decide(c, w, said)
	s.show(w, said)
	s.mu.Unlock()
	if sc == nil {
		do.run()
		return s.host
	}
	return s.narrow(c, w, said, sc, asks, do)
}

// decide returns the scope that is to be delayed by w, nil for the host, whether others are to
// probe, and the work to be done. s is locked.
func (s *scopes) decide(c *call, w *word, said *ratelimit.Info) (do todo, sc *scope, asks bool) {
	if s.e != nil && !w.now.Before(s.e.until) {
		do = s.finish()
	}
	e := s.e
	late := e != nil && (w.asked || w.sent.After(e.began)) // it was sent when it was asked whose limit it is
	switch {
	case w.until.IsZero() && w.unclear:
		return do, s.ofTrial(c, w), false
	case w.until.IsZero() && !w.refused:
		if well(said) {
			s.try(w)
			do = append(do, s.grant(w)...)
		}
		return do, nil, false
	case w.all:
		return append(do, s.widen(w)...), nil, false
	case w.until.IsZero():
		if late && e.refuse(w) {
			return append(do, s.widen(w)...), nil, false
		}
		return do, s.ofTrial(c, w), false
	}
	if sc := s.scopeOf(w.route); sc != nil {
		sc.tell(w)
		return do, sc, false
	}
	if w.named {
		if same, other := s.compare(w); other || !same { // if all routes have shown this one, it may be the host's
			return do, s.scopeFor(c, w), false
		}
	}
	if e == nil {
		sc, asks = s.first(c, w)
		return do, sc, asks
	}
	if late && e.refuse(w) {
		return append(do, s.widen(w)...), nil, false
	}
	e.refusedOf[w.route] = struct{}{}
	if e.crowd(w) {
		return append(do, s.widen(w)...), nil, false
	}
	return do, s.scopeFor(c, w), false
}

// first is decide for the first wait: asks says that it must be asked whose it is.
func (s *scopes) first(c *call, w *word) (sc *scope, asks bool) {
	same, other := s.compare(w)
	switch {
	case !w.sent.After(s.restAt):
		return nil, false // in flight when it was found that it is the host's
	case other:
		return s.scopeFor(c, w), false
	case same:
		return nil, false
	case w.refused && w.tooLong() && !s.own:
		return nil, false
	case s.rest > 0:
		s.rest--
		s.restAt = w.now
		return nil, false
	}
	return s.scopeFor(c, w), true
}

// scopeFor returns the scope that is to be delayed by w, new or that of another route; nil if there
// are too many.
func (s *scopes) scopeFor(c *call, w *word) *scope {
	name := routeName(c.req)
	if w.of.bucket != "" {
		name = short(w.of.bucket)
	} else if w.shows && w.of.name != "" && s.showsNames(w) {
		name = short(w.of.name)
	}
	for _, sc := range s.of {
		if sc.name == name && !sc.forgotten() {
			sc.tell(w)
			return sc
		}
	}
	if len(s.of) >= mostScopes && !s.makeRoom(w.now) {
		return nil
	}
	return &scope{name: name, began: w.now, until: w.until}
}

// showsNames reports whether routes have shown limits of other names than that of w: then the names
// are those of scopes.
func (s *scopes) showsNames(w *word) bool {
	for _, v := range s.shown {
		if v.of.name != w.of.name {
			return true
		}
	}
	return false
}

// tell notes the wait of w.
func (sc *scope) tell(w *word) {
	if w.until.After(sc.until) {
		sc.began, sc.until = w.now, w.until
	}
}

// makeRoom drops the scope whose last wait ended first, and reports whether one has ended. Its gate is
// left to Keyed.
func (s *scopes) makeRoom(now time.Time) bool {
	var oldest *scope
	for _, sc := range s.of {
		if oldest == nil || sc.until.Before(oldest.until) {
			oldest = sc
		}
	}
	if oldest == nil || oldest.until.After(now) {
		return false
	}
	s.remove(oldest)
	return true
}

// remove lets the routes of sc go through the host's gate again.
func (s *scopes) remove(sc *scope) {
	for route, other := range s.of {
		if other == sc {
			delete(s.of, route)
		}
	}
	if s.e != nil {
		delete(s.e.scopes, sc)
	}
	s.quiet()
}

// compare reports whether other routes have shown the limit of w, lately nearly exhausted, and whether
// they have shown other limits.
func (s *scopes) compare(w *word) (same, other bool) {
	if !w.shows {
		return false, false
	}
	for route, v := range s.shown {
		most, known := v.of.most.Value()
		switch {
		case route == w.route || !v.resetAt.After(w.now):
		case v.of != w.of:
			other = true
		case !known || v.left <= max(5, most/10):
			same = true
		}
	}
	return same, other
}

// show notes the limit that the response to a route shows.
func (s *scopes) show(w *word, said *ratelimit.Info) {
	var shows *ratelimit.Limit
	for i := range said.Limits {
		l := &said.Limits[i]
		if _, known := l.Remaining.Value(); !known || l.ResetAt.IsZero() || l.Unit == concurrent {
			continue
		}
		if shows == nil || isZero(l.Remaining) {
			shows = l
		}
	}
	if shows == nil {
		return
	}
	if s.shown == nil {
		s.shown = make(map[uint64]showing)
	}
	if _, known := s.shown[w.route]; !known && len(s.shown) >= mostShown {
		for route := range s.shown { // any
			delete(s.shown, route)
			break
		}
	}
	left, _ := shows.Remaining.Value()
	s.shown[w.route] = showing{fingerprintOf(shows, said), left, shows.ResetAt}
}

// narrow delays sc by w, and returns its state, pinned, or the host's if its gate cannot be made.
func (s *scopes) narrow(c *call, w *word, said *ratelimit.Info, sc *scope, asks bool, do todo) *state {
	st, ask := s.parts(sc, asks)
	if st == nil {
		do.run()
		return s.host
	}
	s.mu.Lock()
	if hosts, asked := !w.named && !w.sent.After(s.restAt), asks && s.e != nil; hosts || asked { // found, or asked, meanwhile
		s.mu.Unlock()
		do.run()
		st.unpin()
		if ask != nil {
			ask.unpin()
		}
		if hosts {
			return s.host
		}
		return s.judge(c, w, said)
	}
	s.enter(w, sc, st, ask)
	asking := s.e != nil && s.e.ask != nil
	t := s.trials[w.route]
	delete(s.trials, w.route)
	s.change(busy, 0)
	s.mu.Unlock()
	s.host.renounce(said)
	// Before those that wait for the host move to it.
	switch {
	case w.until.IsZero():
		s.inherit(st, t != nil && t.others.refused > 0)
	case w.refused:
		st.gate.PauseUntil(w.until, w.why)
	default:
		usedup.Pause(st.gate, w.until, w.why)
	}
	do.run()
	reroute.TurnAway(s.host.gate, func(label uint32) bool { return asking || label == labelOf(w.route) || label == anyRoute })
	return st
}

// parts returns the state of sc and, if it asks, that of the call which does so, both pinned. st is
// nil if they cannot be made.
func (s *scopes) parts(sc *scope, asks bool) (st, ask *state) {
	st = s.host.t.part(s.host.keyOf(sc.name))
	if st == nil || !asks {
		return st, nil
	}
	if ask = s.host.t.part(s.host.keyOf(askName)); ask == nil {
		st.unpin()
		return nil, nil
	}
	return st, ask
}

// enter makes sc, or the scope of its name that is there, the one of w's route, with st, and begins
// to ask if there is an ask. s.mu is locked.
func (s *scopes) enter(w *word, sc *scope, st, ask *state) {
	isNew := true
	for _, other := range s.of {
		if other.name == sc.name {
			isNew, sc = false, other
		}
	}
	if isNew {
		renew(st.gate) // of an earlier scope of this name
	}
	sc.st = st
	if s.of == nil {
		s.of = make(map[uint64]*scope)
	}
	s.of[w.route] = sc
	for route, v := range s.shown {
		if w.shows && v.of == w.of && s.of[route] == nil && len(s.of) < mostShown && (w.of.name != "" || w.of.bucket != "") {
			s.of[route] = sc // the server says that it is the same limit
		}
	}
	if ask != nil {
		s.begin(w, ask)
	}
	if e := s.e; e != nil && isNew && !w.until.IsZero() {
		e.scopes[sc] = struct{}{}
		e.refusedOf[w.route] = struct{}{}
		if sc.until.After(e.until) {
			e.until = sc.until
		}
	}
}

// anyRoute is the label of a call whose route is not known yet.
const anyRoute = 1

// labelOf returns the label of the calls of a route. Few others may have it.
func labelOf(route uint64) uint32 { return max(uint32(route^route>>32), anyRoute) }

// split makes the pause of the host, whose only route it was told, that of the route: c is of another.
func (s *scopes) split(c *call, held *scope) {
	host := s.host
	if paused := host.gate.Stats().PausedUntil; paused.After(held.until.Add(time.Second)) {
		return // for another reason
	}
	route := s.last.Load().route
	st, ask := host.t.part(host.keyOf(held.name)), host.t.part(host.keyOf(askName))
	if st == nil || ask == nil {
		for _, st := range []*state{st, ask} {
			if st != nil {
				st.unpin()
			}
		}
		return
	}
	defer st.unpin()
	renew(st.gate)
	_ = st.gate.Restore(host.gate.Snapshot()) // the estimate of the host is about the only route
	why := host.gate.Stats().PausedWhy
	st.gate.PauseUntil(held.until, why)
	held.st = st
	s.mu.Lock()
	s.of = map[uint64]*scope{route: held}
	w := word{now: held.began, until: held.until}
	s.begin(&w, ask)
	s.e.scopes[held] = struct{}{}
	s.e.refusedOf[route] = struct{}{}
	s.change(busy, 0)
	s.mu.Unlock()
	reroute.TurnAway(host.gate, everyRoute)
	host.published.forget()
	renew(host.gate)
	host.repause()
}

// renew makes a gate as it was before the first throttling response.
func renew(gate *sluice.Gate) {
	gate.Forget()
	gate.Resume()
}

// adopt notes the limit of st in the response to a call through the host's gate, and reports whether it
// explains why that was throttled.
func (st *state) adopt(said *ratelimit.Info, now time.Time) (explained bool) {
	var found findings
	h := hold{state: st}
	explained = st.noteClaims(&h, said, &found, now)
	st.published.adopt(said, &found, now)
	st.learn(said, &found, now)
	st.adjust()
	return explained
}

// renounce forgets the exhausted limits that said shows: they are those of a scope, although earlier
// responses to its route have said what remains of them here.
func (st *state) renounce(said *ratelimit.Info) {
	st.published.renounce(said)
	st.mu.Lock()
	for i := range said.Limits {
		for _, c := range st.claimed {
			if l := &said.Limits[i]; isZero(l.Remaining) && c.name == l.Name && c.partition == l.Partition {
				c.short, c.unused = shortWindow{}, unused{}
				st.windowRate = sluice.Rate{} // the next response shows the one of another limit
			}
		}
	}
	st.mu.Unlock()
	st.adjust()
}

// renounce is state.renounce for the published limits.
func (p *published) renounce(said *ratelimit.Info) {
	if p == nil {
		return
	}
	p.mu.Lock()
	for i := range said.Limits {
		if l := &said.Limits[i]; isZero(l.Remaining) {
			p.drop(l)
		}
	}
	p.mu.Unlock()
	p.bell.Ring()
}

// adopt notes a response whose call another limiter has charged.
func (p *published) adopt(said *ratelimit.Info, found *findings, now time.Time) {
	if p == nil {
		return
	}
	k := &charge{at: now, answered: now, ended: now, void: said.Throttled}
	p.mu.Lock()
	p.charges = append(p.charges, k)
	p.mu.Unlock()
	p.answered(k, said, found, now)
}

// watch reports whether each answer counts.
func (s *scopes) watch() bool { return s != nil && s.mode.Load()&busy != 0 }

// strayed reports whether c, which has its permit, chose its gate before it had to go through another.
func (s *scopes) strayed(c *call) bool {
	if !s.watch() {
		return false
	}
	st := s.where(c)
	if st == c.at || st == s.host {
		if st != s.host {
			st.unpin()
		}
		return false
	}
	if c.at != s.host && st.key.route == askName { // a scope that has ended meanwhile
		st.unpin()
		return false
	}
	st.unpin()
	return true
}

// resume forgets the pause of the only route, and lets all continue.
func (s *scopes) resume() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.held = nil
	s.change(0, alone)
	var do todo
	if s.e != nil {
		do = s.e.free()
	}
	s.mu.Unlock()
	do.run()
}

// repause pauses the gate as the user has.
func (st *state) repause() {
	if p := st.pausedByUser.Load(); p != nil && p.until.After(time.Now()) {
		st.gate.PauseUntil(p.until, p.why)
	}
}
