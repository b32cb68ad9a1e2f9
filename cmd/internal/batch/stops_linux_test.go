package batch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shellOnTerminal runs a script of a shell with job control on a terminal, and returns what
// writes there, what is shown, and a function that waits for the end.
func shellOnTerminal(t *testing.T, dir, script string, args ...string) (keys io.Writer, read *printed, wait func()) {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	master, tty := terminal(t, 100)
	cmd := exec.CommandContext(t.Context(), shell, append([]string{"-c", "set -m\n" + script, binary}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, tty, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	read = newPrinted()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(read, master) // until EIO
	}()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return master, read, func() {
		_ = cmd.Wait()
		tty.Close()
		<-over
	}
}

// stateOf returns the state of a process, as in /proc.
func stateOf(pid string) string {
	stat, _ := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(pid), "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// untilState waits until a process is in one of some states.
func untilState(t *testing.T, pid, states string) {
	t.Helper()
	for {
		state := stateOf(pid)
		if state != "" && strings.Contains(states, state) {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("process %s is in state %q, not one of %q", pid, state, states)
		}
	}
}

// ^Z stops the commands, too, and they go on with the program. What the shell writes meanwhile
// stays, and the bar is drawn below it.
func TestTerminalStopped(t *testing.T) {
	dir := t.TempDir()
	const command = `echo $$ >pid.$1; echo >began.$1; while ! test -e go; do sleep 0.02; done; echo "done $1"`
	keys, read, wait := shellOnTerminal(t, dir, `printf "a\nb\n" >in; "$0" "$@"; echo "the shell is back"; read x; fg`,
		"-in", "in", "-jobs", "2", "--", "sh", "-c", command, "sh", "{}")
	for _, item := range []string{"a", "b"} {
		untilExists(t, filepath.Join(dir, "began."+item))
	}
	read.until(", 2 running")
	fmt.Fprint(keys, "\x1a")
	read.until("the shell is back")
	for _, item := range []string{"a", "b"} {
		pid, err := os.ReadFile(filepath.Join(dir, "pid."+item))
		if err != nil {
			t.Fatal(err)
		}
		untilState(t, string(pid), "TD") // D: its child was stopped between vfork and exec, and it waits for that
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(keys, "\n")
	wait()
	text := shown(t, read.String())
	bar, after, _ := strings.Cut(text, "the shell is back\n")
	if !strings.Contains(bar, "0/2 done [---") || !strings.Contains(bar, "2 running") {
		t.Errorf("the shell wrote into the bar:\n%s", text)
	}
	for _, line := range []string{"done a\n", "done b\n", "sluice batch: 2 ok, 0 failed; "} {
		if !strings.Contains(after, "\n"+line) {
			t.Errorf("no line %q after\n%s", line, text)
		}
	}
}

// A command that asks for input on the terminal is ended, with all that belongs to it, and is not
// tried again.
func TestTerminalAsks(t *testing.T) {
	dir := t.TempDir()
	_, read, wait := shellOnTerminal(t, dir, `printf "a\n" | "$0" "$@"`, "--", "sh", "-c", `echo . >>began; (read x </dev/tty; echo got "$x"); true {}`)
	wait()
	text := shown(t, read.String())
	if !strings.Contains(text, "a failed: it asks for input on the terminal") || !strings.Contains(text, "0 ok, 1 failed; ") {
		t.Errorf("shown\n%s", text)
	}
	if began, err := os.ReadFile(filepath.Join(dir, "began")); err != nil || string(began) != ".\n" {
		t.Errorf("began %q, %v", began, err)
	}
}

// If the program is killed its commands are asked to end, or they would run beside those of the
// run that resumes it.
func TestBinaryKilled_Commands(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "-jobs", "2", "--", "sh", "-c", `trap "echo >ended.$1; exit" TERM; echo >began.$1; while :; do sleep 0.02; done`, "sh", "{}")
	fmt.Fprint(p.stdin, "a\nb\n")
	untilExists(t, filepath.Join(dir, "began.a"))
	untilExists(t, filepath.Join(dir, "began.b"))
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	untilExists(t, filepath.Join(dir, "ended.a"))
	untilExists(t, filepath.Join(dir, "ended.b"))
}
