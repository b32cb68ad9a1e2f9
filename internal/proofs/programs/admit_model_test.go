package programs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// What follows are the limits of a gate as one would explain them: slow, and
// obvious. None keeps a state. Each looks through all that was ever taken from
// it, and answers one question: would n more fit at this instant?

// A taking is n that were taken at an instant or, if n is negative, given back of
// what was taken at an earlier one.
type taking struct {
	at    time.Duration
	n     int64
	since time.Duration
}

type limitModel interface {
	// fits reports whether n more fit at an instant after past.
	fits(past []taking, at time.Duration, n int64) bool

	// exceeded says where past, of which nothing was given back, is more than
	// the limit promises; "" if nowhere. It does not use fits.
	exceeded(past []taking) string
}

// A leakModel is a bucket: capacity units, of which one leaks each interval.
type leakModel struct {
	capacity int64
	interval time.Duration
}

func (m leakModel) fits(past []taking, at time.Duration, n int64) bool {
	level, last := time.Duration(0), time.Duration(0) // in time: a unit is an interval
	for _, t := range past {
		level = max(0, level-(t.at-last))
		level, last = max(0, level+time.Duration(t.n)*m.interval), t.at
	}
	level = max(0, level-(at-last))
	return n == 0 || level+time.Duration(n)*m.interval <= time.Duration(m.capacity)*m.interval
}

func (m leakModel) exceeded(past []taking) string {
	for i := range past {
		var sum int64
		for _, t := range past[i:] {
			sum += t.n
			if window := t.at - past[i].at; sum > m.capacity+int64(window/m.interval) {
				return fmt.Sprintf("%d units in %v from %v", sum, window, past[i].at)
			}
		}
	}
	return ""
}

// A slidingModel is a log: at most limit in any window.
type slidingModel struct {
	limit  int64
	window time.Duration
}

func (m slidingModel) fits(past []taking, at time.Duration, n int64) bool {
	var units []time.Duration // when each unit was taken
	for _, t := range past {
		for range t.n {
			units = append(units, t.at)
		}
		for i := len(units) - 1; i >= 0 && t.n < 0; i-- { // the newest that are as old
			if units[i] <= t.since && t.at-units[i] < m.window {
				units = slices.Delete(units, i, i+1)
				t.n++
			}
		}
	}
	for _, unit := range units {
		if at-unit < m.window {
			n++
		}
	}
	return n <= m.limit || n == 0
}

func (m slidingModel) exceeded(past []taking) string {
	for i := range past {
		var sum int64
		for _, t := range past[i:] {
			if t.at < past[i].at+m.window {
				sum += t.n
			}
		}
		if sum > m.limit {
			return fmt.Sprintf("%d in the window from %v", sum, past[i].at)
		}
	}
	return ""
}

// A fixedModel is a counter: at most limit in each window, of which one begins
// with the first call after the one before is over.
type fixedModel struct {
	limit  int64
	window time.Duration
}

func (m fixedModel) fits(past []taking, at time.Duration, n int64) bool {
	var used int64
	var from time.Duration
	for _, t := range append(slices.Clone(past), taking{at: at}) {
		if t.at >= from+m.window {
			used = 0
		}
		if t.n < 0 && t.since < from {
			continue // of a window that is over
		}
		if used == 0 {
			from = t.at
		}
		used = max(0, used+t.n)
	}
	return used+n <= m.limit
}

func (m fixedModel) exceeded(past []taking) string {
	for len(past) > 0 {
		from, sum := past[0].at, int64(0)
		for len(past) > 0 && past[0].at < from+m.window {
			sum, past = sum+past[0].n, past[1:]
		}
		if sum > m.limit {
			return fmt.Sprintf("%d in the window from %v", sum, from)
		}
	}
	return ""
}

// A paceModel is the rate and the pauses of a gate: the theoretical arrival
// time, worked out from the beginning each time. The zero Rate spaces nothing.
type paceModel struct {
	rate  sluice.Rate
	burst int64
}

type departure struct {
	at     time.Duration
	n      int64         // 0: no call, but
	until  time.Duration // a pause until then
	resume bool          // or the end of one
	rate   sluice.Rate   // or a new rate
}

// tau is how early a call may be.
func (m paceModel) tau() time.Duration {
	return time.Duration(m.burst-1) * m.rate.Per / time.Duration(max(1, m.rate.Count))
}

// slot is the earliest instant for the next call after past.
func (m paceModel) slot(past []departure) time.Duration {
	if len(past) > 0 && past[0].rate.Count > 0 {
		return slotOfRates(past)
	}
	count := max(1, m.rate.Count)
	var next, pause time.Duration // next in parts of a nanosecond, of which there are count
	for _, d := range past {
		switch {
		case d.n > 0:
			next = max(next, (pause+m.tau())*time.Duration(count), d.at*time.Duration(count)) + time.Duration(d.n)*m.rate.Per
		case d.resume:
			pause = min(pause, d.at)
		default:
			pause = max(pause, d.until)
		}
	}
	return max(next/time.Duration(count), pause+m.tau()) - m.tau()
}

