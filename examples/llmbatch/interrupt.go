package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts turns Ctrl-C, or SIGTERM, into what batch understands: the first
// signal closes stop, the second one ends calls. The third one ends the program,
// which may be waiting for its output to be read.
type interrupts struct {
	stop  chan struct{}   // nothing more begins
	calls context.Context // what is running is canceled
	close func()          // restores the signals
}

// catchInterrupts begins to catch the signals, and says what each of them does
// when it has done it.
func catchInterrupts(notify func(string)) *interrupts {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	i := &interrupts{stop: make(chan struct{})}
	var cancel context.CancelFunc
	i.calls, cancel = context.WithCancel(context.Background())
	quit, quitted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quitted)
		for _, step := range []struct {
			end  func()
			text string
		}{
			{func() { close(i.stop) }, "interrupted: nothing more is begun; waiting for what is running (again to cancel it)"},
			{func() { signal.Stop(signals); cancel() }, "interrupted again: cancelling what is running (a third time to end at once)"},
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
	i.close = func() {
		// From here on the signals do what they do to any program.
		signal.Stop(signals)
		close(quit)
		<-quitted
		cancel()
	}
	return i
}

// happened reports whether there has been a signal.
func (i *interrupts) happened() bool {
	select {
	case <-i.stop:
		return true
	default:
		return false
	}
}
