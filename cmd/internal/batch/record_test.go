//go:build unix

package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordsIn reads the lines of -jsonl, by item. Each item must be there once.
func recordsIn(t *testing.T, text string) map[string]record {
	t.Helper()
	all := make(map[string]record)
	for line := range strings.Lines(text) {
		var rec record
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&rec); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, twice := all[rec.Item]; twice {
			t.Errorf("%q is there twice", rec.Item)
		}
		all[rec.Item] = rec
	}
	return all
}

// is compares what does not depend on the machine: the status is -1 if there is none.
func (r record) is(ok bool, status, attempts int) bool {
	if r.Status == nil {
		return r.OK == ok && r.Attempts == attempts && status == -1
	}
	return r.OK == ok && r.Attempts == attempts && *r.Status == status
}

// Of each item there is a line, with the outputs where they are without it; a job that resumes
// goes on behind the last complete line.
func TestBinaryJSONL(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lines")
	if err := os.WriteFile(name, []byte("of another job\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-jsonl", "lines", "-log", "run.jsonl", "-ordered", "-retries", "1", "-backoff", "1ms", "--", "sh", "-c", flaky, "sh", "{}"}
	runIn(t, dir, "a\nf\ng\n", args...).want(t, 1, "out a\nout f\nout g\n")
	read := func() map[string]record { return recordsIn(t, readText(t, name)) }
	got := read()
	if a, f, g := got["a"], got["f"], got["g"]; len(got) != 3 || !a.is(true, 0, 1) || !f.is(false, 7, 2) || !g.is(true, 0, 2) ||
		a.Seq != 1 || g.Seq != 3 || a.Start == nil || a.Took <= 0 || f.Error != "exit status 7 (2 attempts)" || a.Error != "" || a.Late < 0 || a.Waited < 0 {
		t.Errorf("%+v", got)
	}
	// The log knows them, so nothing may be lost.
	runIn(t, dir, "a\n", args...).want(t, 2, "", "the log already has items")
	if got := read(); len(got) != 3 {
		t.Errorf("%+v", got)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"seq":4,"item":"cut`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	runIn(t, dir, "a\nf\ng\nh\n", append([]string{"-resume"}, args...)...).want(t, 1, "out h\n")
	if got := read(); len(got) != 4 || !got["h"].is(true, 0, 1) {
		t.Errorf("%+v", got)
	}
}

// On stdout there are no outputs between the lines. A signal has 128 and its number,
// and a program that cannot run has none.
func TestBinaryJSONL_Stdout(t *testing.T) {
	r := runIn(t, t.TempDir(), "exit 3\nkill -TERM $$\necho <x>\n", "-jsonl", "-", "-retries", "0", "--", "sh", "-c", "{}")
	got := recordsIn(t, r.stdout)
	if r.status != 1 || !got["exit 3"].is(false, 3, 1) || !got["kill -TERM $$"].is(false, 143, 1) || len(got) != 3 || !strings.Contains(r.stdout, "<x>") {
		t.Errorf("status %d, %s", r.status, r.stdout)
	}
	r = runIn(t, t.TempDir(), "/no/such/program\n", "-jsonl", "-", "--", "{}")
	if got := recordsIn(t, r.stdout); r.status != 1 || !got["/no/such/program"].is(false, -1, 1) {
		t.Errorf("status %d, %s", r.status, r.stdout)
	}
}

func TestBinaryJSONL_URL(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		switch {
		case r.URL.Path == "/missing":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/later" && times == 1:
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/made":
			w.WriteHeader(http.StatusCreated)
		case r.URL.Path == "/reset":
			panic(http.ErrAbortHandler)
		}
	})
	r := runIn(t, t.TempDir(), "missing\nlater\nmade\nreset\n", "-jsonl", "-", "-retries", "1", "-backoff", "1ms", "-jobs", "1", "-url", a.URL+"/{}")
	got := recordsIn(t, r.stdout)
	if !got["missing"].is(false, 404, 1) || !got["later"].is(true, 200, 2) || !got["made"].is(true, 201, 1) || !got["reset"].is(false, -1, 2) {
		t.Errorf("status %d, %s", r.status, r.stdout)
	}
}

// What cannot be written stops the job, and the item is not noted in the log.
func TestBinaryJSONL_FullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	runIn(t, dir, "a\nb\n", "-jsonl", "/dev/full", "-log", "run.jsonl", "-jobs", "1", "--", "true").want(t, 3, "", "-jsonl: ", "no space left")
	if log := readLog(t, dir); len(log) > 0 {
		for _, l := range log {
			if l.State == "ok" {
				t.Errorf("%+v", l)
			}
		}
	}
	runIn(t, dir, "a\n", "-jsonl", "no/such/folder", "--", "true").want(t, 2, "", "-jsonl: open no/such/folder")
}

func TestEndOfLines(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "a": 0, "a\n": 2, "a\nb": 2, "a\n" + strings.Repeat("b", 200<<10): 2, strings.Repeat("b", 200<<10): 0, strings.Repeat("b", 70<<10) + "\n": 70<<10 + 1,
	} {
		if got, err := endOfLines(strings.NewReader(text), int64(len(text))); got != want || err != nil {
			t.Errorf("%.9q: %d, %v, want %d", text, got, err, want)
		}
	}
	if _, err := endOfLines(strings.NewReader(""), 5); err == nil {
		t.Error(errors.New("a file that is shorter than it was"))
	}
}

// Killed between -jsonl and the log, an item is run again, and its first line goes.
func TestBinaryJSONL_KilledBeforeTheLog(t *testing.T) {
	for _, tt := range []struct {
		name        string
		done, noted int // lines of -jsonl, and of the log
		end         int // lines of -jsonl when all four items are done
	}{
		{"all are noted", 3, 3, 4},
		{"the last is not", 3, 2, 4},
		{"the only one is not, or is of another job", 1, 0, 5},
		{"nothing was done", 0, 0, 4},
		{"the log is new", 3, 0, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"-jsonl", "lines", "-log", "run.jsonl", "-key", "seq", "-resume", "-jobs", "1", "--", "true"}
			const items = "a\nb\nc\nd\n"
			runIn(t, dir, items[:2*tt.done], args...).want(t, 0, "")
			log := filepath.Join(dir, "run.jsonl")
			lines := strings.SplitAfter(readText(t, log), "\n")
			if err := os.WriteFile(log, []byte(strings.Join(lines[:1+tt.noted], "")), 0o600); err != nil {
				t.Fatal(err)
			}
			runIn(t, dir, items, args...).want(t, 0, "", fmt.Sprintf("%d ok", 4-tt.noted))
			text := readText(t, filepath.Join(dir, "lines"))
			if n := strings.Count(text, "\n"); n != tt.end {
				t.Errorf("%d lines, want %d:\n%s", n, tt.end, text)
			}
		})
	}
}

// The lines of a job stay if another one, with a log of its own, goes on behind them.
func TestBinaryJSONL_OfTwoJobs(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "a\nb\nc\n", "-jsonl", "lines", "-log", "one.jsonl", "--", "true").want(t, 0, "")
	runIn(t, dir, "d\n", "-log", "two.jsonl", "--", "true").want(t, 0, "")
	runIn(t, dir, "d\ne\n", "-jsonl", "lines", "-log", "two.jsonl", "-resume", "--", "true").want(t, 0, "", "1 ok")
	if got := recordsIn(t, readText(t, filepath.Join(dir, "lines"))); len(got) != 4 {
		t.Errorf("got the lines of %d items, want 4: %v", len(got), got)
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
