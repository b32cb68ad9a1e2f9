//go:build unix

package batch

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// catch passes a ^Z on to the commands, which have process groups of their own, until release is
// called. While the program is stopped hold has the terminal: the shell writes there.
func (s *stops) catch(hold func() (resume func())) (release func()) {
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
				hold()()
				continue
			case <-quit:
				return
			}
			resume := hold()
			s.begin()
			// A SIGTSTP that was caught has no effect, even if it is not caught any more.
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			<-proceed
			s.end()
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

func stopGroup(group int)     { _ = syscall.Kill(-group, syscall.SIGTSTP) }
func continueGroup(group int) { _ = syscall.Kill(-group, syscall.SIGCONT) }
