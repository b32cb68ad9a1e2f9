package batch

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

const (
	// liveEvery is how often a terminal is drawn.
	liveEvery = 200 * time.Millisecond
	// plainEvery is how often a line is printed where lines stay.
	plainEvery = 10 * time.Second
)

// A display is where people read, stderr, and keeps what is printed there out
// of the way of a bar at its bottom.
type display struct {
	stdout, stderr io.Writer
	stop           func() // ends the progress; it is gone, or complete, when stop returns

	// bar, if not nil, draws above the bar what is written to a terminal:
	// all of them, if they are terminals at all, are taken to be the same one.
	bar    *bar
	onTerm map[io.Writer]bool
}

// newDisplay begins to show how the job is going: by a bar if stderr is a
// terminal, and otherwise by lines now and then.
func (j *job) newDisplay(stdout, stderr *os.File) *display {
	d := &display{stdout: stdout, stderr: stderr, stop: func() {}}
	d.onTerm = map[io.Writer]bool{stdout: isTerminal(stdout), stderr: isTerminal(stderr)}
	switch {
	case j.o.quiet:
	case d.onTerm[stderr] && hasEscapes(stderr):
		d.drawBar(j.now, stderr, os.Getenv("NO_COLOR") == "")
	default:
		d.printLines(j.now)
	}
	return d
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// write writes to stdout or stderr, above the bar if it would meet it.
func (d *display) write(w io.Writer, b []byte) error {
	if d.bar != nil && d.onTerm[w] {
		if b[len(b)-1] != '\n' {
			b = append(b[:len(b):len(b)], '\n') // or the bar would be drawn behind it
		}
		return d.bar.draw(b)
	}
	_, err := w.Write(b)
	return err
}

// log prints a line for people. That they do not read it is no reason to stop.
func (d *display) log(text string) { d.write(d.stderr, []byte("sluice batch: "+text+"\n")) }

// A packageLog prints what packages log: of lines that begin alike the first one, for a server can
// cause any number of them.
type packageLog struct {
	print func(string)
	seen  map[string]bool
}

func (l *packageLog) Write(line []byte) (int, error) {
	text := cli.Plain(strings.TrimSpace(string(line)), cli.MostOfItem)
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
func (d *display) hold() (resume func()) {
	if d.bar == nil {
		return func() {}
	}
	return d.bar.hold()
}

// follow prints news, also when there is no progress to show, until the function that it
// returns is called.
func (d *display) follow(takeNews func() []string) (stop func()) {
	print := func() {
		for _, text := range takeNews() {
			d.log(text)
		}
	}
	stopped := every(liveEvery, print)
	return func() { stopped(); print() }
}

// printLines prints a line now and then.
func (d *display) printLines(now func() moment) {
	plain := func(s string) string { return s }
	var past history
	past.add(now())
	d.stop = sync.OnceFunc(every(plainEvery, func() {
		m := now()
		d.log(strings.Join(append([]string{m.count() + ", " + m.detail(past.add(m), plain)}, m.paused()...), "; "))
	}))
}

// drawBar draws a bar, the numbers below it, and a line for each pause.
func (d *display) drawBar(now func() moment, w *os.File, color bool) {
	paint := func(s string) string { return s }
	if color {
		paint = func(s string) string { return "\x1b[31m" + s + "\x1b[0m" }
	}
	var past history // the mutex of the bar guards it
	past.add(now())
	d.bar = &bar{
		w: w,
		size: func() (width, height int) {
			width, height, err := term.GetSize(int(w.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		},
		lines: func(width int) []string {
			m := now()
			lines := []string{m.gauge(width)}
			for _, line := range append([]string{m.detail(past.add(m), paint)}, m.paused()...) {
				lines = append(lines, wrap(line, width)...)
			}
			return lines
		},
	}
	_ = d.bar.draw(nil)
	stop := every(liveEvery, func() { _ = d.bar.draw(nil) })
	d.stop = sync.OnceFunc(func() {
		stop()
		d.bar.end()
	})
}

// every calls f at an interval until stop is called.
func every(interval time.Duration, f func()) (stop func()) {
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
