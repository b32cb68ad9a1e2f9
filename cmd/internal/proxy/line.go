package proxy

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// A statusLine is a line at the bottom of a terminal, below the log.
type statusLine struct {
	mu   sync.Mutex
	to   io.Writer
	line string
}

// Write writes above the line.
func (s *statusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.to.Write(p)
	}
	if _, err := fmt.Fprintf(s.to, "\r\x1b[K%s%s", p, s.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show replaces the line.
func (s *statusLine) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == "" && s.line == "" {
		return
	}
	s.line = line
	fmt.Fprintf(s.to, "\r\x1b[K%s", line)
}

// follow shows what p does once a second until stop is called, if on is a terminal.
func (s *statusLine) follow(p *proxy, on *os.File) (stop func()) {
	if on == nil || !cli.IsTerminal(on) {
		return func() {}
	}
	var before uint64
	end := cli.Every(time.Second, func() {
		width, _ := cli.Size(on)
		line, sent := p.line(before)
		before = sent
		s.show(cli.Cut(line, width-1))
	})
	return func() { end(); s.show("") }
}

// line says in one line what p does. sent is how many attempts were sent so far, and before that
// number a second ago.
func (p *proxy) line(before uint64) (text string, sent uint64) {
	var longest sluice.Stats // the gate whose first call has waited longest
	for s := range p.gates() {
		sent += s.Admitted
		if s.OldestWait > longest.OldestWait {
			longest = s
		}
	}
	rate := int64(sent) - int64(before)
	if rate < 0 || before == 0 {
		rate = 0 // gates were forgotten, or it is the first line
	}
	text = fmt.Sprintf("%d/s, %d calls under way, %d wait", rate, p.calls.Load(), p.turns.waiting())
	if why := longest.Why(); why != "" {
		text += "; " + longest.Name + ": " + why
	}
	return cli.Plain(text, cli.MostOfItem), sent
}
