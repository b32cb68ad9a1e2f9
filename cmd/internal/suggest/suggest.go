// Package suggest names the flag that was meant by one that does not exist.
package suggest

import (
	"errors"
	"flag"
	"fmt"
	"strings"
)

// Parse is set.Parse with an error that names the flag that was meant. Others has the
// names that flags have in other programs, without the hyphen: the flag j is jobs here.
func Parse(set *flag.FlagSet, args []string, others map[string]string) error {
	err := set.Parse(args)
	if err == nil {
		return forgotten(set)
	}
	if text, ok := strings.CutSuffix(err.Error(), ": parse error"); ok && !strings.Contains(text, "boolean") {
		return errors.New(text + ": want a number")
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	if meant := flagFor(set, name, others); meant != "" {
		return fmt.Errorf("no flag -%s: did you mean -%s?", name, meant)
	}
	return errors.New("no flag -" + name)
}

// forgotten returns an error if the value of a flag is --, which ends the flags: then the value
// was forgotten.
func forgotten(set *flag.FlagSet) (err error) {
	set.Visit(func(f *flag.Flag) {
		if f.Value.String() == "--" {
			err = fmt.Errorf("flag needs an argument: -%s", f.Name)
		}
	})
	return err
}

// flagFor returns the flag that name stands for, or "".
func flagFor(set *flag.FlagSet, name string, others map[string]string) string {
	if meant, ok := others[name]; ok {
		return meant
	}
	if name != "" { // such as j8
		if meant, ok := others[name[:1]]; ok && strings.Trim(name[1:], "0123456789") == "" {
			return meant + " " + name[1:]
		}
	}
	var names []string
	set.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return Closest(name, names)
}

// Closest returns the one of some names that was meant by another one, or "".
func Closest(name string, names []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, n := range names {
		d := distance(name, n)
		if strings.HasPrefix(n, name) {
			d = 0
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is how many bytes must be added, removed or replaced to make b of a
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // the cell above and to the left
		row[0] = i + 1
		for j := range len(b) {
			replace := before
			if a[i] != b[j] {
				replace++
			}
			before = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
