//go:build unix

package batch

import (
	"encoding/json"
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
	r.want(t, 0, "a is 1\nb is 2\nc is 3\n", "sluice batch: 3 ok, 0 failed; p95: late < ")
	if strings.ContainsAny(r.stderr, "\r\x1b") {
		t.Errorf("control characters where there is no terminal: %q", r.stderr)
	}
}

// Attempts leave in the order of the input and at the rate: no two are closer
// than an interval less the millisecond that a gate may make up for.
func TestBinaryRate(t *testing.T) {
	dir := t.TempDir()
	began := time.Now()
	runIn(t, dir, "1\n2\n3\n4\n5\n6\n", "-rate", "50/s", "-log", "run.jsonl", "--", "true").want(t, 0, "")
	log := readLog(t, dir)
	slices.SortFunc(log, func(a, b logged) int { return a.Sent.Compare(b.Sent) })
	for i, l := range log {
		if l.Key != fmt.Sprint(i+1) || l.Attempts != 1 {
			t.Errorf("line %d is of %+v", i, l)
		}
	}
	if len(log) != 6 {
		t.Fatalf("%d lines", len(log))
	}
	// On a busy machine an item leaves late, and those after it make up for that, by 50 ms at most.
	if took, least := log[5].Sent.Sub(began), 5*20*time.Millisecond-50*time.Millisecond; took < least {
		t.Errorf("six items at 50/s were sent within %v, want at least %v", took, least)
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
	for arg, parts := range map[string][]string{
		"-h":     {"  -halt soon,fail=10%", "sluice help batch"},
		"--help": {"  {//}  its folder\n", "  -halt soon,fail=10%\n", "Exit status:\n  0     all items are ok"},
	} {
		r := runIn(t, t.TempDir(), "", arg)
		for _, part := range parts {
			if r.status != 0 || !strings.Contains(r.stdout, part) {
				t.Errorf("%s: status %d, no %q in\n%s", arg, r.status, part, r.stdout)
			}
		}
	}
}

func TestBinaryCannotBegin(t *testing.T) {
	for _, tt := range []struct{ args, says string }{
		{"-jobs x -- echo", `Run "sluice batch -h" for the flags.`},
		{"-in no/such/file -- echo", "no/such/file"},
		{"-- no-such-command-anywhere {}", "no-such-command-anywhere"},
		{"-log no/such/folder/log -- echo", "no/such/folder/log"},
		{"ids.txt -rate 5/s", "; to read items from a file, write -in ids.txt"},
		{"-url http://h/{} ids.txt", "; to read items from a file, write -in ids.txt"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ids.txt"), []byte("a\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		runIn(t, dir, "a\n", strings.Fields(tt.args)...).want(t, 2, "", "sluice batch: ", tt.says)
	}
}

// flaky fails for items with an f in them, and for those with a g at the first
// attempt.
const flaky = `echo "out $1"; echo "err $1" >&2
case $1 in
*f*) exit 7 ;;
*g*) test -e "seen$1" || { touch "seen$1"; exit 1; } ;;
esac`

// Of commands only those are retried that end as -retry-on says.
func TestBinaryRetryOn(t *testing.T) {
	for _, tt := range []struct {
		on, command string
		runs        int
	}{
		{"75", "exit 75", 3}, {"75", "exit 1", 1}, {"1-3,75", "exit 2", 3}, {"143", "kill -TERM $$", 3}, {"75", "kill -TERM $$", 1},
		{"timeout", "exec sleep 60", 3}, {"143", "exec sleep 60", 1}, {"timeout", "exit 1", 1}, {"1xx,timeout", "exit 101", 3},
	} {
		dir := t.TempDir()
		timeout := "1h"
		if strings.Contains(tt.command, "sleep") {
			timeout = "50ms"
		}
		runIn(t, dir, "a\n", "-retries", "2", "-backoff", "1ms", "-timeout", timeout, "-retry-on", tt.on, "-log", "run.jsonl", "--", "sh", "-c", tt.command).want(t, 1, "")
		if log := readLog(t, dir); len(log) != 1 || log[0].Attempts != tt.runs {
			t.Errorf("-retry-on %s: %q, want %d attempts: %+v", tt.on, tt.command, tt.runs, log)
		}
	}
}

// Some fail: the status, the retries, what is printed, and what is done about
// it in each mode.
func TestBinaryFailuresAndModes(t *testing.T) {
	dir := t.TempDir()
	args := func(more ...string) []string {
		return append(more, "-jobs", "2", "-ordered", "-retries", "1", "-backoff", "1ms", "-log", "run.jsonl", "--", "sh", "-c", flaky, "sh", "{}")
	}
	r := runIn(t, dir, "a\nf\ng\n", args()...)
	r.want(t, 1, "out a\nout f\nout g\n", "err a\nerr f\n",
		"sluice batch: f failed: exit status 7 (2 attempts)\n", "2 ok, 1 failed, 2 retries; ")
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

	runIn(t, dir, "a\n", args()...).want(t, 2, "", "-log run.jsonl: the log already has items; -resume continues it")
	runIn(t, dir, "a\n", "-resume", "-log", "run.jsonl", "--", "echo").want(t, 2, "", "another command or request; -any-config resumes it anyway")
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
	// Also of one job at a time, a result may come after that of the next one.
	args := []string{"-in", in, "-jobs", "1", "-ordered", "-retries", "0", "-log", "run.jsonl", "-halt", "soon,fail=2", "--", "sh", "-c", "echo \"$1\"\ncase $1 in f*) exit 1 ;; esac", "sh", "{}"}
	r := runIn(t, dir, "", args...)
	const hint = "sluice batch: resume it by\n\t"
	r.want(t, 3, "a\nf1\nb\nf2\n", "2 ok, 2 failed, 3 unfinished; ", "ended early: halted: 2 of 4 items failed", hint)
	_, command, _ := strings.Cut(r.stderr, hint)
	// The command that it prints, by a shell.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 || string(out) != "c\nd\ne\n" {
		t.Errorf("%s: %v, %q", command, err, out)
	}

	r = runIn(t, dir, "a\nb\nc\nd\n", "-jobs", "1", "-ordered", "-halt", "now,success=2", "--", "echo")
	r.want(t, 0, "a\nb\n", "ended early: halted: 2 items are ok")
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
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
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
			const hint = "sluice batch: resume it, with the same input, by\n\t"
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
	p.signalAgain(t, syscall.SIGINT)
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
	p.signalAgain(t, syscall.SIGINT)
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

// When nobody reads its output any more it stops, and so do the commands that run.
func TestBinaryOutputNotRead(t *testing.T) {
	dir := t.TempDir()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	const work = `case $1 in
b) trap "echo >ended.b; exit" TERM; echo >began.b; while :; do sleep 0.02; done ;;
c) while ! test -e go; do sleep 0.02; done ;;
esac
echo "$1"`
	p := &process{cmd: exec.CommandContext(t.Context(), binary, "-jobs", "2", "-log", "run.jsonl", "--", "sh", "-c", work, "sh", "{}"), stderr: newPrinted()}
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, strings.NewReader("a\nb\nc\n"), in, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	line := make([]byte, 2)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "a\n" {
		t.Fatalf("%q, %v", line, err)
	}
	untilExists(t, filepath.Join(dir, "began.b"))
	out.Close()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t); status != 141 || !strings.Contains(p.stderr.String(), "1 ok, 0 failed, 2 unfinished; ") || !strings.Contains(p.stderr.String(), "resume it") {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
	untilExists(t, filepath.Join(dir, "ended.b"))
	if log := readLog(t, dir); len(log) != 1 || log[0].Key != "a" {
		t.Errorf("the log has %+v", log)
	}
}

// A closed stdout is not taken for one that keeps outputs, nor one that was sent to /dev/null
// for a closed one.
func TestBinaryStdoutClosed(t *testing.T) {
	for _, test := range []struct {
		flags, redirect string
		warns           bool
	}{{"", ">&-", true}, {"", ">/dev/null", false}, {"", "", false}, {"-results out", ">&-", false}} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo a | "+binary+" -quiet "+test.flags+" -- echo "+test.redirect)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if warned := strings.Contains(string(out), "stdout is closed: outputs are dropped"); err != nil || warned != test.warns {
			t.Errorf("%s %s: %v, %s", test.flags, test.redirect, err, out)
		}
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
	p.signalAgain(t, syscall.SIGINT)
	if status := p.wait(t); status != 130 {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
	if text, err := io.ReadAll(fifo); err != nil || len(text) > 0 { // until all writers have closed it
		t.Errorf("a child says that it %q, %v", text, err)
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
	runIn(t, dir, "b\n", "-log", "run.jsonl", "-resume", "--", "sh", "-c", waits, "sh", "{}").want(t, 2, "", "sluice batch: -log: the log is in use: run.jsonl\n")
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
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(stderr.String(), "printing an output: ") || !strings.Contains(stderr.String(), "0 ok, 0 failed, 2 unfinished") {
		t.Errorf("status %d, stderr\n%s", cmd.ProcessState.ExitCode(), stderr.String())
	}
	runIn(t, dir, "a\nb\n", "-jobs", "1", "-log", "run.jsonl", "-resume", "--", "echo").want(t, 0, "a\nb\n")
}

// -timeout ends an attempt.
func TestBinaryTimeout(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\n", "-timeout", "50ms", "-retries", "1", "-backoff", "1ms", "--", "sh", "-c", "sleep 1000; echo {}")
	r.want(t, 1, "", "a failed: it took longer than -timeout (2 attempts)\n")
}

// Items are tried as often as -retries says, however many of them fail.
func TestBinaryAllFail(t *testing.T) {
	dir := t.TempDir()
	r := runIn(t, dir, strings.Repeat("x\n", 40), "-retries", "2", "-backoff", "1us", "-log", "run.jsonl", "--", "false")
	r.want(t, 1, "", "0 ok, 40 failed, 80 retries; ")
}

// A command that leaves a child behind which has its output open has ended when it has
// ended.
func TestBinaryBackgroundChild(t *testing.T) {
	dir := t.TempDir()
	r := runIn(t, dir, "a\n", "-log", "run.jsonl", "--", "sh", "-c", "sleep 60 & echo $! >child; echo started {}")
	r.want(t, 0, "started a\n", "1 ok, 0 failed; ")
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(child), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the child: %v", err)
	}
}

// What can never start is not tried again.
func TestBinaryCannotStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "noexec"), []byte("\x00\x01"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 200_000)
	for input, args := range map[string][]string{
		"a\x00b\n":  {"echo", "{}"},
		long + "\n": {"echo", "{}"},
		"a\n":       {"./noexec"},
	} {
		r := runIn(t, dir, input, append([]string{"-backoff", "1ms", "--"}, args...)...)
		if r.status != 1 || strings.Contains(r.stderr, "retries") {
			t.Errorf("status %d for an item of %d bytes:\n%.500s", r.status, len(input), r.stderr)
		}
	}
}

