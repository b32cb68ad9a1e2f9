// Package memory keeps limits in this process: all of them for a store that has no
// server, and otherwise the local shares of those that a server has. It does the same as the scripts.
//
// The packages leaky, pacer and semaphore are better limits for one process, but could
// not give a server's results: slots are numbers that a server could have given, leases
// have tokens.
package memory

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A Memory is limits by their keys, which are those of a server.
type Memory struct {
	*kinds.Clock

	seed   maphash.Seed
	shards [64]shard
	opened atomic.Uint64

	mu         sync.Mutex
	semaphores map[string]*lent
	token      int64 // the last
}

// A shard is some of the keys.
type shard struct {
	mu   sync.Mutex
	held map[string]kinds.Held
	tabs map[string]*tab

	spare []kinds.Held // were held, and can be used for other keys
}

// mostSpare is the number that is kept in a shard.
const mostSpare = 16

func (s *shard) forget(key string, h kinds.Held) {
	delete(s.held, key)
	s.keepSpare(h)
}

func (s *shard) keepSpare(h kinds.Held) {
	if len(s.spare) < mostSpare {
		h.Reset()
		s.spare = append(s.spare, h)
	}
}

// New returns a memory that holds nothing.
func New() *Memory {
	m := &Memory{Clock: kinds.NewClock(), seed: maphash.MakeSeed(), semaphores: map[string]*lent{}}
	for i := range m.shards {
		m.shards[i].held, m.shards[i].tabs = map[string]kinds.Held{}, map[string]*tab{}
	}
	return m
}

// A Hold is the only use of a key until it is closed.
type Hold struct {
	kinds.Held
	shard *shard
	key   string
	old   kinds.Held // the kept state, or nil
	now   time.Duration
}

// Open opens the state of key by rule. The caller must close it, soon.
func (m *Memory) Open(key string, rule kinds.Rule) Hold {
	h := Hold{shard: m.lock(key), key: key}
	h.old, h.now = h.shard.held[key], m.Elapsed()
	old := h.old
	if n := len(h.shard.spare) - 1; old == nil && n >= 0 {
		old, h.shard.spare = h.shard.spare[n], h.shard.spare[:n]
	}
	h.Held = rule.Open(old, h.now, m.Clock)
	return h
}

// Close ends the use. asked is whether anything was asked for.
func (h *Hold) Close(asked bool) {
	keep := h.Held.Close(asked)
	switch {
	case keep && h.Until() > h.now:
		if h.old != h.Held {
			h.shard.held[h.key] = h.Held
		}
	case h.old != nil && (keep || h.old.Until() <= h.now):
		h.shard.forget(h.key, h.old)
	case h.old == nil && h.Until() <= h.now: // it was only looked at
		h.shard.keepSpare(h.Held)
	}
	h.shard.mu.Unlock()
}

// lock locks the shard of key.
func (m *Memory) lock(key string) *shard {
	const often = 16
	if n := m.opened.Add(1); n%often == 0 {
		m.sweep(&m.shards[n/often%uint64(len(m.shards))], 2*often)
	}
	s := &m.shards[maphash.String(m.seed, key)%uint64(len(m.shards))]
	s.mu.Lock()
	return s
}

// sweep removes state that no longer applies, among so many keys, which are any.
func (m *Memory) sweep(s *shard, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, n := m.Elapsed(), most
	for key, h := range s.held {
		if h.Until() <= now {
			s.forget(key, h)
		}
		if n--; n == 0 {
			break
		}
	}
	for key, t := range s.tabs {
		if t.until <= now {
			delete(s.tabs, key)
		}
		if most--; most == 0 {
			return
		}
	}
}

// A tab is the units admitted here and not reported to the server.
type tab struct {
	units int64         // that are to be reported
	last  time.Duration // when anything was admitted last
	until time.Duration // it counts so long
}

// tab returns the tab of key, or nil if none counts.
func (s *shard) tab(key string, now time.Duration) *tab {
	if t := s.tabs[key]; t != nil && t.until > now {
		return t
	}
	return nil
}

// Note records that units of the key were admitted here that count for so long at most.
func (h *Hold) Note(units int64, counts time.Duration) { h.shard.note(h.key, units, counts, h.now) }

// Note records that units were admitted here that count for so long at most.
func (m *Memory) Note(key string, units int64, counts time.Duration) {
	s := m.lock(key)
	defer s.mu.Unlock()
	s.note(key, units, counts, m.Elapsed())
}

func (s *shard) note(key string, units int64, counts, now time.Duration) {
	t := s.tab(key, now)
	if t == nil {
		t = new(tab)
		s.tabs[key] = t
	}
	t.units, t.last, t.until = t.units+units, now, now+min(counts, math.MaxInt64-now)
}

// Unreported returns the number of units that are to be reported to the server, and forgets them.
func (m *Memory) Unreported(key string) (units int64) {
	s := m.lock(key)
	defer s.mu.Unlock()
	if t := s.tab(key, m.Elapsed()); t != nil {
		units, t.units = t.units, 0
	}
	return units
}

// Unnote takes up to n off the units to be reported, and returns its number. own reports whether
// units admitted age ago may have been admitted here.
func (m *Memory) Unnote(key string, n int64, age time.Duration) (off int64, own bool) {
	s := m.lock(key)
	defer s.mu.Unlock()
	now := m.Elapsed()
	if t := s.tab(key, now); t != nil {
		off = min(n, t.units)
		own = now-age <= t.last
		t.units -= off
	}
	return off, own
}

// Keys returns the number of keys that are kept.
func (m *Memory) Keys() (n int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += len(s.held)
		s.mu.Unlock()
	}
	return n
}
