//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The example of the documentation.
func TestBinary(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\nb\nc\n", "-rate", "100/s", "-ordered", "--", "echo", "{}", "is {#}")
	r.want(t, 0, "a is 1\nb is 2\nc is 3\n", "batchjob: 3 ok, 0 failed; late by less than ")
	if strings.ContainsAny(r.stderr, "\r\x1b") {
		t.Errorf("control characters where there is no terminal: %q", r.stderr)
	}
}

// Attempts leave in the order of the input and at the rate: no two are closer
// than an interval less the millisecond that a gate may make up for.
func TestBinaryRate(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "1\n2\n3\n4\n5\n6\n", "-rate", "50/s", "-log", "run.jsonl", "--", "true").want(t, 0, "")
	log := readLog(t, dir)
	slices.SortFunc(log, func(a, b logged) int { return a.Sent.Compare(b.Sent) })
	for i, l := range log {
		if l.Key != fmt.Sprint(i+1) || l.Attempts != 1 {
			t.Errorf("line %d is of %+v", i, l)
		}
		if i > 0 && l.Sent.Sub(log[i-1].Sent) < 19*time.Millisecond {
			t.Errorf("%s left %v after the one before", l.Key, l.Sent.Sub(log[i-1].Sent))
		}
	}
	if len(log) != 6 {
		t.Errorf("%d lines", len(log))
	}
}

// An item is one argument, whatever is in it.
func TestBinaryArguments(t *testing.T) {
	r := runIn(t, t.TempDir(), "$(echo x) 'y'; *\n", "--", "sh", "-c", `printf '%s|%s\n' "$#" "$1"`, "sh", "{}")
	r.want(t, 0, "1|$(echo x) 'y'; *\n")
	r = runIn(t, t.TempDir(), "a\nb\x00c\x00", "-null", "-ordered", "-quiet", "--", "printf", "<%s>")
	r.want(t, 0, "<a\nb><c>")
}

func TestBinaryDryRun(t *testing.T) {
	runIn(t, t.TempDir(), "a b\nc\n", "-dry-run", "--", "rm", "-f", "{}.x").want(t, 0, "rm -f 'a b.x'\nrm -f c.x\n")
	runIn(t, t.TempDir(), "a b\n", "-dry-run", "-url", "http://h/{}").want(t, 0, "GET http://h/a%20b\n")
}

func TestBinaryHelp(t *testing.T) {
	r := runIn(t, t.TempDir(), "", "-h")
	for _, part := range []string{"{//}  its folder", "  -halt soon,fail=10%\n", "Exit status: 0 if all items are ok"} {
		if r.status != 0 || !strings.Contains(r.stdout, part) {
			t.Errorf("status %d, no %q in\n%s", r.status, part, r.stdout)
		}
	}
}

func TestBinaryCannotBegin(t *testing.T) {
	for _, tt := range []struct{ args, says string }{
		{"-jobs x -- echo", "Run with -h for the flags."},
		{"-in no/such/file -- echo", "no/such/file"},
		{"-- no-such-command-anywhere {}", "no-such-command-anywhere"},
		{"-log no/such/folder/log -- echo", "no/such/folder/log"},
	} {
		runIn(t, t.TempDir(), "a\n", strings.Fields(tt.args)...).want(t, 2, "", "batchjob: ", tt.says)
	}
}

// flaky fails for items with an f in them, and for those with a g at the first
// attempt.
const flaky = `echo "out $1"; echo "err $1" >&2
case $1 in
*f*) exit 7 ;;
*g*) test -e "seen$1" || { touch "seen$1"; exit 1; } ;;
esac`

