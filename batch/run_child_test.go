package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// children are what this binary does when a test executes it again, by the
// value of BATCH_TEST_CHILD.
var children = map[string]func(){
	"killed":       killedChild,
	"panics":       func() { panickingChild(count(3), func(i int) { panic("of the function") }) },
	"input panics": func() { panickingChild(func(func(int) bool) { panic("of the input") }, func(int) {}) },
}

// child returns this binary as a command that does one of them.
func child(t *testing.T, what string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, "BATCH_TEST_CHILD="+what)...)
	return cmd
}

const childAhead = 64

// killedChild runs a batch, which it resumes. Each item notes that it began
// before it does anything else.
func killedChild() {
	dir := os.Getenv("BATCH_TEST_DIR")
	n, err := strconv.Atoi(os.Getenv("BATCH_TEST_ITEMS"))
	begun, openErr := os.OpenFile(filepath.Join(dir, "begun"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	log, logErr := OpenLog(filepath.Join(dir, "run.jsonl"), LogConfig{Mode: Resume})
	gate, gateErr := sluice.New(sluice.Config{Concurrency: childAhead / 2})
	if err := errors.Join(err, openErr, logErr, gateErr); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	err = ForEach(context.Background(), gate, count(n), func(_ context.Context, i int) error {
		_, err := begun.WriteString(strconv.Itoa(i) + "\n")
		return err
	}, Config[int]{Log: log, Key: strconv.Itoa, ReadAhead: childAhead})
	if err := errors.Join(err, log.Close()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A batch that is killed five times at random moments and resumed runs each
// item. It repeats only what was in flight: had begun and was not in the log.
func TestMap_Killed(t *testing.T) {
	n, kills := 100_000, 5
	if hasty() {
		n, kills = 5000, 3
	}
	dir := t.TempDir()
	begunName, logName := filepath.Join(dir, "begun"), filepath.Join(dir, "run.jsonl")
	env := []string{"BATCH_TEST_DIR=" + dir, "BATCH_TEST_ITEMS=" + strconv.Itoa(n)}
	mayRepeat := make(map[string]int) // at how many kills it had begun and was not in the log
	allowed := 0                      // repeats, of all
	seen := 0                         // bytes of the file of those that began
	for kill := range kills {
		cmd := child(t, "killed", env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Somewhere in the next sixth of the work, each item of which is a line
		// of up to 6 bytes.
		for size, want := 0, (kill*n+rand.IntN(n))/(kills+1)*5; size < want; {
			if info, err := os.Stat(begunName); err == nil {
				size = int(info.Size())
			}
			time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Fatalf("kill %d came too late: %v", kill, cmd.ProcessState)
		}
		text := readFile(t, logName)
		logged, err := readLog(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		flying := 0
		text = readFile(t, begunName)
		for key := range strings.Lines(text[seen:]) { // of this process
			key = strings.TrimSpace(key)
			if _, there := logged.known[digestOf(key)]; !there {
				mayRepeat[key]++
				flying++
			}
		}
		seen = len(text)
		if flying > childAhead {
			t.Errorf("kill %d: %d items were in flight, more than %d", kill, flying, childAhead)
		}
		allowed += flying
		t.Logf("kill %d: %d done, %d in flight", kill, len(logged.known), flying)
	}
	cmd := child(t, "killed", env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	times := make(map[string]int)
	total := 0
	for key := range strings.Lines(readFile(t, begunName)) {
		times[strings.TrimSpace(key)]++
		total++
	}
	for i := range n {
		if times[strconv.Itoa(i)] == 0 {
			t.Errorf("item %d was never run", i)
		}
	}
	if total-n > allowed {
		t.Errorf("%d items were repeated, but only %d were in flight at the kills", total-n, allowed)
	}
	for key, n := range times {
		if n > 1+mayRepeat[key] {
			t.Errorf("item %s ran %d times, and was in flight at %d kills", key, n, mayRepeat[key])
		}
	}
	log, err := OpenLog(logName, LogConfig{Mode: Resume})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if ok, failed := log.OK, log.Failed; ok != n || failed != 0 {
		t.Errorf("the log has %d ok and %d failed, want %d and none", ok, failed, n)
	}
	t.Logf("%d items, %d repeated", n, total-n)
}

func panickingChild(in func(func(int) bool), f func(i int)) {
	gate, err := sluice.New(sluice.Config{Concurrency: 1})
	if err != nil {
		os.Exit(3)
	}
	err = ForEach(context.Background(), gate, in, func(_ context.Context, i int) error { f(i); return nil }, Config[int]{})
	fmt.Println("survived:", err)
	os.Exit(0)
}

// Panics of the function and of the input end the program, with their stack. A
// loop that ended meanwhile would race with that, so they are tried often.
func TestMap_PanicsPropagate(t *testing.T) {
	for i := range 20 {
		tt := []struct{ what, text string }{
			{"panics", "panic: of the function"},
			{"input panics", "panic: of the input"},
		}[i%2]
		out, err := child(t, tt.what).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !bytes.Contains(out, []byte(tt.text)) ||
			!bytes.Contains(out, []byte("run_child_test.go:")) || bytes.Contains(out, []byte("survived")) {
			t.Fatalf("%s: %v\n%s", tt.what, err, out)
		}
	}
}