// A long output is not in memory, and is printed in one piece.
func TestBinaryLongOutput(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\nb\n", "-jobs", "2", "--", "sh", "-c", "yes {} | head -c 3000000")
	a, b := strings.Repeat("a\n", 1_500_000), strings.Repeat("b\n", 1_500_000)
	if r.status != 0 || r.stdout != a+b && r.stdout != b+a {
		t.Errorf("status %d, %d bytes", r.status, len(r.stdout))
	}
}

// Equal items are one, unless they are named by their number.
func TestBinaryEqualItems(t *testing.T) {
	for key, want := range map[string]string{"item": "y\n", "seq": "x\nx\ny\n"} {
		dir := t.TempDir()
		args := []string{"-ordered", "-jobs", "1", "-log", "run.jsonl", "-key", key}
		runIn(t, dir, "x\nx\nx\ny\n", append(args, "-halt", "soon,success=1", "--", "echo")...).want(t, 0, "x\n")
		r := runIn(t, dir, "x\nx\nx\ny\n", append(args, "-resume", "--", "echo")...)
		r.want(t, 0, want)
		if warned := strings.Contains(r.stderr, "sluice batch: 2 of those skipped equal an item before them"); warned != (key == "item") {
			t.Errorf("-key %s:\n%s", key, r.stderr)
		}
	}
}

