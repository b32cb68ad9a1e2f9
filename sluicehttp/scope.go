package sluicehttp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Whose limit is it?
//
// A server throttles a call and asks for a wait, or says that nothing remains until a reset. That may be
// about the route of the call, or about all calls of the host. The gate of the host is paused for both
// while only one route is known. With several, the narrowest scope that explains it is delayed, and
// it becomes wider only if another one confirms it:
//
//	told       GET /search: 429, Retry-After: 60
//	           ├─ the scope of GET /search, a gate whose parent is that of the host, is paused for 60 s
//	asked      ├─ all other routes go on with one call
//	           │    ├─ throttled, too: by the second, or if no other route is known, it is the host's:
//	           │    │  its gate is paused and learns, the scopes end, and for the next waits (1, 3, 7 …)
//	           │    │  no call asks
//	           │    └─ granted: the others follow, twice as many with each that is granted
//	watched    └─ until the wait is over: if a quarter of the others is throttled, it is the host's after all
//
// One granted call proves little: a bucket of the host may have room for it soon, although the
// server has said a second. So the answers to the others until the wait has ended decide, as they
// decide about a single call, see throttling responses.go of package sluice. If the wait ends and
// nobody else was granted, nothing is proven, and the scopes end.
//
// No call asks if the response names the account or the host, if the wait is longer than a minute and
// comes with no limit that is exhausted, as that of a ban, before a route was found to have a limit of
// its own, or if the responses to several routes have shown this limit, and only this one. If they
// have shown others, it is clear whose limit it is.
//
// A response that names its bucket has said whose limit it is, so no call asks, unless all routes have shown
// that one. Discord counts a bucket for each channel, guild or webhook, and does not name that: from the first
// such response on, routes and buckets contain these ids.
//
// A throttle without a time, or a 503 that may be one, pauses nobody, and no call asks: see trial.go.
//
// A scope is a gate as that of any key, in Keyed, with claims, published limits and a learned pace of
// its own. Keyed forgets it, and with it its scope. Before the first throttling response a request pays for the
// comparison of its path with the last one, and for its route if that is another.

const (
	mostScopes  = 64               // of a host
	mostShown   = 256              // routes of a host whose limits are remembered
	mostAsking  = 64               // calls in flight, at which all others may follow
	askStall    = 10 * time.Second // after which another call asks: the last one may hang
	mostWaits   = 63               // with no call that asks, after those that asked in vain
	longWait    = time.Minute      // longer ones are bans, unless a route was found to have its own limit
	enoughAsked = 2                // refused calls of other routes that show that all are
)

// The bits of scopes.mode. All is 0 while one route is known that was never told to wait.
const (
	several uint32 = 1 << iota // routes are known
	alone                      // the host is paused, and one route is known
	busy                       // there are scopes or trials, or calls ask
)

// scopes are those of one host. Only servers have them: with a Config.Key or an Overrides.Key the
// user has decided which requests belong together.
type scopes struct {
	host *state
	mode atomic.Uint32
	last atomic.Pointer[visit] // while one route is known

	// The server names buckets, so routes are those with their major parameter, see ofMajor.
	major atomic.Bool

	mu    sync.Mutex
	held  *scope            // the pause of the host while one route is known, or nil
	of    map[uint64]*scope // by route
	shown map[uint64]showing
	e     *episode // or nil

	trials map[uint64]*trial // by route

	rest, rested int       // waits to come in which no call asks, and how many there were the last time
	restAt       time.Time // when it was found that one is the host's: calls in flight then belong to it
	own          bool      // a route was found to have a limit of its own
}

// A visit is a path that was used, and its route.
type visit struct {
	method, path string
	route        uint64
}

// A scope is a limit of some calls of a host.
type scope struct {
	name  string
	st    *state    // nil until it has a gate
	began time.Time // the last wait that the server told calls through the host's gate
	until time.Time
}

// A showing is the limit that the last response to a route has shown.
type showing struct {
	of      fingerprint
	left    float64
	resetAt time.Time
}

// A fingerprint tells limits apart.
type fingerprint struct {
	name, partition, bucket string
	most                    ratelimit.Amount
}

// newScopes returns the scopes of a host, or nil if st is not one.
func newScopes(st *state) *scopes {
	if st.key.scheme == "" || st.key.route != "" {
		return nil
	}
	return &scopes{host: st}
}

// # The way of a call

