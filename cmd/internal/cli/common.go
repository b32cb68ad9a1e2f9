package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// AddCommon adds the commands of every program: its version, its help and its completion.
// It comes after the other commands.
func (a *App) AddCommon() {
	about := a.names()
	help := &Command{
		Name: "help", Short: "says all about a command", Usage: []string{"[command]"},
		Run: a.runHelp,
	}
	man := &Command{
		Name: "man", Short: "prints a manual page, for man(1)", Usage: []string{"[command]", "-dir folder"},
		Examples: []Example{
			{"look at a page", Program + " man " + about[0] + " | man -l -"},
			{"install all of them", Program + " man -dir ~/.local/share/man/man1"},
		},
		Flags: func() *Flags { return newManFlags(new(string)) },
		Run:   a.runMan,
	}
	completion := &Command{
		Name: "completion", Short: "prints a script that completes command lines", Usage: []string{strings.Join(Shells, "|")},
		Examples: []Example{
			{"bash, in ~/.bashrc", "source <(" + Program + " completion bash)"},
			{"zsh, in ~/.zshrc after compinit", "source <(" + Program + " completion zsh)"},
			{"fish", Program + " completion fish >~/.config/fish/completions/" + Program + ".fish"},
		},
		Operands: Operands{Words: Shells},
		Run:      a.runCompletion,
	}
	version := &Command{
		Name: "version", Short: "prints the version, and how the program was built", Usage: []string{""},
		Run: runVersion,
	}
	a.Commands = append(a.Commands, help, man, completion, version)
	help.Operands.Words, man.Operands.Words = a.names(), a.names()
	for _, c := range []*Command{help, man, completion, version} {
		c.Exits = []Exit{{ExitOK, "it is printed"}, {ExitUsage, "it could not be"}}
	}
	a.Sections = append(a.Sections, Section{
		Title: "Exit status",
		Text:  "The statuses mean the same for all commands:",
		Terms: exitTerms(Exits),
	}, Section{
		Title: "Environment",
		Terms: []Term{
			{"NO_COLOR", "if it is not empty, the progress has no colours"},
			{"TERM", "if it is dumb, the progress is a line every 10s, as where stderr is no terminal"},
			{"LC_ALL, LC_CTYPE, LANG", "whether the terminal understands UTF-8"},
			{"TMPDIR", "where outputs are that wait to be printed"},
			{"HTTP_PROXY, HTTPS_PROXY, NO_PROXY", "the proxies of HTTP calls"},
			{"GOMEMLIMIT", "how much memory may be used, such as 500MiB; a crawl sets 192MiB for itself"},
		},
	})
}

// noFlags parses the arguments of a command without flags, and returns the rest, at most so
// many.
func noFlags(args []string, most int) ([]string, error) { return operands(NewFlags(), args, most) }

func operands(f *Flags, args []string, most int) ([]string, error) {
	if err := f.Parse(args, nil); err != nil {
		return nil, err
	}
	if rest := f.Args(); len(rest) > most {
		return nil, usagef("unexpected %q", rest[most])
	}
	return f.Args(), nil
}

func (a *App) runHelp(args []string, _, stdout, _ *os.File) (int, error) {
	of, err := noFlags(args[2:], 1)
	if err != nil {
		return 0, err
	}
	if len(of) == 0 {
		return 0, a.writeHelp(stdout, helpWidth(stdout))
	}
	c, err := a.find(of[0])
	if err != nil {
		return 0, err
	}
	return 0, c.WriteHelp(stdout, helpWidth(stdout))
}

func newManFlags(dir *string) *Flags {
	f := NewFlags()
	f.Group("Output")
	f.String(dir, "dir", "", "write all pages into this `folder`, which is made if it is missing")
	return f
}

func (a *App) runMan(args []string, _, stdout, _ *os.File) (int, error) {
	dir := ""
	of, err := operands(newManFlags(&dir), args[2:], 1)
	switch {
	case err != nil:
		return 0, err
	case dir != "" && len(of) > 0:
		return 0, usagef("-dir is for all pages: leave out %q", of[0])
	case dir != "":
		return 0, a.writeManuals(dir)
	case len(of) == 0:
		return 0, a.WriteManual(stdout)
	}
	c, err := a.find(of[0])
	if err != nil {
		return 0, err
	}
	return 0, c.WriteManual(stdout, a)
}

// writeManuals writes a file for each page into a directory.
func (a *App) writeManuals(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	write := func(name string, page func(io.Writer) error) error {
		var b strings.Builder
		return errors.Join(page(&b), os.WriteFile(filepath.Join(dir, name+".1"), []byte(b.String()), 0o666))
	}
	err := write(Program, a.WriteManual)
	for _, c := range a.Commands {
		err = errors.Join(err, write(c.pageName(), func(w io.Writer) error { return c.WriteManual(w, a) }))
	}
	return err
}

func (a *App) runCompletion(args []string, _, stdout, _ *os.File) (int, error) {
	of, err := noFlags(args[2:], 1)
	switch {
	case err != nil:
		return 0, err
	case len(of) == 0:
		return 0, usagef("for which shell? %s", strings.Join(Shells, ", "))
	}
	return 0, a.WriteCompletion(stdout, of[0])
}

func runVersion(args []string, _, stdout, _ *os.File) (int, error) {
	if _, err := noFlags(args[2:], 0); err != nil {
		return 0, err
	}
	_, err := io.WriteString(stdout, Build())
	return 0, err
}
