package crawl

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/suggest"
)

// options is the command line, checked.
type options struct {
	seeds []*url.URL // normal, see normalURL; none for the built-in site

	delay      time.Duration // from the start of one request to the start of the next, at least
	maxDelay   time.Duration // the longest Crawl-delay that is obeyed, unless slowHosts
	slowHosts  bool
	factor     float64 // wait so many times as long as the request took
	perHost    int64
	perAddress int64 // times as much as one host, 0 for no limit
	jobs       int64
	rate       sluice.Rate // of all hosts together
	maxWait    time.Duration
	timeout    time.Duration

	depth     int
	pages     int
	hostPages int
	frontier  int64
	maxBody   int64
	span      bool
	domains   []string // and what is below them; normal
	sitemaps  bool
	include   []*regexp.Regexp
	exclude   []*regexp.Regexp

	dir     string // "" for a temporary one
	resume  bool
	bodies  bool
	agent   string
	quiet   bool
	version bool

	live      string // an address, "" for none
	liveToken string // a file, "" for none
}

// siteDelay is the delay for the built-in site, which is ours.
const siteDelay = 250 * time.Millisecond

// defaultDir is where crawls go, but not those of the built-in site.
const defaultDir = "crawl"

func newFlags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("crawl", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints what went wrong, once
	f.Usage = func() {}
	patterns := func(to *[]*regexp.Regexp) func(string) error {
		return func(text string) error {
			r, err := regexp.Compile(text)
			*to = append(*to, r)
			return err
		}
	}
	o.delay, o.maxDelay, o.maxWait, o.timeout = time.Second, 30*time.Second, time.Minute, 30*time.Second
	f.Var(cli.Duration(&o.delay), "delay", "the least `time` from the start of a request to the start of the next one to the same host, 0 for none; 250ms by default for the built-in site")
	f.Var(cli.Duration(&o.maxDelay), "max-delay", "the longest Crawl-delay that is obeyed; hosts that ask for more `time` are skipped")
	f.BoolVar(&o.slowHosts, "slow-hosts", false, "crawl such hosts as slowly as they ask instead of skipping them")
	f.Float64Var(&o.factor, "factor", 0, "after a request, wait this many `times` as long as it took, at most -max-delay")
	f.Int64Var(&o.perHost, "per-host", 1, "how many `requests` to one host may be in flight")
	f.Int64Var(&o.perAddress, "per-address", 10, "one IP address gets at most this many `times` what one host gets, in flight and per -delay, however many hosts it has; 0 for no limit; without effect behind a proxy")
	f.Int64Var(&o.jobs, "jobs", 16, "how many `requests` may be in flight in total")
	f.Var(cli.Rate(&o.rate), "rate", "the most requests to all hosts together, a `rate` such as 50/s; auto, the default, is no limit")
	f.Var(cli.Duration(&o.maxWait), "max-wait", "the longest Retry-After that is waited for; hosts that ask for more `time` are left for -resume")
	f.Var(cli.Duration(&o.timeout), "timeout", "the longest `time` that a request may take")
	f.IntVar(&o.depth, "depth", 4, "how many `links` to follow from the first pages")
	f.IntVar(&o.pages, "pages", 1000, "how many `pages` to fetch in total")
	f.IntVar(&o.hostPages, "host-pages", 200, "how many `pages` to fetch from one host")
	f.Int64Var(&o.frontier, "frontier", 10_000_000, "how many `addresses` to know; further links are not followed")
	f.Int64Var(&o.maxBody, "max-body", 2<<20, "how many `bytes` of a page are read")
	f.BoolVar(&o.span, "span", false, "follow links to other hosts (always, in the built-in site)")
	f.Func("domains", "follow links to these `domains` and hosts below them, too, such as example.com,example.org", o.setDomains)
	f.BoolVar(&o.sitemaps, "sitemaps", true, "read the sitemaps that robots.txt names")
	f.Func("include", "follow only links whose address matches this regular `expression`, or one of several; may be repeated", patterns(&o.include))
	f.Func("exclude", "do not follow links whose address matches this regular `expression`; may be repeated", patterns(&o.exclude))
	f.StringVar(&o.dir, "dir", "", "the `folder` for the pages and the state of the crawl; "+defaultDir+" by default, a temporary one for the built-in site")
	f.BoolVar(&o.resume, "resume", false, "continue the crawl in the folder, if there is one")
	f.BoolVar(&o.bodies, "bodies", false, "keep the bodies of pages as files in the folder, named by their digest")
	f.StringVar(&o.agent, "agent", "sluice-crawler/1 (+https://github.com/sluice-go/sluice)", "the User-Agent; robots.txt is read for its `name` before the slash")
	f.StringVar(&o.live, "live", "", "serve a web page that shows the hosts while they are crawled, at this `address`, such as localhost:8080, or :0 for any free port of localhost")
	f.StringVar(&o.liveToken, "live-token", "", "a `file` with a token of at least 16 bytes: whoever enters it on the page of -live can pause the crawl and change its rate and jobs")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	return f
}

