package sluiceredis

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// InProcess returns what to give to [New] for a store without a server: its limits
// are those of this process, and have the same verbs, results and errors. So a
// program that has a Redis in production and none at a desk differs in one
// argument.
//
//	client := sluiceredis.InProcess()
//	if addr != "" {
//		client, err = sluiceredis.NewGoRedis(redis.NewClient(…))
//	}
//	store, err := sluiceredis.New(client, sluiceredis.Config{})
//
// Each store has limits of its own, and what does not count any more is forgotten. A
// call takes about a microsecond and fails only if its context is done. Only the
// monotonic clock counts, except that aligned windows follow the wall clock. A lease
// lasts until it is released. A restart begins anew.
//
// A program that never has a Redis should use packages leaky, window, pacer and
// semaphore.
func InProcess() Client { return inProcess{} }

// inProcess is the client of a store without a server.
type inProcess struct{}

var errNoServer = errors.New("sluiceredis: limits of this process have no server to run scripts")

// Run implements Client.
func (inProcess) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	return nil, errNoServer
}

// RunMany implements Client.
func (inProcess) RunMany(_ context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	for i := range replies {
		replies[i].Err = errNoServer
	}
	return replies
}

// A memory keeps limits in this process: all of them for a store that has no
// server, and otherwise their local shares. Keys are those of the server. It does what
// the scripts do, each kind in its own file. The packages leaky, pacer and semaphore are
// better limits for one process, but could not give a server's answers: slots are
// numbers that a server could have given, leases have tokens.
type memory struct {
	began  time.Time
	shift  atomic.Int64 // what stands for the server's clock, less the time since began, µs
	served atomic.Bool  // there is a server, whose clock that is

	seed    maphash.Seed
	shards  [64]shard
	updates atomic.Uint64

	mu         sync.Mutex
	semaphores map[string]*lent
	token      int64 // the last
}

// A shard is some of the keys.
type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// An entry is what is known of a key.
type entry struct {
	value any           // of the kind of limit
	until time.Duration // it counts so long
	tab   tab
}

func (e *entry) over(now time.Duration) bool { return e.until <= now && e.tab.until <= now }

func newMemory() *memory {
	m := &memory{began: time.Now(), seed: maphash.MakeSeed(), semaphores: map[string]*lent{}}
	for i := range m.shards {
		m.shards[i].entries = map[string]*entry{}
	}
	m.shift.Store(m.began.UnixMicro())
	return m
}

// update has f change what is known of key. now is the time since m was made.
func (m *memory) update(key string, f func(e *entry, now time.Duration)) {
	const often = 16
	if n := m.updates.Add(1); n%often == 0 {
		m.sweep(&m.shards[n/often%uint64(len(m.shards))], 2*often)
	}
	s := &m.shards[maphash.String(m.seed, key)%uint64(len(m.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	now, e := time.Since(m.began), s.entries[key]
	known := e != nil
	if !known {
		e = new(entry)
	}
	f(e, now)
	switch over := e.over(now); {
	case known && over:
		delete(s.entries, key)
	case !known && !over:
		s.entries[key] = e
	}
}

// sweep forgets what is over among so many keys, which are any.
func (m *memory) sweep(s *shard, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(m.began)
	for key, e := range s.entries {
		if e.over(now) {
			delete(s.entries, key)
		}
		if most--; most == 0 {
			return
		}
	}
}

// clock returns what stands for the server's clock: microseconds since 1970. It
// goes on evenly, whatever is done to ours.
func (m *memory) clock() int64 { return m.shift.Load() + time.Since(m.began).Microseconds() }

// nanos returns the clock in nanoseconds.
func (m *memory) nanos() int64 { return m.clock() * 1000 }

// calendar returns the clock that windows are aligned by: the wall clock, if there
// is no server.
func (m *memory) calendar() int64 {
	if m.served.Load() {
		return m.clock()
	}
	return time.Now().UnixMicro()
}

// heard notes what the server's clock was when a reply arrived, or a little
// before.
func (m *memory) heard(now int64) {
	m.shift.Store(now - time.Since(m.began).Microseconds())
	m.served.Store(true)
}

// A tab is what was let through here and the server does not know of.
type tab struct {
	units int64         // that it is to be told
	last  time.Duration // when anything was let through last
	until time.Duration // it counts so long
}

// note notes that units were let through here that count for so long at most.
func (m *memory) note(key string, units int64, counts time.Duration) {
	m.update(key, func(e *entry, now time.Duration) {
		e.tab = tab{e.tab.units + units, now, now + min(counts, math.MaxInt64-now)}
	})
}

// untold returns how many units the server is to be told of, and forgets them.
func (m *memory) untold(key string) (units int64) {
	m.update(key, func(e *entry, _ time.Duration) { units, e.tab.units = e.tab.units, 0 })
	return units
}

// unnote takes up to n off what the server is to be told of, and returns how many.
// own reports whether what was admitted age ago may have been let through here.
func (m *memory) unnote(key string, n int64, age time.Duration) (off int64, own bool) {
	m.update(key, func(e *entry, now time.Duration) {
		off = min(n, e.tab.units)
		own = e.tab.until > 0 && now-age <= e.tab.last
		e.tab.units -= off
	})
	return off, own
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func ceil(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}
