package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A sample of the command: five simulated minutes of all that runs in a bubble.
func TestSoak_Simulated(t *testing.T) {
	s := &soak{seed: 3, lasts: 5 * time.Minute, bubble: true, dir: t.TempDir()}
	before := measure()
	synctest.Test(t, func(*testing.T) { s.run(parts) })
	var out bytes.Buffer
	if !s.print(&out, before, settle(before)) {
		t.Errorf("\n%s", &out)
	}
	for _, r := range s.rows {
		if !r.part.real && r.calls.Load() < 100 {
			t.Errorf("%s made %d calls", r.part.name, r.calls.Load())
		}
	}
}

// The same seed makes the same calls.
func TestSoak_Repeats(t *testing.T) {
	run := func() string {
		s := &soak{seed: 4, lasts: time.Minute, bubble: true}
		chosen, err := choose("rate")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(*testing.T) { s.run(chosen) })
		var out bytes.Buffer
		s.print(&out, use{}, use{})
		table, _, _ := strings.Cut(out.String(), "\n\n")
		return table
	}
	if first, again := run(), run(); first != again {
		t.Errorf("%s\nand then\n%s", first, again)
	}
}

// What checks must be able to fail.
func TestSoak_SaysWhatIsBroken(t *testing.T) {
	s := &soak{began: time.Now()}
	row := &tally{part: parts[0], soak: s}
	row.ended(nil)
	row.ended(context.Canceled)
	row.ended(errors.New("other"))
	s.rows = append(s.rows, row)
	var out bytes.Buffer
	if !s.print(&out, use{}, use{}) || !strings.Contains(out.String(), "| gates | 3 | 1 | 1 | 1 |") {
		t.Errorf("\n%s", &out)
	}
	if s.print(&out, use{}, use{goroutines: 1}) || s.print(&out, use{}, use{files: 3}) || s.print(&out, use{}, use{heap: spare + 1}) {
		t.Error("something is left over, and all is well")
	}
	row.breaks("%d in flight", 7)
	row.breaks("%d in flight", 7)
	out.Reset()
	if s.print(&out, use{}, use{}) || !strings.Contains(out.String(), "BROKEN: gates: 7 in flight (2 times)") {
		t.Errorf("\n%s", &out)
	}
}

func TestChoose(t *testing.T) {
	if some, err := choose("batch,gates"); err != nil || len(some) != 2 || some[0].name != "batch" {
		t.Error(some, err)
	}
	if _, err := choose("gates,none"); err == nil {
		t.Error("no error")
	}
}
