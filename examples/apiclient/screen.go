package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen is where people read: stdout, or stderr when stdout is taken. It
// keeps one live line at the bottom of a terminal out of the way of the lines
// that stay.
type screen struct {
	w        io.Writer
	terminal bool
	fd       int

	mu  sync.Mutex
	err error // the first failure to write
}

// newScreen finds out whether w is a terminal that can rewrite a line.
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if file, ok := w.(*os.File); ok {
		s.fd = int(file.Fd())
		s.terminal = term.IsTerminal(s.fd) && os.Getenv("TERM") != "dumb"
	}
	return s
}

// wipe returns to the start of the line and clears it to its end.
const wipe = "\r\x1b[K"

// live replaces the live line of a terminal; "" takes it away.
func (s *screen) live(text string) {
	// A line that wraps cannot be rewritten, so it is cut to the width.
	if width, _, err := term.GetSize(s.fd); err == nil && width > 0 && len(text) >= width {
		text = text[:width-1]
	}
	s.write(wipe + text)
}

// print writes lines that stay. The live line is drawn again at its next turn.
func (s *screen) print(text string) {
	text += "\n"
	if s.terminal {
		text = wipe + text
	}
	s.write(text)
}

func (s *screen) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.w, text); err != nil && s.err == nil {
		s.err = fmt.Errorf("printing: %w", err)
	}
}

// failed returns the first failure to write, if there was one.
func (s *screen) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
