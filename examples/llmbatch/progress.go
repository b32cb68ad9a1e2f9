package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// watch shows on w how a run is going: in one line of a terminal, or by a line every 10 s, at
// full speed every minute.
// The returned function ends that.
func watch(w io.Writer, t *trial) (stop func()) {
	file, ok := w.(*os.File)
	live := ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
	every := 10 * time.Second
	switch {
	case live:
		every = 200 * time.Millisecond
	case !t.fast:
		every = time.Minute
	}
	quit, quitted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quitted)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-quit:
				if live {
					fmt.Fprint(w, wipe)
				}
				return
			}
			if live {
				fmt.Fprint(w, wipe+t.progress())
			} else {
				fmt.Fprintln(w, "llmbatch: "+t.progress())
			}
		}
	}()
	return func() {
		close(quit)
		<-quitted
	}
}

// wipe returns to the start of the line and clears it to its end.
const wipe = "\r\x1b[K"

// progress says how a run is going.
func (t *trial) progress() string {
	done := t.ok.Load() + t.tally.Stats().Skipped
	text := fmt.Sprintf("%s: %s of %s completions", titles[t.name], thousands(done), thousands(int64(t.n)))
	if failed := t.failed.Load(); failed > 0 {
		text += fmt.Sprintf(", %s failed", thousands(failed))
	}
	return text
}
