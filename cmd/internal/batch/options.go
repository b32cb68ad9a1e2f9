package batch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/queue"
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
	aside     int // of batch.Suspend
	asideWait bool
	in        string   // "-" for stdin
	given     []string // items of the command line, in place of in; nil for none
	null      bool
	crlf      bool
	shape     shape
	results   string // a folder, or the template of a file
	shell     string // that runs commands, "" for none
	tag       bool
	summary   string
	control   string
	live      string // an address, "" for none
	liveToken string // a file, "" for none
	ordered   bool

	lineBuffer bool
	jsonl      string // a file, - for stdout, "" for none
	retryOn    retryOn
	quiet      bool
	dryRun     bool

	log       string // "" for none
	key       string // item or seq
	mode      batch.Mode
	anyConfig bool

	queue queue.Address // zero for none
	fill  string        // a file, - for stdin, "" for none
	lease time.Duration // 0: the default
	dead  string        // list or retry, "" for neither
	redis string        // a URL or @file, "" for none

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

// flags are the values as given, before they are checked.
type flags struct {
	set *cli.Flags
	options
	web                               web
	at                                string // of the queue
	resume, resumeFailed, retryFailed bool
}

func newFlags() *flags {
	f := &flags{set: cli.NewFlags()}
	f.shape.n = 1
	f.backoff, f.maxWait, f.maxBody, f.key = 500*time.Millisecond, 5*time.Minute, 64<<20, "item"
	set := f.set
	set.Group("Items")
	set.String(&f.in, "in", "-", "the `file` with the items, one per line; - is stdin\nEmpty lines are skipped.")
	set.Bool(&f.null, "null", false, "items end with a NUL instead of a newline")
	set.Bool(&f.crlf, "crlf", false, "lines end with a carriage return and a newline")
	set.Var((*lines)(&f.shape), "n", "how many `lines` of the input are one item, or max for as many as fit on a command line\n{} stands for all of them, {1} for the first.")
	set.String(&f.shape.colsep, "colsep", "", "the `text` between the columns of an item\nThen {1}, {2} and so on are its columns. \\t is a tab.")
	set.Bool(&f.shape.json, "json", false, "items are JSON objects\nThen {.id} and {.user.name} are fields; what is no object fails.")

	set.Group("Speed")
	set.Var(cli.Rate(&f.rate), "rate", "how often attempts may start, evenly spaced: a `rate` such as 5/s, 300/20s or 5000/h\nThe default is auto: with -url as often as each server allows, which is found from its answers.")
	set.Int64(&f.burst, "burst", 1, "how many `attempts` may start together after an idle time\nThe first one is included.")
	set.Int(&f.jobs, "jobs", 8, "how many `attempts` may run at once")
	set.String(&f.control, "control", "", "a `file` that may change the rate and the jobs while the job runs\nIt is read every second and has lines such as 'rate 5/s' and 'jobs 8'.")

	set.Group("Failures")
	set.Int(&f.retries, "retries", 3, "how many `times` a failed item is retried")
	set.Var(&f.retryOn, "retry-on", "after which `statuses` an item is retried, such as 75,100-110,timeout\nThen a command that ends with another one fails at once; 128 and more are those of signals, timeout is what -timeout ends. With -url they are further ones, such as 404,409 or 4xx: 429, 503 and the like are retried anyway.")
	set.Var(cli.Duration(&f.backoff), "backoff", "the longest `wait` before the first retry\nIt doubles with each, up to 30s, and is random below that.")
	set.Var(cli.Duration(&f.timeout), "timeout", "the longest `time` that a command may take, or that a server may be silent\nWith -url it bounds the silence before the header of the response and in its body. 0 is no limit, which is the default of commands; that of -url is 1m.")
	set.Func("halt", "when to stop early, such as `soon,fail=10%`\nSoon begins nothing more, now also cancels running items; with fail=3, fail=10% or success=100.", func(s string) (err error) {
		f.halt, err = parseHalt(s)
		return err
	})
	set.Int(&f.aside, "aside", 12, "set a host aside after so many failed `attempts` in a row\n0 is never, which is the default of commands.")
	set.Bool(&f.asideWait, "aside-wait", false, "items of a host that is set aside wait until it is back\nThat may take any time. Otherwise they fail.")

	set.Group("Commands")
	set.String(&f.shell, "shell", "", "run the command by this `shell`, such as sh or bash, so that it may have pipes and redirections\nItems are quoted for it, each as its place needs it.")

	set.Group("HTTP calls")
	set.String(&f.web.url, "url", "", "call this `address` instead of running a command\nThe body of the response is the output.")
	set.String(&f.web.method, "method", "", "the `method` of the request\nGET by default, or POST if there is a -body.")
	set.String(&f.web.body, "body", "", "the `body` of the request\nIf it is JSON, items are escaped for its strings.")
	set.Func("header", "a `header` field such as 'Accept: text/csv'; may be repeated", f.web.addHeader)
	set.Var(cli.Duration(&f.maxTime), "max-time", "the longest `time` that a request may take, to the end of the body\n0, the default, is no limit.")
	set.Var((*cli.Bytes)(&f.maxBody), "max-body", "the most `bytes` of a body, such as 10M or 2G; 0 for no limit\nWhat is longer fails. With -results a long body goes to its file while it comes.")
	set.Var(cli.Duration(&f.maxWait), "max-wait", "the longest `wait` that a server may ask for\nIf it asks for more, the job stops and prints when to come back.")

	set.Group("Output")
	set.Bool(&f.ordered, "ordered", false, "print outputs in the order of the input")
	set.Bool(&f.lineBuffer, "line-buffer", false, "print each line of a command while it runs\nAlso of attempts that fail and are retried. Otherwise the output of an item is printed in one piece at its end.")
	set.Bool(&f.tag, "tag", false, "begin each line of an output with the item and a tab")
	set.String(&f.results, "results", "", "write outputs to files in this `folder` instead of printing them\nThey are 1.out and 1.err for the first item. With placeholders it is the name of the file itself, such as pages/{/}; errors go to one that ends in .err, if there are any.")
	set.String(&f.jsonl, "jsonl", "", "write a line of JSON for each item that is done to a `file`\nWith its status, its attempts and its times. With -resume and the like it is continued, otherwise overwritten. - is stdout, which then has no outputs.")
	set.String(&f.summary, "summary", "", "write the counts and times to a `file` at the end, as JSON")
	set.Bool(&f.quiet, "quiet", false, "show no progress")
	set.Bool(&f.dryRun, "dry-run", false, "print what would be run, and run nothing\nWhatever is in the log.")

	set.Group("Again")
	set.String(&f.log, "log", "", "a `file` that records the outcome of each item, so that the job can be resumed")
	set.Bool(&f.resume, "resume", false, "skip the items that are in the log, if there is one")
	set.Bool(&f.resumeFailed, "resume-failed", false, "skip the items that are ok in the log")
	set.Bool(&f.retryFailed, "retry-failed", false, "skip all items but those that failed in the log")
	set.Var(cli.Choice(&f.key, "item", "seq"), "key", "`what` names an item in the log\nWith item, equal items are the same, and all are done when one of them is. With seq, it is the number and the text, so that the input must stay in order.")
	set.Bool(&f.anyConfig, "any-config", false, "resume a log of another command or request")

	set.Group("Many machines")
	set.String(&f.at, "queue", "", "work on the items of this queue: the `URL` of a NATS server and a name, such as nats://host/orders\nAny number of jobs may do so, on any machine, until all items are done. Credentials are in a file with the URL, given as @file, in the environment variable "+queue.AuthVariable+", or in a file of NATS: nats://host/orders?creds=file.")
	set.String(&f.fill, "fill", "", "put the lines of this `file` into the queue, which is made if it is missing; - is stdin\nA line may be any text or JSON. One whose id was put in the last 24h is not put again: the id of an object is its field id, that of another line the line itself.")
	set.Var(cli.Duration(&f.lease), "lease", "with -fill: the `time` after the last sign of life of a job in which its items go to others\nThe default is that of the queue, or "+queue.Lease.String()+".")
	set.Var(cli.Choice(&f.dead, "list", "retry"), "dead", "`what` to do with the items that failed for good: list prints a line of JSON for each, retry puts them back\nWith ids behind ::: only those.")
	set.String(&f.redis, "redis", "", "share -rate with the other jobs of the queue, through the Redis at this `URL` or that in @file\nWithout -rate, what is learned of the limits of hosts is shared. Credentials may be in the environment variable "+redisVariable+".")

	cli.LiveFlags(set, &f.live, &f.liveToken, "the job and its hosts while it runs", "pause the job and change its rate and jobs")
	return f
}

