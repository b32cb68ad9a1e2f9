package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

const (
	// liveEvery is how often a terminal is drawn.
	liveEvery = 200 * time.Millisecond
	// widestBar is the most columns of the bar.
	widestBar = 60
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
	bar    *mpb.Progress
	onTerm map[io.Writer]bool
}

// newDisplay begins to show how the job is going: by a bar if stderr is a
// terminal, and otherwise by lines now and then.
func (j *job) newDisplay(stdout, stderr *os.File) *display {
	d := &display{stdout: stdout, stderr: stderr, stop: func() {}}
	d.onTerm = map[io.Writer]bool{stdout: isTerminal(stdout), stderr: isTerminal(stderr)}
	switch {
	case j.o.quiet:
	case d.onTerm[stderr] && os.Getenv("TERM") != "dumb":
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
		if _, err := d.bar.Write(b); !errors.Is(err, mpb.ErrDone) {
			return err
		}
	}
	_, err := w.Write(b)
	return err
}

// log prints a line for people. That they do not read it is no reason to stop.
func (d *display) log(text string) { d.write(d.stderr, []byte("batchjob: "+text+"\n")) }

// follow prints news, also when there is no progress to show, until the function that it
// returns is called.
func (d *display) follow(takeNews func() []string) (stop func()) {
	quit := make(chan struct{})
	var printing sync.WaitGroup
	print := func() {
		for _, text := range takeNews() {
			d.log(text)
		}
	}
	printing.Go(func() {
		tick := time.NewTicker(liveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				print()
			case <-quit:
				print()
				return
			}
		}
	})
	return func() { close(quit); printing.Wait() }
}

// printLines prints a line now and then.
func (d *display) printLines(now func() moment) {
	quit := make(chan struct{})
	var printing sync.WaitGroup
	d.stop = sync.OnceFunc(func() { close(quit); printing.Wait() })
	plain := func(s string) string { return s }
	var past history
	past.add(now())
	printing.Go(func() {
		tick := time.NewTicker(plainEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m := now()
				d.log(strings.Join(append([]string{m.count() + ", " + m.detail(past.add(m), plain)}, m.paused()...), "; "))
			case <-quit:
				return
			}
		}
	})
}

// drawBar draws a bar, a line of numbers below it, and one for each pause.
func (d *display) drawBar(now func() moment, w io.Writer, color bool) {
	d.bar = mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(liveEvery))
	paint := func(s string) string { return s }
	if color {
		paint = func(s string) string { return "\x1b[31m" + s + "\x1b[0m" }
	}
	var mu sync.Mutex // mpb draws in goroutines of its own
	var past history
	var m, then moment
	numbers := mpb.BarFillerFunc(func(w io.Writer, s decor.Statistics) error {
		mu.Lock()
		defer mu.Unlock()
		lines := append([]string{m.detail(then, paint)}, m.paused()...)
		for _, line := range lines {
			if _, err := io.WriteString(w, cut(line, s.AvailableWidth)+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
	// A wide bar would be left behind, in pieces, when the terminal becomes narrower.
	bar := d.bar.New(0, mpb.BarStyle(), mpb.BarWidth(widestBar), mpb.BarExtender(numbers, false),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string {
			mu.Lock()
			defer mu.Unlock()
			return m.count()
		})))
	look := func() {
		mu.Lock()
		m = now()
		then = past.add(m)
		total, done := m.total, m.done()
		mu.Unlock()
		bar.SetTotal(total, false) // not above 0 if it is unknown: an empty bar
		bar.SetCurrent(done)
	}
	look()
	quit := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(liveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-quit:
				return
			}
		}
	})
	d.stop = sync.OnceFunc(func() {
		close(quit)
		looking.Wait()
		look()
		bar.Abort(false) // leaves it as it is; it need not be full
		d.bar.Wait()
	})
}

// cut cuts a line that would wrap, for mpb counts the lines that it takes back.
// Colours are not counted, and dropped if it is cut.
func cut(line string, width int) string {
	bare := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(line)
	if width <= 0 || utf8.RuneCountInString(bare) <= width {
		return line
	}
	return cli.Cut(bare, width)
}
