//go:build unix

package batch

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const liveToken = "a token for tests"

// liveURL waits for the address of the page.
func liveURL(p *process) string {
	p.stderr.until("/\n")
	_, url, _ := strings.Cut(p.stderr.String(), "-live: ")
	url, _, _ = strings.Cut(url, "\n")
	return url
}

// change changes the job on its page and returns what that answers.
func change(t *testing.T, url, what string) string {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(`{"name": "all attempts", `+what+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sluice-Token", liveToken)
	return read(t, req)
}

func read(t *testing.T, req *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shows waits until the page shows a text.
func shows(t *testing.T, url, text string) {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(t, req), text) {
			return
		}
	}
}

// A job that would take years says on its page what it waits for, and ends when its rate is
// changed there.
func TestBinaryLive(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(liveToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "-ordered", "-rate", "1/10000h", "-burst", "2", "-live", ":0", "-live-token", "token", "--", "echo")
	fmt.Fprint(p.stdin, "a\nb\nc\nd\n")
	p.stdin.Close()
	url := liveURL(p)
	p.stdout.until("a\n")
	shows(t, url, "for the rate of 1/10000h0m0s burst 2")
	for _, c := range [][2]string{
		{`"do": "pause"`, "paused for 1 min"},
		{`"do": "concurrency", "limit": 0`, "want a number of jobs from 1"},
		{`"do": "concurrency", "limit": 3`, "at most 3 in flight"},
		{`"do": "resume"`, "resumed"},
		{`"do": "rate", "rate": "1000/s"`, "rate 1000/s"},
	} {
		if said := change(t, url, c[0]); !strings.Contains(said, c[1]) {
			t.Errorf("%s: %s", c[0], said)
		}
	}
	if status := p.wait(t); status != 0 || p.stdout.String() != "a\nb\nc\nd\n" {
		t.Errorf("status %d, stdout %q", status, p.stdout)
	}
	for _, note := range []string{"-live: paused until ", "-live: jobs 3\n", "-live: resumed\n", "-live: rate 1000/s\n"} {
		if !strings.Contains(p.stderr.String(), note) {
			t.Errorf("no %q in\n%s", note, p.stderr)
		}
	}
}

// With -url the hosts have rows of their own; without a token nothing can be changed.
func TestBinaryLiveURL(t *testing.T) {
	release := make(chan struct{})
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) { <-release })
	p := start(t, t.TempDir(), "-live", ":0", "-url", a.URL+"/{}")
	fmt.Fprint(p.stdin, "x\n")
	p.stdin.Close()
	url := liveURL(p)
	shows(t, url, "of 8")
	shows(t, url, a.URL)
	if said := change(t, url, `"do": "pause"`); !strings.Contains(said, "read-only") {
		t.Errorf("without a token: %s", said)
	}
	close(release)
	if status := p.wait(t); status != 0 {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
}

func TestBinaryLiveRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "short"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-live", "8080"}, "missing port"},
		{[]string{"-live-token", "short"}, "give that, too"},
		{[]string{"-live", ":0", "-live-token", "none"}, "no such file"},
		{[]string{"-live", ":0", "-live-token", "short"}, "16 bytes"},
	} {
		runIn(t, dir, "a\n", append(c.flags, "--", "echo")...).want(t, 2, "", c.want)
	}
}
