package sluiceredis

import (
	"context"
	"sync"
)

// # How do many callers of one key need few round trips?
//
// Each with a call of its own, 512 callers of one hot key are 512 scripts, and
// the server runs one after the other. Taking units in advance would need fewer, but
// what one machine holds is missing on the others.
//
// So callers that come while a call for their key is under way gather, and leave with
// the next one, all of them in one script, in the order in which they came. It decides
// one after the other, at one instant, as if each had come alone. This is the group
// commit of databases, where one write of the log serves all that wait for the disk.
//
//	caller   1    2 3 4        5 6
//	         │    └─┴─┴─┐      └─┴─┐
//	server   ├─── 1 ────┼─ 2,3,4 ──┼── 5,6 ──
//
// The first caller finds nothing on its way, and its call is its own: made by
// its goroutine, within its context. The next ones are made by a goroutine that
// lives as long as callers wait, and within the Store's timeout: the context
// of one must not end the others.
//
// A caller that comes while the server is away waits for no group, and no other caller
// waits for it: see breaker.
//
// A caller whose context ends before its call was sent has taken nothing.
// One whose context ends while the call is on its way does not wait, either; if
// the answer is then that it was let through, it is given back.
//
// Calls for different keys share nothing but the way, and do so by the same rule:
// see Topology.

// most is how many callers leave together. A script that decides for more would
// keep other keys waiting too long: 1,000 take about 0.3 ms. Those of logs leave
// with fewer if they ask for many units.
const most = 1000

// A commit gathers requests of type O, which are pointers, by key.
type commit[K comparable, O any] struct {
	store *Store
	run   func(s *Store, ctx context.Context, key K, requests []O) error // answers them in place
	undo  func(s *Store, key K, requests []O)                            // gives back what was taken for them; nil: it cannot be known
	units func(request O) int64                                          // how much longer it makes a script, see mostAtOnce; nil: not worth counting

	// What limits have besides; others have none of it.
	name  func(key K) string                                           // in Redis
	alone func(s *Store, key K, requests []O) error                    // answers them without a server
	here  func(s *Store, key K, requests []O, away *outageError) error // answers them while the server is away

	mu     sync.Mutex
	groups map[K]*group[O] // those of which a call is on its way
}

// A group is the callers that gather for the next call of a key.
type group[O any] struct {
	waiting []*waiter[O]
	first   [1]O // the request that nothing was on its way for
}

// A waiter is one of them.
type waiter[O any] struct {
	request O
	answer  chan error // of capacity 1

	sent, gone bool // guarded by the lock of the commit
}

func (c *commit[K, O]) init(s *Store, run func(*Store, context.Context, K, []O) error, undo func(*Store, K, []O)) {
	c.store, c.run, c.undo = s, run, undo
	c.groups = make(map[K]*group[O])
}

// do has request answered, along with others of key.
func (c *commit[K, O]) do(ctx context.Context, key K, request O) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.name != nil {
		switch s := c.store; {
		case s.alone:
			s.stats.local.Add(1)
			return c.alone(s, key, []O{request})
		case s.breaker.away(func() string { return s.place(c.name(key)) }):
			return c.decide(ctx, key, []O{request})
		}
	}
	c.mu.Lock()
	g := c.groups[key]
	if g == nil {
		g = &group[O]{first: [1]O{request}}
		c.groups[key] = g
		c.mu.Unlock()
		defer c.next(key, g) // also if the client panics
		return c.decide(ctx, key, g.first[:])
	}
	w := &waiter[O]{request: request, answer: make(chan error, 1)}
	g.waiting = append(g.waiting, w)
	c.mu.Unlock()

	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case err := <-w.answer: // at the last moment
		return err
	default:
	}
	w.gone = true
	if w.sent && c.undo == nil {
		return ambiguous(ctx.Err())
	}
	return ctx.Err()
}

// next sends the callers that have gathered, or notes that nothing is on its way any more.
func (c *commit[K, O]) next(key K, g *group[O]) {
	c.mu.Lock()
	batch := c.gather(key, g)
	c.mu.Unlock()
	if len(batch) > 0 {
		go c.serve(key, g, batch)
	}
}

// serve sends batch, and the callers that gather meanwhile, until none waits.
func (c *commit[K, O]) serve(key K, g *group[O], batch []*waiter[O]) {
	for len(batch) > 0 {
		requests := make([]O, len(batch))
		for i, w := range batch {
			requests[i] = w.request
		}
		err := c.decide(context.Background(), key, requests)
		var undo []O
		c.mu.Lock()
		for _, w := range batch {
			switch {
			case !w.gone:
				w.answer <- err
			case err == nil:
				undo = append(undo, w.request)
			}
		}
		batch = c.gather(key, g)
		c.mu.Unlock()
		if len(undo) > 0 && c.undo != nil {
			c.undo(c.store, key, undo)
		}
	}
}

// gather returns the callers that leave with the next call, and forgets the group if
// there are none. The lock is held.
func (c *commit[K, O]) gather(key K, g *group[O]) []*waiter[O] {
	var batch []*waiter[O]
	taken, units := 0, int64(0)
	for _, w := range g.waiting {
		if len(batch) == most {
			break
		}
		if c.units != nil && !w.gone {
			if units += min(c.units(w.request), mostAtOnce); units > mostAtOnce && len(batch) > 0 {
				break
			}
		}
		taken++
		if !w.gone {
			w.sent = true
			batch = append(batch, w)
		}
	}
	g.waiting = g.waiting[taken:]
	if len(batch) == 0 {
		delete(c.groups, key)
	}
	return batch
}
