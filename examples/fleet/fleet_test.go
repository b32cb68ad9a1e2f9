package main

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// What it promises, with a kill -9 of a worker, of the queue and of the Redis. How fast
// that goes is checked by TestGoals.
func TestFleet_LosesNothing(t *testing.T) {
	t.Parallel()
	status, r := runJSON(t, "-n", "300", "-workers", "2", "-goroutines", "16", "-rate", "300/s", "-lease", "500ms",
		"-restart", "300ms", "-kill", "1400ms", "-throttle", "0")
	if status != 0 || r.Processed != 300 || r.Lost != 0 || r.Twice != 0 {
		t.Errorf("exit status %d, %d of 300 items processed, %d lost, %d twice", status, r.Processed, r.Lost, r.Twice)
	}
	if r.Restart == nil || len(r.Kills) == 0 {
		t.Fatal("nothing was killed")
	}
	if k := r.Kills[0]; k.Held == 0 || k.Missing > 0 || k.Returned == nil {
		t.Errorf("of %d items of the killed worker %d did not come to others", k.Held, k.Missing)
	}
}

// After a Ctrl-C the workers finish what they do, and the program ends.
func TestFleet_Interrupted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be interrupted")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-n", "10000", "-workers", "2", "-kill", "0", "-restart", "0", "-throttle", "0")
	c.Env, c.Stderr = append(os.Environ(), tied+"=1"), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for in := bufio.NewScanner(out); in.Scan(); {
		if lines = append(lines, in.Text()); len(lines) == 2 { // the first of the progress
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	_ = c.Wait() // the exit status is below
	text := strings.Join(lines, "\n")
	if status := c.ProcessState.ExitCode(); status != exitInterrupted {
		t.Errorf("exit status %d\n%s", status, text)
	}
	for _, want := range []string{"\nfleet: interrupted: ", "\n  left in the queue ", "\n  lost                             0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