// Some fail: the status, the retries, what is printed, and what is done about
// it in each mode.
func TestBinaryFailuresAndModes(t *testing.T) {
	dir := t.TempDir()
	args := func(more ...string) []string {
		return append(more, "-jobs", "2", "-ordered", "-retries", "1", "-backoff", "1ms", "-log", "run.jsonl", "--", "sh", "-c", flaky, "sh", "{}")
	}
	r := runIn(t, dir, "a\nf\ng\n", args()...)
	r.want(t, 1, "out a\nout f\nout g\n", "err a\nerr f\n",
		"batchjob: f failed: sluice: gave up after 2 attempts: no attempts left: exit status 7\n", "2 ok, 1 failed, 2 retries; ")
	if strings.Contains(r.stderr, "resume") {
		t.Errorf("there is nothing to resume:\n%s", r.stderr)
	}
	states := func(want string) {
		t.Helper()
		var got []string
		for _, l := range readLog(t, dir) {
			got = append(got, fmt.Sprint(l.Key, " ", l.State, " ", l.Attempts))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("the log has %s, want %s", strings.Join(got, ", "), want)
		}
	}
	states("a ok 1, f failed 2, g ok 2")

	runIn(t, dir, "a\n", args()...).want(t, 2, "", "the log already has items", "-resume continues it")
	runIn(t, dir, "a\n", "-resume", "-log", "run.jsonl", "--", "echo").want(t, 2, "", "another configuration", "-any-config")
	states("a ok 1, f failed 2, g ok 2")

	// In another order, with more.
	runIn(t, dir, "x\ng\nf\na\n", args("-resume")...).want(t, 1, "out x\n", "1 ok, 0 failed, 3 skipped; ", "1 of those in the log failed before: -resume-failed runs them again\n")
	runIn(t, dir, "x\ng\nf\na\n", args("-resume-failed")...).want(t, 1, "out f\n", "0 ok, 1 failed, 3 skipped, 1 retries; ")
	runIn(t, dir, "new\nf\n", args("-retry-failed")...).want(t, 1, "out f\n", "0 ok, 1 failed, 1 skipped, 1 retries; ")
	runIn(t, dir, "f\n", "-resume-failed", "-any-config", "-log", "run.jsonl", "--", "echo").want(t, 0, "f\n", "1 ok")
	runIn(t, dir, "f\na\n", "-resume", "-log", "run.jsonl", "--", "echo").want(t, 0, "", "0 ok, 0 failed, 2 skipped\n")
}

// -halt: what is running is finished, the status says so, and how to go on.
func TestBinaryHalt(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "items")
	if err := os.WriteFile(in, []byte("a\nf1\nb\nf2\nc\nd\ne\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Of one job at a time, too, a result may come after that of the next one.
	args := []string{"-in", in, "-jobs", "1", "-ordered", "-retries", "0", "-log", "run.jsonl", "-halt", "soon,fail=2", "--", "sh", "-c", "echo \"$1\"\ncase $1 in f*) exit 1 ;; esac", "sh", "{}"}
	r := runIn(t, dir, "", args...)
	const hint = "batchjob: resume it by\n\t"
	r.want(t, 3, "a\nf1\nb\nf2\n", "ended early: batch: halted: 2 of 4 items failed", hint)
	_, command, _ := strings.Cut(r.stderr, hint)
	// The command that it prints, by a shell.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 || string(out) != "c\nd\ne\n" {
		t.Errorf("%s: %v, %q", command, err, out)
	}

	r = runIn(t, dir, "a\nb\nc\nd\n", "-jobs", "1", "-ordered", "-halt", "now,success=2", "--", "echo")
	r.want(t, 0, "a\nb\n", "ended early: batch: halted: 2 items are ok")
	r = runIn(t, dir, "a\nb\nc\nd\n", "-jobs", "1", "-retries", "0", "-halt", "soon,fail=1", "--", "false")
	r.want(t, 3, "", "there is no -log, so it cannot be resumed")
}

// A halt does not wait for input that may never come.
func TestBinaryHaltWithOpenInput(t *testing.T) {
	p := start(t, t.TempDir(), "-jobs", "1", "-retries", "0", "-halt", "soon,fail=1", "--", "false")
	fmt.Fprint(p.stdin, "a\n") // and nothing else, for all time
	if status := p.wait(t); status != 3 || !strings.Contains(p.stderr.String(), "halted: 1 of 1 items failed") {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
}

// waits is a command that says that it runs, and waits until a file is there.
// It must not be reached by the signal: it would end.
const waits = `echo >"began.$1"; while ! test -e go; do sleep 0.02; done; echo "done $1"`

// untilExists waits for a file.
func untilExists(t *testing.T, name string) {
	t.Helper()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(name, "never came")
		}
		time.Sleep(time.Millisecond)
	}
}

