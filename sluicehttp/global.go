package sluicehttp

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A global remembers which servers have paused all calls.
//
// A throttle pauses one gate. If Config.Key makes several gates for one server, as for the
// buckets of Discord, and the server says that a limit is for all calls
// (X-RateLimit-Global), then all gates whose last request went to that server are paused,
// and gates that are used for it while the pause lasts.
type global struct {
	some    atomic.Bool // saves most requests the lock
	grouped atomic.Bool // there is a key from Config.Key or Overrides

	mu     sync.Mutex
	paused map[key]pause // by destination
}

// mostPaused bounds the memory for servers that have paused all calls.
const mostPaused = 10_000

type pause struct {
	until time.Time
	why   string
}

// pauseAll pauses all gates whose last request went to server. st is the one through which
// the server said so.
func (st *state) pauseAll(server key, p pause, now time.Time) {
	g := &st.t.global
	if !p.until.After(now) {
		return
	}
	g.mu.Lock()
	if g.paused == nil {
		g.paused = make(map[key]pause)
	}
	if _, known := g.paused[server]; !known && len(g.paused) >= mostPaused {
		g.makeRoom(now)
	}
	if p.until.After(g.paused[server].until) {
		g.paused[server] = p
	}
	g.some.Store(true)
	g.mu.Unlock()
	// Later requests call goesTo, which looks at g; gates of earlier ones are found
	// here. If each key is a server, there is only the gate of st, which its throttle
	// pauses: looking at 10,000 gates took 2 ms for each response of a hostile server.
	if !g.grouped.Load() {
		return
	}
	for _, other := range st.t.states.Range {
		if other := other.(*state); other.leadsTo(server) {
			other.gate.PauseUntil(p.until, p.why)
		}
	}
}

// goesTo notes that c goes through st to its server, and pauses the gate if that server has
// paused all calls.
func (st *state) goesTo(c *call) {
	g := &st.t.global
	if st.key.scheme != "" && !g.some.Load() {
		return // the key is the server
	}
	server := c.server()
	if !st.leadsTo(server) {
		g.grouped.Store(true)
		another := server // allocates only here
		st.server.Store(&another)
	}
	if !g.some.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if p, ok := g.paused[server]; ok && p.until.After(now) {
		st.gate.PauseUntil(p.until, p.why)
	}
	g.forget(2, now)
	g.some.Store(len(g.paused) > 0)
}

// forget looks at n random pauses, forgets those that are over, and returns the one that
// ends last. g.mu is held.
func (g *global) forget(n int, now time.Time) (last key) {
	var latest time.Time
	for server, p := range g.paused {
		switch {
		case !p.until.After(now):
			delete(g.paused, server)
		case p.until.After(latest):
			last, latest = server, p.until
		}
		if n--; n == 0 {
			break
		}
	}
	return last
}

// makeRoom forgets pauses that are over or, if it finds none, one that ends late. Gates stay
// paused. g.mu is held.
func (g *global) makeRoom(now time.Time) {
	before := len(g.paused)
	if last := g.forget(16, now); len(g.paused) == before {
		delete(g.paused, last)
	}
}

// lift forgets the pauses of the servers for which match returns true, and reports whether
// there were any.
func (g *global) lift(match func(server key) bool) bool {
	if !g.some.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.paused)
	maps.DeleteFunc(g.paused, func(server key, _ pause) bool { return match(server) })
	g.some.Store(len(g.paused) > 0)
	return len(g.paused) < before
}

func (st *state) leadsTo(server key) bool {
	last := st.server.Load()
	return last != nil && *last == server
}
