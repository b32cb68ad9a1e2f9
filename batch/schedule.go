package batch

import (
	"container/list"
	"time"
)

// A scheduler decides which of the items that were read starts next. It knows no
// goroutines, no clock and no gate: the driver asks it with the mutex held.
//
// An item that was read is held, then out. While it is out it is fresh until its first attempt
// starts; afterwards it is in an attempt or between two. The cause that delays an item is not
// visible from here: it may be the gate that all items share, or one that only those of its group
// pass. So the rules are:
//
//   - The held item that was read first starts first, if its group may.
//   - At most freshMost fresh items are out: those that wait for the gate of all. An
//     item that was overtaken by a later one waits for something of its own, since gates
//     are first come, first served. It does not count. Goroutines may overtake each other
//     on their way to the gate, so that shows only after some time.
//   - At most freshEach fresh items of a group are out, so that a group that is paused
//     cannot take all places.
//   - At most window items of a group are out, with those between two attempts.
//   - While other groups have items to start, at most half of the calls in flight are of one
//     group: a server that does not answer must not take them all.
//   - Of a group that is set aside one item at a time starts: the probe.
type scheduler struct {
	freshMost, freshEach, window int
	concurrency                  int // of the gate; 0: unlimited
	grouped, paced               bool
	ahead                        int
	aside                        Suspend

	groups map[string]*group
	busy   list.List // of groups whose items wait for the gate, or could
	fresh  list.List // of fresh items that were not overtaken, as they started
	ready  groupHeap // groups whose first held item may start; the one that was read first is first
	probes groupHeap // groups that are set aside and hold items; the one that is tried first is first
	idle   []*group  // without items, remembered because calls failed; oldest first
	reject []*place  // items that end without an attempt
	over   error     // why all items do

	works            string    // the group of the item that was ok last
	worksAt, otherAt time.Time // when that was, and when one of another group was before
}

// newScheduler returns a scheduler for items with groups, or without. ExternalGate items may be
// delayed one by one; others wait for one gate, one after the other.
func newScheduler(aside Suspend, groups, paced bool, concurrency, ahead int) *scheduler {
	s := &scheduler{aside: aside, groups: make(map[string]*group)}
	s.ready = groupHeap{
		at:   func(g *group) *int { return &g.readyAt },
		less: func(a, b *group) bool { return a.held[0].index < b.held[0].index },
	}
	s.probes = groupHeap{
		at: func(g *group) *int { return &g.probeIn },
		less: func(a, b *group) bool {
			if a.probeAt.Equal(b.probeAt) {
				return a.held[0].index < b.held[0].index
			}
			return a.probeAt.Before(b.probeAt)
		},
	}
	if s.aside.After == 0 {
		s.aside.After = asideAfter
	}
	s.grouped, s.paced, s.ahead = groups, paced, ahead
	s.resize(concurrency)
	return s
}

// resize adapts to the concurrency of the gate.
func (s *scheduler) resize(concurrency int) {
	s.concurrency = concurrency
	s.freshMost, s.freshEach, s.window = 1, 1, s.ahead
	if s.paced {
		s.freshMost, s.freshEach = s.ahead, s.ahead
	}
	if !s.grouped {
		return
	}
	if s.window = min(aheadUnlimited, s.ahead); concurrency > 0 {
		s.window = min(2*concurrency, s.ahead)
	}
	if s.paced {
		s.freshMost, s.freshEach = max(2*concurrency, freshInAll), freshInGroup
	}
}

// add adds an item that was read. Indices must rise.
func (s *scheduler) add(now time.Time, name string, p *place) {
	g := s.groups[name]
	if g == nil {
		g = &group{name: name}
		s.groups[name] = g
	}
	p.group = g
	switch {
	case s.over != nil:
		p.refused = s.over
	case g.over != nil:
		p.refused = g.over
	case g.failing && (g.probing != nil || now.Before(g.probeAt)):
		p.refused = asideError(g.name, g.why)
	}
	if p.refused != nil {
		s.reject = append(s.reject, p)
	} else {
		g.held = append(g.held, p)
	}
	s.changed(g)
}

// refuse ends the held items of g without an attempt.
func (s *scheduler) refuse(g *group, why error) {
	for _, p := range g.held {
		p.refused = why
	}
	s.reject = append(s.reject, g.held...)
	g.held = nil
}

