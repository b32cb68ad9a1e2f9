package batch

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/suggest"
)

// options is the command line, checked.
type options struct {
	rate      sluice.Rate
	burst     int64
	jobs      int
	retries   int
	backoff   time.Duration
	timeout   time.Duration
	maxWait   time.Duration
	maxTime   time.Duration // 0: no limit
	maxBody   int64         // 0: no limit
	halt      batch.Halt
	aside     int // of batch.Aside
	asideWait bool
	in        string // "-" for stdin
	null      bool
	crlf      bool
	shape     shape
	results   string
	version   bool
	tag       bool
	summary   string
	control   string
	live      string // an address, "" for none
	liveToken string // a file, "" for none
	ordered   bool
	quiet     bool
	dryRun    bool

	log       string // "" for none
	key       string // item or seq
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
	start(j *job) (runner, error)
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
	f := &flags{set: flag.NewFlagSet("batch", flag.ContinueOnError)}
	f.set.SetOutput(io.Discard) // run prints what went wrong, once
	f.set.Usage = func() {}
	f.set.Var(cli.Rate(&f.rate), "rate", "how often attempts may start, evenly spaced: a `rate` such as 5/s, 300/20s or 5000/h; or auto, the default: with -url as often as each server allows, which is found from its answers")
	f.set.Int64Var(&f.burst, "burst", 1, "how many `attempts` may start together after an idle time, the first one included")
	f.set.IntVar(&f.jobs, "jobs", 8, "how many `attempts` may run at once")
	f.set.IntVar(&f.retries, "retries", 3, "how many `times` a failed item is retried")
	f.backoff, f.maxWait = 500*time.Millisecond, 5*time.Minute
	f.set.Var(cli.Duration(&f.backoff), "backoff", "the longest `wait` before the first retry; it doubles with each, up to 30s, and is random below that")
	f.set.Var(cli.Duration(&f.timeout), "timeout", "the longest `time` that a command may take, and with -url the longest silence, before the header of the response and in its body; 0 for no limit, which is the default of commands; 1m for -url")
	f.set.Var(cli.Duration(&f.maxTime), "max-time", "with -url: the longest `time` that a request may take, to the end of the body; 0 for no limit")
	f.maxBody = 64 << 20
	f.set.Var((*size)(&f.maxBody), "max-body", "with -url: the most `bytes` of a body, such as 10M or 2G; what is longer fails; 0 for no limit. With -results a long body goes to its file while it comes")
	f.set.Var(cli.Duration(&f.maxWait), "max-wait", "with -url: the longest `wait` that a server may ask for; if it asks for more, the job stops and prints when to come back")
	f.set.Func("halt", "when to stop early: soon or now (which cancels running items), with fail=3, fail=10% or success=100, such as `soon,fail=10%`", func(s string) (err error) {
		f.halt, err = batch.ParseHalt(s)
		return err
	})
	f.set.IntVar(&f.aside, "aside", 12, "set a host aside after so many failed `attempts` in a row; 0 for never, which is the default of commands")
	f.set.BoolVar(&f.asideWait, "aside-wait", false, "the items of a host that is set aside wait until it is back, however long that takes")
	f.set.StringVar(&f.in, "in", "-", "the `file` with the items, one per line; empty lines are skipped; - is stdin")
	f.set.BoolVar(&f.null, "null", false, "items end with a NUL instead of a newline")
	f.set.BoolVar(&f.crlf, "crlf", false, "lines end with a carriage return and a newline")
	f.set.IntVar(&f.shape.n, "n", 1, "how many `lines` of the input are one item: {} stands for all of them, {1} for the first")
	f.set.StringVar(&f.shape.colsep, "colsep", "", "the `text` between the columns of an item, for {1}, {2} and so on; \\t is a tab")
	f.set.BoolVar(&f.version, "version", false, "print the version and exit")
	f.set.BoolVar(&f.tag, "tag", false, "begin each line of an output with the item and a tab")
	f.set.StringVar(&f.results, "results", "", "write outputs to files in this `folder`, 1.out and 1.err for the first item, instead of printing them")
	f.set.StringVar(&f.summary, "summary", "", "write the counts and times to a `file` at the end, as JSON")
	f.set.StringVar(&f.control, "control", "", "a `file` with lines such as 'rate 5/s' and 'jobs 8', which is read every second and may change them while the job runs")
	f.set.StringVar(&f.live, "live", "", "serve a web page that shows the job and its hosts while it runs, at this `address`, such as localhost:8080, or :0 for any free port of localhost")
	f.set.StringVar(&f.liveToken, "live-token", "", "a `file` with a token of at least 16 bytes: whoever enters it on the page of -live can pause the job and change its rate and jobs")
	f.set.BoolVar(&f.ordered, "ordered", false, "print outputs in the order of the input")
	f.set.BoolVar(&f.quiet, "quiet", false, "no progress")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "print what would be run, whatever is in the log, and run nothing")
	f.set.StringVar(&f.log, "log", "", "a `file` that records the outcome of each item, so that the job can be resumed")
	f.set.StringVar(&f.key, "key", "item", "`what` names an item in the log: item, so that equal items are the same, and all are done when one of them is; or seq, its number and text, so that the input must stay in order")
	f.set.BoolVar(&f.resume, "resume", false, "skip the items that are in the log, if there is one")
	f.set.BoolVar(&f.resumeFailed, "resume-failed", false, "skip the items that are ok in the log")
	f.set.BoolVar(&f.retryFailed, "retry-failed", false, "skip all items but those that failed in the log")
	f.set.BoolVar(&f.anyConfig, "any-config", false, "resume a log of another command or request")
	f.set.StringVar(&f.web.url, "url", "", "call this `address` instead of running a command; the body of the response is the output")
	f.set.StringVar(&f.web.method, "method", "", "with -url: the `method`; GET by default, or POST if there is a -body")
	f.set.StringVar(&f.web.body, "body", "", "with -url: the `body` of the request; if it is JSON, items are escaped for its strings")
	f.set.Func("header", "with -url: a `header` field such as 'Accept: text/csv'; may be repeated", f.web.addHeader)
	return f
}

