package alarm

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// most is how many timers there are at most. Who finds none free uses a timer
// of the runtime: this many callers that wake up together are not worth a
// file each.
const most = 16

var (
	idle = make(chan *timerfd, most)
	made atomic.Int32 // no more once it is most
)

// Sleep blocks for d and reports true, or reports false at once if it cannot
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

// take returns a timer that nobody uses, or nil.
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
		made.Store(most) // the system does not want us to
	}
	return nil
}

// A timerfd is a timer of the kernel, see timerfd_create(2).
type timerfd struct {
	fd   uintptr
	file *os.File
}

// itimerspec is that of the kernel.
type itimerspec struct{ interval, value syscall.Timespec }

func newTimerfd() (*timerfd, error) {
	const clockMonotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	return &timerfd{fd, os.NewFile(fd, "timerfd")}, nil
}

func (t *timerfd) sleep(d time.Duration) bool {
	once := itimerspec{value: syscall.NsecToTimespec(int64(d))}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, t.fd, 0, uintptr(unsafe.Pointer(&once)), 0, 0, 0)
	if errno != 0 {
		return false
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err == nil
}