// refuseAll also ends those that are out and not in an attempt.
func (s *scheduler) refuseAll(g *group, why error) {
	s.refuse(g, why)
	for p := range g.out {
		if !p.inAttempt {
			p.refuse(why)
			s.unwait(p)
		}
	}
}

func (p *place) refuse(why error) {
	p.refused = why
	p.cancel()
}

// next returns an item to start, or to end if it is rejected, or nil if there is none.
func (s *scheduler) next(now time.Time) *place {
	if len(s.reject) > 0 {
		p := s.reject[0]
		s.reject = s.reject[1:]
		s.begin(now, p)
		return p
	}
	if s.fresh.Len() >= s.freshMost {
		return nil
	}
	if g := s.probes.first(); g != nil && !now.Before(g.probeAt) {
		p := g.take()
		g.probing = p
		s.begin(now, p)
		return p
	}
	for g := s.ready.first(); g != nil; g = s.ready.first() {
		if s.may(g) {
			p := g.take()
			s.begin(now, p)
			return p
		}
		s.ready.set(g, false) // it was the only group that was busy when it could
	}
	return nil
}

// take takes the first held item.
func (g *group) take() *place {
	p := g.held[0]
	g.held[0] = nil // it must not stay in memory
	g.held = g.held[1:]
	return p
}

// begin takes an item out.
func (s *scheduler) begin(now time.Time, p *place) {
	p.began, p.left = now, now
	if p.group.out == nil {
		p.group.out = make(map[*place]struct{})
	}
	p.group.out[p] = struct{}{}
	p.group.fresh++
	if p.refused == nil {
		p.waiting = s.fresh.PushBack(p)
		p.group.inLine++
	}
	s.changed(p.group)
}

// may reports whether the first held item of g may start. Of a group that is set aside
// only probes may.
func (s *scheduler) may(g *group) bool {
	if s.concurrency > 0 && s.busy.Len() > 1 && g.calls+g.fresh >= max(1, (s.concurrency+1)/2) {
		return false
	}
	return s.could(g)
}

// could is may for a group that has the gate for itself. If an item of it was overtaken, it
// waits for its group, and so would the next one.
func (s *scheduler) could(g *group) bool {
	return len(g.held) > 0 && !g.aside && g.fresh == g.inLine && g.fresh < s.freshEach && len(g.out) < s.window
}

// changed brings up to date where g is listed.
func (s *scheduler) changed(g *group) {
	if !s.could(g) {
		s.ready.set(g, false) // before anything is compared with it
	}
	switch busy := s.could(g) || g.inLine > 0; {
	case busy && g.busyAt == nil:
		g.busyAt = s.busy.PushBack(g)
	case !busy && g.busyAt != nil:
		s.busy.Remove(g.busyAt)
		g.busyAt = nil
		if s.busy.Len() == 1 { // it may have more than half now
			last := s.busy.Front().Value.(*group)
			s.ready.set(last, s.may(last))
		}
	}
	s.ready.set(g, s.may(g))
	s.probes.set(g, g.aside && g.probing == nil && g.fresh == 0 && len(g.held) > 0) // a fresh one is as good
	if len(g.held)+len(g.out) == 0 && !g.remembered {
		g.remembered = true
		s.idle = append(s.idle, g)
		if len(s.idle) > idleGroups {
			s.forget(s.idle[0])
			s.idle = s.idle[1:]
		}
	}
}

// forget removes a group, unless it has items again.
func (s *scheduler) forget(g *group) {
	g.remembered = false
	if len(g.held) == 0 && len(g.out) == 0 && s.groups[g.name] == g {
		delete(s.groups, g.name)
	}
}

// departed records that an attempt starts: the one before, if any, has failed. It returns
// why the batch must end, or nil.
func (s *scheduler) departed(now time.Time, p *place) (halt error) {
	if p.inAttempt {
		return nil
	}
	p.inAttempt = true
	p.group.calls++
	if p.departed {
		p.settle()
		halt = s.unwell(now, p, errAttempts)
	}
	p.left = now
	if !p.departed {
		p.departed = true
		p.group.fresh--
	}
	if p.waiting != nil {
		for e := s.fresh.Front(); e.Value != p && now.Sub(e.Value.(*place).began) >= overtakenAfter; e = s.fresh.Front() {
			s.unwait(e.Value.(*place))
		}
		s.unwait(p)
	}
	s.changed(p.group)
	return halt
}

