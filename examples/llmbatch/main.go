// Llmbatch makes 500 chat completions at a server that limits requests and tokens: with
// the SDK alone, with the SDK and 10 retries, and with the same SDK through a transport
// of package sluicehttp. It prints the number of successes, and the time that takes.
//
// sluice.go shows how the transport and package batch are used. openai.go and
// anthropic.go have the calls of the SDKs, api.go the server. The rest is flags and a
// table.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/sluice-go/sluice/batch"
)

// The exit status, apart from 0.
const (
	exitLost        = 1   // a completion failed through Sluice, or the program could not begin
	exitUsage       = 2   // the flags are invalid
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "llmbatch: %v\nRun with -h for the flags.\n", err)
		return exitUsage
	}
	status, err := compare(o, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "llmbatch: %v\n", err)
	}
	return status
}

// compare makes the runs and prints what came of them.
func compare(o options, stdout, stderr io.Writer) (status int, err error) {
	log, err := openLog(o)
	if err != nil {
		return exitLost, err
	}
	if log != nil {
		defer log.Close() // batch has reported its error already
	}
	stop := catchInterrupts(func(text string) { fmt.Fprintln(stderr, "llmbatch: "+text) })
	defer stop.close()

	var done []result
	for _, name := range o.columns() {
		if stop.happened() {
			break
		}
		r, err := oneRun(o, name, log, stop, stderr)
		if err != nil {
			return exitLost, err
		}
		done = append(done, r)
	}
	if o.json {
		err = writeJSON(stdout, done)
	} else {
		err = writeTable(stdout, o, done)
	}
	last := done[len(done)-1]
	switch {
	case err != nil:
		return exitLost, err
	case stop.happened():
		return exitInterrupted, hint(o)
	case last.name == viaSluice && last.OK < last.Items:
		return exitLost, nil
	}
	return 0, nil
}

// oneRun makes one run against its own server on loopback, and shows its progress.
func oneRun(o options, name string, log *batch.Log, stop *interrupts, stderr io.Writer) (result, error) {
	server, err := listen(newAPI(o.vendor, o.speed()))
	if err != nil {
		return result{}, err
	}
	defer server.close()
	t := &trial{options: o, name: name, api: server.api, base: newBase(o.workers), url: server.url, log: log, stop: stop}
	defer t.base.CloseIdleConnections()
	defer watch(stderr, t)()
	return t.run()
}

// hint says how to go on after an interruption.
func hint(o options) error {
	if o.log == "" {
		return errors.New("interrupted; without -log it cannot be resumed")
	}
	return fmt.Errorf("interrupted; resume it with -log %s -resume and the same other flags", o.log)
}