// One signal: the two that run are finished, nothing else begins, and the
// command that it prints does the rest.
func TestBinaryInterruptedOnce(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			p := start(t, dir, "-jobs", "2", "-log", "run.jsonl", "--", "sh", "-c", waits, "sh", "{}")
			fmt.Fprint(p.stdin, "a\nb\nc\nd\n") // and stays open: the input must not hold it up
			untilExists(t, filepath.Join(dir, "began.a"))
			untilExists(t, filepath.Join(dir, "began.b"))
			p.signal(t, sig)
			p.stderr.until("interrupted: ")
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			status := p.wait(t)
			const hint = "batchjob: resume it, with the same input, by\n\t"
			_, command, hinted := strings.Cut(p.stderr.String(), hint)
			lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
			slices.Sort(lines)
			if status != 130 || strings.Join(lines, ",") != "done a,done b" || !hinted {
				t.Fatalf("status %d, stdout %q, stderr\n%s", status, p.stdout, p.stderr)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir, cmd.Stdin = dir, strings.NewReader("a\nb\nc\nd\n")
			out, err := cmd.Output()
			lines = strings.Split(strings.TrimSpace(string(out)), "\n")
			slices.Sort(lines)
			if err != nil || strings.Join(lines, ",") != "done c,done d" {
				t.Errorf("%s: %v, %q", command, err, out)
			}
		})
	}
}

// Two signals: what runs is cancelled, with its children, and is run again.
func TestBinaryInterruptedTwice(t *testing.T) {
	dir := t.TempDir()
	const parent = `sh -c 'trap "echo >ended.$1; exit" TERM; echo >began.$1; while :; do sleep 0.02; done' sh "$1" & wait`
	p := start(t, dir, "-jobs", "2", "-log", "run.jsonl", "--", "sh", "-c", parent, "sh", "{}")
	fmt.Fprint(p.stdin, "a\nb\nc\n")
	untilExists(t, filepath.Join(dir, "began.a"))
	untilExists(t, filepath.Join(dir, "began.b"))
	p.signal(t, syscall.SIGINT)
	p.stderr.until("interrupted: ")
	p.signal(t, syscall.SIGINT)
	if status := p.wait(t); status != 130 || p.stdout.String() != "" || !strings.Contains(p.stderr.String(), "interrupted again: ") {
		t.Errorf("status %d, stdout %q, stderr\n%s", status, p.stdout, p.stderr)
	}
	untilExists(t, filepath.Join(dir, "ended.a"))
	untilExists(t, filepath.Join(dir, "ended.b"))
	if log := readLog(t, dir); len(log) != 0 {
		t.Errorf("the log has %+v", log)
	}
}

// Three signals: it ends although its output is not read, because the third signal ends
// it as it ends any program.
func TestBinaryInterruptedThrice(t *testing.T) {
	dir := t.TempDir()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, "-log", "run.jsonl", "--", "sh", "-c", "head -c 1000000 /dev/zero"), stderr: newPrinted()}
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, strings.NewReader("a\n"), in, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun to print, and cannot end
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGINT)
	p.stderr.until("interrupted: ")
	p.signal(t, syscall.SIGINT)
	p.stderr.until("interrupted again: ")
	p.signal(t, syscall.SIGINT)
	p.wait(t)
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", p.cmd.ProcessState)
	}
	if log := readLog(t, dir); len(log) != 0 {
		t.Errorf("the log has %+v", log)
	}
}