// Lines as Windows writes them are not changed, unless that is asked for.
func TestBinaryCRLF(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\r\nb\r\n", "-ordered", "--", "printf", "<%s>")
	r.want(t, 0, "<a\r><b\r>", "-crlf removes it")
	r = runIn(t, t.TempDir(), "a\r\nb\n", "-ordered", "-crlf", "--", "printf", "<%s>")
	r.want(t, 0, "<a><b>")
}

// Each line begins with the item, also of a long output, and one without a newline.
func TestBinaryTag(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\nb\n", "-ordered", "-tag", "--", "printf", "1 {}\\n2 {}\\n")
	r.want(t, 0, "a\t1 a\na\t2 a\nb\t1 b\nb\t2 b\n")
	r = runIn(t, t.TempDir(), "a\nb\n", "-ordered", "-tag", "--", "printf", "1 {}\\n2")
	r.want(t, 0, "a\t1 a\na\t2\nb\t1 b\nb\t2\n")
	r = runIn(t, t.TempDir(), "a\n", "-tag", "--", "sh", "-c", "yes 1234567 | head -c 3000000")
	if want := strings.Repeat("a\t1234567\n", 375_000); r.stdout != want {
		t.Errorf("%d bytes, want %d", len(r.stdout), len(want))
	}
}

