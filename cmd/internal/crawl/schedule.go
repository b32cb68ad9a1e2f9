package crawl

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/robots"
)

const (
	// turn is how many visits a host gets before it makes room for others that wait.
	turn = 64
	// ahead is how many links of a host are in memory.
	ahead = 32
	// longWait is the wait above which a host leaves its place to another one.
	longWait = 5 * time.Second
)

// A waiting is a host that is not active: it has links, and may be asked at an instant.
type waiting struct {
	at  int64 // nanoseconds since 1970
	far bool  // no reason to wait for it, see hostRecord.Far
	id  hostID
}

// waitings are a heap, the earliest first. They are 24 bytes each, in memory: all else that
// is known of a host that is not active is in the store.
type waitings []waiting

func (w waitings) Len() int           { return len(w) }
func (w waitings) Less(i, j int) bool { return w[i].at < w[j].at }
func (w waitings) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waitings) Push(x any)        { *w = append(*w, x.(waiting)) }
func (w *waitings) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

// mostActive is how many hosts are worked on at once. With the usual delay of a second
// and answers within a tenth of it, ten hosts keep one job busy.
func (o options) mostActive() int { return int(min(max(16*o.jobs, 64), 4096)) }

// wake gets a host to work that may have new links: it is active, or waits to be.
func (c *crawler) wake(h *host) {
	switch {
	case c.active[h.id] == h:
		c.hire(h)
	case h.Queued > 0 && !h.Gone && !c.full(h) && !c.isWaiting[h.id]:
		c.isWaiting[h.id] = true
		w := waiting{h.NotBefore.UnixNano(), h.Far && time.Until(h.NotBefore) > c.o.maxWait, h.id}
		if h.NotBefore.IsZero() {
			w.at = 0
		}
		if !w.far {
			c.near++
		}
		heap.Push(&c.waiting, w)
		c.changed()
	}
}

// changed makes run look at the hosts again.
func (c *crawler) changed() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// activate begins to work on hosts whose time has come, as many as may be. It returns when
// the next one is due, and whether there is anything to wait for.
func (c *crawler) activate() (next time.Time, more bool) {
	now := time.Now()
	for len(c.waiting) > 0 && len(c.active) < c.o.mostActive() && c.waiting[0].at <= now.UnixNano() && !c.stopped() {
		w := heap.Pop(&c.waiting).(waiting)
		delete(c.isWaiting, w.id)
		if !w.far {
			c.near--
		}
		h := &host{id: w.id}
		if _, err := getJSON(c.store.db, hostKeyOf('h', w.id), &h.hostRecord); err != nil {
			c.fail(err)
			break
		}
		h.Far = false
		h.begin, h.end = context.WithCancel(c.begin)
		h.cursor, h.turn = h.Head, turn
		c.known(h)
		c.active[h.id] = h
		c.hire(h)
	}
	if c.stopped() {
		return time.Time{}, len(c.active) > 0
	}
	if len(c.waiting) > 0 && len(c.active) < c.o.mostActive() {
		next = time.Unix(0, c.waiting[0].at)
	}
	return next, len(c.active) > 0 || c.near > 0 && !c.fullCrawl()
}

// known reads what the store has of the robots.txt of a host.
func (c *crawler) known(h *host) {
	if h.RobotsDue.IsZero() || !time.Now().Before(h.RobotsDue) {
		return
	}
	file, found, err := get(c.store.db, hostKeyOf('r', h.id))
	c.fail(err)
	if found {
		h.rules = robots.Parse(file, c.o.token())
	}
	h.ready = found || h.Why != ""
}

// hire starts workers for a host if it has more links than workers, as many requests as may
// be in flight; but only one before robots.txt was read, or to see whether the host works
// again.
func (c *crawler) hire(h *host) {
	most := int64(1)
	if h.ready && h.Aside == 0 {
		most = min(c.o.perHost, h.Queued)
	}
	for ; int64(h.workers) < most && h.Queued > 0 && !h.leaving && !c.stopped(); h.workers++ {
		c.during.Go(func() { c.work(h) })
	}
	if h.workers == 0 {
		c.deactivate(h)
	}
}

// next takes the next link of a host.
func (c *crawler) next(h *host) (link, bool) {
	others := len(c.active) >= c.o.mostActive() && len(c.waiting) > 0
	if c.stopped() || h.leaving || c.full(h) || h.turn <= 0 && others {
		return link{}, false
	}
	if len(h.window) == 0 {
		var err error
		if h.window, err = c.store.queue(h.id, h.cursor, ahead); err != nil {
			c.fail(err)
			return link{}, false
		}
		if len(h.window) == 0 {
			return link{}, false
		}
		h.cursor = h.window[len(h.window)-1].place + 1
	}
	// Links that failed wait for a while; others go before them.
	now := time.Now()
	i := slices.IndexFunc(h.window, func(l link) bool { return !l.NotBefore.After(now) })
	if i < 0 {
		i = earliest(h.window)
	}
	l := h.window[i]
	if l.NotBefore.Sub(now) > longWait && h.workers == 1 {
		h.NotBefore = later(h.NotBefore, l.NotBefore)
		h.leaving = true
		return link{}, false
	}
	h.window = slices.Delete(h.window, i, i+1)
	h.busy = append(h.busy, l.place)
	h.turn--
	return l, true
}

// earliest returns the index of the link that may be asked for first.
func earliest(links []link) (i int) {
	for j := range links {
		if links[j].NotBefore.Before(links[i].NotBefore) {
			i = j
		}
	}
	return i
}

// putBack undoes next.
func (h *host) putBack(l link) {
	h.busy = slices.DeleteFunc(h.busy, func(p uint64) bool { return p == l.place })
	at, _ := slices.BinarySearchFunc(h.window, l.place, func(w link, place uint64) int {
		if w.place < place {
			return -1
		}
		return 1
	})
	h.window = slices.Insert(h.window, at, l)
}

// full reports that no more pages of a host are to be asked for.
func (c *crawler) full(h *host) bool {
	return c.fullCrawl() || h.Taken+h.asking >= c.o.hostPages
}

func (c *crawler) fullCrawl() bool { return c.totals.Taken+c.asking >= c.o.pages }

// work goes to the links of h, one after the other, until there are none.
func (c *crawler) work(h *host) {
	err := c.gates.Use(nameOf(h.Key), func(gate *sluice.Gate) error {
		c.mu.Lock()
		far := c.leaveIfFar(c.owe(gate, h))
		c.mu.Unlock()
		for !far && c.visit(gate, h) {
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if h.workers--; h.workers > 0 {
			return nil
		}
		if s := gate.Stats(); s.Learned != nil {
			h.Learned = gate.Snapshot()
		}
		c.deactivate(h)
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
}

// deactivate puts a host without workers back into the store, where it waits if it has
// links.
func (c *crawler) deactivate(h *host) {
	if c.active[h.id] != h {
		return
	}
	h.end()
	h.Head = h.head()
	delete(c.active, h.id)
	ch := c.change()
	ch.hosts[h.id] = h
	c.fail(ch.commit())
	c.changed()
}
