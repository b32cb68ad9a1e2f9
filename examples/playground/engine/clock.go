package engine

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// A clock runs events in virtual time. Everything that happens in a lane is an event, or
// a goroutine that an event or a timer of a limiter has woken. After each event all
// goroutines run until they wait, and the calls that they send until then start in the
// order of their numbers. So a picture does not depend on the scheduler.
type clock struct {
	begin time.Time
	kick  chan struct{} // ends the sleep of the clock
	woke  bool          // an event has woken a goroutine; for events only

	mu      sync.Mutex
	events  events
	added   int
	pending []departure
	asleep  bool
}

// A departure is a call that starts at this time.
type departure struct {
	number int // of the caller
	leave  func()
}

func newClock() *clock {
	return &clock{begin: time.Now(), kick: make(chan struct{}, 1)}
}

func (c *clock) now() time.Duration { return time.Since(c.begin) }

// at runs f at t.
func (c *clock) at(t time.Duration, f func()) {
	c.mu.Lock()
	c.added++
	heap.Push(&c.events, event{t, c.added, f})
	c.wake()
	c.mu.Unlock()
}

// after runs f in d.
func (c *clock) after(d time.Duration, f func()) { c.at(c.now()+d, f) }

// depart lets a caller's call start once all goroutines wait.
func (c *clock) depart(number int, leave func()) {
	c.mu.Lock()
	c.pending = append(c.pending, departure{number, leave})
	c.wake()
	c.mu.Unlock()
}

// wake makes a clock that sleeps look again; one kick too many does no harm. It is called
// with the lock held.
func (c *clock) wake() {
	if !c.asleep {
		return
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run runs the events before end, and lets no call start at end.
func (c *clock) run(end time.Duration) {
	timer := time.NewTimer(end)
	defer timer.Stop()
	c.woke = true
	for c.now() < end {
		c.settle()
		next, due := c.next(end)
		if due != nil {
			due()
			continue
		}
		timer.Reset(next - c.now())
		select {
		case <-c.kick:
		case <-timer.C:
		}
		c.woke = true // a timer of a limiter may have fired, too
	}
}

// settle lets all goroutines run until they wait, and then their calls start.
func (c *clock) settle() {
	if !c.woke {
		return
	}
	c.woke = false
	for {
		synctest.Wait()
		c.mu.Lock()
		pending := c.pending
		c.pending = nil
		c.mu.Unlock()
		if len(pending) == 0 {
			return
		}
		slices.SortFunc(pending, func(a, b departure) int { return cmp.Compare(a.number, b.number) })
		for _, d := range pending {
			d.leave()
		}
	}
}

// next removes the first event if it is due before end, and returns it. Otherwise it
// returns when to look again, and the clock is asleep.
func (c *clock) next(end time.Duration) (time.Duration, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := end
	if len(c.events) > 0 {
		at = min(end, c.events[0].at)
	}
	if c.asleep = at == end || at > c.now(); c.asleep {
		return at, nil
	}
	return 0, heap.Pop(&c.events).(event).f
}

// An event happens at a time; those at the same time in the order in which they were
// added.
type event struct {
	at     time.Duration
	number int
	f      func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].number, e[j].number)) < 0
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	all := *e
	last := all[len(all)-1]
	all[len(all)-1] = event{}
	*e = all[:len(all)-1]
	return last
}