// arrived records that an attempt has ended.
func (s *scheduler) arrived(p *place) {
	if p.inAttempt {
		p.inAttempt = false
		p.group.calls--
		p.between, p.epoch = true, p.group.epoch
		p.group.between++
		if p.group.failing {
			p.refuse(asideError(p.group.name, p.group.why)) // unless it is ok, or a probe that ends it
		}
		s.changed(p.group)
	}
}

// settle takes p from those between attempts.
func (p *place) settle() {
	if p.between && p.epoch == p.group.epoch {
		p.group.between--
	}
	p.between = false
}

func (s *scheduler) unwait(p *place) {
	if p.waiting != nil {
		s.fresh.Remove(p.waiting)
		p.waiting = nil
		p.group.inLine--
		s.changed(p.group)
	}
}

// A health is the verdict of an outcome on the group of its item.
type health int

const (
	unknown health = iota
	well
	unwell
)

// judge records the verdict of an item's outcome on its group. It returns why the batch
// must end, or nil.
func (s *scheduler) judge(now time.Time, p *place, h health, why error) (halt error) {
	s.arrived(p)
	p.settle()
	switch h {
	case well:
		s.well(now, p.group, why == nil)
	case unwell:
		halt = s.unwell(now, p, why)
	}
	s.changed(p.group)
	return halt
}

// ended records that an item is not out any more.
func (s *scheduler) ended(p *place) {
	g := p.group
	s.arrived(p)
	p.settle()
	s.unwait(p)
	if !p.departed {
		g.fresh--
	}
	delete(g.out, p)
	if g.probing == p {
		g.probing = nil
	}
	s.changed(g)
}

// well records that an item of g was ok, or got a definite answer.
func (s *scheduler) well(now time.Time, g *group, ok bool) {
	g.streak, g.worked = 0, true
	g.between, g.epoch = 0, g.epoch+1
	if ok {
		if s.works != g.name {
			s.otherAt = s.worksAt
		}
		s.works, s.worksAt = g.name, now
	}
	if g.aside {
		g.aside, g.failing, g.failed, g.why = false, false, 0, nil
		s.report(g)
	}
}

// unwell records that the attempt of p that left last has failed.
func (s *scheduler) unwell(now time.Time, p *place, why error) (halt error) {
	g := p.group
	if g.streak == 0 {
		g.since = p.began
	}
	g.streak++
	if g.why == nil || why != errAttempts {
		g.why = why
	}
	switch {
	case s.aside.After < 0 || s.over != nil || !g.aside && g.streak+g.between < s.aside.After:
		return nil
	case !g.aside:
		g.aside, g.delay = true, firstProbe
	case p.left.Before(g.probeAt):
		return nil // it left before
	default: // a probe, or as good as one
		g.failed++
		g.delay = min(2*g.delay, longestProbe)
		if (g.failed >= patience || !g.worked) && !s.aside.Wait && !g.failing {
			if !s.otherWorks(g) {
				return haltError(g.name, g.streak+g.between, g.why)
			}
			g.failing = true
		}
		if g.failing { // the items that were read while a probe was due fail, too
			s.refuseAll(g, asideError(g.name, g.why))
		}
	}
	g.probeAt = now.Add(g.delay)
	s.report(g)
	return nil
}

// otherWorks reports whether another group had an item that was ok, not long before those
// of g began to fail.
func (s *scheduler) otherWorks(g *group) bool {
	at := s.worksAt
	if s.works == g.name {
		at = s.otherAt
	}
	return !at.IsZero() && !at.Before(g.since.Add(-stillWorks))
}

func (s *scheduler) report(g *group) {
	if s.aside.Changed != nil {
		s.aside.Changed(GroupState{Group: g.name, Why: g.why, Failing: g.failing, Probe: g.probeAt})
	}
}

// wake returns when to call next again although nothing else has happened, or zero.
func (s *scheduler) wake() time.Time {
	if g := s.probes.first(); g != nil {
		return g.probeAt
	}
	return time.Time{}
}

// end ends items that are held, and those to come, without an attempt.
func (s *scheduler) end(why error) {
	s.over = why
	for _, g := range s.groups {
		s.refuse(g, why)
		s.changed(g)
	}
}

// endGroup ends the items of a group, as unfinished.
func (s *scheduler) endGroup(g *group, why error) {
	g.over = why
	s.refuseAll(g, why)
	s.changed(g)
}
