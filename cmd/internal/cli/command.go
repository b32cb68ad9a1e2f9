package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/internal/suggest"
)

// Program is the name of the program.
const Program = "sluice"

// A Command is one of the program, such as sluice batch. Its help, its manual page and its
// completion are made from it.
type Command struct {
	Name     string   // as typed
	Short    string   // what it does, to follow its name: "runs a command for each line"
	Usage    []string // what may follow its name, one way each
	Examples []Example
	Flags    func() *Flags // new ones, with their defaults; nil for none
	Sections []Section     // of the long help
	Exits    []Exit        // the statuses that it ends with, in order; 0 included
	Operands Operands

	// Run runs it and returns the exit status. args is os.Args: the program, the command, and
	// its arguments. An error is why it could not begin.
	Run func(args []string, stdin, stdout, stderr *os.File) (status int, err error)
}

// An Example is a command line, with its purpose.
type Example struct{ What, Line string }

// A Section is a part of the help. Text has paragraphs, with an empty line between them; lines that
// begin with a tab are to be printed as they are. Terms follow it.
type Section struct {
	Title string
	Text  string
	Terms []Term
}

// A Term and its explanation.
type Term struct{ Name, Text string }

// Operands are the arguments behind the flags of a command, to be completed.
type Operands struct {
	Program bool     // the name of a program, and its arguments
	Words   []string // one of these
}

// ErrUsage is matched by errors about flags that make no sense.
var ErrUsage = errors.New("invalid flags")

// usageError is one that matches ErrUsage and says everything itself.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == ErrUsage }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// errShortHelp is returned for -h, and flag.ErrHelp for -help. It matches that.
var errShortHelp = fmt.Errorf("%w, the short one", flag.ErrHelp)

// Execute runs a command, prints why it could not begin or the help that was asked for, and
// returns the exit status.
func (c *Command) Execute(args []string, stdin, stdout, stderr *os.File) int {
	status, err := c.Run(args, stdin, stdout, stderr)
	switch {
	case err == nil:
		return status
	case errors.Is(err, errShortHelp):
		err = c.WriteShortHelp(stdout, helpWidth(stdout))
	case errors.Is(err, flag.ErrHelp):
		err = c.WriteHelp(stdout, helpWidth(stdout))
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v\n", c.FullName(), err)
	if errors.Is(err, ErrUsage) {
		fmt.Fprintf(stderr, "Run \"%s -h\" for the flags.\n", c.FullName())
	}
	return ExitUsage
}

// FullName is the name of the program and of the command. Its messages begin with it.
func (c *Command) FullName() string { return strings.TrimSpace(Program + " " + c.Name) }

// An App is the program: all commands, and the help about all of them.
type App struct {
	Short    string // what it does, to follow its name
	Commands []*Command
	Sections []Section         // of its manual page
	Others   map[string]string // names that commands have in other programs, and their names here
}

// Main runs the command that args name, and returns the exit status. args is os.Args.
func (a *App) Main(args []string, stdin, stdout, stderr *os.File) int {
	name := ""
	if len(args) > 1 {
		name = args[1]
	}
	switch name {
	case "":
		_ = a.writeHelp(stderr, helpWidth(stderr))
		return ExitUsage
	case "-h", "-help", "--help":
		args, name = []string{args[0], "help"}, "help"
	case "-version", "--version", "-V":
		args, name = []string{args[0], "version"}, "version"
	}
	c, err := a.find(name)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nRun \"%s help\" for the commands.\n", Program, err, Program)
		return ExitUsage
	}
	return c.Execute(args, stdin, stdout, stderr)
}

// find returns the command of a name.
func (a *App) find(name string) (*Command, error) {
	i := slices.IndexFunc(a.Commands, func(c *Command) bool { return c.Name == name })
	if i >= 0 {
		return a.Commands[i], nil
	}
	meant, ok := a.Others[name]
	if !ok {
		meant = suggest.Closest(name, a.names())
	}
	if meant != "" {
		return nil, fmt.Errorf("no command %q: did you mean %s?", name, meant)
	}
	return nil, fmt.Errorf("no command %q", name)
}

// names returns the names of the commands.
func (a *App) names() (names []string) {
	for _, c := range a.Commands {
		names = append(names, c.Name)
	}
	return names
}
