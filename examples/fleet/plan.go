package main

import (
	"os"
	"slices"
	"time"
)

// plan is what to do when, since it began. Everything is done by one goroutine.
type plan struct {
	began  time.Time
	events []event // in order
	over   bool
}

// event is something to do at a time.
type event struct {
	at time.Duration
	do func()
}

// now returns the time since the plan began.
func (p *plan) now() time.Duration { return time.Since(p.began) }

// after adds an event, some time from now.
func (p *plan) after(d time.Duration, do func()) {
	e := event{p.now() + d, do}
	i := slices.IndexFunc(p.events, func(other event) bool { return other.at > e.at })
	if i < 0 {
		i = len(p.events)
	}
	p.events = slices.Insert(p.events, i, e)
}

// every adds an event that is repeated.
func (p *plan) every(d time.Duration, do func()) {
	p.after(d, func() { p.every(d, do); do() })
}

// follow does what is planned until it has ended, or reports that it was interrupted.
func (p *plan) follow(interrupts <-chan os.Signal) (interrupted bool) {
	for !p.over {
		e := p.events[0]
		select {
		case <-time.After(e.at - p.now()):
			p.events = p.events[1:]
			e.do()
		case <-interrupts:
			return true
		}
	}
	return false
}
