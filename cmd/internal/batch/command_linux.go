package batch

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// endWithUs asks a command to end when this program is killed, or another run with -resume would
// run it beside itself. The system does that when the thread ends that has started the command,
// so the thread is kept until the command has ended.
func endWithUs(attr *syscall.SysProcAttr) (ended func()) {
	attr.Pdeathsig = syscall.SIGTERM
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// asksTerminal reports whether a child has been stopped because it wants to read from the
// terminal, or to change it, which only processes in the foreground may do. It returns true once.
func asksTerminal(pid int) bool {
	var info unix.Siginfo
	if unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil) != nil || info.Signo == 0 {
		return false
	}
	const (
		word     = unsafe.Sizeof(uintptr(0))
		ofChild  = (3*4 + word - 1) / word * word // behind signo, errno and code
		ofStatus = ofChild + 2*4                  // behind pid and uid
	)
	status := syscall.Signal(*(*int32)(unsafe.Add(unsafe.Pointer(&info), ofStatus)))
	return status == syscall.SIGTTIN || status == syscall.SIGTTOU
}
