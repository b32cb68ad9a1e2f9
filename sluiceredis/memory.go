package sluiceredis

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/buckets"
	"github.com/sluice-go/sluice/internal/keyed"
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
// Each store has limits of its own, and keys cost what they cost in packages leaky
// and window: what does not count any more is forgotten. A call takes about a
// microsecond, waits for nobody and fails for no other reason than its context. Only
// the monotonic clock counts, but for aligned windows, which follow the wall clock.
// A lease lasts until it is released, so it is never lost, and needs no renewal. A
// restart begins anew.
//
// A program that never has a Redis is better off with the packages of the module
// above.
func InProcess() Client { return inProcess{} }

// inProcess is what New knows the wish by.
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

// ServerID implements Client.
func (inProcess) ServerID(context.Context, string) (string, error) { return "", errNoServer }

// # Why not the packages leaky, pacer and semaphore?
//
// They are better limits for one process, and cannot give these answers: slots are
// numbers that a server could have given, leases have tokens.
// So memory does what the scripts do, in Go, one file for each kind, and who was
// granted what follows by the same arithmetic as from a script's reply. A log
// needs none of that, and is one of package window.

// A memory keeps limits in this process: all of them for a store that has no
// server, and otherwise their local shares. Keys are those of the server.
type memory struct {
	began  time.Time
	shift  atomic.Int64 // what stands for the server's clock, less the time since began, µs
	served atomic.Bool  // there is a server, whose clock that is

	buckets *keyed.Map[string, water]
	fixeds  *keyed.Map[string, counted]
	pacers  *keyed.Map[string, spaced]
	told    *keyed.Map[string, tab]
	quotas  *keyed.Map[string, logQuotas]

	mu         sync.Mutex
	logs       map[int64]*slidings // by window, µs
	semaphores map[string]*lent
	token      int64 // the last
}

func newMemory() *memory {
	m := &memory{
		began:      time.Now(),
		buckets:    keyed.New[string](keyed.Most, drained),
		fixeds:     keyed.New[string](keyed.Most, (counted).over),
		pacers:     keyed.New[string](keyed.Most, (spaced).over),
		told:       keyed.New[string](keyed.Most, (tab).over),
		quotas:     keyed.New[string](keyed.Most, (logQuotas).over),
		logs:       map[int64]*slidings{},
		semaphores: map[string]*lent{},
	}
	m.shift.Store(m.began.UnixMicro())
	return m
}

// clock returns what stands for the server's clock: microseconds since 1970. It
// goes on evenly, whatever is done to ours.
func (m *memory) clock() int64 { return m.shift.Load() + time.Since(m.began).Microseconds() }

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

// A water is what is known of a key of buckets: that of the quota asked last, and
// the one for others.
type water struct {
	tat, rest  time.Duration // when they will be empty, since their map was made
	of, restOf mark
}

func drained(w water, now time.Duration) bool { return w.tat <= now && w.rest <= now }

// by returns w as a cell finds it, and whether that must be kept even if it is
// refused, as leaky_read does. Only the bucket of a share leaks more slowly than its
// quota says: what is in it is time, and costs more.
func (w water) by(c *cell, now time.Duration) (p buckets.Pair, fresh bool) {
	p.Own = w.of.bucket(w.tat - now)
	if w.of == c.of && w.restOf == (mark{}) { // as is usual
		return p, false
	}
	p.Rest = w.restOf.bucket(w.rest - now)
	p, fresh = p.By(c.of.interval, c.of.capacity)
	p.Own.Level, p.Rest.Level = min(p.Own.Level, longest), min(p.Rest.Level, longest)
	return p, fresh
}

func (m mark) bucket(level time.Duration) buckets.Bucket {
	return buckets.Bucket{Interval: m.interval, Capacity: m.capacity, Level: int64(max(0, level))}
}

// pour pours into the buckets of a cell, or takes out if ns is negative, and returns
// the water.
func pour(c *cell, p buckets.Pair, ns int64, now time.Duration) water {
	switch {
	case ns > 0:
		p.Pour(ns)
	case ns < 0:
		p.Return(-ns)
	}
	w := water{tat: now + time.Duration(p.Own.Level), of: c.of}
	if p.Rest.Level > 0 {
		w.rest, w.restOf = now+time.Duration(min(p.Rest.Level, longest)), mark{p.Rest.Interval, p.Rest.Capacity}
	}
	return w
}

// takeFromBucket has requests for one bucket answered, in order.
func (m *memory) takeFromBucket(c cell, requests []*taking) error {
	stamp := m.clock()
	return m.buckets.Update(c.key, func(w water, now time.Duration) water {
		p, keep := w.by(&c, now)
		level, asked := p.Own.Level, false
		for _, t := range requests {
			before := level
			asked = asked || t.n > 0 && t.n <= c.capacity
			t.now, t.sent = stamp, time.Now()
			if t.result, level = c.decide(level, t.n); level > before {
				t.granted = t.n
			}
		}
		if level == p.Own.Level && !(keep && asked) { // a call that only looks never writes
			return w
		}
		return pour(&c, p, level-p.Own.Level, now)
	})
}

// adjustBucket adds to a bucket without asking, or takes out of it, and returns by
// how much it changed.
func (m *memory) adjustBucket(c cell, ns int64) (changed int64, err error) {
	err = m.buckets.Update(c.key, func(w water, now time.Duration) water {
		p, _ := w.by(&c, now)
		delta := min(max(0, p.Own.Level+ns), longest) - p.Own.Level
		changed = max(delta, -delta)
		return pour(&c, p, delta, now)
	})
	return changed, err
}

// A tab is what was let through here and the server does not know of.
type tab struct {
	units int64         // that it is to be told
	last  time.Duration // when anything was let through last, since the map was made
	until time.Duration // it counts so long
}

func (t tab) over(now time.Duration) bool { return t.until <= now }

// note notes that units were let through here that count for so long at most.
func (m *memory) note(key string, units int64, counts time.Duration) {
	_ = m.told.Update(key, func(t tab, now time.Duration) tab { // an error means 2²⁹ keys: then the server is told of fewer
		return tab{t.units + units, now, now + min(counts, math.MaxInt64-now)}
	})
}

// untold returns how many units the server is to be told of, and forgets them.
func (m *memory) untold(key string) (units int64) {
	if m.told.Len() == 0 {
		return 0
	}
	_ = m.told.Update(key, func(t tab, _ time.Duration) tab {
		units, t.units = t.units, 0
		return t
	})
	return units
}

// unnote takes up to n off what the server is to be told of, and returns how many.
// own reports whether what was admitted age ago may have been let through here.
func (m *memory) unnote(key string, n int64, age time.Duration) (off int64, own bool) {
	if m.told.Len() == 0 {
		return 0, false
	}
	_ = m.told.Update(key, func(t tab, now time.Duration) tab {
		off = min(n, t.units)
		own = t.until > 0 && now-age <= t.last
		t.units -= off
		return t
	})
	return off, own
}
