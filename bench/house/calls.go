package main

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sluice-go/sluice/bench/house/trace"
)

// A passage is what one call passes, of the packages of a tree.
//
// Functions, files and statements are counted with the counters of go build -cover: a program
// runs with no calls and with many, and what one call passes is what was executed once more for at
// least every second call. So what is done now and then is left out, and what other goroutines do
// for the call is included. A function within another is a part of it.
//
// Calls, moves, returns and locks are those of a copy in which each function records that it was
// entered by the goroutine that makes the call. One call is recorded several times; the median by
// moves counts. A call that waits for longer than usual may pass a little more.
type passage struct {
	functions  int
	files      int
	statements int  // that were executed, each once
	longest    part // of the functions

	calls   int // of functions, one within the other or not
	moves   int // how often a function of another file than the last one is entered
	returns int // moves to a file that was there before
	locks   int // of the gate: see gateLock
}

// gateLock is the function that locks a gate.
const gateLock = "Queue.Lock"

// A scene is a kind of call. Aims are for the columns of the report, in their order.
type scene struct {
	name, says string
	aims       [8]string
}

var scenes = []scene{
	{"do", "Gate.Do, free", [8]string{"19", "", "", "", "", "", "0", "≤ 50"}},
	{"do-waits", "Gate.Do, waits for its slot", [8]string{"≤ 75", "≤ 18", "", "", "≤ 70", "", "", "≤ 50"}},
	{"acquire", "Acquire and Release, free", [8]string{}},
	{"retry", "sluice.Retry, free", [8]string{}},
	{"http", "sluicehttp, no configuration", [8]string{}},
	{"do-learned", "Gate.Do, a gate that has learned", [8]string{}},
	{"do-bucket", "Gate.Do, one local leaky.Bucket", [8]string{"≤ 60", "", "", "≤ 170", "", "", "1", ""}},
}

const (
	manyCalls   = 100
	tracedCalls = 9
)

// A counter counts what calls pass that a program makes.
type counter struct {
	*tree
	root    string // the directory of the tree
	program string // the directory of the program, in the tree: see bench/house/scenes
	temp    string
}

// passages returns what a call of each of some scenes passes.
func (c counter) passages(scenes []scene) (map[string]passage, error) {
	if !slices.ContainsFunc(c.functions(), func(f function) bool { return f.name == gateLock }) {
		return nil, fmt.Errorf("no method %s, by which gates are locked: say its new name in calls.go", gateLock)
	}
	covered, traced := filepath.Join(c.temp, "covered.exe"), filepath.Join(c.temp, "traced.exe") // as Windows wants it
	if err := c.run(nil, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+c.modules["."]+"/...", "-o", covered, "./"+c.program); err != nil {
		return nil, err
	}
	overlay, err := c.overlay()
	if err != nil {
		return nil, err
	}
	if err := c.run(nil, "go", "build", "-overlay="+overlay, "-o", traced, "./"+c.program); err != nil {
		return nil, err
	}
	all := make(map[string]passage)
	for _, s := range scenes {
		p, err := c.counted(covered, s.name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if err := c.traced(traced, s.name, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all[s.name] = p
	}
	return all, nil
}

// run runs a command at the top of the tree.
func (c counter) run(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = c.root, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", path.Base(name), strings.Join(args, " "), err, &said)
	}
	return nil
}

// A function is one that a tree declares, with its lines.
type function struct {
	source   *source
	name     string
	from, to int
}

func (c counter) functions() (all []function) {
	for _, l := range c.packages {
		for _, s := range l.sources {
			s.declarations(c.tree.files, func(name, _ string, decl ast.Decl) {
				if f, ok := decl.(*ast.FuncDecl); ok {
					line := c.tree.files.Position
					all = append(all, function{s, name, line(f.Pos()).Line, line(f.End()).Line})
				}
			})
		}
	}
	return all
}

// counted counts functions, files and statements.
func (c counter) counted(program, scene string) (p passage, err error) {
	none, err := c.profile(program, scene, 0)
	if err != nil {
		return p, err
	}
	many, err := c.profile(program, scene, manyCalls)
	if err != nil {
		return p, err
	}
	statements := make(map[string][]block)
	for b, n := range many {
		if n-none[b] >= manyCalls/2 {
			statements[b.file] = append(statements[b.file], b)
		}
	}
	files := make(map[*source]bool)
	for _, f := range c.functions() {
		passed := false
		for _, b := range statements[f.source.name] {
			if f.from <= b.line && b.line <= f.to {
				p.statements += b.statements
				passed = true
			}
		}
		if passed {
			p.functions++
			files[f.source] = true
			p.longest = p.longest.longer(part{f.name, f.to - f.from + 1})
		}
	}
	p.files = len(files)
	if p.functions == 0 {
		return p, errors.New("no function is passed by calls")
	}
	return p, nil
}

// A block is a number of statements that are executed one after the other.
type block struct {
	file       string // with its directory in the tree
	at         string
	line       int // the first
	statements int
}

// profile makes calls and returns the number of times that each block was executed.
func (c counter) profile(program, scene string, calls int) (map[block]int, error) {
	counters, err := os.MkdirTemp(c.temp, "")
	if err != nil {
		return nil, err
	}
	if err := c.run([]string{"GOCOVERDIR=" + counters}, program, scene, strconv.Itoa(calls)); err != nil {
		return nil, err
	}
	text := filepath.Join(counters, "profile")
	if err := c.run(nil, "go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+text); err != nil {
		return nil, err
	}
	file, err := os.Open(text)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return blocks(file, c.modules["."]+"/")
}

// blocks reads a profile: "mode: …", and for each block a line "example.com/a/b.go:3.17,5.2 2 9", of two
// statements executed nine times. The prefix is left out of the names of files.
func blocks(profile io.Reader, prefix string) (map[block]int, error) {
	all := make(map[block]int)
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "mode: ") {
			continue
		}
		file, rest, _ := strings.Cut(line, ":")
		var b block
		n := 0
		if _, err := fmt.Sscan(rest, &b.at, &b.statements, &n); err != nil {
			return nil, fmt.Errorf("line %q of a profile: %w", line, err)
		}
		if _, err := fmt.Sscanf(b.at, "%d.", &b.line); err != nil {
			return nil, fmt.Errorf("line %q of a profile: %w", line, err)
		}
		b.file = strings.TrimPrefix(file, prefix)
		all[b] += n
	}
	return all, lines.Err()
}