// others are flags of GNU parallel and xargs.
var others = map[string]string{
	"j": "jobs", "P": "jobs", "max-procs": "jobs", "a": "in", "arg-file": "in", "0": "null", "C": "colsep",
	"k": "ordered", "keep-order": "ordered", "joblog": "log", "delay": "rate", "N": "n", "max-args": "n", "max-replace-args": "n",
	"retry": "retries", "V": "version",
}

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that
// match errUsage.
func parseOptions(args []string) (options, error) {
	f := newFlags()
	if err := suggest.Parse(f.set, args, others); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	o, err := f.check(args)
	if err != nil {
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	return o, nil
}

func (f *flags) check(args []string) (options, error) {
	o := f.options
	given := make(map[string]bool)
	f.set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	switch {
	case o.burst < 1:
		return o, fmt.Errorf("-burst %d: must be above 0", o.burst)
	case o.jobs < 1 || o.jobs > mostJobs:
		return o, fmt.Errorf("-jobs %d: must be from 1 to %d", o.jobs, mostJobs)
	case o.retries < 0:
		return o, fmt.Errorf("-retries %d: must not be negative", o.retries)
	case o.backoff <= 0 || o.backoff > longestBackoff:
		return o, fmt.Errorf("-backoff %v: must be above 0 and at most %v", o.backoff, longestBackoff)
	case o.timeout < 0:
		return o, fmt.Errorf("-timeout %v: must not be negative", o.timeout)
	case o.maxTime < 0:
		return o, fmt.Errorf("-max-time %v: must not be negative", o.maxTime)
	case o.shape.n < 1:
		return o, fmt.Errorf("-n %d: must be above 0", o.shape.n)
	case o.shape.n > 1 && o.shape.colsep != "":
		return o, errors.New("-n and -colsep: give only one of them")
	case o.key != "item" && o.key != "seq":
		return o, fmt.Errorf("-key %s: must be item or seq", o.key)
	case o.aside < 0:
		return o, fmt.Errorf("-aside %d: must not be negative", o.aside)
	case o.maxWait <= 0:
		return o, fmt.Errorf("-max-wait %v: must be above 0", o.maxWait)
	case o.liveToken != "" && o.live == "":
		return o, errors.New("-live-token is for the page of -live: give that, too")
	}
	var err error
	if o.mode, err = f.mode(); err != nil {
		return o, err
	}
	if o.version {
		return o, nil
	}
	if given["url"] && !given["timeout"] {
		o.timeout = time.Minute // a host that accepts and is silent would hold jobs for good
	}
	if o.aside == 0 || !given["url"] && !given["aside"] {
		o.aside = -1
	}
	o.shape.colsep = strings.ReplaceAll(o.shape.colsep, `\t`, "\t")
	if o.shape.end = "\n"; o.null {
		o.shape.end = "\x00"
	}
	o.shape.joint = " "
	if given["url"] {
		if f.set.NArg() > 0 {
			return o, fmt.Errorf("-url and a command, %q: give only one of them", f.set.Arg(0))
		}
		o.shape.joint = ","
		f.web.shape = o.shape
		o.task, err = f.web.check()
		return o, err
	}
	for _, name := range []string{"method", "body", "header", "max-wait", "max-time", "max-body"} {
		if given[name] {
			return o, fmt.Errorf("-%s without -url", name)
		}
	}
	if err := foreign(args, f.set.Args()); err != nil {
		return o, err
	}
	o.task, err = newCommand(f.set.Args(), o.shape.numbered())
	return o, err
}

// foreign returns an error if a command has the items of GNU parallel behind it. A command that
// begins after -- may have them.
func foreign(args, command []string) error {
	i := slices.IndexFunc(command, func(arg string) bool { return slices.Contains([]string{":::", ":::+", "::::", "::::+"}, arg) })
	if before := len(args) - len(command) - 1; i < 0 || before >= 0 && args[before] == "--" {
		return nil
	}
	first, more := command[:i], command[i+1:]
	meant := "printf '%s\\n' " + cli.QuoteAll(more[:min(len(more), 3)])
	if len(more) > 3 {
		meant += " …"
	}
	if strings.HasPrefix(command[i], "::::") {
		meant = "cat " + cli.QuoteAll(more)
	}
	return fmt.Errorf("items are read from stdin or -in, not from behind %q: did you mean\n\t%s | sluice batch -- %s", command[i], meant, cli.QuoteAll(first))
}

// mode is what -resume and the like ask for.
func (f *flags) mode() (mode batch.Mode, err error) {
	for _, m := range []struct {
		given bool
		mode  batch.Mode
	}{{f.resume, batch.Resume}, {f.resumeFailed, batch.ResumeFailed}, {f.retryFailed, batch.RetryFailed}} {
		switch {
		case m.given && mode != batch.Fresh:
			return mode, errors.New("-resume, -resume-failed and -retry-failed: give only one of them")
		case m.given && f.log == "":
			return mode, errors.New("give a -log to resume")
		case m.given:
			mode = m.mode
		}
	}
	return mode, nil
}

// mostJobs bounds -jobs.
const mostJobs = 100_000

// withBurst returns a rate with the burst of -burst.
func (o options) withBurst(r sluice.Rate) sluice.Rate {
	if r.Count > 0 && o.burst > 1 {
		r.Burst = o.burst
	}
	return r
}

// longestBackoff is how long the wait before a retry grows.
const longestBackoff = 30 * time.Second

// policy is how items are retried.
func (o options) policy() sluice.RetryPolicy {
	wait := sluice.FullJitter(o.backoff, longestBackoff)
	return sluice.RetryPolicy{
		Attempts:      o.retries + 1,
		Backoff:       wait,
		MaxServerWait: o.maxWait,
		MaxElapsed:    -1, // the number of retries bounds them
	}
}

// resultFile is the file of -results for the number of an item, "" without -results.
func (o options) resultFile(seq int64, ext string) string {
	if o.results == "" {
		return ""
	}
	return filepath.Join(o.results, strconv.FormatInt(seq, 10)+ext)
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `sluice batch runs a command, or makes an HTTP call, for each item, at a steady rate.

	sluice batch [flags] -- command {} …
	sluice batch [flags] -url https://host/{}

These placeholders stand for the item in the command, address, body and header, as
in GNU parallel:

	{}    the item                {/}   its base name      {//}  its folder
	{.}   without its extension   {/.}  both               {#}   its number, from 1
	{%}   the number of the job, from 1 to -jobs; with -url it can be larger
	{1}   with -colsep, the first column of the item; {2} the second, and so on;
	      with -n, its first line; {2} the second, and so on

A command without placeholders gets the item as its last argument. Commands run
without a shell, so an item is always one argument. With a shell, pass the item as an
argument of its own: sh -c 'echo "$1"' sh {}

In an address the item is escaped, unless the address, or its host, begins with it.

The output of an item is printed in one piece when the item is done. The output of
attempts that are retried is dropped. A command fails if its exit status is not 0, a
call if its status is 400 or more. Calls obey Retry-After and rate limits. While most
calls to a host fail, there are fewer retries than -retries allows. A redirect that is
followed is no retry; it takes a turn of -rate, because the server counts it. A body that
stalls or is cut is asked for again, unless the method is POST or PATCH.

No host holds up the others: at most half of the -jobs are calls to one host, as long as
others have items, and a host that fails -aside times in a row is set aside. It is tried
again after 2s, 4s and so on. When that fails, three times if the host worked before, its
items fail at once; but if no other host works, the job stops.

Exit status: 0 if all items are ok, or as many as -halt success requires; 1 if some
failed; 2 if the job could not begin; 3 if it stopped before the end and can be
resumed; 130 if it was interrupted; 141 if its output was no longer read, as by head.
(go run returns 1 for all but 0.) The first Ctrl-C lets running items finish, the second
cancels them, the third ends the program. SIGTERM, SIGHUP and SIGQUIT do as Ctrl-C
does. Ctrl-Z stops running commands, too; limits of time do not include the stop.

Commands get no input: stdin is empty, and one that asks on the terminal, such as for a
password, is ended (on Linux; elsewhere it waits until -timeout). If the system has too
few file handles or processes for -jobs, fewer run at once. If sluice itself is killed
by SIGKILL, its commands get a SIGTERM, but not their children (on Linux; elsewhere they
run on): let them end before you resume.

At the end, p95 says how late 95 of 100 items left, compared with the rate and -jobs, and
how long an attempt took.

`)
	f := newFlags()
	f.set.SetOutput(w)
	f.set.PrintDefaults()
}
