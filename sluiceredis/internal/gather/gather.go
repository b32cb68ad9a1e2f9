// Package gather lets callers of one key share calls.
package gather

import (
	"context"
	"sync"
	"time"
)

// # How do many callers of one key need few round trips?
//
// Each with its own call, 512 callers of one hot key are 512 scripts, and the server runs one after
// the other. Taking units in advance would need fewer, but units that one machine holds are missing
// on the others.
//
// So callers that come while a call for their key is under way gather, and leave with
// the next one, all of them in one script, in the order in which they came. It decides
// one after the other, at the same time, as if each had come alone. This is the group
// commit of databases, where one write of the log serves all that wait for the disk.
//
//	caller   1    2 3 4        5 6
//	         │    └─┴─┴─┐      └─┴─┐
//	server   ├─── 1 ────┼─ 2,3,4 ──┼── 5,6 ──
//
// The first caller finds nothing on its way, and its call is its own: made by
// its goroutine, within its context. The next ones are made by a goroutine that
// lives as long as callers wait, and in no caller's context: the end of one must not
// end the others.
//
// A caller whose context ends before its call was sent has taken nothing. One whose context
// ends while the call is under way does not wait, either; units that it took are returned.

// Most is the maximum number of callers that leave together. A script that decides for more would
// keep other keys waiting too long: 1,000 take about 0.3 ms.
const Most = 1000

// A Gatherer gathers requests of type O, which are pointers, by key. Its exported fields
// are set before its first use.
type Gatherer[K comparable, O any] struct {
	// Run makes a call for requests, in order, and fills in their results. It must not
	// keep the slice.
	Run func(ctx context.Context, key K, requests []O) error

	// Undo, if not nil, returns the units taken for callers that had left.
	Undo func(key K, requests []O)

	// Ended returns the error of a caller that leaves with err while its call is under
	// way. Nil: err.
	Ended func(err error) error

	// Patience, if not nil, returns until when a caller waits for a call that is made for
	// several, and a context that ends its wait as well, in place of its own. Then its own
	// context needs no timer: one timer serves all that wait. If the time has come the
	// caller starts as if its context had reached a deadline.
	Patience func(request O) (ctx context.Context, until time.Time)

	// Apart, if not nil, reports that a call for request is never made in its caller's context, so
	// that what it takes can be undone if the caller leaves.
	Apart func(request O) bool

	// Units, if not nil, returns the number of units that a request adds to a call, of which one
	// has at most MostUnits if it is for several requests.
	Units     func(request O) int64
	MostUnits int64

	mu     sync.Mutex
	groups map[K]*group[O] // those of which a call is under way
	spare  *group[O]       // one that is not in use, or nil
	queue  queue[O]

	waiters sync.Pool // of the Gatherer, because a channel of one synctest bubble must not get into another
}

// A group is the callers that gather for the next call of a key.
type group[O any] struct {
	waiting []*waiter[O]
	first   [1]O // the request that found no call under way
}

// A waiter is one of them.
type waiter[O any] struct {
	request O
	err     chan error // of capacity 1

	// Guarded by the lock of the Gatherer:
	sent, gone bool
	answered   bool       // the result of its call is in err, or will be immediately
	until      time.Time  // zero: no end
	ahead      *waiter[O] // in the queue
	behind     *waiter[O]
}