//go:embed trace/trace.go
var tracer []byte

// overlay writes a copy of the tree in which each function records that it was entered, and
// returns the name of the file that says so to go build.
func (c counter) overlay() (string, error) {
	replace := make(map[string]string)
	add := func(name string, text []byte) error {
		copied := filepath.Join(c.temp, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(c.root, filepath.FromSlash(name))] = copied
		return os.WriteFile(copied, text, 0o600)
	}
	const folder = "internal/house__trace"
	tracing := path.Join(c.modules["."], folder)
	if err := add(folder+"/trace.go", tracer); err != nil {
		return "", err
	}
	for _, l := range c.packages {
		for _, s := range l.sources {
			text, err := instrumented(s.name, s.text, tracing, "")
			if err != nil {
				return "", err
			}
			if err := add(s.name, text); err != nil {
				return "", err
			}
		}
	}
	main := path.Join(c.program, "main.go")
	text, err := os.ReadFile(filepath.Join(c.root, main))
	if err != nil {
		return "", err
	}
	if text, err = instrumented(main, text, tracing, "measured"); err != nil {
		return "", err
	}
	if err := add(main, text); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(c.temp, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// traced counts calls, moves, returns and locks.
func (c counter) traced(program, scene string, p *passage) error {
	file := filepath.Join(c.temp, scene+".trace")
	if err := c.run([]string{trace.Variable + "=" + file}, program, scene, strconv.Itoa(tracedCalls)); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	all, err := records(string(text))
	if err != nil {
		return err
	}
	if len(all) != tracedCalls {
		return fmt.Errorf("%d calls were recorded, want %d", len(all), tracedCalls)
	}
	slices.SortFunc(all, func(a, b passage) int { return cmp.Compare(a.moves, b.moves) })
	median := all[len(all)/2]
	p.calls, p.moves, p.returns, p.locks = median.calls, median.moves, median.returns, median.locks
	return nil
}

// records reads what package trace has written.
func records(text string) (all []passage, err error) {
	var p *passage
	seen := make(map[string]bool)
	last := ""
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case len(fields) == 1 && fields[0] == "call":
			all = append(all, passage{})
			p = &all[len(all)-1]
			clear(seen)
			last = ""
			continue
		case len(fields) != 3 || p == nil:
			return nil, fmt.Errorf("line %q of a record", line)
		}
		file := fields[1]
		p.calls++
		if last != "" && file != last {
			p.moves++
			if seen[file] {
				p.returns++
			}
		}
		seen[file], last = true, file
		if fields[2] == gateLock {
			p.locks++
		}
	}
	return all, nil
}

// reportPassages writes what a call of each scene passes.
func reportPassages(w io.Writer, scenes []scene, passages map[string]passage) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "one call\tfunctions\tfiles\tcalls\tstatements\tmoves\tback\tlocks\tlongest function")
	for _, s := range scenes {
		p := passages[s.name]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\n",
			s.says, p.functions, p.files, p.calls, p.statements, p.moves, p.returns, p.locks, p.longest)
		if s.aims != [8]string{} {
			fmt.Fprintf(table, "  aim\t%s\n", strings.Join(s.aims[:], "\t"))
		}
	}
	return table.Flush()
}
