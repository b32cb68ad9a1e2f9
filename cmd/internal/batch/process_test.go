//go:build unix

package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a running program.
type process struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr *printed
}

// printed is what a program has printed so far, and can be waited for.
type printed struct {
	mu      sync.Mutex
	changed *sync.Cond
	b       bytes.Buffer
}

func newPrinted() *printed {
	p := new(printed)
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
	return p.b.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// until waits for a text. A program that never prints it hangs until the
// deadline of the test ends it.
func (p *printed) until(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !strings.Contains(p.b.String(), text) {
		p.changed.Wait()
	}
}

// start starts the program in a folder. Its input stays open until it is closed.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startInto(t, dir, nil, args...)
}

// startInto is start with another stdout than the one that process has, unless that is nil.
func startInto(t *testing.T, dir string, stdout *os.File, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, args...), stdout: newPrinted(), stderr: newPrinted()}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p.stdout, p.stderr
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// wait waits for the end and returns the exit status, -1 if it was killed.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	var failed *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// signal sends a signal as a terminal does: to the program, and to all that it
// has started and not taken out of its group.
func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil {
		t.Fatal(err)
	}
}

// signalAgain sends a signal for the second time. Two within togetherInterrupt of package cli
// are one; what this waits is longer, whatever the load: the program has the first one already.
func (p *process) signalAgain(t *testing.T, sig syscall.Signal) {
	t.Helper()
	p.stderr.until("interrupted: ")
	time.Sleep(60 * time.Millisecond)
	p.signal(t, sig)
}

// ran is how a run of the program ended.
type ran struct {
	status         int
	stdout, stderr string
}

// runIn runs the program in a folder with an input.
func runIn(t *testing.T, dir, input string, args ...string) ran {
	t.Helper()
	p := start(t, dir, args...)
	io.WriteString(p.stdin, input) // it may have ended already
	p.stdin.Close()
	status := p.wait(t)
	return ran{status, p.stdout.String(), p.stderr.String()}
}

// runLimited runs the program with so many file handles.
func runLimited(t *testing.T, handles int, input string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", fmt.Sprintf("ulimit -n %d; exec \"$0\" \"$@\"", handles), binary}, args...)...)
	var stdout, stderr strings.Builder
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TempDir(), strings.NewReader(input), &stdout, &stderr
	_ = cmd.Run()
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// numbers returns so many items.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// want fails the test unless the run ended with the status, printed exactly
// that to stdout, and said to stderr what it should.
func (r ran) want(t *testing.T, status int, stdout string, says ...string) {
	t.Helper()
	ok := r.status == status && r.stdout == stdout
	for _, s := range says {
		ok = ok && strings.Contains(r.stderr, s)
	}
	if !ok {
		t.Fatalf("status %d, want %d; stdout %q, want %q; stderr should say %q:\n%s", r.status, status, r.stdout, stdout, says, r.stderr)
	}
}

// logged is a line of a log.
type logged struct {
	Key, State, Error string
	Attempts          int
	Intended, Sent    time.Time
}

// readLog returns the lines of the log for items.
func readLog(t *testing.T, dir string) []logged {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []logged
	for line := range strings.Lines(string(text)) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.State != "" {
			all = append(all, l)
		}
	}
	return all
}
