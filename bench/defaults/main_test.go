package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestDefaults(t *testing.T) {
	root := filepath.Join("..", "..")
	page, missing, err := write(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range missing {
		t.Errorf("the comment of %s does not say what 0 means", m)
	}
	have, err := os.ReadFile(filepath.Join(root, "docs", "defaults.md"))
	if err != nil || !bytes.Equal(have, page) {
		t.Errorf("docs/defaults.md is outdated: go run ./bench/defaults (%v)", err)
	}
}

func TestMeanings(t *testing.T) {
	for text, want := range map[string][2]string{
		"Attempts is the most. 0 means 4, negative no limit.":                {"4", "no limit"},
		"The rate. The zero Rate means no limit.":                            {"no limit", ""},
		"0 or less means no bound.":                                          {"no bound", "no bound"},
		"0 means 24 h, or more if that is longer; negative means none.":      {"24 h, or more if that is longer", "none"},
		"The most tokens. 0 means 100. If it is negative, retries are free.": {"100", "retries are free"},
		"It must not be 0.": {"", ""},
		"0 means 0.02.":     {"0.02", ""},
	} {
		zero, negative := meanings(text)
		if zero != want[0] || negative != want[1] {
			t.Errorf("%s\n\t%q, %q; want %q", text, zero, negative, want)
		}
	}
}
