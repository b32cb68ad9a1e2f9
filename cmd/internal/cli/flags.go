package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-go/sluice/cmd/internal/suggest"
)

// Flags are the flags of a command, in groups. The usage of a flag has in its first line a
// phrase without a full stop; the lines after it are sentences that say more. Backquotes
// are around the name of the value, as in package flag; `file` and `directory` are completed.
type Flags struct {
	set    *flag.FlagSet
	groups []group
}

// A group of flags, in the order in which they are to be shown.
type group struct {
	title string
	names []string
}

// NewFlags returns flags without any. Those that are added are in the group of the last call of
// Group, which has to come first.
func NewFlags() *Flags {
	f := &Flags{set: flag.NewFlagSet("", flag.ContinueOnError)}
	f.set.SetOutput(io.Discard) // Execute prints what went wrong, once
	f.set.Usage = func() {}
	return f
}

// Group begins a group.
func (f *Flags) Group(title string) { f.groups = append(f.groups, group{title: title}) }

// Var adds a flag with any flag.Value; the other methods add the flags of package flag.
func (f *Flags) Var(value flag.Value, name, text string) {
	f.set.Var(value, name, text)
	f.added(name)
}

func (f *Flags) Bool(to *bool, name string, value bool, text string) {
	f.set.BoolVar(to, name, value, text)
	f.added(name)
}

func (f *Flags) String(to *string, name, value, text string) {
	f.set.StringVar(to, name, value, text)
	f.added(name)
}

func (f *Flags) Int(to *int, name string, value int, text string) {
	f.set.IntVar(to, name, value, text)
	f.added(name)
}

func (f *Flags) Int64(to *int64, name string, value int64, text string) {
	f.set.Int64Var(to, name, value, text)
	f.added(name)
}

func (f *Flags) Float64(to *float64, name string, value float64, text string) {
	f.set.Float64Var(to, name, value, text)
	f.added(name)
}

func (f *Flags) Func(name, text string, set func(string) error) {
	f.set.Func(name, text, set)
	f.added(name)
}

// added notes that a flag belongs to the group.
func (f *Flags) added(name string) {
	g := &f.groups[len(f.groups)-1]
	g.names = append(g.names, name)
}

// Parse parses the arguments of a command. Its errors match ErrUsage, or are for Execute, which
// prints the help. Others has the names that flags have in other programs, see suggest.Parse.
func (f *Flags) Parse(args []string, others map[string]string) error {
	err := suggest.Parse(f.set, args, others)
	switch {
	case errors.Is(err, flag.ErrHelp):
		if at := len(args) - f.set.NArg() - 1; at >= 0 && strings.TrimLeft(args[at], "-") == "h" {
			return errShortHelp
		}
		return flag.ErrHelp
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return nil
}

// Args returns the arguments behind the flags.
func (f *Flags) Args() []string { return f.set.Args() }

// Given returns the names of the flags that were given.
func (f *Flags) Given() map[string]bool {
	given := make(map[string]bool)
	f.set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	return given
}

// A described flag is ready for the help, the manual and completion.
type described struct {
	name     string // without a hyphen
	value    string // the name of its value, "" for none
	short    string // what it is
	more     string // sentences, "" for none
	standard string // its value if it is not given, "" for none
	choices  []string
}

// describe returns a described flag.
func (f *Flags) describe(name string) described {
	fl := f.set.Lookup(name)
	value, text := flag.UnquoteUsage(fl)
	short, more, _ := strings.Cut(text, "\n")
	d := described{name: name, value: value, short: short, more: strings.ReplaceAll(more, "\n", " ")}
	if is, ok := fl.Value.(interface{ IsBoolFlag() bool }); ok && is.IsBoolFlag() {
		d.value = ""
	}
	switch fl.DefValue {
	case "", "0", "0s", "false":
	default:
		d.standard = fl.DefValue
	}
	if c, ok := fl.Value.(choice); ok {
		d.choices = c.words
	}
	return d
}

// each calls do with each flag, in order.
func (f *Flags) each(do func(described)) {
	for _, g := range f.groups {
		for _, name := range g.names {
			do(f.describe(name))
		}
	}
}

// sentence makes a sentence of a phrase.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
