// Jobcheck runs examples/apiclient and judges it, by the object that -json prints
// and by the items that -out writes:
//
//	jobcheck -items items.jsonl apiclient -json -out items.jsonl
//
// It exits with 1 if a promise was not kept, and says which. A machine that stands still in that
// time is not the fault of the program's: a watch looks how long it did, and that long the program
// may be behind. One that stands still for longer than the server forgives also draws 429s, and
// what they cost cannot be seen from what the program loses: then jobcheck exits with 3, unless an
// item is lost, which nothing excuses.
//
// It is a program because .ci/run may need no JSON tool beyond Go.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// The exit status, apart from 0.
const (
	exitBroken  = 1
	exitSpoiled = 3 // by the machine
)

func main() {
	var w wanted
	flag.StringVar(&w.items, "items", "", "the `file` that -out writes")
	flag.IntVar(&w.n, "n", 1000, "how many `items` it must hold")
	flag.DurationVar(&w.within, "within", 30*time.Second, "the longest `time` that both runs may take together")
	flag.DurationVar(&w.forgiven, "forgiven", 40*time.Millisecond, "how much `time` too early the server accepts a call")
	ends := flag.Duration("ends", time.Minute, "the `time` after which the program is killed")
	flag.Parse()
	os.Exit(run(w, *ends, flag.Args(), os.Stdout, os.Stderr))
}

// run runs the command and judges it; it returns the exit status.
func run(w wanted, ends time.Duration, command []string, stdout, stderr io.Writer) int {
	if len(command) == 0 {
		fmt.Fprintln(stderr, "jobcheck: no program to run")
		return exitBroken
	}
	ctx, cancel := context.WithTimeout(context.Background(), ends)
	defer cancel()
	var printed bytes.Buffer
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Stdout, program.Stderr = io.MultiWriter(stdout, &printed), stderr
	watch := stall.New()
	defer watch.End()
	began := time.Now()
	var complaints []string
	if err := program.Run(); err != nil {
		complaints = append(complaints, fmt.Sprintf("the program: %v after %.1f s", err, time.Since(began).Seconds()))
	}
	v := w.judge(&printed, began, watch.Take())
	complaints = append(complaints, v.broken...)
	for _, c := range append(complaints, v.spoiled...) {
		fmt.Fprintln(stderr, "jobcheck:", c)
	}
	fmt.Fprintln(stderr, "jobcheck:", v.machine)
	switch {
	case len(complaints) > 0:
		return exitBroken
	case len(v.spoiled) > 0:
		return exitSpoiled
	}
	return 0
}
