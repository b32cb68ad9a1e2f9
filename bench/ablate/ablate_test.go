package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each part is in its file once, and has a name of its own, or the table would be about something else.
func TestParts(t *testing.T) {
	names := make(map[string]bool)
	for _, p := range parts {
		text, err := os.ReadFile(filepath.Join("..", "..", "internal", "adaptive", p.file))
		if err != nil {
			t.Fatal(err)
		}
		switch without, err := p.remove(string(text)); {
		case err != nil:
			t.Error(err)
		case without == string(text):
			t.Errorf("%s changes nothing", p.name)
		}
		if names[p.name] {
			t.Errorf("two parts are named %s", p.name)
		}
		names[p.name] = true
	}
}

// The rule compiles without each of them. That takes half a minute, so only .ci/full looks.
func TestParts_Compile(t *testing.T) {
	if os.Getenv("SLUICE_FULL") == "" {
		t.Skip("SLUICE_FULL is not set")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		a := ablation{root: root, temp: t.TempDir()}
		name, err := a.overlay(p.name)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.do(".", nil, "go", "build", "-overlay", name, "./internal/adaptive"); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// The compiler sees the rule without the parts of a group, two of which may be in one file.
func TestOverlay(t *testing.T) {
	a := ablation{root: filepath.Join("..", ".."), temp: t.TempDir()}
	group := parts[0].name + "+" + parts[1].name
	if _, err := a.overlay(group); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(a.temp, parts[0].file))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts[:2] {
		if !strings.Contains(string(text), p.new) {
			t.Errorf("%s is still there", p.name)
		}
	}
	if _, err := a.overlay("no such part"); err == nil {
		t.Error("an unknown part is no error")
	}
}

func TestScores(t *testing.T) {
	whole, without := make(scores), make(scores)
	for _, err := range []error{
		whole.add("named", []byte(`[{"world": "a", "strategy": "rule-zero", "score": 80}, {"world": "a", "strategy": "rule-zero", "score": 90}, {"world": "b", "strategy": "rule-zero", "score": 75}, {"world": "a", "strategy": "rule-adaptive", "score": 50}]`)),
		whole.add("zoo", []byte(`[{"server": "s", "client": "sluice", "score": 10}]`)),
		without.add("named", []byte(`[{"world": "a", "strategy": "rule-zero", "score": 70}, {"world": "b", "strategy": "rule-zero", "score": 85}]`)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(whole.kinds(), ", "); got != "named none, named search, zoo none" {
		t.Errorf("kinds are %s", got)
	}
	if got := whole.mean("named none"); got != 80 {
		t.Errorf("the mean is %v, want 80: of the means of both worlds", got)
	}
	if world, lost := whole.mostLost(without, "named none"); world != "a" || lost != 15 {
		t.Errorf("%s loses %v, want a and 15", world, lost)
	}
}