// note notes that c uses its route. It is called once for each request.
func (s *scopes) note(c *call) {
	mode := s.mode.Load()
	if mode == several {
		return
	}
	v := s.last.Load()
	if v != nil && v.path == c.req.URL.Path && v.method == c.req.Method {
		c.route = v.route
		return
	}
	c.major = s.major.Load()
	c.route = routeOf(c.req, c.major)
	if mode&several != 0 {
		return
	}
	next := &visit{c.req.Method, c.req.URL.Path, c.route}
	switch {
	case v == nil && s.last.CompareAndSwap(nil, next):
	case v != nil && v.route == c.route:
		s.last.Store(next)
	default:
		if v = s.last.Load(); v.route != c.route {
			s.meet(c)
		}
	}
}

// meet notes that a second route is known: that of c.
func (s *scopes) meet(c *call) {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.change(several, alone)
	s.mu.Unlock()
	if held != nil && held.until.After(time.Now()) {
		s.split(c, held)
	}
}

// namesBucket notes that a response to c names its bucket, which is that of a channel, guild or webhook: there
// are several routes then.
func (s *scopes) namesBucket(c *call) {
	if s.major.CompareAndSwap(false, true) {
		s.meet(c)
		reroute.TurnAway(s.host.gate, everyRoute) // those that wait have the labels of routes without a major parameter
	}
}

// change sets and clears bits of mode.
func (s *scopes) change(set, clear uint32) {
	for {
		before := s.mode.Load()
		if s.mode.CompareAndSwap(before, before&^clear|set) {
			return
		}
	}
}

// routeNumber returns the route of c.
func (c *call) routeNumber() uint64 {
	if major := c.host.scopes.major.Load(); c.route == 0 || c.major != major {
		c.major, c.route = major, routeOf(c.req, major)
		c.label = labelOf(c.route)
	}
	return c.route
}

// where returns through which gate c goes now, pinned for it if that is not the host's. s is not
// locked.
func (s *scopes) where(c *call) *state {
	if s.mode.Load()&busy == 0 {
		return s.host
	}
	route := c.routeNumber()
	s.mu.Lock()
	sc := s.scopeOf(route)
	var st, ask *state
	if sc != nil {
		st = sc.st
	}
	if e := s.e; sc == nil && e != nil && e.ask != nil {
		ask = e.ask
		ask.pins.Add(onePin) // it is pinned by e
		if len(e.others) < mostScopes {
			e.others[route] = struct{}{}
		}
	}
	s.mu.Unlock()
	switch {
	case ask != nil:
		return ask
	case sc == nil:
		return s.host
	case st.pin():
		return st
	}
	if st = s.host.t.part(s.host.keyOf(sc.name)); st != nil { // perhaps again
		s.mu.Lock()
		if s.of[route] == sc {
			sc.st = st
		}
		s.mu.Unlock()
		return st
	}
	return s.host
}

// scopeOf returns the scope of a route, or nil. s is locked.
func (s *scopes) scopeOf(route uint64) *scope {
	sc := s.of[route]
	if sc != nil && sc.forgotten() {
		delete(s.of, route)
		s.quiet()
		return nil
	}
	return sc
}

// forgotten reports whether Keyed has forgotten the gate of sc.
func (sc *scope) forgotten() bool { return sc.st != nil && sc.st.gone.Load() }

// quiet ends the mode busy if there is no scope and no trial. s is locked.
func (s *scopes) quiet() {
	if len(s.of) == 0 && s.e == nil && len(s.trials) == 0 {
		s.change(0, busy)
	}
}

// keyOf returns the key of a scope of the host st.
func (st *state) keyOf(name string) key { return key{st.key.scheme, st.key.host, name} }

// part returns the state of k, a scope, pinned, or nil if there is no room for it.
func (t *Transport) part(k key) (st *state) {
	err := t.gates.Use(k, func(gate *sluice.Gate) error {
		st = t.stateOf(gate)
		st.pins.Add(onePin) // Keyed does not forget it meanwhile
		return nil
	})
	if err != nil {
		return nil
	}
	return st
}

// askName is the scope of the calls that ask.
const askName = "(other routes)"

// newPart makes the gate of a scope.
func (t *Transport) newPart(k key, name string, more []sluice.Limit) (gate *sluice.Gate, err error) {
	err = t.gates.Use(key{scheme: k.scheme, host: k.host}, func(host *sluice.Gate) error {
		if k.route == askName {
			gate, err = sluice.New(sluice.Config{Name: name, Parent: host, Concurrency: 1, MaxWaiting: t.cfg.Gate.MaxWaiting, Adaptive: sluice.Adaptive{Disabled: true}})
		} else {
			var part any
			part, err = reroute.Part(host, name, more)
			gate, _ = part.(*sluice.Gate)
		}
		return err
	})
	return gate, err
}
