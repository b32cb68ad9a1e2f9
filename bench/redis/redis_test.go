package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each library does each work, once, for a moment; how quickly is not judged
// here. What is kept is read again as it was.
func TestEachDoesEach(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SLUICE_REDIS") == "required" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED: no redis-server in PATH")
	}
	file := filepath.Join(t.TempDir(), "redis.json")
	var out, again strings.Builder
	if err := tell(t.Context(), options{rounds: 1, each: 10 * time.Millisecond, out: file}, &out); err != nil {
		t.Fatal(err)
	}
	if err := tell(t.Context(), options{read: file}, &again); err != nil || again.String() != out.String() {
		t.Errorf("%v, read again:\n%s\nnot\n%s", err, &again, &out)
	}
	for _, l := range libraries {
		if !strings.Contains(out.String(), "| "+l.name+" |") {
			t.Errorf("no %s in\n%s", l.name, &out)
		}
	}
	r, err := get(t.Context(), options{read: file})
	if err != nil || len(r.Cells) != len(libraries)*len(works) {
		t.Fatalf("%v, %d cells", err, len(r.Cells))
	}
	for _, c := range r.Cells {
		if c.Failed > 0 && !strings.HasPrefix(c.Library, "throttled") {
			t.Errorf("%d failed: %+v", c.Failed, c)
		}
	}
}

// What was published stays there if nothing was measured.
func TestNothing(t *testing.T) {
	dir := t.TempDir()
	readme, file := filepath.Join(dir, "README.md"), filepath.Join(dir, "redis.json")
	const old = "<!-- begin redis -->\nold\n<!-- end redis -->\n"
	for name, text := range map[string]string{readme: old, file: "{}"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell(t.Context(), options{read: file, into: readme}, new(strings.Builder)); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(readme); err != nil || string(got) != old {
		t.Errorf("%v, %s", err, got)
	}
}

func TestJudge(t *testing.T) {
	r := &run{Memory: []size{{"sluice/rueidis", 1, 88, 34}, {"redis_rate/go-redis", 1, 80, 17}}}
	add := func(round int, library string, perSecond, p50 float64) {
		r.Cells = append(r.Cells, cell{Round: round, Work: "hot/1", Library: library, P50: p50},
			cell{Round: round, Work: "hot/512", Library: library, PerSecond: perSecond})
	}
	for round, slow := range []float64{1, 3, 1} { // in the second the whole machine is slow
		add(round, "sluice/rueidis", 9000/slow, 105*slow)
		add(round, "script/rueidis", 1, 100*slow)
		add(round, "redis_rate/go-redis", 1000/slow, 1)
		add(round, "ping/rueidis", 10000/slow, 1)
	}
	for i, want := range map[int]float64{5: 9, 6: 0.9, 8: 1.05} {
		if _, got, _, ok := goals[i].judge(r); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, %v", goals[i], got, ok)
		}
	}
	if _, _, _, ok := goals[0].judge(r); ok {
		t.Error("go-redis was not measured")
	}
	text := report(r)
	for _, want := range []string{
		"| hot/512 | sluice/rueidis | ≥ 8 × redis_rate/go-redis | 9.00 × (9.00–9.00), yes |",
		"| hot/512 | sluice/rueidis | ≥ 1 × ping/rueidis | **0.90 × (0.90–0.90), no** |",
		"| hot/1 | sluice/rueidis | latency ≤ 1.1 × script/rueidis | 1.05 × (1.05–1.05), yes |",
		"| memory | sluice/rueidis | ≤ redis_rate | **88 of 80 B, no** |",
		"| memory | sluice/rueidis | ≤ 60 B beyond the key's text | 54 B, yes |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
