package crawl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// The program crawls its site over a real socket, and says how. How long that
// takes is the machine's affair.
func TestBinary(t *testing.T) {
	t.Parallel()
	cmd := asProcess(t, "-delay", "20ms", "-depth", "1", "-dir", "d")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if pages := pagesIn(t, filepath.Join(cmd.Dir, "d", pagesFile)); len(pages) != 9 {
		t.Errorf("%d pages", len(pages))
	}
	text, err := os.ReadFile(filepath.Join(cmd.Dir, "d", "summary.json"))
	must(t, err)
	var s summary
	if err := json.Unmarshal(text, &s); err != nil || s.Pages != 7 || s.Forbidden != 2 || s.Gone != 1 || s.Hosts != 10 || s.Status != 0 {
		t.Errorf("%s: %v", text, err)
	}
	for _, want := range []string{
		"host  pages  forbidden  refused  left  closest two", "closest two", "start.test", "endless.test", "Crawl-delay 1h0m0s is over -max-delay 30s: skipped",
		`http://broken.test/robots.txt: line 3: Crawl-delay of "soon": not a number of seconds`, "links not followed: deeper than -depth",
		"7 pages, 0 failed, 0 missing, 2 forbidden",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout.String())
		}
	}
	if !strings.HasPrefix(stderr.String(), "sluice crawl: crawling the built-in site on 127.0.0.1:") || !strings.Contains(stderr.String(), "the pages are in d/pages.jsonl\n") {
		t.Errorf("stderr %q", stderr.String())
	}
}

func TestBinary_Status(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   string
		status int
		says   string
	}{
		{"-h", 0, "-pages pages"},
		{"-help", 0, "Exit status"},
		{"-bogus", 2, "sluice crawl: invalid flags: no flag -bogus\nRun \"sluice crawl -h\" for"},
		{"-delay 5 http://a.test/", 2, "did you mean 5s?"},
		{"-level 5 http://a.test/", 2, "did you mean -depth?"},
		{"resume", 2, `"resume": want http://host/`},
		{"-include ( http://a.test/", 2, "missing closing )"},
		{"-dir /dev/null/x http://a.test/", 2, "sluice crawl: mkdir /dev/null"},
		{"-dir http://a.test/ http://a.test/", 2, "want a folder"},
		{"-resume", 2, "crawl holds no crawl to resume; to begin one, give an address"},
		// No server can listen there.
		{"-delay 20ms http://127.0.0.1:0/", 3, "sluice crawl: left for -resume: http://127.0.0.1:0: robots.txt, asked for 3 times: unreachable: left (connection refused)\nsluice crawl: the pages are in crawl/pages.jsonl\nsluice crawl: continue it by\n\t"},
	} {
		cmd := asProcess(t, strings.Fields(test.args)...)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != test.status || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: status %d, %q", test.args, got, out)
		}
	}
}

// What cannot be written is no success.
func TestBinary_FullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := asProcess(t, "-delay", "20ms", "-depth", "0")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); status != cli.ExitFailed || !strings.Contains(stderr.String(), "sluice crawl: writing the table: ") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	cmd = asProcess(t, "-delay", "20ms", "-dir", "d", "-resume", srv.URL)
	must(t, os.Mkdir(filepath.Join(cmd.Dir, "d"), 0o777))
	must(t, os.Symlink("/dev/full", filepath.Join(cmd.Dir, "d", pagesFile)))
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(string(out), "sluice crawl: writing the pages: ") {
		t.Errorf("status %d, %q", got, out)
	}
}

