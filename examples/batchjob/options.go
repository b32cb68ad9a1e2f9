package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
)

// options is the command line, checked.
type options struct {
	rate    sluice.Rate
	burst   int64
	jobs    int
	retries int
	backoff time.Duration
	timeout time.Duration
	maxWait time.Duration
	halt    batch.Halt
	in      string // "-" for stdin
	null    bool
	ordered bool
	quiet   bool
	dryRun  bool

	log       string // "" for none
	mode      batch.Mode
	anyConfig bool

	task task
}

// A task is what is done for each item.
type task interface {
	// describe says what would be done, for people and for the fingerprint
	// of the log.
	describe(s subject) string
	// config is what must be the same for a log to be resumed.
	config() string
	// start prepares runs: what may wait waits for the gate.
	start(o options, gate *sluice.Gate) (runner, error)
}

var errUsage = errors.New("invalid flags")

// flags are the values as given, before they are checked.
type flags struct {
	set *flag.FlagSet
	options
	web                               web
	resume, resumeFailed, retryFailed bool
}

func newFlags() *flags {
	f := &flags{set: flag.NewFlagSet("batchjob", flag.ContinueOnError)}
	f.set.SetOutput(io.Discard) // run prints what went wrong, once
	f.set.Usage = func() {}
	f.set.TextVar(&f.rate, "rate", sluice.Rate{}, "how often attempts may start, evenly spaced: a `rate` such as 5/s, 300/20s or 5000/h")
	f.set.Int64Var(&f.burst, "burst", 1, "how many `attempts` may start together after an idle time, the first one included")
	f.set.IntVar(&f.jobs, "jobs", 8, "how many `attempts` may run at once")
	f.set.IntVar(&f.retries, "retries", 3, "how many `times` a failed item is retried")
	f.set.DurationVar(&f.backoff, "backoff", 500*time.Millisecond, "the longest `wait` before the first retry; it doubles with each, up to 30s, and is random below that")
	f.set.DurationVar(&f.timeout, "timeout", 0, "the longest `time` that an attempt may take; 0 for no limit")
	f.set.DurationVar(&f.maxWait, "max-wait", 5*time.Minute, "with -url: the longest `wait` that a server may ask for; if it asks for more, the job stops and prints when to come back")
	f.set.Func("halt", "when to stop early: soon or now (which cancels running items), with fail=3, fail=10% or success=100, such as `soon,fail=10%`", func(s string) (err error) {
		f.halt, err = batch.ParseHalt(s)
		return err
	})
	f.set.StringVar(&f.in, "in", "-", "the `file` with the items, one per line; empty lines are skipped; - is stdin")
	f.set.BoolVar(&f.null, "null", false, "items end with a NUL instead of a newline")
	f.set.BoolVar(&f.ordered, "ordered", false, "print outputs in the order of the input")
	f.set.BoolVar(&f.quiet, "quiet", false, "no progress")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "print what would be run, whatever is in the log, and run nothing")
	f.set.StringVar(&f.log, "log", "", "a `file` that records the outcome of each item, so that the job can be resumed")
	f.set.BoolVar(&f.resume, "resume", false, "skip the items that are in the log, if there is one")
	f.set.BoolVar(&f.resumeFailed, "resume-failed", false, "skip the items that are ok in the log")
	f.set.BoolVar(&f.retryFailed, "retry-failed", false, "skip all items but those that failed in the log")
	f.set.BoolVar(&f.anyConfig, "any-config", false, "resume a log of another command or request")
	f.set.StringVar(&f.web.url, "url", "", "call this `address` instead of running a command; the body of the response is the output")
	f.set.StringVar(&f.web.method, "method", "GET", "with -url: the `method`")
	f.set.StringVar(&f.web.body, "body", "", "with -url: the `body` of the request")
	f.set.Func("header", "with -url: a `header` field such as 'Accept: text/csv'; may be repeated", f.web.addHeader)
	return f
}

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that
// match errUsage.
func parseOptions(args []string) (options, error) {
	f := newFlags()
	if err := f.set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	o, err := f.check()
	if err != nil {
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	return o, nil
}

func (f *flags) check() (options, error) {
	o := f.options
	given := make(map[string]bool)
	f.set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	switch {
	case o.burst < 1:
		return o, fmt.Errorf("-burst %d: must be above 0", o.burst)
	case o.jobs < 1 || o.jobs > 100_000:
		return o, fmt.Errorf("-jobs %d: must be from 1 to 100000", o.jobs)
	case o.retries < 0:
		return o, fmt.Errorf("-retries %d: must not be negative", o.retries)
	case o.backoff <= 0 || o.backoff > longestBackoff:
		return o, fmt.Errorf("-backoff %v: must be above 0 and at most %v", o.backoff, longestBackoff)
	case o.timeout < 0:
		return o, fmt.Errorf("-timeout %v: must not be negative", o.timeout)
	case o.maxWait <= 0:
		return o, fmt.Errorf("-max-wait %v: must be above 0", o.maxWait)
	}
	for _, m := range []struct {
		given bool
		mode  batch.Mode
	}{{f.resume, batch.Resume}, {f.resumeFailed, batch.ResumeFailed}, {f.retryFailed, batch.RetryFailed}} {
		switch {
		case m.given && o.mode != batch.Fresh:
			return o, errors.New("-resume, -resume-failed and -retry-failed: give only one of them")
		case m.given && o.log == "":
			return o, errors.New("give a -log to resume")
		case m.given:
			o.mode = m.mode
		}
	}
	var err error
	if given["url"] {
		if f.set.NArg() > 0 {
			return o, fmt.Errorf("-url and a command, %q: give only one of them", f.set.Arg(0))
		}
		o.task, err = f.web.check()
		return o, err
	}
	for _, name := range []string{"method", "body", "header", "max-wait"} {
		if given[name] {
			return o, fmt.Errorf("-%s without -url", name)
		}
	}
	o.task, err = newCommand(f.set.Args())
	return o, err
}

// longestBackoff is how long the wait before a retry grows.
const longestBackoff = 30 * time.Second

// policy is how items are retried.
func (o options) policy() sluice.RetryPolicy {
	wait := sluice.FullJitter(o.backoff, longestBackoff)
	return sluice.RetryPolicy{
		Attempts:       o.retries + 1,
		Backoff:        wait,
		AttemptTimeout: o.timeout,
		MaxServerWait:  o.maxWait,
		MaxElapsed:     -1, // the number of retries bounds them
	}
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `batchjob runs a command, or makes an HTTP call, for each item, at a steady rate.

	batchjob [flags] -- command {} …
	batchjob [flags] -url https://host/{}

These placeholders stand for the item in the command, address, body and header, as
in GNU parallel:

	{}    the item                {/}   its base name      {//}  its folder
	{.}   without its extension   {/.}  both               {#}   its number, from 1
	{%}   the number of the job, from 1 to -jobs

A command without placeholders gets the item as its last argument. Commands run
without a shell, so an item is always one argument. With a shell, pass the item as an
argument of its own: sh -c 'echo "$1"' sh {}

In an address the item is escaped, unless the address begins with it.

The output of an item is printed in one piece when the item is done. The output of
attempts that are retried is dropped. A command fails if its exit status is not 0, a
call if its status is 400 or more. Calls obey Retry-After and rate limits. While most
calls to a host fail, there are fewer retries than -retries allows.

Exit status: 0 if all items are ok, or as many as -halt success requires; 1 if some
failed; 2 if the job could not begin; 3 if it stopped before the end and can be
resumed; 130 if it was interrupted. (go run returns 1 for all but 0.) The first Ctrl-C
lets running items finish, the second cancels them, the third ends the program.

`)
	f := newFlags()
	f.set.SetOutput(w)
	f.set.PrintDefaults()
}