// exceeded says where calls leave closer together than the rate and the burst
// allow: what came before the last of them must have been paid for by then.
func (m paceModel) exceeded(past []departure) string {
	for i := range past {
		var sum int64
		for j := i; j < len(past); j++ {
			window := past[j].at - past[i].at
			if time.Duration(sum)*m.rate.Per > (window+m.tau()+1)*time.Duration(max(1, m.rate.Count)) {
				return fmt.Sprintf("%d and one more in %v from %v", sum, window, past[i].at)
			}
			sum += past[j].n
		}
	}
	return ""
}

// The checkers of whole histories are independent of the models. Each model must
// satisfy its checker, and each checker must be able to fail.
func TestAdmission_ModelsCanDisagree(t *testing.T) {
	greedy := func(m limitModel) (past []taking) {
		for at := time.Duration(0); at < 5*time.Second; at += 10 * ms {
			for m.fits(past, at, 2) {
				past = append(past, taking{at: at, n: 2})
			}
		}
		return past
	}
	for name, v := range map[string]struct {
		model, laxer limitModel
		want         int
	}{
		"leak":          {leakModel{6, 500 * ms}, leakModel{6, 490 * ms}, 7}, // 3, and one each second, at 1, 2, 3, 4 s
		"leak, larger":  {leakModel{6, 500 * ms}, leakModel{8, 500 * ms}, 7},
		"log":           {slidingModel{6, time.Second}, slidingModel{6, 990 * ms}, 15},
		"log, larger":   {slidingModel{6, time.Second}, slidingModel{8, time.Second}, 15},
		"fixed":         {fixedModel{6, time.Second}, fixedModel{8, time.Second}, 15},
		"fixed, longer": {fixedModel{6, time.Second}, fixedModel{6, 990 * ms}, 15},
	} {
		past := greedy(v.model)
		if len(past) != v.want || v.model.exceeded(past) != "" {
			t.Errorf("%s: %d calls, want %d; %s", name, len(past), v.want, v.model.exceeded(past))
		}
		if past := greedy(v.laxer); v.model.exceeded(past) == "" {
			t.Errorf("%s: %v are not found to be too many", name, past)
		}
	}
	for _, burst := range []int64{1, 3} {
		m := paceModel{sluice.Rate{Count: 7, Per: time.Second}, burst}
		past := []departure{{at: 0, until: time.Second}}
		for range 20 {
			past = append(past, departure{at: max(2*time.Second, m.slot(past)), n: 2})
		}
		calls := past[1:]
		if why := m.exceeded(calls); why != "" {
			t.Errorf("burst of %d: %s", burst, why)
		}
		if last := calls[19].at; last != 2*time.Second+2*19*time.Second/7-m.tau() {
			t.Errorf("burst of %d: the last leaves at %v", burst, last)
		}
		calls[19].at -= 2
		if m.exceeded(calls) == "" {
			t.Errorf("burst of %d: two nanoseconds too early are not found", burst)
		}
	}
}

// # What is checked after each step

