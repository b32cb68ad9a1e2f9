package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
)

// options is the command line, checked.
type options struct {
	seeds []*url.URL // normal, see normalURL; none for the built-in site

	delay     time.Duration // from the start of one request to the start of the next, at least
	maxDelay  time.Duration // the longest Crawl-delay that is obeyed, unless slowHosts
	slowHosts bool
	fromEnd   bool    // delay counts from the end of a request, too
	factor    float64 // wait so many times as long as the request took
	perHost   int64
	jobs      int64
	rate      sluice.Rate // of all hosts together
	maxWait   time.Duration
	timeout   time.Duration

	depth     int
	pages     int
	hostPages int
	frontier  int
	maxBody   int64
	span      bool

	agent string
	out   string
}

// options of the built-in site that differ from those for others: it is ours.
const siteDelay = 250 * time.Millisecond

func newFlags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("crawler", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints what went wrong, once
	f.Usage = func() {}
	f.DurationVar(&o.delay, "delay", time.Second, "the least `time` from the start of a request to the start of the next one to the same host; 250ms by default for the built-in site")
	f.DurationVar(&o.maxDelay, "max-delay", 30*time.Second, "the longest Crawl-delay that is obeyed; hosts that ask for more `time` are skipped")
	f.BoolVar(&o.slowHosts, "slow-hosts", false, "crawl such hosts as slowly as they ask instead of skipping them")
	f.BoolVar(&o.fromEnd, "from-end", false, "count the delay from the end of the last request as well")
	f.Float64Var(&o.factor, "factor", 0, "after a request, wait this many `times` as long as it took, at most -max-delay")
	f.Int64Var(&o.perHost, "per-host", 1, "how many `requests` to one host may be in flight")
	f.Int64Var(&o.jobs, "jobs", 16, "how many `requests` may be in flight in total")
	f.TextVar(&o.rate, "rate", sluice.Rate{Count: 50, Per: time.Second}, "the most requests to all hosts together, a `rate` such as 50/s")
	f.DurationVar(&o.maxWait, "max-wait", time.Minute, "the longest Retry-After that is obeyed; pages of hosts that ask for more `time` fail")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "the longest `time` that a request may take")
	f.IntVar(&o.depth, "depth", 4, "how many `links` to follow from the first pages")
	f.IntVar(&o.pages, "pages", 1000, "how many `pages` to fetch in total")
	f.IntVar(&o.hostPages, "host-pages", 200, "how many `pages` to fetch from one host")
	f.IntVar(&o.frontier, "frontier", 100_000, "how many `addresses` to remember; further links are not followed")
	f.Int64Var(&o.maxBody, "max-body", 2<<20, "how many `bytes` of a page are read")
	f.BoolVar(&o.span, "span", false, "follow links to other hosts (always, in the built-in site)")
	f.StringVar(&o.agent, "agent", "sluice-crawler/1 (+https://github.com/sluice-go/sluice)", "the User-Agent; robots.txt is read for its `name` before the slash")
	f.StringVar(&o.out, "out", "crawl.jsonl", "the `file` for the pages, replaced if it exists; - is stdout (the table then goes to stderr), an empty name writes nothing")
	return f
}

// parseOptions returns flag.ErrHelp for -h and -help.
func parseOptions(args []string) (o options, err error) {
	f := newFlags(&o)
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	for _, arg := range f.Args() {
		u, err := url.Parse(arg)
		if err == nil {
			u, err = normalURL(u)
		}
		if err != nil {
			return options{}, fmt.Errorf("%q: %w", arg, err)
		}
		o.seeds = append(o.seeds, u)
	}
	if len(o.seeds) == 0 {
		o.span = true
		given := false
		f.Visit(func(fl *flag.Flag) { given = given || fl.Name == "delay" })
		if !given {
			o.delay = siteDelay
		}
	}
	return o, o.check()
}

// check reports what makes no sense.
func (o options) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"delay", o.delay}, {"max-delay", o.maxDelay}, {"max-wait", o.maxWait}, {"timeout", o.timeout}} {
		if d.value <= 0 {
			return fmt.Errorf("-%s %v: must be above 0", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"per-host", o.perHost}, {"jobs", o.jobs}, {"pages", int64(o.pages)}, {"host-pages", int64(o.hostPages)},
		{"frontier", int64(o.frontier)}, {"max-body", o.maxBody},
	} {
		if n.value <= 0 {
			return fmt.Errorf("-%s %d: must be above 0", n.name, n.value)
		}
	}
	switch {
	case o.depth < 0:
		return fmt.Errorf("-depth %d: must not be negative", o.depth)
	case !(o.factor >= 0) || math.IsInf(o.factor, 0):
		return fmt.Errorf("-factor %v: must be 0 or more", o.factor)
	case o.delay > o.maxDelay:
		return fmt.Errorf("-delay %v is longer than -max-delay %v", o.delay, o.maxDelay)
	case o.rate == sluice.Rate{}:
		return errors.New("-rate is required")
	case o.token() == "":
		return fmt.Errorf("-agent %q: must begin with a name of letters, - and _", o.agent)
	case strings.ContainsAny(o.agent, "\r\n"):
		return errors.New("-agent: must be one line")
	}
	return nil
}

// token is the name that robots.txt knows the crawler by.
func (o options) token() string {
	end := strings.IndexFunc(o.agent, func(c rune) bool {
		return (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '-' && c != '_'
	})
	if end < 0 {
		return o.agent
	}
	return o.agent[:end]
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `crawler fetches pages and the pages that they link to, politely.

	go run ./examples/crawler [flags] [address ...]

Without an address it crawls a built-in site of ten hosts on loopback. Each page
becomes a line of JSON, each host a line of the table.

Exit status: 0 if all pages that may be fetched were fetched; 1 if some failed, could
not be written, or there were none; 2 if the flags are invalid; 130 if it was
interrupted.

`)
	f := newFlags(new(options))
	f.SetOutput(w)
	f.PrintDefaults()
}
