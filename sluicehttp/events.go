package sluicehttp

import (
	"bytes"
	"strings"
)

// An eventReader finds the data of the events of a stream (HTML, section 9.2.6), of which it
// gets any parts. Of the data of a long event it keeps an excerpt: OpenAI's last one repeats the
// instructions and all of the answer, and has the usage.
type eventReader struct {
	mark  int    // bytes of the byte order mark that were read; −1: past it
	field []byte // the beginning of the line, while it may become dataField
	kind  lineKind
	space bool    // a space at the beginning of the data does not belong to it
	data  excerpt // of the event so far
	some  bool    // the event has data
	after bool    // the last byte was a CR
}

type lineKind uint8

const (
	unknownLine lineKind = iota
	dataLine
	otherLine // a comment, or another field
)

const (
	byteOrderMark = "\ufeff"
	dataField     = "data:"
)

// read calls event with the data of each event that ends in p. event must not keep it.
func (e *eventReader) read(p []byte, event func([]byte)) {
	p = e.skipMark(p)
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

// skipMark returns p without the bytes of a byte order mark at the beginning of the stream.
func (e *eventReader) skipMark(p []byte) []byte {
	for e.mark >= 0 && len(p) > 0 {
		if p[0] != byteOrderMark[e.mark] {
			e.mark = -1
			break
		}
		p = p[1:]
		if e.mark++; e.mark == len(byteOrderMark) {
			e.mark = -1
		}
	}
	return p
}

// add adds p to the line.
func (e *eventReader) add(p []byte) {
	if e.kind == unknownLine {
		n := min(len(p), len(dataField)-len(e.field))
		e.field = append(e.field, p[:n]...)
		p = p[n:]
		switch {
		case !strings.HasPrefix(dataField, string(e.field)):
			e.kind = otherLine
		case len(e.field) == len(dataField):
			e.kind, e.space = dataLine, true
			e.beginData()
		}
	}
	if e.kind != dataLine || len(p) == 0 {
		return
	}
	if e.space && p[0] == ' ' {
		p = p[1:]
	}
	e.space = false
	e.data.add(p)
}

// beginData begins a line of data. The lines of an event are joined by newlines.
func (e *eventReader) beginData() {
	if e.some {
		e.data.add([]byte{'\n'})
	}
	e.some = true
}

// endLine ends a line; an empty one ends the event.
func (e *eventReader) endLine(event func([]byte)) {
	empty := e.kind == unknownLine && len(e.field) == 0
	e.kind, e.field = unknownLine, e.field[:0]
	if empty {
		e.end(event)
	}
}

// end ends the event, or the stream. Browsers drop a last event without an empty line, for it may
// be cut; here it may be the only one with the usage of a call.
func (e *eventReader) end(event func([]byte)) {
	some := e.some
	e.some = false
	if some {
		event(e.data.bytes())
	}
	e.data.reset()
}
