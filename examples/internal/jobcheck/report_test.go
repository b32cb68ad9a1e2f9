package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

const good = `{
	"gate":  {"calls": 3, "attempts": 4, "throttled": 0, "lost": 0, "rate_allowed": 100, "rate_delivered": 99, "wall_s": 10},
	"naive": {"calls": 3, "attempts": 9, "throttled": 6, "lost": 1, "rate_allowed": 100, "rate_delivered": 80, "wall_s": 20}
}`

func TestPromises(t *testing.T) {
	w := wanted{n: 3, within: 30 * time.Second, forgiven: 40 * time.Millisecond}
	const ms = time.Millisecond
	for _, tt := range []struct {
		old, new string // what is different from good
		stalls   []time.Duration
		broken   string // in the only complaint; "" if there must be none
		spoiled  string // the same
	}{
		{"", "", nil, "", ""},
		{`"calls": 3, "attempts": 4`, `"calls": 2, "attempts": 4`, nil, "2 calls", ""},
		{`"lost": 0`, `"lost": 1`, nil, "1 items lost", ""},
		{`"throttled": 0`, `"throttled": 1`, nil, "1 calls throttled", ""},
		{`"rate_delivered": 99`, `"rate_delivered": 98.99`, nil, "98.99/s delivered", ""},
		{`"wall_s": 20`, `"wall_s": 20.1`, nil, "took 30.1 s", ""},
		// An absent figure is not a 0.
		{`"lost": 0, `, ``, nil, "gate.lost is absent", ""},
		{`"throttled": 0, `, ``, nil, "gate.throttled is absent", ""},
		{`, "wall_s": 20`, ``, nil, "naive.wall_s is absent", ""},
		// 0 of 0 is not 99 %.
		{`"rate_allowed": 100, "rate_delivered": 99`, `"rate_allowed": 0, "rate_delivered": 0`, nil, "want more than 0", ""},
		// For as long as the machine stands still the program may be behind: for a
		// second of ten, by 10 %.
		{`"rate_delivered": 99`, `"rate_delivered": 89.11`, []time.Duration{400 * ms, 600 * ms}, "", ""},
		{`"rate_delivered": 99`, `"rate_delivered": 89.09`, []time.Duration{400 * ms, 600 * ms}, "89.09/s delivered", ""},
		{`"wall_s": 20`, `"wall_s": 20.9`, []time.Duration{400 * ms, 600 * ms}, "", ""},
		{`"wall_s": 20`, `"wall_s": 21.1`, []time.Duration{400 * ms, 600 * ms}, "took 30.1 s", ""},
		// It explains a 429 only if it stood still for longer than is forgiven,
		// and then all that this cost.
		{`"throttled": 0`, `"throttled": 1`, []time.Duration{40 * ms, 40 * ms}, "1 calls throttled", ""},
		{`"throttled": 0`, `"throttled": 1`, []time.Duration{41 * ms}, "", "1 calls throttled"},
		{`"throttled": 0, "lost": 0, "rate_allowed": 100, "rate_delivered": 99`,
			`"throttled": 0, "lost": 0, "rate_allowed": 100, "rate_delivered": 50`, []time.Duration{41 * ms}, "50.00/s delivered", ""},
		{`"lost": 0`, `"lost": 1`, []time.Duration{time.Second}, "1 items lost", ""},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if tt.old != "" && text == good {
			t.Fatalf("good has no %s", tt.old)
		}
		var r report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		var stalls []stall.Stall
		for _, d := range tt.stalls {
			stalls = append(stalls, stall.Stall{Lasted: d})
		}
		var v verdict
		w.promises(&v, r, stalls)
		check(t, tt.new, v.broken, tt.broken)
		check(t, tt.new, v.spoiled, tt.spoiled)
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

// A stall counts only while the gate runs, which is first.
func TestJudgeWhen(t *testing.T) {
	w := wanted{items: threeItems(t), n: 3, within: 30 * time.Second, forgiven: 40 * time.Millisecond}
	began := time.Now()
	throttled := strings.Replace(good, `"throttled": 0`, `"throttled": 1`, 1)
	for after, want := range map[time.Duration]string{9 * time.Second: "", 11 * time.Second: "1 calls throttled"} {
		v := w.judge(strings.NewReader(throttled), began, []stall.Stall{{Began: began.Add(after), Lasted: time.Second}})
		check(t, after.String(), v.broken, want)
	}
}

func TestRun(t *testing.T) {
	printed := filepath.Join(t.TempDir(), "good.json")
	if err := os.WriteFile(printed, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	items := threeItems(t)
	for _, tt := range []struct {
		items   string
		n       int
		command []string
		want    int
		says    string
	}{
		{items, 3, []string{"cat", printed}, 0, "the machine stood still"},
		{items, 2, []string{"cat", printed}, exitBroken, "3 calls, want 2"},
		{items + "?", 3, []string{"cat", printed}, exitBroken, "no such file"},
		{items, 3, []string{"cat", os.DevNull}, exitBroken, "the JSON: EOF"},
		{items, 3, []string{"cat", printed, printed + "?"}, exitBroken, "exit status 1"},
		{items, 3, []string{"tail", "-c", "+0", "-f", printed}, exitBroken, "killed"},
		{items, 3, nil, exitBroken, "no program"},
	} {
		var stdout, stderr strings.Builder
		ends := time.Minute
		if strings.Contains(tt.says, "killed") {
			ends = 100 * time.Millisecond
		}
		w := wanted{items: tt.items, n: tt.n, within: 30 * time.Second}
		if got := run(w, ends, tt.command, &stdout, &stderr); got != tt.want || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%v: status %d, want %d; says %q, want %q", tt.command, got, tt.want, &stderr, tt.says)
		}
	}
}

func threeItems(t *testing.T) (file string) {
	file = filepath.Join(t.TempDir(), "items.jsonl")
	if err := os.WriteFile(file, []byte("{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
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