func TestBinarySummary(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "a\nf\ng\n", "-retries", "1", "-backoff", "1ms", "-summary", "sum.json", "--", "sh", "-c", flaky, "sh", "{}")
	text, err := os.ReadFile(filepath.Join(dir, "sum.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil || s.Status != 1 || s.OK != 2 || s.Failed != 1 || s.Retries != 2 || s.Unfinished != 0 || s.Seconds <= 0 {
		t.Errorf("%s: %v", text, err)
	}
}

// A job that would take years ends when its rate is changed.
func TestBinaryControl(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "-rate", "1/10000h", "-control", "control", "--", "echo")
	fmt.Fprint(p.stdin, "a\nb\nc\n")
	p.stdin.Close()
	p.stdout.until("a\n")
	if err := os.WriteFile(filepath.Join(dir, "control"), []byte("# faster\nrate 1000/s\njobs 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t); status != 0 || !strings.Contains(p.stderr.String(), "-control: rate 1000/s, jobs 2\n") {
		t.Errorf("status %d, stdout %q, stderr\n%s", status, p.stdout, p.stderr)
	}
}

// Without a place for outputs nothing is begun.
func TestBinaryNoTemporaryFiles(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	runIn(t, ".", "a\n", "--", "echo").want(t, 2, "", "outputs are kept in temporary files: ", "no such file or directory")
}

func TestBinaryEmptyInput(t *testing.T) {
	runIn(t, t.TempDir(), "\n\n", "--", "echo").want(t, 0, "", "sluice batch: the input has no items\n")
}

func TestBinaryFolderAsInput(t *testing.T) {
	runIn(t, t.TempDir(), "", "-in", ".", "--", "echo").want(t, 2, "", "is a folder")
}

func TestBinaryColumns(t *testing.T) {
	r := runIn(t, t.TempDir(), "a\tb\nc\td\n", "-ordered", "-colsep", `\t`, "--", "echo", "{2}", "{1}")
	r.want(t, 0, "b a\nd c\n")
	r = runIn(t, t.TempDir(), "h,1\ni,2\n", "-dry-run", "-colsep", ",", "-body", `{"n":{2}}`, "-url", "http://{1}/x")
	r.want(t, 0, "POST http://h/x -body '{\"n\":1}'\nPOST http://i/x -body '{\"n\":2}'\n")
}

