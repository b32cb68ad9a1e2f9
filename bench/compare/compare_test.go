package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// Three runs. In the second the whole machine is three times as slow, which
// must not show in the ratios; one of the goals is missed.
const sample = `machine: a test
goos: linux
run: 1 of x
BenchmarkPacerTry/granted/floor      	 100	        10.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/sluice     	 100	        13.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/xtime      	 100	        20.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkSemaphoreMixed/harness-2    	 100	        10 ns/op	 0.5 mallocs/op	       0 B/op	       0 allocs/op
BenchmarkSemaphoreMixed/sluice-2     	 100	        30 ns/op	 2.7 mallocs/op	       0 B/op	       2 allocs/op
run: 2 of x
BenchmarkPacerTry/granted/floor      	 100	        30.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/sluice     	 100	        39.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/xtime      	 100	        60.00 ns/op	       0 B/op	       0 allocs/op
run: 3 of x
BenchmarkPacerTry/granted/floor      	 100	        10.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/sluice     	 100	        12.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkPacerTry/granted/xtime      	 100	        20.00 ns/op	       0 B/op	       0 allocs/op
`

func TestJudge(t *testing.T) {
	speed, err := results.ReadSpeed(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PacerTry/granted 1: ≤ 1.35 × floor: 1.30 × (1.25–1.30) true",
		"PacerTry/granted 1: ≤ 0.5 × xtime: 0.65 × (0.62–0.65) false",
		"PacerTry/granted 1: ≤ 0 allocations: 0.00 true",
		"SemaphoreMixed 2: ≤ 1 allocations: 2.20 false",
	}
	var got []string
	judge(speed, func(k results.Key, v verdict) {
		answer := " false"
		if v.reached {
			answer = " true"
		}
		got = append(got, k.Name()+" "+string(rune('0'+k.CPUs))+": "+v.wanted+": "+v.got+answer)
	})
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
	if text := report(speed); !strings.Contains(text, "2 of 4 reached") {
		t.Errorf("the report does not say what was reached:\n%s", text)
	}
}

func TestReadFailed(t *testing.T) {
	for _, failed := range []string{
		"--- FAIL: BenchmarkPacerTry\n",
		"BenchmarkPacerTry/granted/xtime-2     \t--- FAIL: BenchmarkPacerTry/granted/xtime-2\n",
	} {
		if _, err := results.ReadSpeed(strings.NewReader(sample + failed)); err == nil {
			t.Errorf("output with a failed benchmark was taken for good: %q", failed)
		}
	}
}

func TestInto(t *testing.T) {
	dir := t.TempDir()
	raw, readme := filepath.Join(dir, "raw.txt"), filepath.Join(dir, "README.md")
	write(t, raw, sample)
	write(t, readme, "before\n<!-- begin speed -->\nold\n<!-- end speed -->\nafter\n")
	for range 2 { // the second time it must not grow
		if err := run(options{read: raw, into: readme}, new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if strings.Contains(got, "old") || strings.Count(got, "2 of 4 reached") != 1 ||
		!strings.HasPrefix(got, "before\n") || !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("got\n%s", got)
	}
	write(t, raw, "goos: linux\n")
	if err := run(options{read: raw, into: readme}, new(strings.Builder)); err == nil {
		t.Error("nothing that was measured was no error")
	}
	if kept, err := os.ReadFile(readme); err != nil || string(kept) != got {
		t.Errorf("%v, it replaced what was there:\n%s", err, kept)
	}
	write(t, readme, "no marks\n")
	if err := run(options{read: raw, into: readme}, new(strings.Builder)); err == nil {
		t.Error("a file without marks was no error")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