// check looks at everything that happened since it was called last.
func (c *composite) check() {
	c.Helper()
	synctest.Wait()
	c.mu.Lock()
	ended := c.ended
	c.ended = nil
	c.mu.Unlock()
	slices.SortFunc(ended, func(a, b *call) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	for len(ended) > 0 {
		n := 1
		for n < len(ended) && ended[n].at == ended[0].at {
			n++
		}
		c.instant(ended[:n])
		ended = ended[n:]
	}
	if now := time.Since(c.start); now > c.now {
		c.nobodyCouldLeave(now - 1)
		c.now = now
	}
	c.nobodyCouldLeave(c.now)
	for _, g := range c.nodes {
		c.compare(g)
		for _, k := range g.waiting {
			if g.closed || k.until <= c.now || k.given <= c.now || k.longest != limits.Never && k.arrived+k.longest <= c.now {
				c.Fatalf("call %d still waits at %v: %+v", k.id, c.now, k)
			}
		}
	}
}

// instant looks at the calls that ended at one.
func (c *composite) instant(ended []*call) {
	at := ended[0].at
	if at > c.now {
		c.nobodyCouldLeave(at - 1)
		c.now = at
	}
	granted := slices.ContainsFunc(ended, func(k *call) bool { return k.err == nil })
	for _, k := range ended {
		if k.err != nil {
			c.justified(k, granted)
		}
	}
	for _, k := range ended {
		g := k.from
		i := slices.Index(g.waiting, k)
		g.waiting = slices.Delete(g.waiting, i, i+1)
		if k.err != nil {
			continue
		}
		if i > 0 {
			c.Fatalf("call %d left at %v, before call %d that came earlier", k.id, at, g.waiting[0].id)
		}
		// At the instant of its deadline either timer may be first: that of its
		// context, or the one that makes room.
		if k.until < at || k.given <= at {
			c.Fatalf("call %d left at %v, its context done since %v", k.id, at, min(k.until, k.given))
		}
		if !g.fits(at, k.n) {
			c.Fatalf("call %d of %d left at %v and does not fit", k.id, k.n, at)
		}
		g.take(at, k.n)
		k.held = k.n
		c.inside = append(c.inside, k)
		for ; g != nil; g = g.parent {
			g.inFlight += unitOf(g.roomUnit, k.n)
			g.granted++
		}
	}
	c.nobodyCouldLeave(at)
}

// nobodyCouldLeave checks that no call at the head of a queue waits for nothing at
// an instant: neither one that may leave nor one that never will.
func (c *composite) nobodyCouldLeave(at time.Duration) {
	for _, g := range c.nodes {
		if len(g.waiting) == 0 {
			continue
		}
		k := g.waiting[0]
		if never, full, early := g.refusals(at, k.n); !full && !early {
			c.Fatalf("call %d of %d, of %v, is first and waits at %v for nothing (for ever: %v)", k.id, k.n, k.arrived, at, never)
		}
	}
}

// justified checks that a call had to end with its error, at this instant.
func (c *composite) justified(k *call, granted bool) {
	var wait *limits.WaitError
	most := limits.Never // until when it may wait
	if k.longest != limits.Never {
		most = k.arrived + max(0, k.longest)
	}
	first := k.from.waiting[0] == k
	ok := false
	switch {
	case k.err == context.Canceled:
		ok = k.given == k.at
	case k.err == context.DeadlineExceeded:
		ok = k.until == k.at
	case errors.Is(k.err, limits.ErrClosed), k.err == errNotNow && k.from.closed:
		ok = k.from.closed
	case errors.Is(k.err, limits.ErrTooLarge):
		ok, _, _ = k.from.refusals(k.at, k.n)
	case errors.As(k.err, &wait):
		others := false // that may be before it in the queue of the parent
		for _, g := range c.nodes {
			others = others || g != k.from && len(g.waiting) > 0
		}
		tooLong := wait.Need > wait.Have || wait.Need == wait.Have && most > k.until // at its deadline a context is done
		ok = tooLong && wait.Have == min(most, k.until)-k.at && (others || !c.couldLeave(k, min(most, k.until-1)))
	case errors.Is(k.err, limits.ErrTimeout), k.err == errNotNow:
		behind := false // perhaps, in the queue of the parent, one that leaves it at this instant: which is first is luck
		for _, g := range c.nodes {
			behind = behind || g != k.from && len(g.waiting) > 0 && g.waiting[0].arrived < k.arrived
		}
		ok = most == k.at && (!first || granted || behind || !k.from.fits(k.at, k.n))
	}
	if !ok {
		c.Fatalf("call %d of %d, of %v, failed at %v: %v", k.id, k.n, k.arrived, k.at, k.err)
	}
}

// compare compares the limits of a gate with their models.
func (c *composite) compare(g *node) {
	s := g.gate.Stats()
	slot := c.start.Add(max(c.now, g.pace.slot(g.left)))
	if s.InFlight != g.inFlight || s.Admitted != g.granted || !s.NextSlot.Equal(slot) || s.Unreturned != 0 {
		c.Fatalf("at %v: %d in flight, %d let through, the next at %v: want %+v", c.now, g.inFlight, g.granted, slot.Sub(c.start), s)
	}
	if n := s.Pacing + s.Waiting; n < int64(len(g.waiting)) || g.isNoParent(c) && n > int64(len(g.waiting)) {
		c.Fatalf("%d wait, want %d", n, len(g.waiting))
	}
	for _, q := range g.quotas {
		left := q.limit
		for left > 0 && !q.model.fits(q.past, c.now, left) {
			left--
		}
		all := earliest(c.now, c.now+24*time.Hour, func(at time.Duration) bool { return q.model.fits(q.past, at, q.limit) })
		if r := q.peek(); r.Limit != q.limit || r.Remaining != left || r.ResetAfter != all-c.now {
			c.Fatalf("at %v %s is %+v, by what was let through %d are left of %d, all in %v", c.now, q.name, r, left, q.limit, all-c.now)
		}
	}
}

// earliest returns the first instant from from on at which ok is true, or the
// one after to. Once true, it stays true.
func earliest(from, to time.Duration, ok func(at time.Duration) bool) time.Duration {
	for to++; from < to; {
		if middle := from + (to-from)/2; ok(middle) {
			to = middle
		} else {
			from = middle + 1
		}
	}
	return from
}

func (g *node) isNoParent(c *composite) bool {
	return !slices.ContainsFunc(c.nodes, func(other *node) bool { return other.parent == g })
}

// windows checks what the limits promise of any window.
func (c *composite) windows() {
	for _, g := range c.nodes {
		calls := slices.DeleteFunc(slices.Clone(g.left), func(d departure) bool { return d.n == 0 })
		if c.has(rateChange) {
			calls = nil // one rate holds for a part of them
		}
		if why := g.pace.exceeded(calls); why != "" {
			c.Fatalf("a rate of %v and a burst of %d: %s", g.pace.rate, g.pace.burst, why)
		}
		for _, q := range g.quotas {
			if c.settled && q.unit == sluice.Cost {
				continue // they cost what they cost
			}
			if why := q.model.exceeded(q.past); why != "" {
				c.Fatalf("%s: %s", q.name, why)
			}
		}
	}
}
