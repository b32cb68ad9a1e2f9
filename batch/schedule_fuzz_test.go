package batch

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A modelItem is an item as the model sees it.
type modelItem struct {
	group    string
	place    *place // of the scheduler, to compare with
	state    string // held, fresh, attempt, between, over
	began    time.Time
	left     time.Time
	overtook bool  // it was overtaken while it was fresh
	arrived  int   // when the last attempt ended, in steps
	refused  error // ends without an attempt
}

// A modelGroup is what happened to a group.
type modelGroup struct {
	good    int // the last step at which an item was ok or got a definite answer
	okAt    time.Time
	worked  bool
	fails   int // attempts of which it is certain, since good
	since   time.Time
	aside   bool
	failing bool
	why     error
	probes  int // failed ones
	delay   time.Duration
	probeAt time.Time
	probing *modelItem
	over    error
}

// A modelScheduler looks at all items for each decision.
type modelScheduler struct {
	s      *scheduler // for its configuration
	step   int
	items  []*modelItem
	out    []*modelItem // in the order in which they started
	groups map[string]*modelGroup
	halted error
}

func (m *modelScheduler) count(group string, states ...string) (n int) {
	for _, it := range m.items {
		for _, state := range states {
			if it.state == state && (group == "" || it.group == group) {
				n++
			}
		}
	}
	return n
}

// line is the number of fresh items that were not overtaken.
func (m *modelScheduler) line(group string) (n int) {
	for _, it := range m.items {
		if it.state == "fresh" && !it.overtook && it.refused == nil && (group == "" || it.group == group) {
			n++
		}
	}
	return n
}

// could reports whether a group might start an item if there were no other groups.
func (m *modelScheduler) could(group string) bool {
	fresh := m.count(group, "fresh")
	return m.count(group, "held") > 0 && !m.groups[group].aside && fresh == m.line(group) &&
		fresh < m.s.freshEach && m.count(group, "fresh", "attempt", "between") < m.s.window
}

// next returns the item that starts next.
func (m *modelScheduler) next(now time.Time) *modelItem {
	for _, it := range m.items {
		if it.state == "held" && it.refused != nil {
			return it
		}
	}
	if m.line("") >= m.s.freshMost {
		return nil
	}
	var probe *modelItem
	for _, it := range m.items {
		g := m.groups[it.group]
		if it.state == "held" && g.aside && g.probing == nil && !now.Before(g.probeAt) && m.count(it.group, "fresh") == 0 &&
			(probe == nil || g.probeAt.Before(m.groups[probe.group].probeAt)) {
			probe = it
		}
	}
	if probe != nil {
		return probe
	}
	using := 0
	for name := range m.groups {
		if m.could(name) || m.line(name) > 0 {
			using++
		}
	}
	for _, it := range m.items {
		half := max(1, (m.s.concurrency+1)/2)
		if it.state == "held" && m.could(it.group) &&
			(m.s.concurrency == 0 || using < 2 || m.count(it.group, "fresh", "attempt") < half) {
			return it
		}
	}
	return nil
}

func (m *modelScheduler) start(now time.Time, it *modelItem) {
	if g := m.groups[it.group]; g.aside && it.refused == nil {
		g.probing = it
	}
	it.state, it.began, it.left = "fresh", now, now
	m.out = append(m.out, it)
}

func (m *modelScheduler) depart(now time.Time, it *modelItem) {
	if it.state == "between" {
		it.state = "attempt"
		m.fail(now, it, errAttempts)
	} else {
		blocked := it.overtook
		for _, other := range m.out {
			if other == it {
				break
			}
			if other.state != "fresh" || other.overtook || other.refused != nil || blocked {
				continue
			}
			if now.Sub(other.began) < overtakenAfter {
				break
			}
			other.overtook = true
		}
		it.state = "attempt"
	}
	it.left = now
}

func (m *modelScheduler) arrive(it *modelItem) {
	it.state, it.arrived = "between", m.step
	if g := m.groups[it.group]; g.failing && it.refused == nil {
		it.refused = errors.New("cancelled")
	}
}

func (m *modelScheduler) end(now time.Time, it *modelItem, h health, why error) {
	g := m.groups[it.group]
	it.state = "over"
	switch h {
	case well:
		if why == nil {
			g.okAt = now
		}
		*g = modelGroup{good: m.step, okAt: g.okAt, worked: true, probing: g.probing, over: g.over}
	case unwell:
		m.fail(now, it, why)
	}
	if g.probing == it {
		g.probing = nil
	}
}

