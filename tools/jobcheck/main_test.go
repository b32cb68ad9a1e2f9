package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const good = `{
	"gate":  {"calls": 3, "attempts": 4, "throttled": 0, "lost": 0, "rate_allowed": 100, "rate_delivered": 99, "wall_s": 10},
	"naive": {"calls": 3, "attempts": 9, "throttled": 6, "lost": 1, "rate_allowed": 100, "rate_delivered": 80, "wall_s": 20}
}`

func TestComplaints(t *testing.T) {
	for _, tt := range []struct {
		old, new string // what is different from good
		want     string // in the only complaint; "" if there must be none
	}{
		{"", "", ""},
		{`"calls": 3, "attempts": 4`, `"calls": 2, "attempts": 4`, "2 calls"},
		{`"lost": 0`, `"lost": 1`, "1 items lost"},
		{`"throttled": 0`, `"throttled": 1`, "1 calls throttled"},
		{`"rate_delivered": 99`, `"rate_delivered": 98.99`, "98.99/s delivered"},
		{`"wall_s": 20`, `"wall_s": 20.1`, "took 30.1 s"},
		// An absent figure is not a 0.
		{`"lost": 0, `, ``, "gate.lost is absent"},
		{`"throttled": 0, `, ``, "gate.throttled is absent"},
		{`, "wall_s": 20`, ``, "naive.wall_s is absent"},
		// 0 of 0 is not 99 %.
		{`"rate_allowed": 100, "rate_delivered": 99`, `"rate_allowed": 0, "rate_delivered": 0`, "want more than 0"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if tt.old != "" && text == good {
			t.Fatalf("good has no %s", tt.old)
		}
		var r report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		check(t, tt.new, r.complaints(3, 30*time.Second), tt.want)
	}
}

func TestMissing(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"{\"id\":1}\n{\"id\":0,\"body\":{}}\n", ""}, // the order does not matter
		{"{\"id\":1}\n", "1 lines, want 2"},
		{"{\"id\":1}\n{\"id\":1}\n", "item 1 a second time"},
		{"{\"id\":1}\n{\"id\":2}\n", "item 2 of 2"},
		{"{\"id\":1}\n{\"name\":0}\n", "has no id"},
		{"{\"id\":1}\n{\"id\":0\n", "line 2: unexpected end"},
	} {
		check(t, tt.lines, missing(strings.NewReader(tt.lines), 2), tt.want)
	}
}

func TestJudge(t *testing.T) {
	items := filepath.Join(t.TempDir(), "items.jsonl")
	if err := os.WriteFile(items, []byte("{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := judge(strings.NewReader(good), items, 3, 30*time.Second)
	if len(got) > 0 || err != nil {
		t.Errorf("a good run: %q, %v", got, err)
	}
	if _, err := judge(strings.NewReader(""), items, 3, 30*time.Second); err == nil {
		t.Error("no JSON: no error")
	}
	if _, err := judge(strings.NewReader(good), items+"?", 3, 30*time.Second); err == nil {
		t.Error("no items: no error")
	}
}

// check wants one complaint that contains a text, or none if the text is "".
func check(t *testing.T, name string, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("%s: complaints %q, want none", name, got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("%s: complaints %q, want one with %q", name, got, want)
	}
}
