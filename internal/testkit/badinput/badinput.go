// Package badinput reads the table of how each package handles bad input, and
// checks its cells.
package badinput

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Table has the documented outcomes, by row and column.
type Table map[string]map[string]string

// Parse returns the first table of a Markdown page.
func Parse(page string) Table {
	table := make(Table)
	var columns []string
	for line := range strings.Lines(page) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !ok && columns != nil: // one table
			return table
		case !ok, strings.HasPrefix(cells[0], "--"):
		case columns == nil:
			columns = cells[1:]
		default:
			table[cells[0]] = make(map[string]string)
			for i, cell := range cells[1:] {
				table[cells[0]][columns[i]] = cell
			}
		}
	}
	return table
}

// Tries are the ways to make each mistake, by row and column.
type Tries map[string]map[string][]func() error

// Check tries each cell of the table.
func (table Table) Check(t testing.TB, tries Tries) {
	t.Helper()
	for row, cells := range table {
		for column, want := range cells {
			if len(tries[row][column]) == 0 && want != "-" {
				t.Errorf("%s, %s: nothing is tried", row, column)
			}
			for i, f := range tries[row][column] {
				if got := Outcome(f); got != want {
					t.Errorf("%s, %s, try %d: %s, documented is %s", row, column, i, got, want)
				}
			}
		}
	}
	for row := range tries {
		if table[row] == nil {
			t.Errorf("%s: tried, and not documented", row)
		}
	}
}

var prefix = regexp.MustCompile(`^(sluice|semaphore|pacer|leaky|window|limits): `)

// Outcome returns the outcome of f, in the words of the table.
func Outcome(f func() error) (word string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			word = "panic"
		case string:
			if word = "panic"; !prefix.MatchString(p) {
				word = fmt.Sprintf("a panic that does not name its package: %q", p)
			}
		default:
			word = fmt.Sprintf("a panic: %v", p)
		}
	}()
	var wait *limits.WaitError
	switch err := f(); {
	case err == nil:
		return "granted"
	case err == context.Canceled: // not wrapped
		return "ctx.Err()"
	case errors.Is(err, limits.ErrTooLarge):
		return "ErrTooLarge"
	case errors.Is(err, limits.ErrTooManyKeys):
		return "ErrTooManyKeys"
	case errors.As(err, &wait) && wait.Need > 200*365*24*time.Hour: // however much time has passed since
		return "never"
	case errors.Is(err, errOutcome):
		return strings.TrimPrefix(err.Error(), errOutcome.Error())
	case prefix.MatchString(err.Error()):
		return "error"
	default:
		return err.Error()
	}
}

// errOutcome is the beginning of outcomes that have their own words.
var errOutcome = errors.New("")

// If returns an error whose Outcome is word if ok is true, and "not" word otherwise.
func If(ok bool, word string) error {
	if !ok {
		word = "not " + word
	}
	return fmt.Errorf("%w%s", errOutcome, word)
}