// Do makes a call for request, along with others of key.
func (c *Gatherer[K, O]) Do(ctx context.Context, key K, request O) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	g := c.groups[key]
	first := g == nil
	if first {
		g = c.begin(key)
	}
	if first && (c.Apart == nil || !c.Apart(request)) {
		g.first[0] = request
		c.mu.Unlock()
		defer c.next(key, g) // also if Run panics
		return c.Run(ctx, key, g.first[:])
	}
	w, _ := c.waiters.Get().(*waiter[O])
	if w == nil {
		w = &waiter[O]{err: make(chan error, 1)}
	}
	w.request, w.sent, w.answered = request, false, false
	g.waiting = append(g.waiting, w)
	if c.Patience != nil {
		ctx, w.until = c.Patience(request)
		c.enqueue(w)
	}
	if first {
		go c.serve(key, g, c.gather(key, g, nil))
	}
	c.mu.Unlock()

	done := ctx.Done()
	if done == nil { // a receive is cheaper than a select
		return c.end(w, <-w.err)
	}
	select {
	case err := <-w.err:
		return c.end(w, err)
	case <-done:
	}
	c.mu.Lock()
	if w.answered || w.gone { // at the last moment
		c.mu.Unlock()
		return <-w.err
	}
	defer c.mu.Unlock()
	return c.abandon(w, ctx.Err())
}

// end returns err, the result that was sent to w.
func (c *Gatherer[K, O]) end(w *waiter[O], err error) error {
	if !w.gone { // or its call still has it
		c.waiters.Put(w)
	}
	return err
}

// abandon has w wait no longer, and returns its error. The lock is held.
func (c *Gatherer[K, O]) abandon(w *waiter[O], err error) error {
	w.gone = true
	c.dequeue(w)
	if w.sent && c.Ended != nil {
		return c.Ended(err)
	}
	return err
}

// begin returns the group of a key that has none. The lock is held.
func (c *Gatherer[K, O]) begin(key K) *group[O] {
	g := c.spare
	if c.spare = nil; g == nil {
		g = new(group[O])
	}
	if c.groups == nil {
		c.groups = make(map[K]*group[O])
	}
	c.groups[key] = g
	return g
}

// next sends the callers that have gathered, or records that no call is under way.
func (c *Gatherer[K, O]) next(key K, g *group[O]) {
	c.mu.Lock()
	batch := c.gather(key, g, nil)
	c.mu.Unlock()
	if len(batch) > 0 {
		go c.serve(key, g, batch)
	}
}

// serve sends batch, and the callers that gather in between, until none waits.
func (c *Gatherer[K, O]) serve(key K, g *group[O], batch []*waiter[O]) {
	var requests []O
	var answered []*waiter[O]
	for len(batch) > 0 {
		requests = requests[:0]
		for _, w := range batch {
			requests = append(requests, w.request)
		}
		err := c.Run(context.Background(), key, requests)
		var undo []O
		answered = answered[:0]
		c.mu.Lock()
		for _, w := range batch {
			switch {
			case !w.gone:
				c.dequeue(w)
				w.answered = true
				answered = append(answered, w)
			case err == nil:
				undo = append(undo, w.request)
			}
		}
		batch = c.gather(key, g, batch[:0])
		c.mu.Unlock()
		for _, w := range answered { // without the lock, for which those that come again would wait
			w.err <- err
		}
		if len(undo) > 0 && c.Undo != nil {
			c.Undo(key, undo)
		}
	}
}

// gather returns the callers that leave with the next call, and ends the group if
// there are none. The lock is held.
func (c *Gatherer[K, O]) gather(key K, g *group[O], batch []*waiter[O]) []*waiter[O] {
	taken, units := 0, int64(0)
	for _, w := range g.waiting {
		if len(batch) == Most {
			break
		}
		if c.Units != nil && !w.gone {
			if units += min(c.Units(w.request), c.MostUnits); units > c.MostUnits && len(batch) > 0 {
				break
			}
		}
		taken++
		if !w.gone {
			w.sent = true
			batch = append(batch, w)
		}
	}
	rest := copy(g.waiting, g.waiting[taken:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	if len(batch) == 0 {
		delete(c.groups, key)
		clear(g.first[:])
		c.spare = g
	}
	return batch
}

// Waiting returns the number of callers that wait for the call of a key that is under way.
func (c *Gatherer[K, O]) Waiting(key K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.groups[key]; g != nil {
		return len(g.waiting)
	}
	return 0
}
