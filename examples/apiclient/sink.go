package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// flushAt is the number of bytes that are gathered before they are written.
const flushAt = 64 << 10

// sink writes items as JSON Lines. It keeps its own buffer instead of a
// bufio.Writer in order to know the number of items that have really been written: one
// that is lost in a failing flush is a lost item.
type sink struct {
	mu      sync.Mutex
	w       io.Writer
	closer  io.Closer // nil if w is not ours to close
	buf     bytes.Buffer
	pending int64 // items in buf
	saved   int64 // items written
	err     error // the first failure; nothing is written after it
}

// openSink opens -out: a file, which is emptied if it exists, stdout for "-",
// and nil for no name at all.
func openSink(name string, stdout io.Writer) (*sink, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return &sink{w: stdout}, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("-out: %w", err)
	}
	return &sink{w: file, closer: file}, nil
}

// line is the shape of one line.
type line struct {
	ID   int `json:"id"`
	Body any `json:"body"`
}

// write adds one item. The error may be the error of an earlier item: all later calls return
// it, and so does close.
func (s *sink) write(id int, body []byte) error {
	item := line{ID: id, Body: string(body)}
	if json.Valid(body) {
		item.Body = json.RawMessage(body) // the encoder compacts it to one line
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	encoder := json.NewEncoder(&s.buf)
	encoder.SetEscapeHTML(false) // a & stays a &
	before := s.buf.Len()
	if err := encoder.Encode(item); err != nil {
		s.buf.Truncate(before)
		s.err = fmt.Errorf("encoding item %d: %w", id, err)
		return s.err
	}
	s.pending++
	if s.buf.Len() >= flushAt {
		s.flush()
	}
	return s.err
}

// flush writes what has gathered. The items of a write that fails are treated as lost, all of them:
// how many of its bytes are good is not known.
func (s *sink) flush() {
	if s.err != nil || s.buf.Len() == 0 {
		return
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		s.err = fmt.Errorf("writing the items: %w", err)
		return
	}
	s.buf.Reset()
	s.saved += s.pending
	s.pending = 0
}

// close writes the rest and returns the total number of written items.
// A file system may report only now what it could not keep, and does not say
// of which write, so that no item can then be called saved.
func (s *sink) close() (saved int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	if s.closer != nil {
		if err := s.closer.Close(); err != nil {
			s.saved = 0
			s.err = errors.Join(s.err, fmt.Errorf("closing the items: %w", err))
		}
	}
	return s.saved, s.err
}
