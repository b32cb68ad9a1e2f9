package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exited is how a run of the program ended.
type exited struct {
	status         int
	stdout, stderr string
	dir            string // where it ran
}

// runBinary runs the program in its own directory.
func runBinary(t *testing.T, args ...string) exited {
	t.Helper()
	return startBinary(t, "stdout", args...).wait(t)
}

// process is a running program one of whose outputs can be followed.
type process struct {
	cmd      *exec.Cmd
	followed *bufio.Reader
	read     strings.Builder // what has been followed so far
	other    bytes.Buffer    // the output that is not followed
	stderr   bool            // whether it is stderr that is followed
}

func startBinary(t *testing.T, follow string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, args...), stderr: follow == "stderr"}
	p.cmd.Dir = t.TempDir()
	pipe := p.cmd.StdoutPipe
	p.cmd.Stderr = &p.other
	if p.stderr {
		pipe = p.cmd.StderrPipe
		p.cmd.Stderr, p.cmd.Stdout = nil, &p.other
	}
	r, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.followed = bufio.NewReader(r)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until follows the output up to the line that begins with a text.
func (p *process) until(t *testing.T, begin string) {
	t.Helper()
	for {
		line, err := p.followed.ReadString('\n')
		p.read.WriteString(line)
		if strings.HasPrefix(line, begin) {
			return
		}
		if err != nil {
			t.Fatalf("no line %q: %v\n%s", begin, err, p.read.String())
		}
	}
}

func (p *process) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (p *process) wait(t *testing.T) exited {
	t.Helper()
	if _, err := io.Copy(&p.read, p.followed); err != nil {
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	e := exited{status: p.cmd.ProcessState.ExitCode(), stdout: p.read.String(), stderr: p.other.String(), dir: p.cmd.Dir}
	if p.stderr {
		e.stdout, e.stderr = e.stderr, e.stdout
	}
	return e
}

// wantStatus fails the test, with everything printed, if the status is another.
func (e exited) wantStatus(t *testing.T, status int) {
	t.Helper()
	if e.status != status {
		t.Fatalf("exit status %d, want %d\nstdout\n%s\nstderr\n%s", e.status, status, e.stdout, e.stderr)
	}
}

// items reads items.jsonl: every line must be whole and every id new.
func (e exited) items(t *testing.T) map[int]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.dir, "items.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return readItems(t, string(data))
}

func readItems(t *testing.T, text string) map[int]string {
	t.Helper()
	items := make(map[int]string)
	for l := range strings.Lines(text) {
		var item struct {
			ID   *int            `json:"id"`
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal([]byte(l), &item); err != nil || item.ID == nil || !strings.HasSuffix(l, "\n") {
			t.Fatalf("line %q: %v", l, err)
		}
		if _, twice := items[*item.ID]; twice {
			t.Errorf("item %d is there twice", *item.ID)
		}
		items[*item.ID] = string(item.Body)
	}
	return items
}

// report reads stdout as the one JSON object that it must be.
func (e exited) report(t *testing.T) (gate figures, naive *figures) {
	t.Helper()
	var r struct {
		Gate  figures  `json:"gate"`
		Naive *figures `json:"naive"`
	}
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, e.stdout)
	}
	return r.Gate, r.Naive
}
