package batch

import (
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// A line that fits the disk only in part is taken back, so that a log whose
// last line is torn is one of a crash.
func TestLog_FullDisk(t *testing.T) {
	name := writeFile(t, "")
	log, err := OpenLog(name, LogConfig{Config: "c"})
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // which would end the program
	defer signal.Reset(syscall.SIGXFSZ)
	small := limit
	small.Cur = 200
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Skip(err)
	}
	written := 0
	for err == nil && written < 100 {
		if err = log.record(entryOf("a", done, nil, times{})); err == nil {
			written++
		}
	}
	again := log.record(entryOf("b", done, nil, times{}))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EFBIG) || !errors.Is(again, err) || !errors.Is(log.Close(), err) {
		t.Errorf("%v, then %v", err, again)
	}
	text := readFile(t, name)
	if n := strings.Count(text, "\n"); written == 0 || n != 1+written || !strings.HasSuffix(text, "\n") {
		t.Errorf("%d lines were written, and there is\n%s", written, text)
	}
}