// Several lines are one item: of a call, of the log, of the counts.
func TestBinaryLines(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-n", "2", "-jobs", "1", "-retries", "0", "-log", "run.jsonl", "--", "sh", "-c", `test "$2" != d && echo "$#:$1-$2"`, "sh"}
	runIn(t, dir, "a\nb\nc\nd\n\ne\n", args...).want(t, 1, "2:a-b\n1:e-\n", "'c d' failed: ", "2 ok, 1 failed")
	runIn(t, dir, "a\nb\nc\nx\ne\n", append([]string{"-resume"}, args...)...).want(t, 1, "2:c-x\n", "1 ok, 0 failed, 2 skipped")
	r := runIn(t, dir, "1\n2\n3\n", "-dry-run", "-n", "2", "-body", `{"ids":[{}],"first":{1}}`, "-url", "http://h/{}")
	r.want(t, 0, "POST http://h/1,2 -body '{\"ids\":[1,2],\"first\":1}'\nPOST http://h/3 -body '{\"ids\":[3],\"first\":3}'\n")
	runIn(t, dir, "1\n", "-n", "2", "-url", "{}").want(t, 2, "", "an address cannot begin with several items")
	runIn(t, dir, "1\n", "-n", "0", "--", "echo").want(t, 2, "", "want a number above 0, or max")
}

// A flag of GNU parallel or xargs, or one that is misspelt, is refused with what was meant.
func TestBinarySuggests(t *testing.T) {
	for flag, meant := range map[string]string{
		"-job": "-jobs", "-j": "-jobs", "-P": "-jobs", "--joblog": "-log", "-k": "-ordered", "-0": "-null",
		"-orderd": "-ordered", "-retry": "-retries", "-resume-fail": "-resume-failed", "--delay": "-rate", "-j8": "-jobs 8",
	} {
		runIn(t, t.TempDir(), "", flag, "1", "--", "echo").want(t, 2, "", "no flag "+flag[strings.LastIndex(flag[:2], "-"):]+": did you mean "+meant+"?")
	}
	runIn(t, t.TempDir(), "", "-zzz", "--", "echo").want(t, 2, "", "no flag -zzz\n")
}

// An output is in the file of its item, also after a resume.
func TestBinaryResults(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-jobs", "1", "-log", "run.jsonl", "-results", "out/dir", "--", "sh", "-c", "echo $1; echo err $1 >&2; test $1 != f", "sh", "{}"}
	runIn(t, dir, "a\n", args...).want(t, 0, "")
	r := runIn(t, dir, "a\nb\nf\n", append([]string{"-resume", "-retries", "0"}, args...)...)
	r.want(t, 1, "", "f failed: ")
	for name, want := range map[string]string{"1.out": "a\n", "1.err": "err a\n", "2.out": "b\n", "3.err": "err f\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, "out", "dir", name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// If there are too few file handles for -jobs, fewer commands run at once, and none fails.
func TestBinaryFewHandles(t *testing.T) {
	r := runLimited(t, 40, numbers(100), "-jobs", "100", "-retries", "0", "--", "sh", "-c", "sleep 0.05; true {}")
	r.want(t, 0, "", "100 ok, 0 failed", "fewer than -jobs ran at once")
}

// What cannot be written at the end is noticed before the job, and nothing is left by looking.
func TestBinarySummary_CannotWrite(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "a\n", "-summary", "no/such/folder", "--", "touch").want(t, 2, "", "sluice batch: -summary: ")
	runIn(t, dir, "a\n", "-summary", ".", "--", "touch").want(t, 2, "", "sluice batch: -summary: ")
	runIn(t, dir, "a\n", "-summary", "s.json", "--", "sh", "-c", "test ! -e s.json", "sh").want(t, 0, "", "1 ok")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// What other programs take for a command line of a shell is no program.
func TestBinaryNoShell(t *testing.T) {
	for _, command := range []string{"echo {}", "echo hello"} {
		runIn(t, t.TempDir(), "a\n", command).want(t, 2, "", "did you mean "+command+", or -shell sh '"+command+"'?")
	}
}
