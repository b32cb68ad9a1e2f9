package main

import (
	"fmt"
	"strings"
	"time"
)

const (
	// liveEvery is the interval at which the line of a terminal is drawn.
	liveEvery = 200 * time.Millisecond
	// plainEvery is the interval at which a line is printed where lines stay.
	plainEvery = 2 * time.Second
	// rateOver is the time that the rate of the line is measured over.
	rateOver = 2 * time.Second
)

// unknown is the number of those that wait in other processes.
const unknown = -1

// moment is the state of a run at a point in time.
type moment struct {
	at          time.Time
	done        int64
	lost        int64
	inFlight    int64
	waiting     int64 // or unknown
	sent        int64 // attempts begun
	throttled   int64
	pausedUntil time.Time
}

// progress shows how a run is going until it is stopped.
type progress struct {
	screen *screen
	name   string
	n      int64
	target float64 // calls per second
	now    func() moment

	recent []moment // the last rateOver of them
	quit   chan struct{}
	done   chan struct{}
}

// watch begins to show how a run of so many items is going. The caller must
// call stop when it has ended; the line is gone, or complete, when stop returns.
func watch(s *screen, name string, o options, now func() moment) (stop func()) {
	p := &progress{
		screen: s, name: name, n: int64(o.share.items(o.n)), target: o.perSecond(), now: now,
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go p.run()
	return func() {
		close(p.quit)
		<-p.done
	}
}

func (p *progress) run() {
	defer close(p.done)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	const plainTicks = int(plainEvery / liveEvery)
	for i := 0; ; i++ {
		text := p.sample(time.Now())
		switch {
		case p.screen.terminal:
			p.screen.live(text)
		case i%plainTicks == 0:
			p.screen.print(text)
		}
		select {
		case <-tick.C:
		case <-p.quit:
			if p.screen.terminal {
				p.screen.live("") // the table says it all
			} else {
				p.screen.print(p.sample(time.Now()))
			}
			return
		}
	}
}

// sample takes the state and returns the line for it.
func (p *progress) sample(now time.Time) string {
	m := p.now()
	m.at = now
	p.recent = append(p.recent, m)
	for len(p.recent) > 2 && now.Sub(p.recent[1].at) >= rateOver {
		p.recent = p.recent[1:]
	}
	return p.text(p.recent[0], m)
}

// text is the line for the state m, with rates measured since the state then.
func (p *progress) text(then, m moment) string {
	var sent, finished float64
	span := m.at.Sub(then.at).Seconds()
	if span > 0 {
		sent = float64(m.sent-then.sent) / span
		finished = float64(m.done+m.lost-then.done-then.lost) / span
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s/%s done, ", p.name, thousands(m.done), thousands(p.n))
	if m.lost > 0 {
		fmt.Fprintf(&b, "%s lost, ", thousands(m.lost))
	}
	fmt.Fprintf(&b, "%s in flight, ", thousands(m.inFlight))
	if m.waiting != unknown {
		fmt.Fprintf(&b, "%s waiting, ", thousands(m.waiting))
	}
	fmt.Fprintf(&b, "%s of %s", rateText(sent), rateText(p.target))
	if pause := m.pausedUntil.Sub(m.at); pause > 0 {
		fmt.Fprintf(&b, ", paused for %s", roughly(pause))
	}
	if left := p.n - m.done - m.lost; left > 0 {
		if finished <= 0 || span < 1 {
			finished = p.target // too little to judge by yet
		}
		fmt.Fprintf(&b, ", ETA %s", seconds(float64(left)/finished))
	}
	// Last, because a narrow terminal cuts the line.
	if m.throttled > 0 {
		fmt.Fprintf(&b, ", %s 429s", thousands(m.throttled))
	}
	return b.String()
}
