package sluicehttp

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/sluice-go/sluice"
)

// A Usage reads from a response what the request really took, and writes the amounts that it
// finds into used; later ones replace earlier ones. It gets the body in parts, while the
// caller reads it:
//
//	text/event-stream   part is the data of each event, when it has been read; an event
//	                    with more than 64 KiB is left out. The last part is nil.
//	other bodies        one part, the last 64 KiB of what was read
//
// The last part comes when the body was read to its end, and resp.Trailer is complete, or
// when it is closed. It does not come if the context of the request ends before. The amounts
// in used then settle the request: what it was estimated to take of these units is
// corrected, and other units stay as estimated. Negative amounts and those above 10⁹ are
// ignored.
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
	tail   []byte       // of another body
	over   bool
}

// newMeter returns the meter for resp, or nil if there is nothing to settle.
func newMeter(usage Usage, b *bill, resp *http.Response) *meter {
	if usage == nil || b == nil || b.settled.Load() || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	m := &meter{usage: usage, bill: b, from: resp, resp: *resp, used: make(sluice.Costs)}
	m.resp.Body, m.resp.Trailer = http.NoBody, nil
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
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
		m.keep(p)
	}
	if err == io.EOF {
		m.resp.Trailer = m.from.Trailer
		if m.events != nil {
			m.events.end(m.part)
		}
		m.last()
	}
}

// keep keeps the end of a body.
func (m *meter) keep(p []byte) {
	if len(m.tail)+len(p) > 2*mostOfUsage { // moves each byte about once
		p = p[max(0, len(p)-mostOfUsage):]
		old := m.tail[max(0, len(m.tail)-mostOfUsage):]
		m.tail = m.tail[:copy(m.tail, old)]
	}
	m.tail = append(m.tail, p...)
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
		m.part(m.tail[max(0, len(m.tail)-mostOfUsage):])
	}
	m.settle()
}

// stop settles for what is known.
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

// An eventReader finds the data of the events of a stream (HTML, section 9.2.6), of which it
// gets any parts. It keeps at most one event.
type eventReader struct {
	data  []byte // of the event so far
	line  []byte // of which the end has not been read
	some  bool   // the event has data
	long  bool   // the event is left out
	after bool   // the last byte was a CR
}

// read calls event with the data of each event that ends in p.
func (e *eventReader) read(p []byte, event func([]byte)) {
	for len(p) > 0 {
		if e.after {
			e.after = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			e.add(p)
			return
		}
		e.add(p[:i])
		e.after = p[i] == '\r'
		p = p[i+1:]
		e.endLine(event)
	}
}

// add adds p to the line.
func (e *eventReader) add(p []byte) {
	if len(e.line)+len(e.data)+len(p) > mostOfUsage {
		e.long = true
		p = p[:max(0, min(len(p), len("data:")-len(e.line)))] // whether it is data
	}
	e.line = append(e.line, p...)
}

// endLine ends a line; an empty one ends the event.
func (e *eventReader) endLine(event func([]byte)) {
	line := e.line
	e.line = e.line[:0]
	if len(line) == 0 {
		e.endEvent(event)
		return
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	if e.some {
		e.data = append(e.data, '\n')
	}
	e.data = append(e.data, bytes.TrimPrefix(data, []byte(" "))...)
	e.some = true
}

func (e *eventReader) endEvent(event func([]byte)) {
	data, wanted := e.data, e.some && !e.long
	e.data, e.some, e.long = e.data[:0], false, false
	if wanted {
		event(data)
	}
}

// end ends the stream. An event without its empty line counts if it ends with a whole line.
func (e *eventReader) end(event func([]byte)) {
	if len(e.line) == 0 {
		e.endEvent(event)
	}
}
