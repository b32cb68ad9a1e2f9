package badinput

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/limits"
)

func TestOutcome(t *testing.T) {
	for want, f := range map[string]func() error{
		"granted":     func() error { return nil },
		"panic":       func() error { panic("pacer: x") },
		"error":       func() error { return errors.New("pacer: x") },
		"ctx.Err()":   func() error { return context.Canceled },
		"ErrTooLarge": func() error { return fmt.Errorf("x: %w", limits.ErrTooLarge) },
		"never":       func() error { return &limits.WaitError{Need: limits.Never} },
		"refuses":     func() error { return If(true, "refuses") },
		"not refuses": func() error { return If(false, "refuses") },
		"x":           func() error { return errors.New("x") },
		"a panic: oh": func() error { panic(errors.New("oh")) },
		`a panic that does not name its package: "oh"`: func() error { panic("oh") },
	} {
		if got := Outcome(f); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestParse(t *testing.T) {
	table := Parse("# Bad input\n\nWords.\n\n| mistake | a   | b c |\n| --- | --- | --- |\n| n < 0   | yes | no  |\n\n| x | y |\n")
	if len(table) != 1 || len(table["n < 0"]) != 2 || table["n < 0"]["b c"] != "no" {
		t.Errorf("%v", table)
	}
}

// errorsOf records what a check complains of.
type errorsOf struct {
	testing.TB
	said []string
}

func (e *errorsOf) Helper() {}

func (e *errorsOf) Errorf(format string, args ...any) {
	e.said = append(e.said, fmt.Sprintf(format, args...))
}

func TestTable_Check(t *testing.T) {
	granted := []func() error{func() error { return nil }}
	table := Table{"n = 0": {"a": "granted", "b": "-", "c": "panic"}, "n < 0": {"a": "granted"}}
	var e errorsOf
	table.Check(&e, Tries{"n = 0": {"a": granted, "c": granted}, "n > 9": {"a": granted}})
	slices.Sort(e.said)
	if want := []string{
		"n < 0, a: nothing is tried",
		"n = 0, c, try 0: granted, documented is panic",
		"n > 9: tried, and not documented",
	}; !slices.Equal(e.said, want) {
		t.Errorf("%q, want %q", e.said, want)
	}
}
