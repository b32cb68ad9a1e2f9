package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// plainEvery is the interval of lines where they stay.
const plainEvery = 10 * time.Second

// A Progress is how a command is going, to be shown. Its functions are never called at the same
// time.
type Progress struct {
	Every time.Duration // the interval at which a terminal is drawn

	// Lines are those that a terminal shows, at its bottom. red writes bad news.
	Lines func(width int, red func(string) string) []string
	Fades bool // they are gone at the end

	Line func() string // is printed now and then where lines stay
}

// A Display is where people read, stderr, and keeps what is printed there out of the way of a
// progress at its bottom.
type Display struct {
	name           string // begins each line for people
	Stdout, Stderr io.Writer
	stop           func()

	// bar, if not nil, draws above itself what is written to a terminal: all of them, if they
	// are terminals at all, are taken to be the same one.
	bar    *bar
	onTerm map[io.Writer]bool
}

// NewDisplay begins to show a progress, unless quiet: at the bottom of stderr if that is a
// terminal, and otherwise by lines now and then.
func NewDisplay(name string, stdout, stderr *os.File, quiet bool, p Progress) *Display {
	d := &Display{name: name, Stdout: stdout, Stderr: stderr, stop: func() {}}
	d.onTerm = map[io.Writer]bool{stdout: IsTerminal(stdout), stderr: IsTerminal(stderr)}
	switch {
	case quiet:
	case d.onTerm[stderr] && hasEscapes(stderr):
		d.draw(p, func() (width, height int) { return Size(stderr) }, os.Getenv("NO_COLOR") == "")
	default:
		d.print(p)
	}
	return d
}

// Stop ends the progress. When it returns the progress is gone, or complete.
func (d *Display) Stop() { d.stop() }

// Print writes to stdout or stderr, above the progress if it would meet it.
func (d *Display) Print(w io.Writer, b []byte) error {
	if d.bar != nil && d.onTerm[w] {
		if b[len(b)-1] != '\n' {
			b = append(b[:len(b):len(b)], '\n') // or the bar would be drawn behind it
		}
		return d.bar.draw(b)
	}
	_, err := w.Write(b)
	return err
}

// Log prints a line for people. That they do not read it is no reason to stop.
func (d *Display) Log(text string) { d.Print(d.Stderr, []byte(d.name+": "+text+"\n")) }

// PackageLog returns what package log is to write to: net/http, for one, does so, and would write
// into the progress. Of lines that begin alike it prints the first one, for a server can cause any
// number of them.
func (d *Display) PackageLog() io.Writer { return &packageLog{print: d.Log} }

type packageLog struct {
	print func(string)
	seen  map[string]bool
}

func (l *packageLog) Write(line []byte) (int, error) {
	text := Plain(strings.TrimSpace(string(line)), MostOfItem)
	if kind := text[:min(len(text), 40)]; !l.seen[kind] && len(l.seen) < 10 {
		if l.seen == nil {
			l.seen = make(map[string]bool)
		}
		l.seen[kind] = true
		l.print(text)
	}
	return len(line), nil
}

// hold leaves the terminal to others until resume is called.
func (d *Display) hold() (resume func()) {
	if d.bar == nil {
		return func() {}
	}
	return d.bar.hold()
}

// followEvery is the interval at which Follow looks for news.
const followEvery = 200 * time.Millisecond

// Follow prints news, also when there is no progress to show, until the function that it
// returns is called.
func (d *Display) Follow(takeNews func() []string) (stop func()) {
	print := func() {
		for _, text := range takeNews() {
			d.Log(text)
		}
	}
	stopped := Every(followEvery, print)
	return func() { stopped(); print() }
}

// print prints a line now and then.
func (d *Display) print(p Progress) {
	d.stop = sync.OnceFunc(Every(plainEvery, func() { d.Log(p.Line()) }))
}

// draw draws the lines of a progress on a terminal of a size.
func (d *Display) draw(p Progress, size func() (width, height int), color bool) {
	paint := func(s string) string { return s }
	if color {
		paint = func(s string) string { return fmt.Sprintf("\x1b[31m%s\x1b[0m", s) }
	}
	d.bar = &bar{
		w:     d.Stderr,
		fades: p.Fades,
		size:  size,
		lines: func(width int) (lines []string) {
			for _, line := range p.Lines(width, paint) {
				lines = append(lines, wrap(line, width)...)
			}
			return lines
		},
	}
	_ = d.bar.draw(nil)
	stop := Every(p.Every, func() { _ = d.bar.draw(nil) })
	d.stop = sync.OnceFunc(func() {
		stop()
		d.bar.end()
	})
}

// Every calls f at an interval until stop is called.
func Every(interval time.Duration, f func()) (stop func()) {
	quit := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); calling.Wait() }
}
