package alarm

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// files returns how many files are open.
func files(t *testing.T) int {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(dir)
}

func TestSleep_UsesTimersAgain(t *testing.T) {
	if !Sleep(time.Microsecond) {
		t.Skip("the system has none")
	}
	before := files(t)
	for range 100 {
		Sleep(time.Microsecond)
	}
	if after := files(t); after > before {
		t.Errorf("%d files were open, then %d", before, after)
	}
}

func TestSleep_NoMoreTimersThanMost(t *testing.T) {
	TestSleep_MoreSleepersThanTimers(t)
	if n := len(idle); n > most {
		t.Errorf("%d timers", n)
	}
}

// A program that is started does not inherit the timers.
func TestTimerfd_ClosedOnExec(t *testing.T) {
	timer, err := newTimerfd()
	if err != nil {
		t.Skip("the system has none:", err)
	}
	defer timer.file.Close()
	err = timer.conn.Control(func(fd uintptr) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v", flags, errno)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// A process that has no file left for a moment sleeps with what it has, and exactly
// again once it has some.
func TestSleep_WithoutFiles(t *testing.T) {
	if !Sleep(time.Microsecond) {
		t.Skip("the system has none")
	}
	var kept []*timerfd
	for len(idle) > 0 {
		kept = append(kept, <-idle)
	}
	had := made.Swap(0)
	defer func() {
		for len(idle) > 0 {
			(<-idle).file.Close()
		}
		made.Store(had)
		for _, timer := range kept {
			idle <- timer
		}
	}()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skip(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Skip(err)
	}
	ok := Sleep(time.Microsecond)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if ok {
		t.Error("slept with a file that cannot be")
	}
	if !Sleep(time.Microsecond) {
		t.Error("there are files again, but no timer")
	}
}

func TestSleep_BrokenTimer(t *testing.T) {
	if !Sleep(time.Microsecond) {
		t.Skip("the system has none")
	}
	broken := <-idle
	broken.file.Close()
	idle <- broken
	for range most { // they take turns
		if Sleep(time.Microsecond) {
			continue
		}
		for range len(idle) {
			if u := <-idle; u == broken {
				t.Error("it is there again")
			} else {
				idle <- u
			}
		}
		return
	}
	t.Error("it slept with a closed file")
}

// A file may be said to be readable although it is not yet: by an event of before.
func TestTimerfd_WokenTooEarly(t *testing.T) {
	timer, err := newTimerfd()
	if err != nil {
		t.Skip("the system has none:", err)
	}
	defer timer.file.Close()
	timer.left = 20 * time.Millisecond
	began := time.Now()
	over := func() (over bool) {
		err := timer.conn.Control(func(fd uintptr) { over = timer.next(fd) })
		if err != nil || timer.errno != 0 {
			t.Fatal(err, timer.errno)
		}
		return over
	}
	for i := 0; !over(); i++ { // first it is set, then it is read in vain
		if i == 2 {
			time.Sleep(time.Until(began.Add(20 * time.Millisecond)))
		}
	}
	if slept := time.Since(began); slept < 20*time.Millisecond {
		t.Errorf("it was over after %v", slept)
	}
	if over() {
		t.Error("it is over twice")
	}
}

func TestSleep_AllocatesNothing(t *testing.T) {
	if !Sleep(time.Microsecond) {
		t.Skip("the system has none")
	}
	if n := testing.AllocsPerRun(100, func() { Sleep(time.Microsecond) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
