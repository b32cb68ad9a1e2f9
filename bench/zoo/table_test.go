package main

import (
	"path/filepath"
	"strings"
	"testing"
)

var sample = []result{
	{Server: "xtime-20", Group: goGroup, Client: "sluice", Seed: 1, Score: 90, Goodput: .95, Refused: .05, Later: .04, Items: 100, Done: 100, Sent: 106},
	{Server: "xtime-20", Group: goGroup, Client: "sluice", Seed: 2, Score: 94, Goodput: .97, Refused: .03, Later: .02, Items: 100, Done: 98, Lost: 2, Sent: 104},
	{Server: "xtime-20", Group: goGroup, Client: "told", Seed: 1, Score: 99, Goodput: .99, Items: 100, Done: 100, Sent: 100},
	{Server: "echo-20", Group: goGroup, Client: "sluice", Seed: 1, Score: 20, Goodput: .2, Items: 100, Done: 100, Sent: 100, Late: 200}, // the machine stood still
	{Server: "echo-20", Group: goGroup, Client: "sluice", Seed: 2, Score: 80, Goodput: .8, Items: 100, Done: 100, Sent: 100, Late: 5},
	{Server: "echo-20", Group: goGroup, Client: "told", Seed: 1, Score: 30, Goodput: .3, Items: 100, Done: 100, Sent: 100, Late: 61},
	{Server: "down", Group: guards, Client: "sluice", Seed: 1, Refused: 1, Items: 200, Sent: 220, Lost: 200},
	{Server: "xtime-200", Group: goGroup, Client: "sluice+xtime", Score: 88, Goodput: .9, Items: 100, Done: 100, Sent: 100, Shares: []share{{"sluice", 4.25}, {"xtime", 190}}},
}

func TestTable_Rows(t *testing.T) {
	var b strings.Builder
	tab := newTable(sample)
	tab.rows(&b)
	tab.means(&b)
	tab.notes(&b)
	want := `| server | client | goodput % | refused % | later % | lost % | sent ÷ items | score |
|---|---|--:|--:|--:|--:|--:|--:|
| xtime-20 | sluice | 96.0 | 4.0 | 3.0 | 1.0 | 1.05 | 92.0 |
| xtime-20 | told | 99.0 | 0.0 | 0.0 | 0.0 | 1.00 | 99.0 |
| echo-20 | sluice | 80.0 | 0.0 | 0.0 | 0.0 | 1.00 | 80.0 |
| echo-20 | told | 30.0 | 0.0 | 0.0 | 0.0 | 1.00 | *30.0 |
| down | sluice | 0.0 | 100.0 | 0.0 | 100.0 | 1.10 | – |
| xtime-200 | sluice+xtime | 90.0 | 0.0 | 0.0 | 0.0 | 1.00 | 88.0 |

| group | client | servers | mean score | worst | at |
|---|---|--:|--:|--:|---|
| go | sluice | 2 | 86.0 | 80.0 | echo-20 |
| go | told | 1 | 99.0 | 99.0 | xtime-20 |
| go | sluice+xtime | 1 | 88.0 | 88.0 | xtime-200 |

- echo-20, sluice: the machine was up to 200 ms late in runs that do not count
- echo-20, told: the machine was up to 61 ms late in all runs: *, not in the means
- xtime-200: sluice 4.25/s, xtime 190/s
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTable_Matrix(t *testing.T) {
	var b strings.Builder
	newTable(sample[:7]).matrix(&b)
	want := `
### go

| server | sluice | told |
|---|--:|--:|
| xtime-20 | 92 (96/4/1) | 99 (99/0) |
| echo-20 | 80 (80/0) | *30 (30/0) |

### guards

| server | sluice | told |
|---|--:|--:|
| down | – (0/100/100, 1.1 sent) | |
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestReadFiles_HasWhatWasWritten(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for name, some := range map[string][]result{a: sample[:3], b: sample[3:]} {
		if err := writeFile(name, some); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readFiles([]string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	var before, after strings.Builder
	newTable(sample).rows(&before)
	newTable(got).rows(&after)
	if before.String() != after.String() {
		t.Errorf("got\n%s\nwant\n%s", after.String(), before.String())
	}
	if _, err := readFiles([]string{a, filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("no error for a file that does not exist")
	}
}
