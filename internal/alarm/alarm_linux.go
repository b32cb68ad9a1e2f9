package alarm

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// most is the maximum number of timers. A caller that finds none free uses a timer
// of the runtime: more callers that wake up together are not worth a file each.
const most = 16

var (
	idle = make(chan *timerfd, most)
	made atomic.Int32 // no more once it is most
)

// Sleep blocks for d and reports true, or reports false immediately if it cannot
// do better than a timer. It must not be called in a testing/synctest bubble,
// in which its time does not pass.
func Sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := take()
	if t == nil {
		return false
	}
	ok := t.sleep(d)
	if ok {
		idle <- t
	} else {
		t.file.Close() // and not counted out: they are tried no more than most times
	}
	return ok
}

// take returns a timer that is not in use, or nil.
func take() *timerfd {
	select {
	case t := <-idle:
		return t
	default:
	}
	if made.Load() >= most || made.Add(1) > most {
		return nil
	}
	t, err := newTimerfd()
	switch err {
	case nil:
		return t
	case syscall.EMFILE, syscall.ENFILE: // for the moment
		made.Add(-1)
	default:
		made.Store(most) // the system does not allow it
	}
	return nil
}

// A timerfd is a timer of the kernel, see timerfd_create(2).
//
// t.file.Read would be one line. But it first tries to read, in vain, and enters a system
// call that may block; if the program was idle, the runtime then wakes its monitor thread
// on another processor for 20 µs, half of the processor time of a sleep. The raw system
// calls here return immediately, so the runtime need not be involved.
type timerfd struct {
	file *os.File
	conn syscall.RawConn
	step func(fd uintptr) bool // t.next, made once

	left  time.Duration // to sleep; 0: the timer was set
	errno syscall.Errno // of the call that failed
}

// itimerspec is that of the kernel.
type itimerspec struct{ interval, value syscall.Timespec }

func newTimerfd() (*timerfd, error) {
	const clockMonotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	t := &timerfd{file: os.NewFile(fd, "timerfd")}
	conn, err := t.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	t.conn, t.step = conn, t.next
	return t, nil
}

func (t *timerfd) sleep(d time.Duration) bool {
	t.left, t.errno = d, 0
	return t.conn.Read(t.step) == nil && t.errno == 0
}

// next does the work that needs no wait, and reports whether that was the
// end of it. It is called again once the file may be readable.
func (t *timerfd) next(fd uintptr) (over bool) {
	if t.left > 0 {
		once := itimerspec{value: syscall.NsecToTimespec(int64(t.left))}
		t.left = 0
		_, _, t.errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&once)), 0, 0, 0)
		return t.errno != 0
	}
	var expirations [8]byte
	_, _, t.errno = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), unsafe.Sizeof(expirations))
	if t.errno == syscall.EAGAIN { // not yet, after all
		t.errno = 0
		return false
	}
	return true
}