// others are flags of GNU parallel and xargs.
var others = map[string]string{
	"j": "jobs", "P": "jobs", "max-procs": "jobs", "a": "in", "arg-file": "in", "0": "null", "C": "colsep",
	"k": "ordered", "keep-order": "ordered", "joblog": "log", "delay": "rate", "N": "n", "m": "n max", "xargs": "n max", "max-args": "n", "max-replace-args": "n",
	"retry": "retries", "linebuffer": "line-buffer", "lb": "line-buffer", "u": "line-buffer", "ungroup": "line-buffer",
}

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that
// match cli.ErrUsage.
func parseOptions(args []string) (options, error) {
	f := newFlags()
	if err := f.set.Parse(args, others); err != nil {
		return options{}, err
	}
	o, err := f.check(args)
	if err != nil {
		return options{}, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return o, nil
}

func (f *flags) check(args []string) (options, error) {
	o := f.options
	given := f.set.Given()
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
	case strings.Contains(o.results, "{%}"):
		return o, errors.New("-results: the number of a job, {%}, cannot name a file: other items have it, too")
	case strings.HasSuffix(o.results, "}/"):
		return o, errors.New("-results: with placeholders it is the name of a file, and must not end with /")
	case o.shape.several() && o.shape.colsep != "":
		return o, errors.New("-n and -colsep: give only one of them")
	case o.lineBuffer && o.ordered:
		return o, errors.New("-line-buffer and -ordered: give only one of them")
	case o.lineBuffer && o.results != "":
		return o, errors.New("-line-buffer and -results: give only one of them")
	case o.lineBuffer && o.jsonl == "-":
		return o, errors.New("-line-buffer and -jsonl -: give only one of them, or -jsonl a file")
	case o.shape.fill > 0 && given["url"]:
		return o, errors.New("-n max is for commands: with -url give a number")
	case o.lineBuffer && given["url"]:
		return o, errors.New("-line-buffer is for commands: leave out -url or -line-buffer")
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
	if given["url"] && !given["timeout"] {
		o.timeout = time.Minute // a host that accepts and is silent would hold jobs for good
	}
	if o.aside == 0 || !given["url"] && !given["aside"] {
		o.aside = -1
	}
	if f.at != "" {
		if o.queue, err = queue.Parse(f.at); err != nil {
			return o, fmt.Errorf("-queue: %w", err) // which must not show it
		}
	}
	if err := o.checkFleet(given); err != nil {
		return o, err
	}
	if o.fill != "" {
		o.in = o.fill
	}
	command, items, err := cutItems(args, f.set.Args())
	switch {
	case err != nil:
		return o, err
	case items != nil && given["in"]:
		return o, errors.New("-in and items behind \":::\": give only one of them")
	case items != nil:
		o.given, o.null = items, true // an argument has no NUL
	}
	o.shape.colsep = strings.ReplaceAll(o.shape.colsep, `\t`, "\t")
	if o.shape.end = "\n"; o.null {
		o.shape.end = "\x00"
	}
	o.shape.joint = " "
	switch {
	case items != nil && given["queue"] && o.dead == "":
		return o, errors.New("-queue and items behind \":::\": -fill puts items into the queue")
	case (o.fill != "" || o.dead != "") && (given["url"] || len(command) > 0):
		return o, errors.New("-fill and -dead run nothing: leave out the command or -url")
	case o.fill != "" || o.dead != "":
		return o, nil
	}
	if given["url"] {
		if len(command) > 0 {
			return o, fmt.Errorf("-url and a command, %q: give only one of them%s", command[0], hintOfFile(command[0]))
		}
		if o.shell != "" {
			return o, errors.New("-shell is for commands: leave out -url or -shell")
		}
		o.shape.joint = ","
		if o.retryOn.timeout {
			return o, errors.New("-retry-on timeout is for commands: with -url calls without a response are retried anyway")
		}
		if err := o.retryOn.within(400, 599); err != nil {
			return o, err
		}
		f.web.shape = o.shape
		o.task, err = f.web.check()
		return o, err
	}
	if o.shape.fill > 0 && o.shell != "" {
		o.shape.fill /= 2 // what is quoted is longer, and a line for a shell is one argument
	}
	for _, name := range []string{"method", "body", "header", "max-wait", "max-time", "max-body"} {
		if given[name] {
			return o, fmt.Errorf("-%s without -url", name)
		}
	}
	if err := o.retryOn.within(1, 255); err != nil {
		return o, err
	}
	if o.shell != "" {
		if err := checkShell(strings.Join(command, " "), o.shape); err != nil {
			return o, err
		}
	}
	o.task, err = newCommand(command, o.shell, o.shape.numbered())
	return o, err
}

// sources are what begins the items of a command line in GNU parallel.
var sources = []string{":::", ":::+", "::::", "::::+"}

// cutItems takes the items behind ::: off a command. It returns nil if there are none. What
// follows -- is a command with all that is in it, as another parallel and its items.
func cutItems(args, command []string) (rest, items []string, err error) {
	i := slices.IndexFunc(command, func(arg string) bool { return slices.Contains(sources, arg) })
	if before := len(args) - len(command) - 1; i < 0 || before >= 0 && args[before] == "--" {
		return command, nil, nil
	}
	rest, items = command[:i], command[i+1:]
	switch more := slices.IndexFunc(items, func(arg string) bool { return slices.Contains(sources, arg) }); {
	case strings.HasPrefix(command[i], "::::"):
		return nil, nil, fmt.Errorf("files with items are read by -in or from stdin, not from behind %q: did you mean\n\tcat %s | sluice batch -- %s", command[i], cli.QuoteAll(items), cli.QuoteAll(rest))
	case command[i] != ":::" || more >= 0:
		return nil, nil, errors.New("there can be only one list of items: write each combination as a line of the input, with -colsep")
	case len(items) == 0:
		return nil, nil, errors.New("no items follow \":::\"")
	}
	return rest, items, nil
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

// resultNames reports whether -results is the template of a file instead of a folder.
func (o options) resultNames() bool { return hasPlaceholder(o.results, o.shape.numbered()) }

// resultFile is the file of -results for the output or the errors of an item, "" without -results. It
// makes the folder of a file that has a name of its own.
func (o options) resultFile(s subject, errs bool) (string, error) {
	ext := map[bool]string{false: ".out", true: ".err"}[errs]
	switch {
	case o.results == "":
		return "", nil
	case !o.resultNames():
		return filepath.Join(o.results, strconv.FormatInt(s.seq, 10)+ext), nil
	}
	file := expand(o.results, s, verbatim)
	if errs {
		file += ext
	}
	return file, os.MkdirAll(filepath.Dir(file), 0o777)
}

// lines is the value of -n.
type lines shape

func (l *lines) String() string {
	if l.fill > 0 {
		return "max"
	}
	return strconv.Itoa(l.n)
}

func (l *lines) Set(text string) error {
	l.n, l.fill = 1, 0
	if text == "max" {
		l.fill = mostOfCommand
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("want a number above 0, or max")
	}
	l.n = n
	return nil
}

// mostOfCommand is how many bytes of items a command gets with -n max. Linux allows 128 KiB for
// one argument and more for all; xargs takes 128 KiB, too. Windows allows 32 KiB.
var mostOfCommand = map[bool]int{false: 120 << 10, true: 24 << 10}[runtime.GOOS == "windows"]
