package sluice_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

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
		ok = most == k.at && (!first || granted || !k.from.fits(k.at, k.n))
	}
	if !ok {
		c.Fatalf("call %d of %d, of %v, failed at %v: %v", k.id, k.n, k.arrived, k.at, k.err)
	}
}

// compare compares the limits of a gate with their models.
func (c *composite) compare(g *node) {
	s := g.gate.Stats()
	slot := c.start.Add(max(c.now, g.pace.slot(g.left)))
	if s.InFlight != g.inFlight || s.Granted != g.granted || !s.NextSlot.Equal(slot) || s.Stranded != 0 {
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
