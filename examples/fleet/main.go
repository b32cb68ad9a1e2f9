// Fleet shows what to do when one machine is too small for a batch: several worker
// processes take items from a queue, and call an API under one shared limit.
//
// The queue is NATS JetStream, the limit is in a Redis (package sluiceredis). One
// command starts everything: the API, the queue, the Redis, and four workers. It then
// kills workers and the queue, lets the API throttle, and prints what that cost.
//
// worker.go and shared.go are all that a program needs. The rest starts, breaks and
// measures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// The exit status, apart from 0.
const (
	exitLost        = 1   // something was lost or ran twice, or could not be begun
	exitUsage       = 2   // the flags make no sense
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// messages begins each message and each error.
const messages = "fleet: "

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

// program runs one of the processes: a worker, the queue, or what starts them.
func program(args []string, stdout, stderr io.Writer) (status int, err error) {
	role := ""
	if len(args) > 0 && (args[0] == "worker" || args[0] == "queue") {
		role, args = args[0], args[1:]
	}
	o, err := parseOptions(role, args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout)
		return 0, nil
	}
	if err != nil {
		return exitUsage, err
	}
	switch role {
	case "worker":
		err = runWorker(o, stdout)
	case "queue":
		err = runQueue(o)
	default:
		people := stdout
		if o.json {
			people = stderr
		}
		return runFleet(o, people, stdout)
	}
	if err != nil {
		return exitLost, err
	}
	return 0, nil
}
