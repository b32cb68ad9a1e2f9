package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// start runs the program and returns what it prints and its exit status.
func start(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		status = exit.ExitCode()
	}
	return out.String(), errs.String(), status
}

// The JSON has the promised members and no others.
func TestBinary_JSON(t *testing.T) {
	for _, v := range vendors {
		stdout, stderr, status := start(t, "-n", "20", "-json", "-api", v.name)
		if status != 0 { // on a slow machine there is progress on stderr
			t.Errorf("status %d, stderr %s", status, stderr)
		}
		var all map[string]map[string]float64
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatalf("%v in %s", err, stdout)
		}
		if got, want := slices.Sorted(maps.Keys(all)), []string{"sdk", "sdk10", "sluice"}; !slices.Equal(got, want) {
			t.Errorf("members %v, want %v", got, want)
		}
		members := []string{"ideal_s", "items", "ok", "requests", "throttled", "took_s"}
		for name, run := range all {
			if got := slices.Sorted(maps.Keys(run)); !slices.Equal(got, members) {
				t.Errorf("%s has %v, want %v", name, got, members)
			}
			if run["items"] != 20 || run["requests"] < 20 || run["took_s"] < run["ideal_s"] {
				t.Errorf("%s: %v", name, run)
			}
		}
		if all["sluice"]["ok"] != 20 {
			t.Errorf("%s: %v", v.name, all["sluice"])
		}
	}
}

func TestBinary_Resume(t *testing.T) {
	log := filepath.Join(t.TempDir(), "run.jsonl")
	stdout, stderr, status := start(t, "-n", "10", "-log", log)
	if status != 0 || !strings.Contains(stdout, "through Sluice") || !strings.Contains(stdout, "SDK, 10 retries") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	stdout, stderr, status = start(t, "-n", "15", "-log", log, "-resume")
	if status != 0 || strings.Contains(stdout, "SDK alone") || !hasRow(stdout, "of them in the log", "10") || !hasRow(stdout, "completions", "15") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	for _, tt := range []struct{ flags, says string }{
		{"-log " + log, "-resume continues it"},
		{"-resume -api anthropic -log " + log, "give the same -api"},
		{"-log " + filepath.Dir(log), "is a directory"},
	} {
		if stdout, stderr, status := start(t, strings.Fields(tt.flags)...); status != 1 || stdout != "" ||
			!strings.HasPrefix(stderr, "llmbatch: ") || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: status %d, %s%s", tt.flags, status, stdout, stderr)
		}
	}
}

// hasRow reports whether the table has a row with that name and value.
func hasRow(table, name, value string) bool {
	return slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool {
		return strings.Join(strings.Fields(line), " ") == name+" "+value
	})
}

func TestBinary_Flags(t *testing.T) {
	for _, flags := range []string{"-n 0", "-n x", "-workers 0", "-api other", "-resume", "more", "-bogus"} {
		if stdout, stderr, status := start(t, strings.Fields(flags)...); status != 2 || stdout != "" || !strings.HasPrefix(stderr, "llmbatch: ") {
			t.Errorf("%s: status %d, %s%s", flags, status, stdout, stderr)
		}
	}
	if stdout, stderr, status := start(t, "-h"); status != 0 || stderr != "" || !strings.Contains(stdout, "\n  -log file\n") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}