// When the disk is full in the middle of a crawl, whichever file that hits first, it says so, and
// loses nothing.
func TestBinary_FullDiskLater(t *testing.T) {
	t.Parallel()
	var links []string
	for i := range 150 {
		links = append(links, fmt.Sprintf("/%d", i))
	}
	server := sluicetest.NewServer(noRobots, sluicetest.When(func(_ int, r *http.Request) bool { return r.URL.Path == "/" }, htmlPage("/", links...)), htmlPage("/"))
	defer server.Close()
	srv := httptest.NewServer(server)
	defer srv.Close()
	for _, blocks := range []string{"20", "60", "100"} {
		dir := t.TempDir()
		args := []string{"-delay", "0", "-quiet", "-dir", dir, srv.URL}
		limited := asProcess(t, args...)
		limited.Args = append([]string{"sh", "-c", `ulimit -f ` + blocks + ` && exec "$0" "$@"`, os.Args[0]}, args...)
		limited.Path = "/bin/sh"
		out, err := limited.CombinedOutput()
		if limited.ProcessState == nil {
			t.Skip(err)
		}
		if got := limited.ProcessState.ExitCode(); got != cli.ExitFailed || !strings.Contains(string(out), "file too large") ||
			!strings.Contains(string(out), "continue it by\n\t") || strings.Contains(string(out), "goroutine ") {
			t.Errorf("%s blocks: status %d, %s", blocks, got, out)
		}
		if out, err := asProcess(t, append([]string{"-resume"}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("%s blocks: continued: %v, %s", blocks, err, out)
		}
		if pages := pagesIn(t, filepath.Join(dir, pagesFile)); len(pages) != 151 {
			t.Errorf("%s blocks: %d pages", blocks, len(pages))
		}
	}
}

// Interrupted it keeps what it has, and says how to go on, without secrets.
func TestBinary_Interrupt(t *testing.T) {
	t.Parallel()
	cmd := asProcess(t, "-delay", "29s", "-dir", "d", "http://me:SECRET@127.0.0.1:0/")
	arrived := make(chan struct{}, 9)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{} }))
	defer srv.Close()
	cmd.Args[len(cmd.Args)-1] = "http://me:SECRET@" + srv.Listener.Addr().String()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	must(t, cmd.Start())
	<-arrived // robots.txt; the first page comes 29 s after that
	must(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	said := stderr.String()
	if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(said, "continue it by\n\t") || !strings.Contains(said, " -resume -delay 29s -dir d 'http://(hidden)@127") ||
		strings.Contains(said, "SECRET") || !strings.Contains(stdout.String(), "1 link not visited yet") {
		t.Errorf("status %d, stdout %q, stderr %q", got, stdout.String(), said)
	}
}

// Killed at any instant, again and again, it loses no page and fetches none twice that has
// a line.
func TestBinary_Killed(t *testing.T) {
	t.Parallel()
	links := func(host string) (all []string) { // of two hosts, to 60 pages each
		for i := range 60 {
			all = append(all, fmt.Sprintf("http://%s.test/%d", host, i))
		}
		return all
	}
	tree := func(_ int, r *http.Request) bool { return r.URL.Path == "/" }
	server := sluicetest.NewServer(noRobots, sluicetest.When(tree, htmlPage("/", append(links("a"), links("b")...)...)),
		sluicetest.Path("/7", sluicetest.On(1, sluicetest.Status(500))), sluicetest.Path("/8", sluicetest.Status(301, "Location: /new")), htmlPage("/"))
	defer server.Close()
	srv := httptest.NewServer(server)
	defer srv.Close()
	dir := t.TempDir()
	pages := filepath.Join(dir, pagesFile)

	asked := func() map[string]int { // how often, at the server
		n := make(map[string]int)
		for _, q := range server.Record().Requests {
			n["http://"+q.Host+q.Path]++
		}
		return n
	}
	noted := make(map[string]int) // the same, for pages that had a line at a kill
	kills, most := 0, 4
	if os.Getenv("SLUICE_FULL") != "" {
		most = 30
	}
	for ended := false; !ended; {
		cmd := asProcess(t, "-delay", "5ms", "-dir", dir, "-resume", "-span", "-quiet", "http://a.test/")
		cmd.Env = append(cmd.Env, "HTTP_PROXY="+srv.URL, "NO_PROXY=")
		must(t, cmd.Start())
		exited := make(chan struct{})
		go func() { defer close(exited); _ = cmd.Wait() }()
		for before := sizeOf(pages); !ended && (kills == most || sizeOf(pages) < before+2000+300*int64(kills)); {
			select {
			case <-exited:
				ended = true
			case <-time.After(time.Millisecond): // a look at the file, no more
			}
		}
		if ended {
			break
		}
		_ = cmd.Process.Kill()
		<-exited
		kills++
		n := asked()
		for _, address := range wholeLines(t, pages) {
			if _, before := noted[address]; !before {
				noted[address] = n[address]
			}
		}
	}
	if kills < 3 {
		t.Errorf("killed %d times", kills)
	}
	if got := pagesIn(t, pages); len(got) != 123 {
		t.Errorf("%d lines", len(got))
	}
	n := asked()
	for address, before := range noted {
		if n[address] != before {
			t.Errorf("%s had a line, and was asked for %d more times", address, n[address]-before)
		}
	}
}

func sizeOf(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// wholeLines returns the addresses of the lines that are complete.
func wholeLines(t *testing.T, name string) (addresses []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var p page
		must(t, json.Unmarshal(line, &p))
		addresses = append(addresses, p.URL)
	}
	return addresses
}
