// Sluice runs batch jobs and crawls web sites, at the rate that the services which it calls
// allow.
//
//	go run ./cmd/sluice batch -in ids.txt -url 'https://api.example.com/{}'
//	go run ./cmd/sluice crawl -pages 50 https://example.com/
package main

import (
	"fmt"
	"os"

	"github.com/sluice-go/sluice/cmd/internal/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/crawl"
)

// commands have the program's arguments and its files, and return the exit status.
var commands = map[string]func(args []string, stdin, stdout, stderr *os.File) int{
	"batch": batch.Run,
	"crawl": crawl.Run,
	"version": func(_ []string, _, stdout, _ *os.File) int {
		fmt.Fprintln(stdout, "sluice", cli.Version())
		return 0
	},
}

func main() {
	var name string
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, ok := commands[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "sluice: want a command: batch, crawl or version; each has -h")
		os.Exit(2)
	}
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