var errUsage = errors.New("invalid flags")

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that match
// errUsage.
func parseOptions(args []string) (o options, err error) {
	f := newFlags(&o)
	if err := suggest.Parse(f, args, otherNames); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	for _, arg := range f.Args() {
		u, err := parseURL(arg)
		if err != nil {
			return options{}, fmt.Errorf("%w: %q: %w", errUsage, arg, err)
		}
		o.seeds = append(o.seeds, u)
	}
	given := make(map[string]bool)
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	switch {
	case o.span && len(o.domains) > 0:
		return options{}, fmt.Errorf("%w: -span follows links to all hosts, and -domains to some: leave one of them out", errUsage)
	case len(o.seeds) == 0 && !o.resume:
		o.span = true
		if !given["delay"] {
			o.delay = siteDelay
		}
	case o.dir == "":
		o.dir = defaultDir
	}
	if err := o.check(); err != nil {
		return options{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	return o, nil
}

// otherNames are those that flags have in wget, curl and scrapy.
var otherNames = map[string]string{
	"l": "depth", "level": "depth", "w": "delay", "wait": "delay", "H": "span", "U": "agent", "user-agent": "agent", "A": "agent",
	"accept-regex": "include", "reject-regex": "exclude", "P": "dir", "o": "dir", "out": "dir", "c": "resume", "continue": "resume", "T": "timeout", "q": "quiet",
	"state": "dir", "log": "dir", "concurrency": "jobs",
	"D": "domains", "allowed-domains": "domains", "allowed_domains": "domains",
}

// check reports what makes no sense.
func (o options) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"max-delay", o.maxDelay}, {"max-wait", o.maxWait}, {"timeout", o.timeout}} {
		if d.value <= 0 {
			return fmt.Errorf("-%s %v: must be above 0", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"per-host", o.perHost}, {"jobs", o.jobs}, {"pages", int64(o.pages)}, {"host-pages", int64(o.hostPages)},
		{"frontier", o.frontier}, {"max-body", o.maxBody},
	} {
		if n.value <= 0 {
			return fmt.Errorf("-%s %d: must be above 0", n.name, n.value)
		}
	}
	switch {
	case o.perAddress < 0 || o.perAddress > 1_000_000:
		return fmt.Errorf("-per-address %d: must be 0 to 1000000", o.perAddress)
	case o.delay < 0:
		return fmt.Errorf("-delay %v: must not be negative", o.delay)
	case o.depth < 0:
		return fmt.Errorf("-depth %d: must not be negative", o.depth)
	case !(o.factor >= 0) || math.IsInf(o.factor, 0):
		return fmt.Errorf("-factor %v: must be 0 or more", o.factor)
	case o.delay > o.maxDelay:
		return fmt.Errorf("-delay %v is longer than -max-delay %v", o.delay, o.maxDelay)
	case o.token() == "":
		return fmt.Errorf("-agent %q: must begin with a name of letters, - and _", o.agent)
	case strings.ContainsAny(o.agent, "\r\n"):
		return errors.New("-agent: must be one line")
	case strings.Contains(o.dir, "://"):
		return fmt.Errorf("-dir %s: want a folder, not an address", o.dir)
	case o.liveToken != "" && o.live == "":
		return errors.New("-live-token is for the page of -live: give that, too")
	}
	return nil
}

// setDomains reads a list of domains.
func (o *options) setDomains(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(name), "*"), ".")
		u, err := parseURL("http://" + name)
		if err != nil || u.Host != u.Hostname() || u.Path != "/" || u.RawQuery != "" {
			return fmt.Errorf("%q is not a domain: want names such as example.com,example.org", name)
		}
		o.domains = append(o.domains, u.Host)
	}
	return nil
}

// inDomains reports whether a host is in -domains, or below one of them.
func (o options) inDomains(name string) bool {
	return slices.ContainsFunc(o.domains, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
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

// wanted reports whether a link to an address is followed.
func (o options) wanted(address string) bool {
	for _, r := range o.exclude {
		if r.MatchString(address) {
			return false
		}
	}
	for _, r := range o.include {
		if r.MatchString(address) {
			return true
		}
	}
	return len(o.include) == 0
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `sluice crawl fetches pages and the pages that they link to, politely.

	sluice crawl [flags] [address ...]

Without an address it crawls a built-in site of ten hosts on loopback. An address may be
that of a sitemap. The folder then has

	pages.jsonl   a line of JSON for each page: status, title, digest, links
	summary.json  the totals, when the crawl ends
	frontier      what is known and what is left, for -resume
	bodies        with -bodies, the pages

Each host gets a request every -delay, or less often if its robots.txt has a Crawl-delay
or it refuses requests. A page that fails, or is refused, goes behind the other pages of
its host, at most twice and three times. A host that fails ten times in a row is set
aside; it is tried again after 2s, 4s and so on, and given up after six of those.

A crawl can be interrupted or killed at any time. -resume continues it with the flags that
are given then, and fetches no page twice that has a line.

The rules for crawlers are obeyed: robots.txt, robots in meta elements, X-Robots-Tag, and
rel=nofollow. If a page equals an earlier one of its host, its links are not followed.

Links are followed within the sites of the addresses: http and https, and www. or not,
are one site. Where such an address redirects, the crawl begins, too. -domains adds
domains, -span all hosts. At most 10 redirects are followed in a row.

Exit status: 0 if all pages that may be fetched were fetched, down to -depth; 1 if some
failed, could not be written, or there were none, or nothing but redirects; 2 if the crawl
could not begin; 3 if hosts are left that did not answer, or asked for more time than
-max-wait: -resume tries them again; 4 if links are left because of -pages, -host-pages or
-frontier: -resume with a higher number goes on (but not to those beyond -frontier);
130 if it was interrupted. The first Ctrl-C lets requests in flight finish, the second
cancels them, the third ends the program. SIGTERM, SIGHUP and SIGQUIT do as Ctrl-C does.

`)
	f := newFlags(new(options))
	f.SetOutput(w)
	f.PrintDefaults()
}
