package sluicehttp

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

const mostPeeked = 64 << 10

// # How does an Inspector see a body that stalls?
//
// The simplest way is to read what it wants to see before it is called. But a server
// that sends a header and half a body then holds the permit for as long as the
// context lasts. To close the body after a second, as setAside does, loses an answer
// that is only slow, such as a long one to a GraphQL query. So a goroutine reads, the
// Inspector gets what has come within a second, and whoever reads the body later gets
// all of it.

// A peeked is a body whose beginning is being read, or was.
type peeked struct {
	body io.ReadCloser
	over chan struct{} // closed when the goroutine has read what it shall

	mu     sync.Mutex
	change sync.Cond
	buffer []byte // read, and not yet taken
	err    error  // after buffer; nil if body goes on
	done   bool   // the goroutine reads no more
	late   bool   // it had not when the patience was over
}

// peek returns the beginning of the body of resp, or what has come of it within
// patience, and puts it back. Meanwhile it calls hold, unless that is nil, again and
// again with until when the key shall be held up.
func peek(resp *http.Response, patience time.Duration, hold func(time.Time)) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	p := &peeked{body: resp.Body, over: make(chan struct{})}
	p.change.L = &p.mu
	resp.Body = p
	began := time.Now()
	if hold != nil {
		hold(began.Add(2 * firstHold))
	}
	go p.fetch()
	p.wait(began, patience, hold)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = !p.done
	return bytes.Clone(p.buffer)
}

const firstHold = 10 * time.Millisecond

// wait blocks until fetch is over, for patience at most. It holds the key up for a
// little while at first and then for twice as long each time, so that hardly anything
// is left of that when the body is there.
func (p *peeked) wait(began time.Time, patience time.Duration, hold func(time.Time)) {
	next := patience
	if hold != nil {
		next = min(firstHold, patience)
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-timer.C:
		}
		if next == patience {
			return
		}
		hold(began.Add(4 * next)) // also while what follows the last one is judged
		next = min(2*next, patience)
		timer.Reset(time.Until(began.Add(next)))
	}
}

// fetch reads the beginning of the body.
func (p *peeked) fetch() {
	defer close(p.over)
	part := make([]byte, 4<<10)
	for left := mostPeeked; ; {
		n, err := p.body.Read(part[:min(left, len(part))])
		p.mu.Lock()
		p.buffer = append(p.buffer, part[:n]...)
		left -= n
		p.err, p.done = err, err != nil || left == 0
		done := p.done
		p.change.Broadcast()
		p.mu.Unlock()
		if done {
			return
		}
	}
}

// Read implements io.Reader.
func (p *peeked) Read(b []byte) (int, error) {
	p.mu.Lock()
	for len(p.buffer) == 0 && !p.done {
		p.change.Wait()
	}
	n := copy(b, p.buffer)
	p.buffer = p.buffer[n:]
	err, more := p.err, n == 0 && len(p.buffer) == 0
	p.mu.Unlock()
	switch {
	case !more || len(b) == 0:
		return n, nil
	case err != nil:
		return 0, err
	}
	return p.body.Read(b)
}

// Close implements io.Closer.
func (p *peeked) Close() error { return p.body.Close() }

// stalled reports whether body was peeked into and did not come in time.
func stalled(body io.Reader) bool {
	p, ok := body.(*peeked)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// peeker returns the peek of an Inspector for resp, whose header said what said has.
// If that is to pause the gate, it is paused already while the body is awaited. To
// pause it for all of what the header said is simpler, but an Inspector may find in
// the body that less is enough, and a pause is only ever prolonged.
func (st *state) peeker(resp *http.Response, said *ratelimit.Snapshot, now time.Time, patience time.Duration) func() []byte {
	var seen []byte
	asked := false
	return func() []byte {
		if asked {
			return bytes.Clone(seen)
		}
		asked = true
		at, source := said.PauseUntil()
		if said.Throttled && at.IsZero() && said.Floor > 0 {
			at, source = now.Add(said.Floor), "its kind"
		}
		if at.Sub(now) > st.t.mostPause {
			at = now.Add(st.t.mostPause)
		}
		var hold func(time.Time)
		if at.After(now) {
			hold = func(until time.Time) {
				if until.After(at) {
					until = at
				}
				st.gate.PauseUntil(until, source)
			}
		}
		seen = peek(resp, patience, hold)
		return bytes.Clone(seen)
	}
}
