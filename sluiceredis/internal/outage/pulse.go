package outage

import (
	"sync"
	"time"
)

// A Pulse remembers when servers were last heard, and the time they usually take to answer.
// Its zero value has heard none.
type Pulse struct {
	mu     sync.Mutex
	places map[string]*beat
}

type beat struct {
	heard time.Time
	usual time.Duration
}

// idle is the time after an answer at which a call may need a new connection, which takes several
// round trips.
const idle = time.Minute

// Heard records that the server at name has answered a call after so long.
//
// The usual time rises to the longest answer immediately, and falls by a 64th of the difference
// with each shorter one. So a server that becomes slow is known as such from its first
// answer, and one that is slow now and then stays so.
func (p *Pulse) Heard(name string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.places[name]
	if b == nil {
		if p.places == nil {
			p.places = map[string]*beat{}
		}
		b = new(beat)
		p.places[name] = b
	}
	b.heard, b.usual = time.Now(), max(took, b.usual-(b.usual-took)/64)
}

// Last returns when the server at name was last heard; zero: never.
func (p *Pulse) Last(name string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.places[name]; b != nil {
		return b.heard
	}
	return time.Time{}
}

// Patience returns the silence after which the server at name is taken to be away: four times the
// usual one, from least to longest. It is longest if the server was not heard lately, unless the
// call is a probe, for which nobody else waits.
func (p *Pulse) Patience(name string, probe bool, least, longest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.places[name]
	switch {
	case probe && b == nil:
		return min(least, longest)
	case b == nil, !probe && time.Since(b.heard) > idle:
		return longest
	}
	return min(max(least, 4*b.usual), longest)
}
