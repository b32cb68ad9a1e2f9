package cli

import (
	"fmt"
	"io"
	"strings"
)

// WriteManual writes the manual page of a command, in the language of man(7).
func (c *Command) WriteManual(w io.Writer, a *App) error {
	p := newPage(c.pageName(), c.FullName()+" "+c.Short)
	p.heading("SYNOPSIS")
	for i, u := range c.Usage {
		if i > 0 {
			p.request(".br")
		}
		p.text(`\fB` + escape(c.FullName()) + `\fR ` + escape(u))
	}
	p.sections(c.Sections)
	if c.Flags != nil {
		p.heading("FLAGS")
		p.text(escape("A flag may begin with one hyphen or two, and its value follows as an argument of its own or behind =. The flags end at -- or at the first argument that is none."))
		f := c.Flags()
		for _, g := range f.groups {
			p.request(`.SS "` + escape(g.title) + `"`)
			for _, name := range g.names {
				d := f.describe(name)
				head := `\fB\-` + escape(d.name) + `\fR`
				if d.value != "" {
					head += ` \fI` + escape(d.value) + `\fR`
				}
				p.term(head, escape(d.long()))
			}
		}
	}
	if len(c.Exits) > 0 {
		p.sections([]Section{c.exitSection()})
	}
	if len(c.Examples) > 0 {
		p.heading("EXAMPLES")
		for _, e := range c.Examples {
			p.request(".PP")
			p.text(escape(sentence(e.What)))
			p.asIs([]string{e.Line})
		}
	}
	p.seeAlso(a, c)
	return p.writeTo(w)
}

// WriteManual writes the manual page of the program.
func (a *App) WriteManual(w io.Writer) error {
	p := newPage(Program, Program+" "+a.Short)
	p.heading("SYNOPSIS")
	p.text(`\fB` + Program + `\fR \fIcommand\fR [flags] ...`)
	p.heading("COMMANDS")
	for _, c := range a.Commands {
		p.term(`\fB`+escape(c.Name)+`\fR`, escape(sentence(c.Short)))
	}
	p.sections(a.Sections)
	p.seeAlso(a, nil)
	return p.writeTo(w)
}

// pageName is the name of the manual page of a command.
func (c *Command) pageName() string { return Program + "-" + c.Name }

// A page is a manual page that is being written.
type page struct{ b strings.Builder }

// newPage begins a page. whatis is its name and what that does: "sluice crawl fetches pages".
func newPage(name, whatis string) *page {
	p := new(page)
	p.request(fmt.Sprintf(`.TH "%s" "1" "" "%s" "%s manual"`, strings.ToUpper(escape(name)), escape(Program+" "+ModuleVersion()), Program))
	p.request(".nh") // names of flags and commands stay whole
	p.heading("NAME")
	p.text(escape(name) + ` \- ` + escape(strings.TrimPrefix(strings.TrimPrefix(whatis, strings.ReplaceAll(name, "-", " ")), " ")))
	return p
}

func (p *page) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// request adds a line of roff.
func (p *page) request(line string) { p.b.WriteString(line + "\n") }

func (p *page) heading(title string) { p.request(".SH " + strings.ToUpper(title)) }

// text adds a line that is escaped already.
func (p *page) text(line string) {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line // it is no request
	}
	p.request(line)
}

// term adds a term and its explanation, both escaped.
func (p *page) term(head, text string) {
	p.request(".TP")
	p.text(head)
	p.text(text)
}

// asIs adds lines that are to be printed as they are.
func (p *page) asIs(lines []string) {
	p.request(".PP\n.RS 4\n.nf")
	for _, line := range lines {
		p.text(escape(line))
	}
	p.request(".fi\n.RE")
}

func (p *page) sections(all []Section) {
	for _, s := range all {
		p.heading(escape(s.Title))
		for i, b := range blocks(s.Text) {
			switch {
			case b.asIs:
				p.asIs(b.lines)
				continue
			case i > 0:
				p.request(".PP")
			}
			p.text(escape(strings.Join(b.lines, " ")))
		}
		for _, t := range s.Terms {
			p.term(`\fB`+escape(t.Name)+`\fR`, escape(sentence(t.Text)))
		}
	}
}

// seeAlso names the other pages.
func (p *page) seeAlso(a *App, own *Command) {
	p.heading("SEE ALSO")
	var names []string
	if own != nil {
		names = append(names, `\fB`+Program+`\fR(1)`)
	}
	for _, c := range a.Commands {
		if c != own {
			names = append(names, `\fB`+escape(c.pageName())+`\fR(1)`)
		}
	}
	p.text(strings.Join(names, ", "))
}

// escape quotes plain characters for roff.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`, "'", `\(aq`, `"`, `\(dq`, "…", "...").Replace(text)
}
