package suggest

import (
	"flag"
	"io"
	"testing"
)

func TestParse(t *testing.T) {
	set := flag.NewFlagSet("x", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Int("jobs", 1, "")
	set.Int("journal", 1, "")
	set.Int("rate", 1, "")
	others := map[string]string{"j": "jobs", "delay": "rate"}
	for arg, want := range map[string]string{
		"-job":      "no flag -job: did you mean -jobs?",
		"--jbos":    "no flag -jbos",
		"--jobz":    "no flag -jobz: did you mean -jobs?",
		"-j":        "no flag -j: did you mean -jobs?",
		"-j12":      "no flag -j12: did you mean -jobs 12?",
		"-jx":       "no flag -jx",
		"-delay":    "no flag -delay: did you mean -rate?",
		"-xyz":      "no flag -xyz",
		"-rate=a":   `invalid value "a" for flag -rate: want a number`,
		"-journal3": "no flag -journal3: did you mean -journal?",
	} {
		if err := Parse(set, []string{arg}, others); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
	texts := flag.NewFlagSet("texts", flag.ContinueOnError)
	texts.SetOutput(io.Discard)
	texts.String("log", "", "")
	if err := Parse(texts, []string{"-log", "--", "echo"}, nil); err == nil || err.Error() != "flag needs an argument: -log" {
		t.Errorf("-log --: %v", err)
	}
	if err := Parse(set, []string{"-h"}, nil); err != flag.ErrHelp {
		t.Errorf("-h: %v", err)
	}
	if err := Parse(set, []string{"-jobs", "3"}, nil); err != nil {
		t.Error(err)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"jobs", "jobs", 0}, {"ab", "ba", 2}} {
		if got := distance(tt.a, tt.b); got != tt.want || distance(tt.b, tt.a) != got {
			t.Errorf("%s, %s: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
