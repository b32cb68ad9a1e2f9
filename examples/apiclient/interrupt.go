package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupt turns Ctrl-C, or SIGTERM, into two contexts: the first signal ends
// stop, the second one ends calls.
type interrupt struct {
	stop  context.Context // no further call is started
	calls context.Context // those in flight are canceled
	close func()          // restores the signals
}

// catchInterrupt begins to catch the signals. At the first one it calls
// onStop, and both call notify last: what its text says has happened by then.
func catchInterrupt(onStop func(), notify func(string)) *interrupt {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	stop, endStop := context.WithCancel(context.Background())
	calls, endCalls := context.WithCancel(context.Background())
	quit, quitted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quitted)
		for _, step := range []struct {
			end  func()
			text string
		}{
			{func() { endStop(); onStop() }, "interrupted: no further calls; finishing those in flight (again to cancel them)"},
			{endCalls, "interrupted again: cancelling the calls in flight"},
		} {
			select {
			case <-signals:
				step.end()
				notify(step.text)
			case <-quit:
				return
			}
		}
	}()
	return &interrupt{stop: stop, calls: calls, close: func() {
		// From here on the signals do what they do to any program.
		signal.Stop(signals)
		close(quit)
		<-quitted
		endCalls()
		endStop()
	}}
}

// happened reports whether there has been a signal. Not to be asked after close.
func (i *interrupt) happened() bool { return i.stop.Err() != nil }
