package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Interrupts turns Ctrl-C, SIGTERM, SIGHUP or SIGQUIT into what batch understands: the first
// signal closes Stop, the second one ends calls. The third one ends the program,
// which may be waiting for its output to be read.
type Interrupts struct {
	Stop  chan struct{}   // nothing more begins
	Calls context.Context // what is running is canceled
	Close func()          // gives the signals back
}

// Signals of one kind within this time are one: timeout(1), for one, signals a process and then
// its group. Nobody presses Ctrl-C twice as quickly.
const (
	together          = 200 * time.Millisecond
	togetherInterrupt = 50 * time.Millisecond
)

// CatchInterrupts begins to catch the signals, and says what each of them does
// when it has done it.
func CatchInterrupts(notify func(string)) *Interrupts {
	signals := make(chan os.Signal, 2)
	caught := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		caught = append(caught, syscall.SIGHUP) // the terminal was closed
	}
	signal.Notify(signals, caught...)
	i := &Interrupts{Stop: make(chan struct{})}
	var cancel context.CancelFunc
	i.Calls, cancel = context.WithCancel(context.Background())
	quit, quitted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quitted)
		next := nextSignal()
		for _, step := range []struct {
			end  func()
			text string
		}{
			{func() { close(i.Stop) }, "interrupted: nothing more is begun; waiting for what is running (again to cancel it)"},
			{func() { signal.Stop(signals); cancel() }, "interrupted again: cancelling what is running (a third time to end at once)"},
		} {
			if !next(signals, quit) {
				return
			}
			step.end()
			notify(step.text)
		}
	}()
	i.Close = func() {
		// From here on the signals do what they do to any program.
		signal.Stop(signals)
		close(quit)
		<-quitted
		cancel()
	}
	return i
}

// Happened reports whether there has been a signal.
func (i *Interrupts) Happened() bool {
	select {
	case <-i.Stop:
		return true
	default:
		return false
	}
}

// nextSignal returns a function that waits for a signal, and returns false if quit is closed.
func nextSignal() func(signals <-chan os.Signal, quit <-chan struct{}) bool {
	var last os.Signal
	var at time.Time
	return func(signals <-chan os.Signal, quit <-chan struct{}) bool {
		for {
			select {
			case sig := <-signals:
				window := together
				if sig == os.Interrupt {
					window = togetherInterrupt
				}
				again := sig == last && time.Since(at) < window
				if last, at = sig, time.Now(); !again {
					return true
				}
			case <-quit:
				return false
			}
		}
	}
}
