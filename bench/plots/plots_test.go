package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// sample is the output of all benchmarks that are drawn, with invented numbers.
func sample() string {
	var b strings.Builder
	line := func(name string, ns float64) {
		for _, cpus := range []string{"", "-2"} {
			fmt.Fprintf(&b, "Benchmark%s%s\t100\t%v ns/op\t0 B/op\t0 allocs/op\n", name, cpus, ns)
		}
	}
	for i, library := range []string{"floor", "sluice", "xtime"} {
		ns := float64(10 * (i + 1))
		for _, work := range []string{"PacerTry/granted", "LeakyTake/refused", "SemaphorePair", "KeyedTake"} {
			line(work+"/"+library, ns)
		}
		for _, n := range []string{"1", "10", "1000"} {
			line("KeyedGrow/"+n+"/"+library, ns)
			for _, work := range []string{"SemaphoreGrow", "SemaphoreGrowCancel", "GatesGrow", "ProcessesGrow", "SetRateGrow", "PauseUntilGrow", "SettleGrow"} {
				line(work+"/"+n+"/"+library, ns)
			}
		}
	}
	return b.String()
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	speed, precision := filepath.Join(dir, "speed.txt"), filepath.Join(dir, "precision.json")
	if err := os.WriteFile(speed, []byte(sample()), 0o644); err != nil {
		t.Fatal(err)
	}
	var p results.Precision
	for _, library := range []string{"sluice", "xtime", "ticker"} {
		for _, rate := range []float64{100, 1000, 20_000} {
			for _, callers := range []int{1, 64} {
				c := results.Cell{Library: library, Callers: callers, Asked: rate, Delivered: rate * 0.9}
				for percent := range 101 {
					c.Gaps = append(c.Gaps, 1e6/rate*float64(percent)/50)
				}
				p.Runs = append(p.Runs, c)
			}
		}
	}
	if err := p.Write(precision); err != nil {
		t.Fatal(err)
	}
	league := filepath.Join(dir, "league.json")
	runs := `[{"world":"slow","strategy":"naive","seed":1,"score":3},
{"world":"slow","strategy":"naive","seed":2,"score":4.2},
{"world":"slow","strategy":"sluice-told","seed":1,"score":98.6}]`
	if err := os.WriteFile(league, []byte(runs), 0o644); err != nil {
		t.Fatal(err)
	}
	zoo := filepath.Join(dir, "zoo.json")
	games := `[{"server":"a-server-with-a-very-long-name","group":"go","client":"xtime","seed":1,"score":90},
{"server":"a-server-with-a-very-long-name","group":"go","client":"xtime","seed":2,"score":92},
{"server":"another","group":"words","client":"sluice","seed":1,"score":42}]`
	if err := os.WriteFile(zoo, []byte(games), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(speed, precision, league, zoo, dir, false); err != nil {
		t.Fatal(err)
	}
	for file, names := range map[string][]string{
		"delivered": {"sluice", "x/time/rate", "100k"},
		"spacing":   {"sluice", "time.Ticker", "1 ms", "processor time", "x/time/rate, burst 1"},
		"cost":      {"sluice", "floor", "a million keys"},
		"keys":      {"sluice", "1M"},
		"waiters":   {"sluice", "10k"},
		"contexts":  {"sluice", "10k"},
		"processes": {"sluice", "10k"},
		"gates":     {"sluice", "10k"},
		"changes":   {"sluice", "10k", "SetRate", "PauseUntil", "Settle"},
		"league":    {"sluice-told", "naive", "slow", ">4<", ">99<"},
		"zoo":       {"a-server-with-a-very-long-name", "xtime", ">91<"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(names, "<title>", "<desc>", "prefers-color-scheme:dark") {
			if !strings.Contains(string(text), name) {
				t.Errorf("%s.svg does not say %q", file, name)
			}
		}
		if strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") {
			t.Errorf("%s.svg has points that are nowhere", file)
		}
		if file == "zoo" && strings.Contains(string(text), "another") {
			t.Error("zoo.svg has a server of another group")
		}
	}
}

// All libraries that are measured can be drawn.
func TestRunPublished(t *testing.T) {
	const results = "../results/"
	if err := run(results+"speed.txt", results+"precision.json", results+"league.json", results+"zoo-300.json", t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
}

func TestRunNothing(t *testing.T) {
	dir := t.TempDir()
	speed := filepath.Join(dir, "speed.txt")
	if err := os.WriteFile(speed, []byte("PASS\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(speed, "", "", "", dir, false); err == nil {
		t.Error("nothing was drawn, and that was no error")
	}
}

// TestLooks: no mark is used twice, so no chart needs colors to tell libraries apart.
func TestLooks(t *testing.T) {
	of := make(map[draw.GlyphDrawer]string)
	for library, l := range looks {
		if library == burstOne {
			continue
		}
		if other := of[l.mark]; other != "" {
			t.Errorf("%s and %s have the same mark", library, other)
		}
		of[l.mark] = library
	}
}
