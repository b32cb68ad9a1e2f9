package sluicehttp

import (
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/sluice-go/sluice"
)

const mostOfUsage = 64 << 10 // bytes of a part

// A meter passes a body to Config.Usage and settles the bill at its end. The methods of a nil
// meter do nothing.
type meter struct {
	usage func(resp *http.Response, part []byte, used sluice.Costs)
	bill  *bill
	from  *http.Response // for its trailers

	mu     sync.Mutex // the context of the request may end during a Read
	resp   http.Response
	used   sluice.Costs
	events *eventReader // nil unless the body is an event stream
	other  excerpt      // of another body
	over   bool
}

// newMeter returns the meter for resp, or nil if there is nothing to settle.
func newMeter(usage func(*http.Response, []byte, sluice.Costs), b *bill, resp *http.Response) *meter {
	if usage == nil || b == nil || b.settled.Load() || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	m := &meter{usage: usage, bill: b, from: resp, resp: *resp, used: make(sluice.Costs)}
	m.resp.Body, m.resp.Trailer = http.NoBody, nil
	if mediaType(resp) == "text/event-stream" {
		m.events = new(eventReader)
	}
	return m
}

// read notes p, which was read from the body, and its error.
func (m *meter) read(p []byte, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.over:
		return
	case m.events != nil:
		m.events.read(p, m.part)
	default:
		m.other.add(p)
	}
	if err == io.EOF {
		m.resp.Trailer = m.from.Trailer
		if m.events != nil {
			m.events.end(m.part)
		}
		m.last()
	}
}

// close is read for a body that is closed.
func (m *meter) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last()
}

// last passes the last part and settles.
func (m *meter) last() {
	if m.over {
		return
	}
	m.over = true // also if the Usage panics
	if m.events != nil {
		m.part(nil)
	} else {
		m.part(m.other.bytes())
	}
	m.settle()
}

// stop settles with the known amounts.
func (m *meter) stop() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.over = true
		m.settle()
	}
}

func (m *meter) part(p []byte) { m.usage(&m.resp, p, m.used) }

func (m *meter) settle() {
	m.other = excerpt{}
	if used := known(maps.Clone(m.used)); len(used) > 0 {
		m.bill.settle(used)
	}
}

// A tail keeps the last mostOfUsage bytes.
type tail []byte

func (t *tail) add(p []byte) {
	if len(*t)+len(p) > 2*mostOfUsage { // moves each byte about once
		p = p[max(0, len(p)-mostOfUsage):]
		t.move()
	}
	*t = append(*t, p...)
}

// bound forgets what is not last if that is as much.
func (t *tail) bound() {
	if len(*t) > 2*mostOfUsage {
		t.move()
	}
}

func (t *tail) move() { *t = (*t)[:copy(*t, t.last())] }

func (t *tail) last() []byte { return (*t)[max(0, len(*t)-mostOfUsage):] }
