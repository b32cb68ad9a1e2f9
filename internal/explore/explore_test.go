package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/explore/overlay"
)

// A sample of what .ci/full does: each seeded bug is found, except those that need thousands of
// executions, and without one all interleavings of some scenes pass. What is not among these
// takes minutes.
func TestExplore_Sample(t *testing.T) {
	if testing.Short() || hasRace() {
		t.Skip("it builds a program, without the race detector")
	}
	// What a test reads is part of the key under which its result is kept.
	sources, _ := filepath.Glob("s*/*.go")
	for _, name := range sources {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	scenes, err := build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long := map[string]bool{"two-steps": true, "close-in-two": true, "overtake": true}
	var some []string
	for _, s := range seedNames() {
		if name, _, _ := strings.Cut(s, ":"); !long[name] {
			some = append(some, s)
		}
	}
	for _, args := range [][]string{
		{"-seeds", strings.Join(some, ",")},
		{"-more", "-1", "-scenes", "do-3,mixed-3,within-3,raise-held,cost-held,resume-2,parent-1,semaphore-2,semaphore-3,crowd-3"},
	} {
		var out bytes.Buffer
		cmd := exec.Command(scenes, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, &out)
		}
		t.Logf("%s", &out)
	}
}

func hasRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A seed that has lost its place must not be skipped without a word.
func TestSeeds_HaveOnePlace(t *testing.T) {
	lost := append([]overlay.Seed{{Name: "lost", File: "gate.go", Old: "no such line"}}, seeds...)
	if _, err := overlay.Write("../..", t.TempDir(), rewritten, seeds, extra); err != nil {
		t.Error(err)
	}
	if _, err := overlay.Write("../..", t.TempDir(), rewritten, lost, extra); err == nil {
		t.Error("no error for a seed that has no place")
	}
	nowhere := []overlay.Seed{{Name: "nowhere", File: "none.go"}}
	if _, err := overlay.Write("../..", t.TempDir(), rewritten, nowhere, extra); err == nil {
		t.Error("no error for a seed that has no file")
	}
}
