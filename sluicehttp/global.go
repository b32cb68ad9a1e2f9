package sluicehttp

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// # Whom does a server stop that says it means all calls?
//
// A throttle is for those who share the gate of whoever was told. If Config.Key
// makes several gates for one server, as for the buckets of Discord, that is too
// few when the server says that the limit is one of all calls (X-RateLimit-Global),
// and calls on regardless end in a ban. So all gates by which the last request went
// to that server are paused, and those that come while it lasts. A gate of several
// servers stops for each of them.

// A global is which servers have paused all calls.
type global struct {
	some    atomic.Bool // spares nearly all requests the lock
	grouped atomic.Bool // some key is not a server's: Config.Key or Overrides made it

	mu     sync.Mutex
	paused map[key]pause // by destination
}

// mostPaused bounds how many servers are remembered to have paused all calls.
const mostPaused = 10_000

type pause struct {
	until time.Time
	why   string
}

// pauseAll pauses all gates of st's transport that lead to a server, and is called
// with what it said through st.
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
	// Who enters from now on looks at g after it has said where it goes; who
	// did that before is found here. If each key is a server, the only gate that
	// leads there is st's, which its throttle pauses: with 10,000 gates, to look at
	// all took 2 ms for each answer of a hostile server.
	if !g.grouped.Load() {
		return
	}
	for _, other := range st.t.states.Range {
		if other := other.(*state); other.leadsTo(server) {
			other.gate.PauseUntil(p.until, p.why)
		}
	}
}

// heads notes that a request goes to server by st, and pauses the gate if that
// server has paused all calls.
func (st *state) heads(server key) {
	if !st.leadsTo(server) {
		if st.key.scheme == "" {
			st.t.global.grouped.Store(true)
		}
		another := server // only then an allocation
		st.server.Store(&another)
	}
	g := &st.t.global
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

// forget looks at n pauses, which chance chooses, and forgets those that are over. It
// returns the one of them that ends last. g.mu is held.
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

// makeRoom forgets pauses that are over or, if it finds none, one of those that end
// last. The gates that it has paused stay so. g.mu is held.
func (g *global) makeRoom(now time.Time) {
	before := len(g.paused)
	if last := g.forget(16, now); len(g.paused) == before {
		delete(g.paused, last)
	}
}

// lift forgets the pauses of the servers for which is returns true, and reports
// whether there were any.
func (g *global) lift(is func(server key) bool) bool {
	if !g.some.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.paused)
	maps.DeleteFunc(g.paused, func(server key, _ pause) bool { return is(server) })
	g.some.Store(len(g.paused) > 0)
	return len(g.paused) < before
}

func (st *state) leadsTo(server key) bool {
	last := st.server.Load()
	return last != nil && *last == server
}
