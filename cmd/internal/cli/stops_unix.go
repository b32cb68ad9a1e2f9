//go:build unix

package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// CatchStops calls begin when ^Z is about to stop the program, and end when it continues, until
// release is called. In between the display leaves the terminal alone.
func CatchStops(d *Display, begin, end func()) (release func()) {
	// Who leads the session has no shell that could continue it, and a system without a shell, as
	// in a container, ignores ^Z. The program could not, once it has caught it.
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() || signal.Ignored(unix.SIGTSTP) {
		return func() {}
	}
	stop, proceed, quit, over := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(stop, unix.SIGTSTP)
	signal.Notify(proceed, unix.SIGCONT)
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
			case <-proceed: // it was stopped by a SIGSTOP
				d.hold()()
				continue
			case <-quit:
				return
			}
			resume := d.hold()
			begin()
			// A SIGTSTP that was caught has no effect, even if it is not caught any more.
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			<-proceed
			end()
			resume()
		}
	}()
	return func() {
		signal.Stop(stop)
		signal.Stop(proceed)
		close(quit)
		<-over
	}
}