// What is cancelled and does not listen is killed, with its children.
func TestBinaryCancelsChildren(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--", "sh", "-c", "(trap '' TERM; exec >fifo; sleep 10; echo survived) & wait")
	fmt.Fprint(p.stdin, "a\n")
	fifo, err := os.Open(name) // by now the child does not listen
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	p.signal(t, syscall.SIGINT)
	p.stderr.until("interrupted: ")
	p.signal(t, syscall.SIGINT)
	if status := p.wait(t); status != 130 {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
	if text, err := io.ReadAll(fifo); err != nil || len(text) > 0 { // until all writers have closed it
		t.Errorf("a child says that it %q, %v", text, err)
	}
}

// go run deletes the program sooner or later: the command must not name that one.
func TestGoRun(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-retries", "0", "-halt", "soon,fail=1", "-log", filepath.Join(t.TempDir(), "log"), "--", "false")
	cmd.Stdin = strings.NewReader("a\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Run()
	_, command, _ := strings.Cut(stderr.String(), "batchjob: resume it, with the same input, by\n\t")
	if want := "go run github.com/sluice-go/sluice/examples/batchjob -resume -retries 0 "; !strings.HasPrefix(command, want) {
		t.Errorf("stderr\n%s", stderr.String())
	}
}

// Killed, and resumed: what was done is not done again.
func TestBinaryKilled(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-jobs", "2", "-log", "run.jsonl", "-resume", "--", "sh", "-c", `echo "$1" >>all`, "sh", "{}"}
	var input strings.Builder
	for i := range 60 {
		fmt.Fprintln(&input, i)
	}
	p := start(t, dir, args...)
	fmt.Fprint(p.stdin, input.String())
	for {
		if _, err := os.Stat(filepath.Join(dir, "run.jsonl")); err == nil && len(readWhole(t, dir)) >= 10 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
	runIn(t, dir, input.String(), args...).want(t, 0, "", " skipped")
	text, err := os.ReadFile(filepath.Join(dir, "all"))
	if err != nil {
		t.Fatal(err)
	}
	times := make(map[string]int)
	for _, line := range strings.Fields(string(text)) {
		times[line]++
	}
	if n := len(strings.Fields(string(text))); len(times) != 60 || n > 60+4 {
		t.Errorf("%d items ran, %d times", len(times), n)
	}
}

// readWhole returns the whole lines of a log that is being written.
func readWhole(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	return lines[:len(lines)-1]
}

// Two of them must not write one log.
func TestBinaryLogInUse(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "-log", "run.jsonl", "--", "sh", "-c", waits, "sh", "{}")
	fmt.Fprint(p.stdin, "a\n")
	untilExists(t, filepath.Join(dir, "began.a"))
	runIn(t, dir, "b\n", "-log", "run.jsonl", "-resume", "--", "sh", "-c", waits, "sh", "{}").want(t, 2, "", "batchjob: batch: the log is in use: run.jsonl\n")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	if status := p.wait(t); status != 0 {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
}

// An output that cannot be written is not lost: the item is run again.
func TestBinaryFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, "-jobs", "1", "-log", "run.jsonl", "--", "echo")
	cmd.Dir, cmd.Stdin, cmd.Stdout = dir, strings.NewReader("a\nb\n"), full
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Run()
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(stderr.String(), "printing an output: ") {
		t.Errorf("status %d, stderr\n%s", cmd.ProcessState.ExitCode(), stderr.String())
	}
	runIn(t, dir, "a\nb\n", "-jobs", "1", "-log", "run.jsonl", "-resume", "--", "echo").want(t, 0, "a\nb\n")
}

// -timeout ends an attempt.
func TestBinaryTimeout(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\n", "-timeout", "50ms", "-retries", "1", "-backoff", "1ms", "--", "sh", "-c", "sleep 1000; echo {}")
	r.want(t, 1, "", "a failed: sluice: gave up after 2 attempts: ", "deadline exceeded")
}

// Items are tried as often as -retries says, however many of them fail.
func TestBinaryAllFail(t *testing.T) {
	dir := t.TempDir()
	r := runIn(t, dir, strings.Repeat("x\n", 40), "-retries", "2", "-backoff", "1us", "-log", "run.jsonl", "--", "false")
	r.want(t, 1, "", "0 ok, 40 failed, 80 retries; ")
}
