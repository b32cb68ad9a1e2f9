// Timeline draws what limiters do to the same 60 calls:
//
//	go run ./examples/timeline
//
// It sends the calls through real limiters in virtual time, so the result is the same
// on each machine. It draws one picture for each limiter, a sheet of all of them, the
// confusion of a semaphore with a rate, a pacer beside a bucket from cold, and some drawings
// without numbers, and replaces the pictures in docs/pictures and timeline.json, the
// numbers behind them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	dir, status := parse(os.Args[1:], os.Stderr)
	if status >= 0 {
		os.Exit(status)
	}
	var n numbers
	inBubble(func() { n = measure() }, func() int {
		files, err := drawAll(n, dir)
		for _, file := range files {
			fmt.Println(file)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "timeline: %v\n", err)
			return 1
		}
		return 0
	})
}

// parse reads the flags. It returns the exit status if the program is to end,
// and otherwise -1: 0 after -h, 1 if there is no such directory, which is better
// known before anything is computed, and 2 if the flags make no sense.
func parse(args []string, stderr io.Writer) (dir string, status int) {
	flags := flag.NewFlagSet("timeline", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dir, "o", filepath.Join("docs", "pictures"), "the `folder` for the pictures, which must exist")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return "", 0
	case err != nil:
		return "", 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "timeline: unexpected argument %q\n", flags.Arg(0))
		return "", 2
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		fmt.Fprintf(stderr, "timeline: %s is not a folder: run it from the root of the repository, or say -o\n", dir)
		return "", 1
	}
	return dir, -1
}
