// Package batch is the command sluice batch: it runs a command, or makes an HTTP call, for each
// item that it reads, at a steady rate.
//
//	printf '%s\n' a b c | sluice batch -rate 2/s -- echo {}
//	sluice batch -in ids.txt -rate 5/s -jobs 4 -log run.jsonl -resume -halt soon,fail=10% -- curl -fsS 'https://api.example.com/{}'
//	sluice batch -in ids.txt -rate 5/s -log run.jsonl -resume -url 'https://api.example.com/{}'
//
// It can be interrupted or killed, and resumed. job.go shows how package batch is
// used, http.go how it works with a transport of package sluicehttp. The rest is
// flags, commands and a progress bar.
package batch

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// run prepares everything that can fail and then runs the job. An error is why it could not
// begin.
func run(args []string, stdin, stdout, stderr *os.File) (status int, err error) {
	o, err := parseOptions(args[2:])
	if err != nil {
		return 0, err
	}
	in, err := openInput(o, stdin)
	if err != nil {
		return 0, err
	}
	defer in.close()
	if in.file != nil && cli.IsTerminal(in.file) && !o.quiet {
		fmt.Fprintln(stderr, name+": type the items, one per line; Ctrl-D ends them")
	}
	switch {
	case o.fill != "":
		return fill(o, in, stdout, stderr)
	case o.dead != "":
		return deadLetters(o, in.fleet, stdout, stderr)
	}
	if o.dryRun {
		return 0, dryRun(o, in, stdout)
	}
	j, err := newJob(o, in)
	if err != nil {
		return 0, err
	}
	// Close returns an error that the job has reported already, or one that comes too
	// late to be reported: the last second may be run again after a power loss.
	defer j.log.close()
	if j.records != nil {
		defer j.records.Close() // each line has been written
	}
	stopLive, err := j.serveLive(stderr)
	if err != nil {
		return 0, err
	}
	defer stopLive()
	// A write to a closed pipe is an error, and does not end the program: commands would go on
	// without it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return j.run(args, stdout, stderr), nil
}

// dryRun writes what would be run.
func dryRun(o options, in *input, stdout io.Writer) error {
	seq := int64(0)
	for item := range in.items(nil) {
		seq++
		if _, err := fmt.Fprintln(stdout, o.task.describe(o.shape.subject(item, seq, 1))); err != nil {
			return err
		}
	}
	return in.err()
}