func (m *modelScheduler) fail(now time.Time, it *modelItem, why error) {
	g := m.groups[it.group]
	if g.fails == 0 {
		g.since = it.began
	}
	g.fails++
	if g.why == nil || why != errAttempts {
		g.why = why
	}
	all := g.fails
	for _, other := range m.items {
		if other.group == it.group && other.state == "between" && other.arrived > g.good {
			all++
		}
	}
	switch {
	case !g.aside && all < m.s.aside.After:
		return
	case !g.aside:
		g.aside, g.delay = true, firstProbe
	case it.left.Before(g.probeAt):
		return
	default:
		g.probes++
		g.delay = min(2*g.delay, longestProbe)
		if !g.failing && !m.s.aside.Wait && (!g.worked || g.probes >= patience) {
			works := false
			for name, other := range m.groups {
				works = works || name != it.group && !other.okAt.IsZero() && !other.okAt.Before(g.since.Add(-stillWorks))
			}
			if !works {
				m.halted = haltError(it.group, all, g.why)
				return
			}
			g.failing = true
		}
		if g.failing {
			m.refuse(it.group, asideError(it.group, g.why), it)
		}
	}
	g.probeAt = now.Add(g.delay)
}

// refuse ends the items of a group that are not in an attempt.
func (m *modelScheduler) refuse(group string, why error, but *modelItem) {
	for _, it := range m.items {
		if it.group == group && it != but && (it.state == "held" || it.state == "fresh" || it.state == "between") {
			it.refused = why
		}
	}
}

// pick returns the k-th item in one of the states, or nil.
func (m *modelScheduler) pick(k int, states ...string) *modelItem {
	var all []*modelItem
	for _, it := range m.items {
		for _, state := range states {
			if it.state == state {
				all = append(all, it)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[k%len(all)]
}

// FuzzScheduler compares the scheduler with the model. A byte is an event: an item is read,
// an attempt starts or has ended, an item ends, time passes.
func FuzzScheduler(f *testing.F) {
	f.Add([]byte("0123456789"), uint8(2), uint8(3), false)
	f.Add([]byte{0, 6, 12, 0, 6, 12, 1, 1, 1, 2, 2, 2, 3, 3, 9, 4, 60, 94, 1, 2, 9, 4, 88}, uint8(4), uint8(2), true)
	f.Fuzz(func(t *testing.T, events []byte, concurrency, after uint8, wait bool) {
		if len(events) > 300 {
			return
		}
		s := newScheduler(Suspend{After: int(after%16) + 1, Wait: wait}, true, true, int(concurrency%10), 100)
		s.freshMost = 5 // so that it matters
		m := &modelScheduler{s: s, groups: make(map[string]*modelGroup)}
		now := time.Unix(1_000_000, 0)
		var halt error
		for i, event := range events {
			m.step = i + 1
			k := int(event / 6)
			switch event % 6 {
			case 0: // read
				name := string("abc"[k%3])
				if m.groups[name] == nil {
					m.groups[name] = new(modelGroup)
				}
				it := &modelItem{group: name, state: "held"}
				it.place = &place{index: int64(len(m.items)), cancel: func() {}}
				m.items = append(m.items, it)
				g := m.groups[name]
				switch {
				case g.over != nil:
					it.refused = g.over
				case g.failing && (g.probing != nil || now.Before(g.probeAt)):
					it.refused = asideError(name, g.why)
				}
				s.add(now, name, it.place)
			case 1: // leaves
				if it := m.pick(k, "fresh", "between"); it != nil && it.refused == nil {
					m.depart(now, it)
					halt = s.departed(now, it.place)
				}
			case 2: // has ended
				if it := m.pick(k, "attempt"); it != nil {
					m.arrive(it)
					s.arrived(it.place)
				}
			case 3: // ends
				it := m.pick(k/4, "fresh", "between", "attempt")
				if it == nil {
					break
				}
				h, why := []health{well, well, unwell, unknown}[k%4], []error{nil, errPermanent, errors.New("failed"), errors.New("unfinished")}[k%4]
				if it.refused != nil {
					h = unknown
				}
				if it.state == "attempt" {
					m.arrive(it)
				}
				m.end(now, it, h, why)
				halt = s.judge(now, it.place, h, why)
				s.ended(it.place)
			case 4: // time passes
				now = now.Add(time.Duration(k*k) * 5 * time.Millisecond)
			case 5: // a server requests too long a wait
				if it := m.pick(k/8, "fresh", "between", "attempt"); it != nil && k%8 == 0 {
					g := m.groups[it.group]
					g.over = errors.New("too long")
					m.refuse(it.group, g.over, nil)
					s.endGroup(it.place.group, g.over)
				}
			}
			if fmt.Sprint(halt) != fmt.Sprint(m.halted) {
				t.Fatalf("event %d: halts with %v, the model with %v", i, halt, m.halted)
			}
			if halt != nil {
				return
			}
			for {
				p, it := s.next(now), m.next(now)
				if (p == nil) != (it == nil) || p != nil && (p.index != it.place.index || (p.refused == nil) != (it.refused == nil)) {
					t.Fatalf("event %d: starts %+v, the model %+v", i, p, it)
				}
				if p == nil {
					break
				}
				m.start(now, it)
			}
		}
	})
}

var errPermanent = errors.New("definite")
