package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
)

// # How do limits that must be asked join one admission?
//
// A gate alone decides under the lock of its queue: room, slot and pause in one
// step (rule.Admit). A quota may be far away, and asking it must not hold that
// lock. A parent has a queue of its own, in which its other children wait, too.
//
// So a call of such a gate is admitted by its own goroutine, once it is at the
// head of its queue, in this order:
//
//	its gate:   would it let me through?       no: wait there, holding nothing
//	its parent: queue; at its head:
//	              would all of us, still?      no: give up the place, wait in the gate that said no
//	              take from every quota        no: give back, likewise
//	              (of this machine first, then those far away: see question)
//	              lock all; would all still?   no: give back, likewise
//	              take the room and the slots of all, at one instant
//
// A call that waits for its own gate therefore has no place in the parent: a
// slow or paused host hoards nothing. A call that waits for the parent has
// taken nothing from its own gate: a full parent wastes no slot of the host.
// Locks are taken from the root down, and nobody who holds one waits.
//
// # How late is such a call?
//
// It goes through several hands, and each may be late: the timer of its own queue, the
// goroutine that wakes in its parent's, a quota that takes time to answer. But the time
// for which a limit holds it up is not lateness. So each queue records since when the
// call could have asked (queue.Turn): since it came, its slot came, or it was woken by a
// change. A call that was late in its own queue came to its parent's as much too late
// (queue.Request.Came). The lateness at the root, after the last limit that held the
// call up, is the lateness for all of them. Each gate makes up for it, up to its CatchUp:
//
//	its gate     slot ├─ woken late ─┤
//	its parent                       ├── no room ──┤ room ├─ woken late ─┤ leaves
//	late for all                                          ├──────────────┤
//
// The simpler version charged every gate but the root at the instant at which the call
// left. Each call then lost as much as its timer was late: 5 % of the rate at 200/s,
// 80 % at 5,000/s.

// A path is a gate, its parent, that one's parent, and so on.
type path struct {
	gates []*Gate
	asks  []queue.AskFunc // of the heads of their queues
	told  *news           // of the parents; nil if none of them has an observer
}

func newPath(g *Gate, told *news) *path {
	p := &path{told: told}
	for ; g != nil; g = g.parent {
		p.gates = append(p.gates, g)
	}
	for i := range p.gates {
		p.asks = append(p.asks, p.asker(i))
	}
	return p
}

// asking returns how a call of g asks to be let through, nil if it need not,
// and where it notes what the observers of parents are to be told.
func (g *Gate) asking() (queue.AskFunc, *news) {
	if g.parent == nil || !g.parent.watched {
		return g.ask, nil
	}
	told := new(news)
	return newPath(g, told).asks[0], told
}

// asker returns how the head of the queue of the i-th gate of p asks to be let through
// for a call of the first.
func (p *path) asker(i int) queue.AskFunc {
	here := p.gates[i]
	return func(ctx context.Context, t queue.Turn) (queue.Wait, error) {
		if here.parent == nil {
			if wait := here.wouldWait(t.N, ""); wait.For > 0 {
				return wait, nil
			}
			return p.join(ctx, t)
		}
		if wait := here.wouldWait(t.N, ByParent); wait.For > 0 {
			return wait, nil
		}
		return p.pass(ctx, t, i)
	}
}

// pass queues in the parent of the i-th gate.
func (p *path) pass(ctx context.Context, t queue.Turn, i int) (queue.Wait, error) {
	g := p.gates[i]
	_, waited, err := g.parent.queue.Acquire(ctx, queue.Request{
		N: t.N, Max: t.Left, Patience: t.Patience, Ask: p.asks[i+1],
		Came: g.queue.Epoch().Add(t.Due), // had it been woken in time
	})
	var no *refusal
	switch {
	case err == nil:
		g.parent.waited(waited)
		p.told.note(g.parent, Event{Kind: EventGranted, N: t.N, Wait: waited})
		return queue.Wait{}, nil
	case errors.As(err, &no) && no.by == g:
		return no.wait, no.err
	case no != nil:
		return queue.Wait{}, err
	}
	refused := g.parent.refusal(t.N, err)
	p.told.note(g.parent, refused)
	return queue.Wait{}, refused.Err
}

