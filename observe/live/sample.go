package live

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live/internal/clean"
)

// mostGates bounds the memory of a Handler, at about 3 kB for each gate. Further gates are
// counted and not shown.
const mostGates = 20_000

// window is the longest time over which paces are averaged, and waitWindow the time over which
// waits are collected, up to twice that.
const (
	window     = 10 * time.Second
	waitWindow = 30 * time.Second
)

// A sampler remembers a little of each gate from one sample to the next, to tell how fast
// calls arrive and leave. It needs a lock.
type sampler struct {
	sources []iter.Seq[Gate]
	known   map[identity]*history
	rows    []*history            // of the last sample
	orders  map[string][]*history // the rows, by the orders that viewers have asked for
	more    int                   // gates beyond mostGates
	at      time.Time             // of the last sample
	total   string                // all gates together
	number  uint64                // of the last sample
	lastID  uint64
}

// An identity is the constant part of a gate. Gates of one name and key are numbered in
// the order in which they come.
type identity struct {
	source    int
	name, key string
	nth       int
}

// A history is the recorded past of one gate.
type history struct {
	id     uint64
	name   string // as shown
	lower  string // the name in lower case
	gate   Gate
	sample uint64 // the last one that it was in
	twins  int    // the number of gates of this name and key that were in that

	points  [12]point // a ring
	last    int       // the newest of them
	older   sluice.WaitHistogram
	newer   sluice.WaitHistogram // both are earlier states of Stats.Waits
	newerAt time.Time

	left, refused float64 // per second, lately
	below         below   // of the gates that have it as their parent
	text          []byte  // the encoded view of the last sample, nil if not needed
}

// A point is the counters of a gate at one time.
type point struct {
	at                        time.Time
	granted, refused, retried uint64
	waiting                   int64
	reasons                   sluice.Rejections
}

// take samples all gates.
func (s *sampler) take(now time.Time) {
	s.number++
	s.at, s.more = now, 0
	s.rows = s.rows[:0]
	clear(s.orders)
	if s.known == nil {
		s.known = make(map[identity]*history)
	}
	for i, source := range s.sources {
		for g := range source {
			s.add(i, g, now)
		}
	}
	if len(s.known) > len(s.rows) {
		for id, h := range s.known {
			if h.sample != s.number {
				delete(s.known, id)
			}
		}
	}
	s.relate()
	s.total = s.sum()
}

// A below is the activity of gates that have the same parent. Their calls are calls of the parent
// as well, and the first call that waits for the parent in each of them waits in the queue of both.
type below struct {
	waiting int64   // for the parent, in all of them
	first   int64   // of these, those that wait in the queue of the parent
	left    float64 // as of a history
	refused float64
	flight  int64
}

// relate finds the gates below each gate, by the name of the parent.
func (s *sampler) relate() {
	all := make(map[string]*below)
	for _, h := range s.rows {
		h.below = below{}
		if h.gate.Parent == "" {
			continue
		}
		b := all[h.gate.Parent]
		if b == nil {
			b = new(below)
			all[h.gate.Parent] = b
		}
		b.left += h.left
		b.refused += h.refused
		b.flight += h.gate.InFlight
		if n := h.gate.Pacing + h.gate.Waiting; h.gate.LimitedBy == limits.ByParent && n > 0 {
			b.waiting += n
			b.first++
		}
	}
	if len(all) == 0 {
		return
	}
	for _, h := range s.rows {
		if b := all[h.gate.Name]; b != nil { // which never is ""
			h.below = *b
		}
	}
}

// withBelow adds to the sentence of a gate the number of calls that wait below it: of those its own
// queue has only the first of each gate.
func (h *history) withBelow(text string) string {
	if h.below.waiting <= h.below.first || h.gate.Pacing+h.gate.Waiting == 0 {
		return text
	}
	return strings.TrimSuffix(text, ".") + fmt.Sprintf("; with those behind them in the gates below, %s.", sluice.Stats{Waiting: h.below.waiting + max(0, h.gate.Pacing+h.gate.Waiting-h.below.first)}.Why())
}

func (s *sampler) add(source int, g Gate, now time.Time) {
	if len(s.rows) == mostGates {
		s.more++
		return
	}
	id := identity{source: source, name: g.Name, key: g.Key}
	h := s.known[id]
	if h != nil && h.sample == s.number {
		id.nth = h.twins
		h.twins++
		h = s.known[id]
	}
	if h == nil {
		s.lastID++
		h = &history{id: s.lastID, name: nameOf(g, s.lastID)}
		h.lower = strings.ToLower(h.name)
		s.known[id] = h
	}
	h.sample, h.twins = s.number, 1
	h.gate = g
	h.record(now)
	s.rows = append(s.rows, h)
}

// nameOf returns the displayed name of a gate.
func nameOf(g Gate, id uint64) string {
	name, key := clean.Text(g.Name), clean.Text(g.Key)
	switch {
	case name == "" && key == "":
		return "gate " + count(id)
	case name == "":
		return key
	case key == "" || key == name:
		return name
	}
	return name + " " + key
}

// remade is the number of calls by which a gate must be behind its last sample to be another gate
// of that name and key.
const remade = 64

