package crawl

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

const liveToken = "a token for tests"

// The page shows the crawl and its host. A crawl that would take a day ends when its rate is
// changed there.
func TestBinary_Live(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<a href=/a>a</a><a href=/b>b</a>`)
	}))
	defer srv.Close()
	cmd := asProcess(t, "-delay", "0s", "-rate", "1/12h", "-dir", "d", "-live", ":0", "-live-token", "token", srv.URL)
	must(t, os.WriteFile(filepath.Join(cmd.Dir, "token"), []byte(liveToken+"\n"), 0o600))
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(stderr)
	line, err := lines.ReadString('\n')
	must(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "sluice crawl: -live: "))
	// It waits for the rate after robots.txt.
	for !strings.Contains(liveSays(t, http.MethodGet, url, ""), "for the rate of 1/12h0m0s") {
	}
	if text := liveSays(t, http.MethodGet, url, ""); !strings.Contains(text, ">127.0.0.1<") || !strings.Contains(text, ">address 127.0.0.1<") || !strings.Contains(text, ">all hosts<") {
		t.Errorf("the page does not show the host:\n%s", text)
	}
	for _, test := range [][2]string{
		{`{"name": "127.0.0.1", "do": "rate", "rate": "none"}`, "can only be shown"},
		{`{"name": "all hosts", "do": "concurrency", "limit": 0}`, "want a number of jobs above 0"},
		{`{"name": "all hosts", "do": "concurrency", "limit": 2}`, "at most 2 in flight"},
		{`{"name": "all hosts", "do": "pause"}`, "paused for 1 min"},
		{`{"name": "all hosts", "do": "resume"}`, "resumed"},
		{`{"name": "all hosts", "do": "rate", "rate": "none"}`, "rate none"},
	} {
		if said := liveSays(t, http.MethodPost, url, test[0]); !strings.Contains(said, test[1]) {
			t.Errorf("%s: %s", test[0], said)
		}
	}
	rest, err := io.ReadAll(lines)
	must(t, err)
	must(t, cmd.Wait())
	if pages := pagesIn(t, filepath.Join(cmd.Dir, "d", pagesFile)); len(pages) != 3 {
		t.Errorf("%d pages", len(pages))
	}
	for _, note := range []string{"-live: jobs 2\n", "-live: paused until ", "-live: resumed\n", "-live: rate unlimited\n"} {
		if !strings.Contains(string(rest), note) {
			t.Errorf("no %q in\n%s", note, rest)
		}
	}
}

// liveSays returns what the page answers.
func liveSays(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sluice-Token", liveToken)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(text)
}

// What is wrong is said before there is a folder, in which the next attempt would find a crawl.
func TestBinary_LiveRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-live 8080":                     "missing port",
		"-live-token none":               "give that, too",
		"-live :0 -live-token none":      "no such file",
		"-live :0 -live-token /dev/null": "/dev/null is empty",
	} {
		cmd := asProcess(t, append(strings.Fields(args), "-dir", "d", "http://127.0.0.1:0/")...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != cli.ExitUsage || !strings.Contains(string(out), want) {
			t.Errorf("%s: status %d, %s", args, got, out)
		}
		if _, err := os.Stat(filepath.Join(cmd.Dir, "d")); err == nil {
			t.Errorf("%s: there is a folder", args)
		}
	}
}