// A refusal ends the wait in a parent's queue because a gate below it, by, does
// not let the call through yet or, if err is set, at all.
type refusal struct {
	by   *Gate
	wait queue.Wait
	err  error
}

func (r *refusal) Error() string { return fmt.Sprintf("sluice: refused below: %v, %v", r.wait, r.err) }

// join admits a call to all gates of p at one instant, or returns how long to
// wait at the head of the queue of the last of them, in which it is.
func (p *path) join(ctx context.Context, t queue.Turn) (queue.Wait, error) {
	// The answer to the caller: a wait here, or a refusal by one below.
	no := func(g *Gate, wait queue.Wait, err error) (queue.Wait, error) {
		if g == p.gates[len(p.gates)-1] {
			return wait, err
		}
		return queue.Wait{}, &refusal{g, wait, err}
	}
	for i := len(p.gates) - 2; i >= 0; i-- {
		if wait := p.gates[i].wouldWait(t.N, ByParent); wait.For > 0 {
			return no(p.gates[i], wait, nil)
		}
	}
	questions := p.gates[0].questions
	taken := 0
	giveBack := func() {
		for i := range questions[:taken] {
			questions[i].giveBack(context.WithoutCancel(ctx), t.N)
		}
	}
	answered := false
	defer func() {
		if !answered { // a quota panicked
			giveBack()
		}
	}()
	for i := range questions {
		wait, by, err := questions[i].admit(ctx, t.N)
		if wait > 0 || err != nil {
			giveBack()
			answered = true
			by.gate.heldBy(by.limit())
			return no(by.gate, queue.Wait{For: wait, Sure: wait, By: by.bell}, errs.Named(string(by.limit()), err))
		}
		taken++
	}
	answered = true
	if g, wait, err := commit(ctx, t, p.gates); g != nil {
		giveBack()
		return no(g, wait, err)
	}
	return queue.Wait{}, nil
}

// commit takes the room and the slots of all gates of p, or returns who refuses
// and for how long, or why for good.
func commit(ctx context.Context, t queue.Turn, p []*Gate) (refuses *Gate, wait queue.Wait, err error) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i].queue.Lock()
		defer p[i].queue.Unlock()
	}
	if err := ctx.Err(); err != nil {
		return p[0], queue.Wait{}, err // gave up while a quota was being asked
	}
	for i, g := range p {
		err, wait := g.queue.Closed(), queue.Wait{}
		if err == nil {
			wait = (*rule)(g).wait(g.queue.Now(), t.N)
		}
		if err == nil && wait.For == 0 && !(*rule)(g).enter(t.N) {
			wait.For = queue.Forever // the last place went to a call past the lock
		}
		if err != nil || wait.For > 0 {
			for _, g := range p[:i] {
				(*rule)(g).exit(t.N)
			}
			return g, wait, err
		}
	}
	// All of them at one instant, and all as late as the last of them was: it is the
	// others that the call had waited for.
	at := time.Now()
	late := at.Sub(p[len(p)-1].queue.Epoch()) - t.Due
	for _, g := range p {
		late = min(late, at.Sub(g.queue.Epoch())-g.schedule.Slot())
	}
	for _, g := range p {
		now := at.Sub(g.queue.Epoch())
		(*rule)(g).depart(now, now-max(0, late), t.N) // they would not wait, and nothing has changed
	}
	return nil, queue.Wait{}, nil
}

// wouldWait returns how long a call of n would wait at the head of the queue
// for the gate itself. If it would not, next is what may hold it up now.
func (g *Gate) wouldWait(n int64, next Cause) queue.Wait {
	g.queue.Lock()
	defer g.queue.Unlock()
	g.asked = next
	return (*rule)(g).wait(g.queue.Now(), n)
}

// heldBy notes what holds the head of the queue up although the gate would not.
func (g *Gate) heldBy(limit Cause) {
	g.queue.Lock()
	defer g.queue.Unlock()
	g.asked = limit
}
