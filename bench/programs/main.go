// Programs runs sluice batch next to GNU parallel and xargs, on the same work, and prints what
// came of it as a table. It needs them and curl in the PATH, and takes two minutes.
//
//	go run ./bench/programs
//	go run ./bench/programs -into cmd/sluice/batch.md
//	go run ./bench/programs -hostile -into bench/results/hostile.md
//
// A program that is not there is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
)

// names are the programs, in the order of the columns.
var names = []string{"sluice batch", "parallel", "xargs"}

func main() {
	bad := flag.Bool("hostile", false, "have them call servers that misbehave, beside good ones, instead; as root also names that are found slowly")
	only := flag.String("only", "", "do only the work with this `name`, such as limit")
	into := flag.String("into", "", "put the table into this Markdown file, between its marks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *bad, *only, *into); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bad bool, only, into string) error {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	paths, err := find(ctx, dir)
	if err != nil {
		return err
	}
	works = slices.DeleteFunc(works, func(w work) bool { return only != "" && w.name != only })
	mark, do := "programs", measure
	if bad {
		mark, do = "hostile", measureHostile
	}
	table, err := do(ctx, dir, paths)
	if err != nil {
		return err
	}
	fmt.Print(table)
	if into != "" {
		return results.Splice(into, mark, table)
	}
	return nil
}

// find builds sluice and returns where the programs are; "" for one that is missing.
func find(ctx context.Context, dir string) (map[string]string, error) {
	paths := map[string]string{names[0]: filepath.Join(dir, "sluice")}
	build := exec.CommandContext(ctx, "go", "build", "-o", paths[names[0]], "github.com/sluice-go/sluice/cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building sluice: %w\n%s", err, out)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		return nil, err
	}
	for _, name := range names[1:] {
		paths[name], _ = exec.LookPath(name)
	}
	return paths, nil
}

// measure does each work with each program.
func measure(ctx context.Context, dir string, paths map[string]string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s  \nmeasured: %s, `go run ./bench/programs`\n\n", machine.Describe(), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	b.WriteString("| work | " + strings.Join(names, " | ") + " |\n| ---" + strings.Repeat(" | ---", len(names)) + " |\n")
	for _, w := range works {
		fmt.Fprintf(&b, "| %s", w.title)
		for _, name := range names {
			fmt.Fprintf(os.Stderr, "%s: %s\n", w.name, name)
			cell, err := w.cell(ctx, dir, name, paths[name])
			if err != nil {
				return "", fmt.Errorf("%s: %s: %w", w.name, name, err)
			}
			b.WriteString(" | " + cell)
		}
		b.WriteString(" |\n")
	}
	return b.String(), nil
}

// cell does a work with a program and returns what is to be said of it.
func (w work) cell(ctx context.Context, dir, name, path string) (string, error) {
	args, can := w.args[name]
	switch {
	case path == "":
		return "not installed", nil
	case !can:
		return "cannot", nil
	}
	own, err := os.MkdirTemp(dir, w.name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, mostOfWork)
	defer cancel()
	text, err := w.do(ctx, program{path: path, dir: own, args: args})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("not done after %v", mostOfWork), nil
	}
	return text, err
}

// mostOfWork is how long a program may take for a work.
const mostOfWork = time.Minute