func (h *history) record(now time.Time) {
	s := &h.gate.Stats
	p := point{at: now, granted: s.Admitted, retried: s.Retried, waiting: s.Pacing + s.Waiting, reasons: s.Rejected}
	for _, n := range s.Rejected.All() {
		p.refused += n
	}
	last := h.points[h.last]
	if p.granted+remade < last.granted || p.refused < last.refused {
		h.points, h.newerAt, last = [len(h.points)]point{}, time.Time{}, point{}
	}
	// A call may count as admitted and then wait after all.
	p.granted, p.retried = max(p.granted, last.granted), max(p.retried, last.retried)
	if h.newerAt.IsZero() {
		h.older, h.newer, h.newerAt = s.Waits, s.Waits, now
	} else if now.Sub(h.newerAt) >= waitWindow {
		h.older, h.newer, h.newerAt = h.newer, s.Waits, now
	}
	h.last = (h.last + 1) % len(h.points)
	h.points[h.last] = p
	newest, _, oldest := h.span()
	h.left, h.refused, h.text = 0, 0, nil
	if over := newest.at.Sub(oldest.at).Seconds(); over > 0 {
		h.left, h.refused = float64(newest.granted-oldest.granted)/over, float64(newest.refused-oldest.refused)/over
	}
}

// A flow is the recent traffic of a gate, per second.
type flow struct {
	over                                time.Duration // how long this was; 0: nothing is known
	arriving, leaving, refused, retried float64
	lately                              float64           // leaving since the sample before
	reasons                             sluice.Rejections // of the rejected calls

	waits    uint64 // calls that started in the last minute or so, and how long
	p50, p99 time.Duration
}

// span returns the newest point, the one before, and the oldest of the window. They are
// equal if there is only one.
func (h *history) span() (newest, before, oldest *point) {
	at := func(back int) *point { return &h.points[(h.last+len(h.points)-back)%len(h.points)] }
	newest = at(0)
	before, oldest = newest, newest
	for i := 1; i < len(h.points); i++ {
		p := at(i)
		if p.at.IsZero() || i > 1 && newest.at.Sub(p.at) > window {
			break
		}
		oldest = p
		if i == 1 {
			before = p
		}
	}
	return newest, before, oldest
}

// flow computes the traffic of the gate since the oldest sample of the window.
func (h *history) flow() (f flow) {
	newest, before, oldest := h.span()
	if f.over = newest.at.Sub(oldest.at); f.over <= 0 {
		return f
	}
	per := func(n float64) float64 { return max(0, n) / f.over.Seconds() }
	left, refused := float64(newest.granted-oldest.granted), float64(newest.refused-oldest.refused)
	f.leaving, f.refused = per(left), per(refused)
	f.retried = per(float64(newest.retried - oldest.retried))
	f.arriving = per(left + refused + float64(newest.waiting-oldest.waiting))
	f.lately = float64(newest.granted-before.granted) / newest.at.Sub(before.at).Seconds()
	f.reasons = minus(newest.reasons, oldest.reasons)
	f.addWaits(&h.gate.Waits, &h.older)
	return f
}

func (f *flow) addWaits(now, before *sluice.WaitHistogram) {
	var w sluice.WaitHistogram
	for i := range w {
		w[i] = now[i] - min(now[i], before[i])
	}
	if f.waits = w.Count(); f.waits > 0 {
		f.p50, f.p99 = w.Quantile(0.5), w.Quantile(0.99)
	}
}

// minus returns the rejections between two states.
func minus(a, b sluice.Rejections) sluice.Rejections {
	since := func(a, b uint64) uint64 { return a - min(a, b) }
	return sluice.Rejections{
		Busy: since(a.Busy, b.Busy), Deadline: since(a.Deadline, b.Deadline), Canceled: since(a.Canceled, b.Canceled),
		TooLarge: since(a.TooLarge, b.TooLarge), QueueFull: since(a.QueueFull, b.QueueFull), Closed: since(a.Closed, b.Closed),
		Other: since(a.Other, b.Other),
	}
}

// refusedFor returns the most frequent reason for which calls were rejected.
func (f flow) refusedFor() (reason string, most uint64) {
	for r, n := range f.reasons.All() {
		if n > most {
			reason, most = r, n
		}
	}
	return reason, most
}

// forget drops everything, because there are no viewers left.
func (s *sampler) forget() {
	s.known, s.rows, s.orders, s.at = nil, nil, nil, time.Time{}
}

// sum describes all gates together. A call of a gate whose parent is shown as well, counts once.
// Which rejections of a parent were of its own calls is unknown: as few as possible are.
func (s *sampler) sum() string {
	var queue, inFlight int64
	var left, refused float64
	var pauses int
	for _, h := range s.rows {
		left += max(0, h.left-h.below.left)
		refused += max(0, h.refused-h.below.refused)
		queue += max(0, h.gate.Pacing+h.gate.Waiting-h.below.first)
		inFlight += max(0, h.gate.InFlight-h.below.flight)
		if h.gate.PausedUntil.After(s.at) {
			pauses++
		}
	}
	gates := len(s.rows) + s.more
	text := count(gates) + " gates"
	if gates == 1 {
		text = "1 gate"
	}
	text += ": " + pace(left) + " leave, " + count(queue) + " wait, " + count(inFlight) + " in flight, " + pace(refused) + " refused"
	if pauses > 0 {
		text += ", " + count(pauses) + " paused"
	}
	if s.more > 0 {
		text += "; " + count(s.more) + " gates are too many to be shown"
	}
	return text
}
