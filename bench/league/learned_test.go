package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSaveLearned_IsRepeatable(t *testing.T) {
	var pictures [2]string
	for i := range pictures {
		file := filepath.Join(t.TempDir(), "learned.svg")
		if err := saveLearned(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pictures[i] = string(text)
	}
	if pictures[0] != pictures[1] {
		t.Error("two pictures of the same differ")
	}
	if n := strings.Count(pictures[0], "<clipPath"); n != len(pictured) {
		t.Errorf("%d panels, want %d", n, len(pictured))
	}
	if strings.Contains(pictures[0], "NaN") || strings.Contains(pictures[0], "Inf") {
		t.Error("a coordinate is not a number")
	}
}

// The picture says that the pace follows the steps of the rate: so it must.
func TestDiary_FollowsTheSteps(t *testing.T) {
	days := diary(world(t, "steps"))
	for at, want := range map[float64]float64{190: 20, 390: 100, 590: 30} {
		got := 0.0
		for _, d := range days {
			if d.at <= at {
				got = d.pace
			}
		}
		if math.Abs(got/want-1) > .1 {
			t.Errorf("after %v s the pace is %.1f/s, want %v/s", at, got, want)
		}
	}
}
