package sluicehttp

import (
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/sluice-go/sluice"
)

// A Usage reads the actual amounts of a request from a response, and writes the amounts that it
// finds into used; later ones replace earlier ones. It gets the body in parts, while the
// caller reads it:
//
//	text/event-stream   part is the data of each event, when it has been read; of more than
//	                    64 KiB the last 64 KiB. An event at the end of the body needs no
//	                    empty line after it. The last part is nil.
//	other bodies        one part, the last 64 KiB
//
// The last part comes when the body was read to its end, and resp.Trailer is complete, or when it
// is closed. It does not come if the context of the request ends before. The amounts in used then
// settle the request: its estimates of these units are corrected, and other units stay as
// estimated. Negative amounts and those above 10⁹ are ignored.
//
// A Usage must not read the body, change resp, or keep part. It is called by the goroutine
// that reads the body, and may be called for several responses at once.
type Usage func(resp *http.Response, part []byte, used sluice.Costs)

const mostOfUsage = 64 << 10 // bytes of an event, or of the end of a body

// A meter passes a body to a Usage and settles the bill at its end. The methods of a nil
// meter do nothing.
type meter struct {
	usage Usage
	bill  *bill
	from  *http.Response // for its trailers

	mu     sync.Mutex // the context of the request may end during a Read
	resp   http.Response
	used   sluice.Costs
	events *eventReader // nil unless the body is an event stream
	tail   tail         // of another body
	over   bool
}

// newMeter returns the meter for resp, or nil if there is nothing to settle.
func newMeter(usage Usage, b *bill, resp *http.Response) *meter {
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
		m.tail.add(p)
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
		m.part(m.tail.last())
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
	m.tail = nil
	if used := known(maps.Clone(m.used)); len(used) > 0 {
		m.bill.settle(used)
	}
}

// A tail keeps the last mostOfUsage bytes.
type tail []byte

func (t *tail) add(p []byte) {
	if len(*t)+len(p) > 2*mostOfUsage { // moves each byte about once
		p = p[max(0, len(p)-mostOfUsage):]
		*t = (*t)[:copy(*t, t.last())]
	}
	*t = append(*t, p...)
}

func (t *tail) last() []byte { return (*t)[max(0, len(*t)-mostOfUsage):] }
