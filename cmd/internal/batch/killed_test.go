//go:build unix

package batch

import (
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
)

// Killed again and again, and resumed: no item is lost, and each has one line of -jsonl. What is run
// again is what was running, and what was done but not noted yet, which is at most one more.
func TestBinaryKilled_Often(t *testing.T) {
	kills, items := 2, 300
	if os.Getenv("SLUICE_FULL") != "" {
		kills, items = 20, 2000
	}
	const jobs = 4
	asked := make(chan string, 10*items)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- strings.TrimPrefix(r.URL.Path, "/")
		fmt.Fprintln(w, "done")
	}))
	defer server.Close()
	for name, task := range map[string][]string{
		"commands": {"--", "sh", "-c", `echo "$1" >>ran`, "sh", "{}"},
		"calls":    {"-url", server.URL + "/{}"},
	} {
		dir := t.TempDir()
		args := append([]string{"-jobs", fmt.Sprint(jobs), "-log", "run.jsonl", "-resume", "-jsonl", "lines", "-results", "out"}, task...)
		input := numbers(items)
		for k := range kills {
			p := start(t, dir, args...)
			go func() {
				fmt.Fprint(p.stdin, input)
				p.stdin.Close()
			}()
			for until := (k + 1) * items / (kills + 1); len(linesOf(t, dir)) < until; {
				time.Sleep(time.Millisecond) // a look at the file, no more
			}
			p.signal(t, syscall.SIGKILL)
			p.wait(t)
		}
		runIn(t, dir, input, args...).want(t, 0, "", " skipped")
		times := make(map[int64]int)
		for _, line := range linesOf(t, dir) {
			var r record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			times[r.Seq]++
		}
		for seq, n := range times {
			if n > 1 {
				t.Errorf("%s: item %d has %d lines", name, seq, n)
			}
		}
		outputs, err := filepath.Glob(filepath.Join(dir, "out", "*.out"))
		if len(times) != items || len(outputs) != items || err != nil {
			t.Errorf("%s: %d items have lines, and %d outputs", name, len(times), len(outputs))
		}
		runs := 0
		if name == "commands" {
			text, err := os.ReadFile(filepath.Join(dir, "ran"))
			if err != nil {
				t.Fatal(err)
			}
			runs = len(strings.Fields(string(text)))
		} else {
			runs = len(asked)
		}
		t.Logf("%s: killed %d times, %d of %d run again", name, kills, runs-items, items)
		if runs < items || runs > items+kills*(jobs+1)*2 {
			t.Errorf("%s: %d runs of %d items", name, runs, items)
		}
	}
}

// linesOf returns the complete lines of -jsonl.
func linesOf(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "lines"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	return lines[:len(lines)-1]
}
