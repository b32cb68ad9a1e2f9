package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// The help is as wide as the terminal, within these bounds, and has usualWidth elsewhere.
const (
	leastWidth = 30
	usualWidth = 80
	mostWidth  = 100 // longer lines are hard to read
)

func helpWidth(f *os.File) int {
	width := Width(f)
	if width == 0 {
		return usualWidth
	}
	return max(leastWidth, min(width, mostWidth))
}

// WriteShortHelp writes the help of -h: a line for each flag.
func (c *Command) WriteShortHelp(w io.Writer, width int) error {
	p := printer{width: width}
	p.opening(c)
	if c.Flags != nil {
		f := c.Flags()
		for _, g := range f.groups {
			p.title(g.title)
			for _, name := range g.names {
				d := f.describe(name)
				p.term(d.head(), d.short+d.hint(), 24)
			}
		}
	}
	p.line("")
	p.wrap(fmt.Sprintf("More: %s help %s", Program, c.Name), 0)
	return p.writeTo(w)
}

// WriteHelp writes the help of -help: all that is to be said.
func (c *Command) WriteHelp(w io.Writer, width int) error {
	p := printer{width: width}
	p.opening(c)
	for _, s := range c.Sections {
		p.section(s)
	}
	if c.Flags != nil {
		f := c.Flags()
		for _, g := range f.groups {
			p.title("Flags: " + g.title)
			for _, name := range g.names {
				d := f.describe(name)
				p.term(d.head(), d.long(), 0)
			}
		}
	}
	if len(c.Exits) > 0 {
		p.section(c.exitSection())
	}
	return p.writeTo(w)
}

// writeHelp writes the help of the program.
func (a *App) writeHelp(w io.Writer, width int) error {
	p := printer{width: width}
	p.wrap(Program+" "+a.Short+".", 0)
	p.title("Usage")
	p.line("  " + Program + " <command> [flags] ...")
	p.title("Commands")
	for _, c := range a.Commands {
		p.term(c.Name, c.Short, 14)
	}
	p.line("")
	p.wrap(fmt.Sprintf("%s <command> -h lists the flags of a command, %s help <command> says all about it.", Program, Program), 0)
	return p.writeTo(w)
}

// exitSection has the statuses.
func (c *Command) exitSection() Section {
	return Section{Title: "Exit status", Terms: exitTerms(c.Exits)}
}

func exitTerms(exits []Exit) (terms []Term) {
	for _, e := range exits {
		terms = append(terms, Term{fmt.Sprint(e.Status), e.Text})
	}
	return terms
}

// head is a flag and the name of its value.
func (d described) head() string { return strings.TrimSpace("-" + d.name + " " + d.value) }

// hint has the choices of a flag, and its default.
func (d described) hint() string {
	text := ""
	if d.choices != nil {
		text += ": " + strings.Join(d.choices, ", ")
	}
	if d.standard != "" {
		text += " (default " + d.standard + ")"
	}
	return text
}

// long is all that there is to say about a flag.
func (d described) long() string {
	return strings.TrimSpace(sentence(d.short+d.hint()) + " " + d.more)
}

// A printer formats help for a terminal.
type printer struct {
	width int
	b     strings.Builder
}

func (p *printer) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// line adds a line unchanged.
func (p *printer) line(text string) { p.b.WriteString(text + "\n") }

func (p *printer) title(text string) { p.line("\n" + text + ":") }

// opening says what a command does, how it is called, and by which examples.
func (p *printer) opening(c *Command) {
	p.wrap(c.FullName()+" "+c.Short+".", 0)
	p.title("Usage")
	for _, u := range c.Usage {
		p.line(strings.TrimRight("  "+c.FullName()+" "+u, " "))
	}
	if len(c.Examples) > 0 {
		p.title("Examples")
		for _, e := range c.Examples {
			p.line("  # " + e.What)
			p.line("  " + e.Line)
		}
	}
}

// section adds a section.
func (p *printer) section(s Section) {
	p.title(s.Title)
	for i, block := range blocks(s.Text) {
		if i > 0 {
			p.line("")
		}
		if block.asIs {
			for _, line := range block.lines {
				p.line("      " + line)
			}
			continue
		}
		p.wrap(strings.Join(block.lines, " "), 2)
	}
	if s.Text != "" && len(s.Terms) > 0 {
		p.line("")
	}
	for _, t := range s.Terms {
		p.term(t.Name, t.Text, 8)
	}
}

// term adds a term and, from a column on, its explanation: below the term if that is longer, if there is
// little room, or if the column is 0.
func (p *printer) term(name, text string, column int) {
	head := "  " + name
	if n := utf8.RuneCountInString(head); column > 0 && n+2 <= column && p.width >= column+30 {
		lines := fill(text, p.width-column)
		for i, line := range lines {
			if i > 0 {
				head, n = "", 0
			}
			p.line(head + strings.Repeat(" ", column-n) + line)
		}
		return
	}
	p.line(head)
	p.wrap(text, 8)
}

// wrap adds a paragraph that begins at a column.
func (p *printer) wrap(text string, column int) {
	for _, line := range fill(text, p.width-column) {
		p.line(strings.Repeat(" ", column) + line)
	}
}

// fill breaks a paragraph at its spaces into lines of at most width columns. A word that is longer
// has a line of its own.
func fill(text string, width int) (lines []string) {
	line, columns := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if line != "" && columns+1+n > width {
			lines, line, columns = append(lines, line), "", 0
		}
		if line != "" {
			line, columns = line+" ", columns+1
		}
		line, columns = line+word, columns+n
	}
	return append(lines, line)
}

// A block is a paragraph, or lines that are to be printed as they are.
type block struct {
	lines []string
	asIs  bool
}

// blocks returns the blocks of Section.Text.
func blocks(text string) (all []block) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		b := block{lines: strings.Split(part, "\n"), asIs: strings.HasPrefix(part, "\t")}
		for i := range b.lines {
			b.lines[i] = strings.TrimPrefix(b.lines[i], "\t")
		}
		all = append(all, b)
	}
	return all
}
