package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
)

// options is the command line, checked.
type options struct {
	vendor  vendor
	n       int
	workers int
	fast    bool
	json    bool
	log     string // "" for none
	resume  bool
}

// fastBy is the factor by which everything is faster with -fast.
const fastBy = 60

// speed is by what all durations are divided and all rates multiplied.
func (o options) speed() int64 {
	if o.fast {
		return fastBy
	}
	return 1
}

// The names of the runs, as in the JSON.
const (
	sdkAlone   = "sdk"
	sdkRetries = "sdk10"
	viaSluice  = "sluice"
)

// columns are the runs to make. A batch that is resumed has been compared before.
func (o options) columns() []string {
	if o.resume {
		return []string{viaSluice}
	}
	return []string{sdkAlone, sdkRetries, viaSluice}
}

type flags struct {
	set *flag.FlagSet
	options
	api string
}

func newFlags() *flags {
	f := &flags{set: flag.NewFlagSet("llmbatch", flag.ContinueOnError)}
	f.set.SetOutput(io.Discard) // run prints what went wrong, once
	f.set.Usage = func() {}
	f.set.StringVar(&f.api, "api", "openai", "the `API` to imitate, and whose SDK to use: openai or anthropic")
	f.set.IntVar(&f.n, "n", 500, "how many `completions` to make")
	f.set.IntVar(&f.workers, "workers", 64, "how many `goroutines` make them")
	f.set.BoolVar(&f.fast, "fast", true, fmt.Sprintf("run %d times as fast: all durations are divided and all rates multiplied; -fast=false takes about 11 minutes", fastBy))
	f.set.BoolVar(&f.json, "json", false, "print one JSON object instead of the table")
	f.set.StringVar(&f.log, "log", "", "record in this `file` which completions are done through Sluice")
	f.set.BoolVar(&f.resume, "resume", false, "skip the completions that are in the -log, and the runs of the SDK alone")
	return f
}

// parseOptions returns flag.ErrHelp for -h and -help.
func parseOptions(args []string) (options, error) {
	f := newFlags()
	if err := f.set.Parse(args); err != nil {
		return options{}, err
	}
	o := f.options
	i := slices.IndexFunc(vendors, func(v vendor) bool { return v.name == f.api })
	switch {
	case f.set.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.set.Arg(0))
	case i < 0:
		return o, fmt.Errorf("-api %s: want openai or anthropic", f.api)
	case o.n <= 0:
		return o, fmt.Errorf("-n %d: must be above 0", o.n)
	case o.workers <= 0:
		return o, fmt.Errorf("-workers %d: must be above 0", o.workers)
	case o.resume && o.log == "":
		return o, errors.New("-resume needs the -log to resume")
	}
	o.vendor = vendors[i]
	return o, nil
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprintf(w, `llmbatch makes chat completions at a built-in server that allows %s requests
(burst %d) and %s tokens (burst %s) per minute, in three ways: with the official
SDK alone, with the SDK and 10 retries, and with the same SDK through Sluice. The
server sends its headers at once and then streams each completion for 2 to 10 s.

	go run ./examples/llmbatch [flags]

The first Ctrl-C lets calls finish that have begun, the second cancels them. With
-log the batch can be resumed later, even if it was killed.

Exit status: 0 if all completions succeed through Sluice; 1 if not, or if the program
could not begin; 2 if the flags are invalid; 130 if it was interrupted.

`, thousands(requestsPerMinute), requestBurst, thousands(tokensPerMinute), thousands(tokenBurst))
	f := newFlags()
	f.set.SetOutput(w)
	f.set.PrintDefaults()
}
