// Apiclient shows what Sluice is for: many goroutines, one rate-limited API.
//
// It starts an HTTP API on loopback that enforces a rate and a concurrency, fetches a
// thousand items from it through a gate, fetches them again with a naive pool that
// retries immediately, and prints both side by side. With -url it fetches from a real API
// instead.
//
// gate.go shows how a gate gets in front of an http.Client. The rest is flags, a
// progress line and a table.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/sluice-go/sluice/observe/live"
)

// The exit status, apart from 0.
const (
	exitLost        = 1   // something was lost, or could not be begun
	exitUsage       = 2   // the flags make no sense
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// messages begins each message and each error, in addition to progress and table.
const messages = "apiclient: "

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	status, err := program(args, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, messages+"%v\n", err)
	}
	if status == exitUsage {
		fmt.Fprintln(stderr, "Run with -h for the flags.")
	}
	return status
}

// program prepares everything that can fail and then makes the runs.
func program(args []string, stdout, stderr io.Writer) (status int, err error) {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout)
		return 0, nil
	}
	if err != nil {
		return exitUsage, err
	}
	people := stdout
	if o.json || o.out == "-" {
		people = stderr
	}
	screen := newScreen(people)
	var redis *shared
	if o.redis != "" {
		if redis, err = openShared(o, func(text string) { screen.print(messages + text) }); err != nil {
			return exitLost, err
		}
		defer redis.close()
	}
	if o.instances > 1 {
		t := together{options: o, shared: redis, screen: screen}
		return t.run(stdout)
	}
	m := newMeter()
	gate, err := newTransport(configOf(o, redis), metered{newBase(o.workers), m})
	if err != nil {
		return exitUsage, err
	}
	defer gate.Close()
	server, err := newServer(o)
	if err != nil {
		return exitUsage, err
	}
	if server != nil {
		if err := server.Listen(); err != nil {
			return exitLost, err
		}
		defer server.Close() // too late to report its error
		o.url = server.URL() + "/items/{}"
	}
	if o.live != "" {
		address, stop, err := live.New(live.FromTransport(gate)).Listen(o.live)
		if err != nil {
			return exitLost, fmt.Errorf("-live: %w", err)
		}
		defer stop()
		screen.print(messages + "-live: " + address)
	}
	// The file comes last: it is emptied only when nothing else can fail.
	out, err := openSink(o.out, stdout)
	if err != nil {
		return exitLost, err
	}
	c := comparison{options: o, gate: gate, server: server, meter: m, screen: screen}
	return c.run(out, stdout)
}
